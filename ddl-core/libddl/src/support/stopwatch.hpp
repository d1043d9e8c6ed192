#pragma once

#include <chrono>

namespace ddl {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Adds the time until its end of scope to a counter.
class Stopwatch {
 public:
  /// @param wanted  false: nothing is timed, where looking at the clock would take as long as the work
  explicit Stopwatch(double& seconds, bool wanted = true) : seconds_(wanted ? &seconds : nullptr) {
    if (wanted) start_ = std::chrono::steady_clock::now();
  }
  ~Stopwatch() {
    if (seconds_ == nullptr) return;
    *seconds_ += seconds_since(start_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* seconds_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace ddl
