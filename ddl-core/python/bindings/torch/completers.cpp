#include "completers.hpp"

#include <ATen/core/grad_mode.h>

#include <stdexcept>
#include <utility>

#include "../start_thread.hpp"

namespace ddl_torch {
namespace {

// So many threads are kept for the next jobs.
constexpr int kIdle = 2;

thread_local const void* running = nullptr;

}  // namespace

Completers::~Completers() {
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

void Completers::Run(std::function<void()> job) {
  if (process_.Forked()) {
    job();
    return;
  }
  bool started = true;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    ++state_->busy;
    if (state_->idle == 0) {
      try {
        ddl_bindings::StartThread([state = state_, job]() mutable { Loop(state, std::move(job)); });
        return;
      } catch (const std::runtime_error&) {
        started = false;
        --state_->busy;
      }
    } else {
      --state_->idle;
      state_->queue.push_back(std::move(job));
    }
  }
  if (started) {
    state_->changed.notify_all();
  } else {
    // All calls end with an error from now on, so that it waits for none.
    job();
  }
}

bool Completers::Drain() {
  if (process_.Forked() || running == state_.get()) return false;
  std::unique_lock<std::mutex> lock(state_->mutex);
  if (state_->busy == 0) return false;
  state_->changed.wait(lock, [this] { return state_->busy == 0; });
  return true;
}

void Completers::Loop(const std::shared_ptr<State>& state, std::function<void()> job) {
  running = state.get();
  const at::NoGradGuard no_grad;
  for (;;) {
    job();
    // What it holds may be destroyed with it, which must not happen under the lock.
    job = nullptr;
    std::unique_lock<std::mutex> lock(state->mutex);
    if (--state->busy == 0) state->changed.notify_all();
    if (state->ending || state->idle == kIdle) return;
    ++state->idle;
    state->changed.wait(lock, [&] { return state->ending || !state->queue.empty(); });
    if (state->queue.empty()) return;
    job = std::move(state->queue.front());
    state->queue.pop_front();
  }
}

}  // namespace ddl_torch
