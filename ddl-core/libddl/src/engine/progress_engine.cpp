#include "engine/progress_engine.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "support/error.hpp"
#include "support/hash.hpp"
#include "support/start_thread.hpp"

namespace ddl {
namespace {

/// Together up to this size: more gains nothing, and lets what is urgent wait.
constexpr std::size_t kGroupBytes = std::size_t{4} << 20;
constexpr std::size_t kGroupBuffers = 1024;
/// How often a thread looks whether devices are ready, which happens once.
constexpr std::chrono::milliseconds kLookEvery{1};

}  // namespace

std::size_t PendingAllreduce::bytes() const {
  std::size_t elements = 0;
  for (const std::size_t count : counts) elements += count;
  return elements * size_of(type);
}

ProgressEngine::ProgressEngine(Communicator& world, std::mutex& calling, bool threaded)
    : world_(world), calling_(calling), threaded_(threaded) {}

ProgressEngine::~ProgressEngine() { end(); }

void ProgressEngine::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

ProgressEngine::Handle ProgressEngine::add(Call call) {
  const std::lock_guard lock(mutex_);
  call.number = submitted_ + 1;
  const auto shared = std::make_shared<Call>(std::move(call));
  if (threaded_ && !thread_.joinable()) thread_ = start_thread([this] { run(); });
  open_.emplace(shared->number, shared);
  try {
    pending_.emplace(shared->number, shared);
  } catch (...) {
    open_.erase(shared->number);
    throw;
  }
  world_.set_submitted(++submitted_);
  world_.note_started();
  changed_.notify_all();
  return shared->number;
}

ProgressEngine::Handle ProgressEngine::submit(PendingAllreduce call) {
  Call made;
  made.priority = call.priority;
  made.allreduce = std::move(call);
  return add(std::move(made));
}

ProgressEngine::Handle ProgressEngine::submit(Action action, int priority, std::shared_ptr<Executor> memory) {
  Call made;
  made.memory = std::move(memory);
  made.priority = priority;
  made.action = std::move(action);
  return add(std::move(made));
}

std::shared_ptr<ProgressEngine::Call> ProgressEngine::find(Handle handle) {
  const auto found = open_.find(handle);
  if (found == open_.end()) {
    throw Error(DDL_ERR_ARGUMENT, "handle " + std::to_string(handle) + " is not open",
                "in ddl_wait or ddl_test", "pass each handle of a ddl_*_start call to ddl_wait once");
  }
  return found->second;
}

bool ProgressEngine::test(Handle handle) {
  std::unique_lock lock(mutex_);
  const auto call = find(handle);
  if (!threaded_ && !call->done) make_next(lock);
  if (call->done && call->error) std::rethrow_exception(call->error);
  return call->done;
}

void ProgressEngine::hold(Handle handle, void* stream) {
  std::shared_ptr<Call> call;
  {
    std::unique_lock lock(mutex_);
    call = find(handle);
    // The first call allocates memory of the device and starts NCCL, which may wait for all streams: none of
    // them may be waiting for the call.
    while (call->memory && !call->memory->on_host() && !call->done && !world_.devices_ready()) {
      if (threaded_ || !make_next(lock)) changed_.wait_for(lock, kLookEvery);
    }
  }
  (call->memory ? *call->memory : host_executor()).hold(stream);
  // Without a thread of its own the call is made while somebody waits, which a stream does not.
  std::unique_lock lock(mutex_);
  while (!threaded_ && !call->done && make_next(lock)) {
  }
}

void ProgressEngine::wait(Handle handle) {
  std::unique_lock lock(mutex_);
  const auto call = find(handle);
  while (!call->done) {
    if (threaded_ || !make_next(lock)) changed_.wait(lock);
  }
  open_.erase(handle);
  if (call->error) std::rethrow_exception(call->error);
}

template <class Making>
std::exception_ptr ProgressEngine::unlocked(std::unique_lock<std::mutex>& lock, bool background,
                                            Making making) {
  making_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    const std::lock_guard calling(calling_);
    world_.set_background(background);
    making();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  agreed_ = std::max(agreed_, world_.submitted_by_all());
  making_ = false;
  // Nobody looks before the lock is released.
  changed_.notify_all();
  return error;
}

void ProgressEngine::call(const Action& action, bool background) {
  {
    std::unique_lock lock(mutex_);
    // Without calls in the background the caller's own thread is the fastest.
    if (pending_.empty() && !making_) {
      world_.set_submitted(++submitted_);
      const std::exception_ptr error = unlocked(lock, background, [&] { world_.make(action); });
      if (error) std::rethrow_exception(error);
      return;
    }
  }
  wait(submit(action, 0));
}

bool ProgressEngine::busy() {
  const std::lock_guard lock(mutex_);
  return !pending_.empty() || making_;
}

void ProgressEngine::drain() {
  std::unique_lock lock(mutex_);
  while (!pending_.empty() || making_) {
    if (threaded_ || !make_next(lock)) changed_.wait(lock);
  }
}

std::vector<std::shared_ptr<ProgressEngine::Call>> ProgressEngine::choose() {
  const auto known = pending_.upper_bound(agreed_);
  // Not known to be everywhere: in the order of submission, which is the same everywhere.
  if (pending_.begin() == known) return {pending_.begin()->second};
  auto first = pending_.begin();
  for (auto at = pending_.begin(); at != known; ++at) {
    if (at->second->priority > first->second->priority) first = at;
  }
  std::vector<std::shared_ptr<Call>> group{first->second};
  const auto& leader = first->second->allreduce;
  if (!leader || !world_.may_group()) return group;
  std::size_t bytes = leader->bytes();
  std::size_t buffers = leader->buffers.size();
  for (auto at = pending_.begin(); at != known; ++at) {
    const auto& other = at->second->allreduce;
    if (at == first || !other || other->type != leader->type || other->op != leader->op) continue;
    if (bytes + other->bytes() > kGroupBytes || buffers + other->buffers.size() > kGroupBuffers) continue;
    bytes += other->bytes();
    buffers += other->buffers.size();
    group.push_back(at->second);
  }
  return group;
}

void ProgressEngine::make(const std::vector<std::shared_ptr<Call>>& calls) {
  if (!calls.front()->allreduce) {
    calls.front()->action(world_);
    return;
  }
  std::vector<void*> buffers;
  std::vector<std::size_t> counts;
  std::string name;
  for (const auto& call : calls) {
    const PendingAllreduce& part = *call->allreduce;
    buffers.insert(buffers.end(), part.buffers.begin(), part.buffers.end());
    counts.insert(counts.end(), part.counts.begin(), part.counts.end());
    name += (name.empty() || part.name.empty() ? "" : ", ") + part.name;
  }
  const PendingAllreduce& first = *calls.front()->allreduce;
  const BufferList list(buffers.data(), counts.data(), counts.size(), first.type);
  world_.allreduce(list,
                   {counts.size(), hash_bytes(counts.data(), counts.size() * sizeof counts[0]), name.c_str()},
                   first.type, first.op);
}

bool ProgressEngine::make_next(std::unique_lock<std::mutex>& lock) {
  if (pending_.empty() || making_) return false;
  std::vector<std::shared_ptr<Call>> calls;
  std::exception_ptr refused;
  try {
    calls = choose();
  } catch (...) {
    refused = std::current_exception();
  }
  if (refused) {
    const auto first = pending_.begin()->second;
    pending_.erase(first->number);
    first->error = unlocked(lock, threaded_,
                            [&] { world_.make([&](Communicator&) { std::rethrow_exception(refused); }); });
    first->done = true;
    if (first->memory) first->memory->completed();
    return true;
  }
  for (const auto& call : calls) pending_.erase(call->number);
  const std::exception_ptr error =
      unlocked(lock, threaded_, [&] { world_.make([&](Communicator&) { make(calls); }); });
  for (const auto& call : calls) {
    call->error = error;
    call->done = true;
    if (call->memory) call->memory->completed();
  }
  return true;
}

void ProgressEngine::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || (!pending_.empty() && !making_); });
    if (ending_) return;
    make_next(lock);
  }
}

}  // namespace ddl
