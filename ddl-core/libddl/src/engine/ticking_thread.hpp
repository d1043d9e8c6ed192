#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

namespace ddl {

/**
 * A thread that calls every registered function a few times a second, until the process exits or it is
 * stopped. It is made at the first use. A forked copy of the process has no such thread, and ends as if there
 * had never been one.
 */
class TickingThread {
 public:
  using Handle = std::list<std::function<void()>>::iterator;

  /// @param name      of the thread, at most 15 characters
  /// @param on_start  called once, when the thread is made; may be null
  TickingThread(const char* name, void (*on_start)());
  TickingThread(const TickingThread&) = delete;
  TickingThread& operator=(const TickingThread&) = delete;

  /// Starts it, where it is not started. @throws Error (DDL_ERR_MEMORY) where the system gives no thread
  void begin();
  /// @param tick  must not throw and not wait. @return for remove(). @throws as begin()
  Handle add(std::function<void()> tick);
  /// Once it returns, the function is not called any more.
  void remove(Handle handle);
  /// Ends the thread for good, after one more round. Not from a function that it calls.
  void stop();
  /// Whether functions are still called. Safe in a signal handler, as is wake().
  bool running() const noexcept { return running_; }
  /// Has the functions called at once.
  void wake() const noexcept;

 private:
  void start();
  void run();

  const char* const name_;
  void (*const on_start_)();
  std::mutex mutex_;
  std::list<std::function<void()>> ticks_;
  bool over_ = false;
  std::atomic<bool> running_ = false;
  pid_t owner_ = 0;
  const int wake_;  ///< a file descriptor; without one the thread merely reacts later
  std::unique_ptr<std::thread> thread_;
};

/**
 * Answers for this process while its own threads compute, save or sleep, by MPI too: so it ends in
 * MPI_Finalize. Never destroyed, as threads may still call in while the process exits.
 */
TickingThread& liveness_thread();

}  // namespace ddl
