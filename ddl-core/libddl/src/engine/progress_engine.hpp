#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/communicator.hpp"
#include "support/types.hpp"

namespace ddl {

/// An all-reduce that is to be made later.
struct PendingAllreduce {
  std::vector<void*> buffers;
  std::vector<std::size_t> counts;
  DDL_Type type = DDL_TYPE_FLOAT;
  DDL_Op op = DDL_OP_SUM;
  std::string name;
  int priority = 0;

  std::size_t bytes() const;
};

/**
 * The calls of the world that were submitted and not made yet, and the thread that makes them.
 *
 * All ranks submit the same calls in the same order, but not at the same time. Which call comes next must yet
 * be the same on all ranks, so the choice is made among those that every rank is known to have submitted:
 * each agreement on a call carries how many that are. Among them the highest priority comes first, then the
 * earlier one; all-reduces of one type and op that fit are made together, without being copied together.
 *
 * Thread-safe.
 */
class ProgressEngine {
 public:
  using Handle = std::uint64_t;
  /// Makes a call on the communicator.
  using Action = std::function<void(Communicator&)>;

  /// @param world     outlives the engine
  /// @param calling   held while a call is made
  /// @param threaded  MPI may be called from another thread; otherwise calls are made while somebody waits
  ProgressEngine(Communicator& world, std::mutex& calling, bool threaded);
  /// Ends the thread after the call that it is making. drain() before.
  ~ProgressEngine();
  /// Ends its thread, when nothing is pending any more. Handles of calls that are done can still be waited
  /// for.
  void end();
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  Handle submit(PendingAllreduce call);
  /// @param memory  where the call's buffers lie, which is told when it is over; null: the host's
  Handle submit(Action action, int priority, std::shared_ptr<Executor> memory = nullptr);
  /// True when the call is complete. @throws Error when it failed, or when the handle is not one that is open
  bool test(Handle handle);
  /// What a stream is given from now on begins when the call is complete, or has failed. Waits until the
  /// world has been made ready for calls on GPUs, by the first of them. @throws Error
  void hold(Handle handle, void* stream);
  /// Returns when the call is complete, and closes the handle. @throws Error
  void wait(Handle handle);
  /// Makes a call now, after all that were submitted before.
  /// @param background  others compute beside the calling thread: it must not spin while it waits
  void call(const Action& action, bool background = false);
  /// Waits until everything that was submitted is complete. Errors stay with their handles.
  void drain();
  /// Whose calls they are.
  Communicator& world() { return world_; }
  /// Whether a call is being made, or was submitted and is not made yet.
  bool busy();

 private:
  struct Call {
    std::uint64_t number = 0;  ///< in the order of submission, from 1
    std::optional<PendingAllreduce> allreduce;
    Action action;
    std::shared_ptr<Executor> memory;
    int priority = 0;
    bool done = false;
    std::exception_ptr error;
  };

  Handle add(Call call);
  std::vector<std::shared_ptr<Call>> choose();
  void make(const std::vector<std::shared_ptr<Call>>& calls);
  /// Lets others submit while `making` runs; what it threw.
  template <class Making>
  std::exception_ptr unlocked(std::unique_lock<std::mutex>& lock, bool background, Making making);
  /// Makes one call, or a group of them. False when there is none.
  bool make_next(std::unique_lock<std::mutex>& lock);
  void run();
  std::shared_ptr<Call> find(Handle handle);

  Communicator& world_;
  std::mutex& calling_;
  const bool threaded_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, std::shared_ptr<Call>> pending_;  ///< by number
  std::map<Handle, std::shared_ptr<Call>> open_;
  std::uint64_t submitted_ = 0;
  std::uint64_t agreed_ = 0;
  bool making_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace ddl
