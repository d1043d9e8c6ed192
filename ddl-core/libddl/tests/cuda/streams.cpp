#include "streams.hpp"

#include <algorithm>
#include <csignal>

#include "settings.hpp"

namespace stand_in {
namespace {

/// How often operations that wait for something outside are looked at.
constexpr std::chrono::microseconds kPoll{100};
constexpr std::chrono::microseconds kIdle{500'000};

bool of_context(Stream stream, Context context) { return context == nullptr || stream->context == context; }

std::uint64_t head(Stream stream) {
  return stream->queue.empty() ? UINT64_MAX : stream->queue.front()->sequence;
}

}  // namespace

void Streams::start() {
  if (worker_ != nullptr) return;
  const auto seed = static_cast<std::uint64_t>(setting(Setting::kSeed));
  random_.seed(seed * 1000 + static_cast<std::uint64_t>(launched_rank() + 1));
  // Signals are the program's affair.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  worker_ = new std::thread([this] { work(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Streams::stop() {
  if (worker_ == nullptr) return;
  {
    const Lock lock(mutex);
    stopping_ = true;
    work_.notify_all();
  }
  worker_->join();
  delete worker_;
  worker_ = nullptr;
}

Stream Streams::create(Context context, bool blocking, int priority) {
  auto* const stream = new ddl::cuda::CUstream_st;
  stream->context = context;
  stream->blocking = blocking;
  stream->priority = priority;
  all_.insert(stream);
  return stream;
}

void Streams::erase_if_done(Stream stream) {
  if (!stream->destroyed || stream->busy || !stream->queue.empty()) return;
  all_.erase(stream);
  delete stream;
}

void Streams::destroy(Stream stream) {
  stream->destroyed = true;
  erase_if_done(stream);
}

std::size_t Streams::destroy_all(Context context) {
  std::vector<Stream> streams;
  for (Stream stream : all_) {
    if (stream->context == context && !stream->legacy && !stream->destroyed) streams.push_back(stream);
  }
  for (Stream stream : streams) destroy(stream);
  return streams.size();
}

void Streams::queue(Stream stream, std::unique_ptr<Operation> operation) {
  auto item = std::make_unique<Item>();
  item->operation = std::move(operation);
  item->sequence = ++last_;
  if (comes_due(Setting::kStickAt)) stream->stuck_from = std::min(stream->stuck_from, last_);
  stream->queue.push_back(std::move(item));
  count(Count::kOperations);
  work_.notify_one();
}

bool Streams::pending(Stream stream, Context context, std::uint64_t until) const {
  if (stream != nullptr && !stream->legacy) return head(stream) <= until;
  // The legacy default stream comes after all blocking streams.
  return std::any_of(all_.begin(), all_.end(), [&](Stream one) {
    const bool counts =
        stream == nullptr ? of_context(one, context) : one->context == stream->context && one->blocking;
    return counts && head(one) <= until;
  });
}

bool Streams::idle(Stream stream) const { return !pending(stream, nullptr, UINT64_MAX - 1); }

bool Streams::captures(Context context) const {
  return std::any_of(all_.begin(), all_.end(), [&](Stream one) {
    return one->context == context && one->blocking && one->capturing != 0;
  });
}

bool Streams::wait(Lock& lock, Stream stream, Context context, const char* call, double seconds) {
  const std::uint64_t until = last_;
  if (!pending(stream, context, until)) return true;
  count(Count::kHostBlocks);
  const auto limit = std::chrono::duration<double>(
      seconds >= 0 ? seconds : static_cast<double>(setting(Setting::kPatienceS)));
  const auto ended = [&] {
    return stopping_ || (stream != nullptr && all_.count(stream) == 0) || !pending(stream, context, until);
  };
  if (done_.wait_for(lock, limit, ended)) return true;
  if (seconds >= 0) return false;
  die("%s has waited for %lld s for a stream that does not move: a real device would wait for ever", call,
      setting(Setting::kPatienceS));
}

void Streams::wait_inside(Lock& lock, Context context, Stream stream, const char* call) {
  context->locked = true;
  wait(lock, stream, nullptr, call);
  context->locked = false;
  done_.notify_all();
}

void Streams::enter(Lock& lock, Context context) {
  if (!context->locked) return;
  count(Count::kLockedOut);
  const std::chrono::seconds limit(setting(Setting::kPatienceS));
  if (done_.wait_for(lock, limit, [&] { return stopping_ || !context->locked; })) return;
  die("a call has waited for %lld s for the context's lock, which another call holds while it waits for a "
      "stream: a real device would wait for ever",
      setting(Setting::kPatienceS));
}

void Streams::drop(Lock& lock, Context context) {
  for (;;) {
    bool busy = false;
    std::vector<Stream> streams(all_.begin(), all_.end());
    for (Stream stream : streams) {
      if (stream->context != context) continue;
      // The worker keeps what it is at.
      const std::size_t kept = stream->busy ? 1 : 0;
      busy = busy || stream->busy;
      while (stream->queue.size() > kept) stream->queue.pop_back();
      erase_if_done(stream);
    }
    done_.notify_all();
    if (!busy || stopping_) return;
    done_.wait(lock);
  }
}

void Streams::run_later(std::chrono::microseconds delay, std::function<void()> task) {
  const Lock lock(mutex);
  tasks_.push_back({Clock::now() + delay, std::move(task)});
  work_.notify_one();
}

std::chrono::microseconds Streams::delay() {
  // One in ten takes much longer than the others.
  const auto most = static_cast<std::uint64_t>(setting(Setting::kDelayUs));
  const std::uint64_t factor = random(10) == 0 ? 8 : 1;
  return std::chrono::microseconds(random(most * factor + 1));
}

bool Streams::may_start(Stream stream) const {
  if (stream->queue.empty() || stream->busy) return false;
  const std::uint64_t sequence = head(stream);
  if (sequence >= stream->stuck_from) return false;
  if (!stream->blocking) return true;
  return std::all_of(all_.begin(), all_.end(), [&](Stream other) {
    const bool ordered = other != stream && other->context == stream->context && other->blocking &&
                         (stream->legacy || other->legacy);
    return !ordered || head(other) > sequence;
  });
}

void Streams::finished(Stream stream) {
  const std::uint64_t sequence = head(stream);
  const bool overtakes =
      std::any_of(all_.begin(), all_.end(), [&](Stream other) { return head(other) < sequence; });
  if (overtakes) count(Count::kOutOfOrder);
  stream->queue.pop_front();
}

bool Streams::run_tasks(Lock& lock, Clock::time_point* next) {
  const auto now = Clock::now();
  const auto later =
      std::stable_partition(tasks_.begin(), tasks_.end(), [&](const Task& task) { return task.due <= now; });
  std::vector<Task> due(std::make_move_iterator(tasks_.begin()), std::make_move_iterator(later));
  tasks_.erase(tasks_.begin(), later);
  for (const Task& task : tasks_) *next = std::min(*next, task.due);
  if (due.empty()) return false;
  lock.unlock();
  for (Task& task : due) task.run();
  due.clear();
  lock.lock();
  return true;
}

bool Streams::round(Lock& lock, Clock::time_point* next) {
  bool moved = run_tasks(lock, next);
  std::vector<Stream> ready;
  for (Stream stream : all_) {
    if (may_start(stream)) ready.push_back(stream);
  }
  std::shuffle(ready.begin(), ready.end(), random_);
  for (Stream stream : ready) {
    // While the lock was not held, the stream may have gone.
    if (stopping_ || all_.count(stream) == 0 || !may_start(stream)) continue;
    Item& item = *stream->queue.front();
    if (!item.reached) {
      item.reached = true;
      item.due = Clock::now() + (item.operation->late() ? delay() : std::chrono::microseconds(0));
    }
    if (item.due > Clock::now()) {
      *next = std::min(*next, item.due);
      continue;
    }
    stream->busy = true;
    lock.unlock();
    const Progress progress = item.operation->advance();
    lock.lock();
    stream->busy = false;
    if (progress == Progress::kWaiting) {
      *next = std::min(*next, Clock::now() + kPoll);
      done_.notify_all();
      continue;
    }
    if (progress == Progress::kMoved) {
      moved = true;
      done_.notify_all();
      continue;
    }
    moved = true;
    finished(stream);
    if (progress == Progress::kFailed) {
      stream->context->broken = 719;
      drop(lock, stream->context);
    }
    if (all_.count(stream) > 0) erase_if_done(stream);
    done_.notify_all();
  }
  return moved;
}

void Streams::work() {
  Lock lock(mutex);
  while (!stopping_) {
    Clock::time_point next = Clock::now() + kIdle;
    if (!round(lock, &next) && !stopping_) work_.wait_until(lock, next);
  }
  done_.notify_all();
}

}  // namespace stand_in
