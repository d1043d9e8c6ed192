#include "support/process_handle.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <mutex>

namespace ddl {
namespace {

int open_descriptor(std::int64_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
#else
  static_cast<void>(pid);
  return -1;
#endif
}

}  // namespace

std::shared_ptr<const ProcessHandle> ProcessHandle::of(std::int64_t pid) {
  // Never destroyed: other static objects may hold handles.
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<std::int64_t, std::weak_ptr<const ProcessHandle>>;
  const std::lock_guard lock(*mutex);
  std::erase_if(*known, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = (*known)[pid];
  // One whose process has ended may be of another process than the one that has the number now.
  if (auto handle = entry.lock(); handle && !handle->ended()) return handle;
  const int descriptor = open_descriptor(pid);
  if (descriptor < 0) {
    known->erase(pid);
    return nullptr;
  }
  auto handle = std::make_shared<const ProcessHandle>(descriptor);
  entry = handle;
  return handle;
}

ProcessHandle::~ProcessHandle() { close(descriptor_); }

bool ProcessHandle::ended() const {
  pollfd ready{descriptor_, POLLIN, 0};
  return poll(&ready, 1, 0) == 1;
}

}  // namespace ddl
