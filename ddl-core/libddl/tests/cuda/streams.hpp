#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_set>
#include <vector>

#include "cuda/driver_functions.hpp"

namespace stand_in {

using Clock = std::chrono::steady_clock;

/// kMoved: as kWaiting, and there is more to do at once.
enum class Progress { kWaiting, kMoved, kEnded, kFailed };

/// What is queued on a stream. The worker calls advance(), without the driver's lock, once the stream has
/// come to it, and again until it does not wait any more.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual Progress advance() = 0;
  /// Whether it begins some time after the stream has come to it.
  virtual bool late() const { return true; }
};

struct Item {
  std::unique_ptr<Operation> operation;
  std::uint64_t sequence = 0;
  bool reached = false;
  Clock::time_point due;
};

}  // namespace stand_in

namespace ddl::cuda {

struct CUstream_st {
  Context context = nullptr;
  bool blocking = true;  ///< synchronises with the legacy default stream
  bool legacy = false;
  int priority = 0;
  int capturing = 0;
  bool busy = false;       ///< the worker is at its first operation
  bool destroyed = false;  ///< goes once its operations are done
  std::uint64_t stuck_from = UINT64_MAX;
  std::deque<std::unique_ptr<stand_in::Item>> queue;
};

struct CUctx_st {
  int device = 0;
  unsigned retained = 0;
  int broken = 0;       ///< what every call gives after an operation has failed
  bool locked = false;  ///< a call holds the context's lock while it waits for streams
  CUstream_st legacy;
  std::map<std::thread::id, Stream> of_threads;
};

struct CUevent_st {
  Context context = nullptr;
  unsigned flags = 0;
  std::shared_ptr<std::atomic<bool>> latest;  ///< the last record; null: never recorded
};

}  // namespace ddl::cuda

namespace stand_in {

using ddl::cuda::Context;
using ddl::cuda::Stream;

/**
 * All streams of the process, and the thread that does their work: late, in order within a stream, in any
 * order between streams. `mutex` is the lock of the whole driver; all functions but run_later() want it held.
 */
class Streams {
 public:
  using Lock = std::unique_lock<std::mutex>;

  std::mutex mutex;

  void start();
  /// Ends the worker; what is queued stays undone. Takes the lock itself.
  void stop();

  Stream create(Context context, bool blocking, int priority);
  void adopt(Stream legacy) { all_.insert(legacy); }
  bool exists(Stream stream) const { return all_.count(stream) > 0 && !stream->destroyed; }
  void destroy(Stream stream);

  void queue(Stream stream, std::unique_ptr<Operation> operation);
  /// The sequence number of what is queued next.
  std::uint64_t next() const { return last_ + 1; }
  bool idle(Stream stream) const;
  /// Whether a blocking stream of the context is being captured.
  bool captures(Context context) const;

  /// The host waits until all that is queued by now on one stream, on those of a context, or (both null) on
  /// all is done. `call` is whom the message names where that takes too long. False: the seconds have passed.
  bool wait(Lock& lock, Stream stream, Context context, const char* call, double seconds = -1);
  /// As wait(), of a call of this context (stream null: for all streams), which holds the context's lock
  /// meanwhile, as CUDA's driver does: other threads' calls that need the lock wait, too, until enter().
  void wait_inside(Lock& lock, Context context, Stream stream, const char* call);
  void enter(Lock& lock, Context context);
  /// What is queued on the context's streams is dropped.
  void drop(Lock& lock, Context context);
  /// Streams of the context but for the default ones, destroyed.
  std::size_t destroy_all(Context context);

  void run_later(std::chrono::microseconds delay, std::function<void()> task);
  void wake() { work_.notify_all(); }
  std::uint64_t random(std::uint64_t below) { return below == 0 ? 0 : random_() % below; }

 private:
  struct Task {
    Clock::time_point due;
    std::function<void()> run;
  };

  void work();
  bool may_start(Stream stream) const;
  /// Whether anything moved; `next`: when something is due.
  bool round(Lock& lock, Clock::time_point* next);
  bool run_tasks(Lock& lock, Clock::time_point* next);
  void finished(Stream stream);
  void erase_if_done(Stream stream);
  bool pending(Stream stream, Context context, std::uint64_t until) const;
  std::chrono::microseconds delay();

  std::unordered_set<Stream> all_;
  std::vector<Task> tasks_;
  std::uint64_t last_ = 0;
  std::condition_variable work_;
  std::condition_variable done_;
  std::thread* worker_ = nullptr;
  bool stopping_ = false;
  std::mt19937_64 random_{0};
};

}  // namespace stand_in
