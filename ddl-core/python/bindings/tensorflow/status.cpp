#include "status.hpp"

#include <string>

#include "ddl.h"

namespace ddl_tensorflow {

absl::Status ToStatus(int ddl_result) {
  if (ddl_result == DDL_SUCCESS) return absl::OkStatus();
  const std::string text = ddl_last_error();
  switch (ddl_result) {
    case DDL_ERR_ARGUMENT:
    case DDL_ERR_OPTION:
    case DDL_ERR_MISMATCH:
      return absl::InvalidArgumentError(text);
    case DDL_ERR_STATE:
      return absl::FailedPreconditionError(text);
    case DDL_ERR_MEMORY:
      return absl::ResourceExhaustedError(text);
    case DDL_ERR_TIMEOUT:
      return absl::DeadlineExceededError(text);
    default:
      return absl::InternalError(text);
  }
}

}  // namespace ddl_tensorflow
