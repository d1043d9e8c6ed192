#pragma once

#include <cstdint>
#include <memory>

namespace ddl {

/// A descriptor of another process (pidfd_open(2)), for noticing its end: it is not mistaken for a later
/// process of the same number.
class ProcessHandle {
 public:
  /// The handle of a process of this pid namespace. Whoever asks for the same process while it is in use gets
  /// the same one, so that groups of the same ranks take no more descriptors. Thread-safe.
  /// @return null where the process is gone, the kernel has no such call, or there are no descriptors left
  static std::shared_ptr<const ProcessHandle> of(std::int64_t pid);

  explicit ProcessHandle(int descriptor) : descriptor_(descriptor) {}
  ~ProcessHandle();
  ProcessHandle(const ProcessHandle&) = delete;
  ProcessHandle& operator=(const ProcessHandle&) = delete;

  /// Whether the process has ended.
  bool ended() const;

 private:
  const int descriptor_;
};

}  // namespace ddl
