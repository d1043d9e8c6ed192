// The thread on which all collective calls of one process group are made.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "process.hpp"

namespace ddl_torch {

// Runs jobs one after another in the order of Submit. A DDL call blocks until all ranks have joined it, and
// the backward pass shall go on meanwhile.
class Worker {
 public:
  Worker() : state_(std::make_shared<State>()) {}
  // Waits for nothing: other ranks take part in the jobs, which go on.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // In a forked process, where DDL refuses every call, the job is done at once.
  void Submit(std::function<void()> job);
  // Waits until there is no job.
  void Drain();

 private:
  // Outlives the worker where a job destroys it.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    bool busy = false;
    bool ending = false;
  };

  static void Loop(const std::shared_ptr<State>& state);
  bool OnItsThread() const;

  std::shared_ptr<State> state_;
  bool started_ = false;  // with the first job: of a program's groups many are never used
  const OwnProcess process_;
};

}  // namespace ddl_torch
