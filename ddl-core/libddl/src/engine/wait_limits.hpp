#pragma once

namespace ddl {

/// How long a call waits for ranks that do not come, in seconds.
struct WaitLimits {
  double timeout_s = 300;  ///< then those that do not answer are lost
  double late_s = 60;  ///< then those that answer, but do not come, are named; ever more rarely after that
  double patience_s = 1800;  ///< then these are an error, too

  bool operator==(const WaitLimits&) const = default;
};

}  // namespace ddl
