#pragma once

#include <atomic>
#include <thread>

namespace ddl {

/// The threads of the program that call DDL. Where there is only one, it makes no other call while it waits.
class Callers {
 public:
  /// The calling thread makes calls.
  static void note() noexcept {
    const std::thread::id caller = std::this_thread::get_id();
    std::thread::id first = first_.load(std::memory_order_relaxed);
    if (first == caller) return;
    if (first == std::thread::id() && first_.compare_exchange_strong(first, caller)) return;
    if (first != caller) several_.store(true, std::memory_order_relaxed);
  }
  /// Whether no other thread has made calls, nor DDL's own.
  static bool only_this() noexcept {
    return first_.load(std::memory_order_relaxed) == std::this_thread::get_id() &&
           !several_.load(std::memory_order_relaxed);
  }

 private:
  inline static std::atomic<std::thread::id> first_;
  inline static std::atomic<bool> several_ = false;
};

}  // namespace ddl
