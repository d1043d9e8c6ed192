#include "worker.hpp"

#include <algorithm>
#include <utility>

#include "../start_thread.hpp"

namespace ddl_tensorflow {

Worker& Worker::Get() {
  static Worker* const worker = new Worker;
  return *worker;
}

Worker::Worker() {
  ddl_bindings::StartThread([this] { Loop(); });
}

Worker::JobId Worker::Submit(std::function<void()> run) {
  JobId id;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    id = next_id_++;
    queue_.push_back({id, std::move(run)});
  }
  arrived_.notify_one();
  return id;
}

bool Worker::Withdraw(JobId id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto job = std::find_if(queue_.begin(), queue_.end(), [id](const Job& j) { return j.id == id; });
  if (job == queue_.end()) return false;
  queue_.erase(job);
  return true;
}

void Worker::Loop() {
  for (;;) {
    Job job;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      arrived_.wait(lock, [this] { return !queue_.empty(); });
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    job.run();
  }
}

}  // namespace ddl_tensorflow
