// The attribute `check` of the all-reduce operators: a second opinion by MPI_Allreduce.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collective_kernel.hpp"
#include "ddl.h"

namespace ddl_tensorflow {

// Holds a copy of what a grouped all-reduce starts from, and compares its result with MPI's.
class MpiCheck {
 public:
  // Copies the group, whose buffers still hold the inputs.
  MpiCheck(const TensorGroup& inputs, DDL_Type type);

  // Reduces the copy by MPI_Allreduce and compares `results` with it. Elements further apart than
  // tolerance * max(1, |MPI's|), or a NaN in one of the two only, are reported on standard error, one line a
  // tensor; with DDL_DEBUG=1 agreement is reported as well. Collective, like the all-reduce itself.
  absl::Status Compare(const TensorGroup& results, DDL_Op op, float tolerance, const std::string& call_name);

 private:
  DDL_Type type_;
  std::vector<std::vector<char>> copies_;
};

}  // namespace ddl_tensorflow
