#include "message_watch.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "../start_thread.hpp"
#include "status.hpp"

namespace ddl_torch {
namespace {

using Clock = std::chrono::steady_clock;

// Within this time after the last message the thread only yields: answers mostly follow at once.
constexpr auto kMessageAlert = std::chrono::milliseconds(2);
constexpr auto kMessagePause = std::chrono::microseconds(200);

}  // namespace

MessageWatch::MessageWatch(std::shared_ptr<const OwnGroup> group)
    : group_(std::move(group)), state_(std::make_shared<State>()) {}

MessageWatch::~MessageWatch() {
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

void MessageWatch::Close() {
  if (process_.Forked()) return;
  std::unique_lock<std::mutex> lock(state_->mutex);
  if (!started_) return;
  state_->ending = true;
  state_->changed.notify_all();
  state_->changed.wait(lock, [this] { return state_->ended; });
}

void MessageWatch::Add(Message message) {
  const bool device = message.order != nullptr;
  message.host = device ? PinnedLike(message.tensor) : message.tensor;
  if (!message.sending) Start(group_->number(), message);
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (!started_) {
      ddl_bindings::StartThread([group = group_, state = state_] { Loop(group->number(), state); });
      started_ = true;
    }
    if (message.sending) {
      // Not before one of a GPU that was issued earlier.
      if (!device && state_->not_sent == 0) {
        Start(group_->number(), message);
      } else {
        ++state_->not_sent;
      }
    }
    state_->arrived.push_back(std::move(message));
  }
  state_->changed.notify_all();
}

void MessageWatch::Start(DDL_Group group, Message& message) {
  DDL_Handle handle = 0;
  if (message.sending) {
    Check(ddl_group_send_start(group, message.host.const_data_ptr(), message.host.nbytes(), message.rank,
                               message.tag, &handle));
  } else {
    Check(ddl_group_receive_start(group, message.host.data_ptr(), message.host.nbytes(), message.rank,
                                  message.tag, &handle));
  }
  message.handle = handle;
  message.started = true;
}

// Copies between the host and a GPU, when the tensor's turn has come there. True when the copy is done.
bool MessageWatch::Copied(Message& message) {
  if (message.copied == nullptr) {
    // Not by a wait on the stream: other messages' copies are on it, whose turn may have come.
    if (!message.order->InputsReady()) return false;
    const c10::Stream stream = message.order->streams().messages();
    const c10::StreamGuard guard(stream);
    const at::Tensor& to = message.sending ? message.host : message.tensor;
    to.copy_(message.sending ? message.tensor : message.host, true);
    message.copied = std::make_shared<c10::Event>(stream.device_type());
    message.copied->record(stream);
  }
  return message.copied->query();
}

// `may_start`: no earlier message to the same rank and tag has yet to be sent.
bool MessageWatch::Done(DDL_Group group, Message& message, bool may_start) {
  const bool device = message.order != nullptr;
  if (!message.started) {
    if (!may_start || (device && !Copied(message))) return false;
    Start(group, message);
  }
  if (message.handle) {
    int done = 0;
    const DDL_Handle handle = *message.handle;
    message.handle.reset();  // closed by an error, too
    Check(ddl_group_test(group, handle, &done, &message.source));
    if (done == 0) {
      message.handle = handle;
      return false;
    }
  }
  return !device || message.sending || Copied(message);
}

// True when the message is over, one way or another.
bool MessageWatch::Advance(DDL_Group group, Message& message, bool ending, bool may_start) {
  std::exception_ptr error;
  try {
    if (!Done(group, message, may_start)) {
      if (Clock::now() < message.end && !(ending && !message.sending)) return false;
      if (message.handle) ddl_group_cancel(group, *message.handle);
      C10_THROW_ERROR(
          DistBackendError,
          message.what + (ending ? " was given up; the process group was destroyed before it was "
                                   "complete; wait for it first"
                                 : " was not complete within the time limit; look at the output "
                                   "of the other rank, or allow more time in init_process_group"));
    }
  } catch (...) {
    error = std::current_exception();
    // Its tensor may be given to others from here on.
    if (message.copied != nullptr) Drain(message.order->streams().messages());
  }
  message.work->Complete(error, message.source);
  return true;
}

void MessageWatch::Loop(DDL_Group group, const std::shared_ptr<State>& state) {
  // As for calls: parameters are received in place, and so are tensors of inference mode.
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView no_versions;
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
    std::set<std::pair<int, int>> held_up;  // ranks and tags to which a message has yet to be sent
    int sent = 0;
    for (auto at = open.begin(); at != open.end();) {
      const std::pair<int, int> to(at->rank, at->tag);
      const bool before = at->started;
      const bool over = Advance(group, *at, ending, held_up.count(to) == 0);
      if (!before && (at->started || over)) ++sent;
      if (!at->started) held_up.insert(to);
      if (over) {
        at = open.erase(at);
        last = Clock::now();
      } else {
        ++at;
      }
    }
    if (Clock::now() - last < kMessageAlert) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kMessagePause);
    }
    lock.lock();
    state->not_sent -= sent;
  }
  state->ended = true;
  lock.unlock();
  state->changed.notify_all();
}

}  // namespace ddl_torch
