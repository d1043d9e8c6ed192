#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>

namespace ddl {

/**
 * Lets another thread look at what the thread that makes a call works with: that thread itself looks for it,
 * between two steps, so nothing has to be locked on the way.
 */
class Inspection {
 public:
  /// Has `look` called by the thread that makes a call, if it comes by within the time.
  /// @return whether it was called; afterwards it is not any more. @throws what it throws
  bool ask(const std::function<void()>& look, std::chrono::milliseconds within) {
    const std::lock_guard one(asking_);
    std::unique_lock lock(mutex_);
    look_ = &look;
    wanted_.store(true, std::memory_order_relaxed);
    looked_.wait_for(lock, within, [this] { return look_ == nullptr; });
    const bool done = look_ == nullptr;
    look_ = nullptr;
    wanted_.store(false, std::memory_order_relaxed);
    if (const std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
    return done;
  }

  /// To be called again and again by the thread that makes a call.
  void serve() {
    if (!wanted_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    if (look_ == nullptr) return;
    try {
      (*look_)();
    } catch (...) {
      error_ = std::current_exception();
    }
    look_ = nullptr;
    wanted_.store(false, std::memory_order_relaxed);
    looked_.notify_one();
  }

 private:
  std::atomic<bool> wanted_ = false;
  std::mutex asking_;  ///< one at a time
  std::mutex mutex_;
  std::condition_variable looked_;
  const std::function<void()>* look_ = nullptr;
  std::exception_ptr error_;  ///< what `look` has thrown
};

}  // namespace ddl
