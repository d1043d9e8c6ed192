#include "status.hpp"

#include <c10/util/Exception.h>

#include <string>

#include "ddl.h"

namespace ddl_torch {

void Check(int ddl_result) {
  if (ddl_result == DDL_SUCCESS) return;
  const std::string text = ddl_last_error();
  if (ddl_result == DDL_ERR_ARGUMENT) C10_THROW_ERROR(ValueError, text);
  C10_THROW_ERROR(DistBackendError, text);
}

}  // namespace ddl_torch
