// The thread on which all DDL calls of the TensorFlow operators are made.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace ddl_tensorflow {

// Runs jobs one after another in the order of Submit, on one thread of its own.
//
// A DDL call blocks until all ranks have joined it. On one of TensorFlow's executor threads it would take
// that thread from the operators which the other ranks wait for: with a single inter-op thread, the usual
// case for a rank bound to one core, training would stand still.
class Worker {
 public:
  using JobId = uint64_t;

  // The worker of the process, started on first use. It is never destroyed: at exit it may be inside a call
  // which only the other ranks can end.
  static Worker& Get();

  // Puts `run` at the end of the queue.
  JobId Submit(std::function<void()> run);

  // Takes a job out of the queue. False when it has been started already, or is finished: it then runs to its
  // end.
  bool Withdraw(JobId id);

  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

 private:
  struct Job {
    JobId id;
    std::function<void()> run;
  };

  Worker();
  void Loop();

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Job> queue_;
  JobId next_id_ = 1;
};

}  // namespace ddl_tensorflow
