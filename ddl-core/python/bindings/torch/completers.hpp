// The threads on which the callbacks of futures run.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "process.hpp"

namespace ddl_torch {

// Runs every job at once, on an idle thread or on one more. What a callback waits for may be a later call of
// the same group, or another callback (torch's PowerSGD hook does this), so none may wait for its turn.
class Completers {
 public:
  Completers() : state_(std::make_shared<State>()) {}
  // Returns at once; what runs goes on.
  ~Completers();
  Completers(const Completers&) = delete;
  Completers& operator=(const Completers&) = delete;

  // In a forked process the job is done before Run returns.
  void Run(std::function<void()> job);
  // Waits until all jobs are done, but not where a job calls it. False when there was nothing to wait for.
  bool Drain();

 private:
  // Outlives the object where a job destroys it.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    int idle = 0;  // threads that wait for a job, less the jobs that wait for them
    int busy = 0;
    bool ending = false;
  };

  static void Loop(const std::shared_ptr<State>& state, std::function<void()> job);

  std::shared_ptr<State> state_;
  const OwnProcess process_;
};

}  // namespace ddl_torch
