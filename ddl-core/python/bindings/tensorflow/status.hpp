// How a failure of DDL becomes a TensorFlow status.
#pragma once

#include "absl/status/status.h"

namespace ddl_tensorflow {

// Turns the result of a DDL call just made on this thread into a status that carries DDL's own text.
//
// Never Aborted or Unavailable: a MonitoredSession takes those for a preempted worker and starts its session
// again, for ever, while DDL stays in its failed state.
absl::Status ToStatus(int ddl_result);

}  // namespace ddl_tensorflow
