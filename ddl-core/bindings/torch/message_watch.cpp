#include "message_watch.hpp"

#include <c10/util/Exception.h>

#include <exception>
#include <thread>
#include <utility>

#include "status.hpp"

namespace ddl_torch {
namespace {

using Clock = std::chrono::steady_clock;

// Within this time after the last message the thread only yields: answers mostly follow at once.
constexpr auto kAlert = std::chrono::milliseconds(2);
constexpr auto kPause = std::chrono::microseconds(200);

}  // namespace

MessageWatch::MessageWatch(DDL_Group group) : group_(group), state_(std::make_shared<State>()) {}

MessageWatch::~MessageWatch() {
  if (process_.Forked()) {
    Leave(std::move(state_));
    return;
  }
  std::unique_lock<std::mutex> lock(state_->mutex);
  if (!started_) return;
  state_->ending = true;
  state_->changed.notify_all();
  state_->changed.wait(lock, [this] { return state_->ended; });
}

void MessageWatch::Add(Message message) {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->arrived.push_back(std::move(message));
    if (!started_) {
      std::thread([group = group_, state = state_] { Loop(group, state); }).detach();
      started_ = true;
    }
  }
  state_->changed.notify_all();
}

// True when the message is over, one way or another.
bool MessageWatch::Advance(DDL_Group group, Message& message, bool ending) {
  int done = 0;
  int source = -1;
  std::exception_ptr error;
  try {
    Check(ddl_group_test(group, message.handle, &done, &source));
    if (done == 0) {
      if (Clock::now() < message.end && !(ending && !message.sending)) return false;
      ddl_group_cancel(group, message.handle);
      C10_THROW_ERROR(
          DistBackendError,
          message.what + (ending ? " was given up; the process group was destroyed before it was "
                                   "complete; wait for it first"
                                 : " was not complete within the time limit; look at the output "
                                   "of the other rank, or allow more time in init_process_group"));
    }
  } catch (...) {
    error = std::current_exception();
  }
  message.work->Complete(error, source);
  return true;
}

void MessageWatch::Loop(DDL_Group group, const std::shared_ptr<State>& state) {
  std::list<Message> open;
  auto last = Clock::now();
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    if (open.empty()) {
      state->changed.wait(lock, [&] { return state->ending || !state->arrived.empty(); });
      last = Clock::now();
    }
    open.splice(open.end(), state->arrived);
    const bool ending = state->ending;
    if (ending && open.empty()) break;
    lock.unlock();
    for (auto at = open.begin(); at != open.end();) {
      if (Advance(group, *at, ending)) {
        at = open.erase(at);
        last = Clock::now();
      } else {
        ++at;
      }
    }
    if (Clock::now() - last < kAlert) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
    lock.lock();
  }
  state->ended = true;
  lock.unlock();
  state->changed.notify_all();
}

}  // namespace ddl_torch
