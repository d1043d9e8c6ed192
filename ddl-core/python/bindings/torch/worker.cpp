#include "worker.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "../start_thread.hpp"

namespace ddl_torch {
namespace {

thread_local const void* running = nullptr;

}  // namespace

Worker::~Worker() {
  if (process_.Forked()) {
    Leave(std::move(state_));
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->ending = true;
  }
  state_->changed.notify_all();
}

bool Worker::OnItsThread() const { return running == state_.get(); }

void Worker::Submit(std::function<void()> job) {
  if (process_.Forked()) {
    job();
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (!started_) {
      ddl_bindings::StartThread([state = state_] { Loop(state); });
      started_ = true;
    }
    state_->queue.push_back(std::move(job));
  }
  state_->changed.notify_all();
}

void Worker::Drain() {
  if (process_.Forked() || OnItsThread()) return;
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->queue.empty() && !state_->busy; });
}

void Worker::Loop(const std::shared_ptr<State>& state) {
  running = state.get();
  // Parameters are overwritten in place, and so are tensors of inference mode.
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView no_versions;
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->ending || !state->queue.empty(); });
    if (state->queue.empty()) return;
    std::function<void()> job = std::move(state->queue.front());
    state->queue.pop_front();
    state->busy = true;
    lock.unlock();
    job();
    // What it holds may be destroyed with it, which must not happen under the lock.
    job = nullptr;
    lock.lock();
    state->busy = false;
    state->changed.notify_all();
  }
}

}  // namespace ddl_torch
