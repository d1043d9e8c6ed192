#pragma once

#include <vector>

#include "memory/executor.hpp"

namespace ddl {

/// Copies that are waited for together.
class Copies {
 public:
  void add(Executor& executor, void* to, const void* from, std::size_t bytes, CopyDirection direction) {
    const Executor::Ticket ticket = executor.post(to, from, bytes, direction);
    if (ticket == Executor::kDone) return;
    executor_ = &executor;
    tickets_.push_back(ticket);
  }
  /// Whether all are complete. Never blocks. @throws Error
  bool done() {
    while (!tickets_.empty() && executor_->test(tickets_.back())) tickets_.pop_back();
    return tickets_.empty();
  }
  /// Forgets what is under way, after an error.
  void clear() { tickets_.clear(); }

 private:
  Executor* executor_ = nullptr;
  std::vector<Executor::Ticket> tickets_;
};

}  // namespace ddl
