#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/communicator.hpp"
#include "engine/messages.hpp"
#include "engine/progress_engine.hpp"

namespace ddl {

/**
 * Some ranks, or all, that make calls among themselves. Their calls are made by threads beside a computation,
 * so waiting leaves the processor to others.
 *
 * A group of some ranks has a communicator of its own: its calls have no place in the order that all ranks
 * share, and those of two groups may be under way at once. The group of all shares the world's.
 */
class RankGroup {
 public:
  /// All ranks, base's. Collective over them.
  RankGroup(MPI_Comm base, Communicator& world, ProgressEngine& engine, double patience_s);
  /// Some ranks, base's, which it keeps. Collective over them.
  RankGroup(MPI_Comm base, const Options& options);
  /// This rank alone.
  explicit RankGroup(const Options& options);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  const Communicator& view() const { return world_ != nullptr ? *world_ : *own_; }
  Communicator& ranks() { return world_ != nullptr ? *world_ : *own_; }
  /// Of the calls from now on, in place of -patience.
  void set_patience(double seconds) { patience_s_ = seconds; }
  /// Makes a call, after those that other threads make in this group. @throws Error
  void call(const std::function<void(Communicator&)>& action);
  /// @throws Error when there is no other rank
  Messages& messages();
  bool ranks_missing() const { return own_ && own_->ranks_missing(); }
  /// Its own communicator; null where it shares the world's.
  Communicator* own() const { return own_.get(); }
  /// Held while a call is made that the world does not know of.
  std::mutex& calling() { return calling_; }
  /// Whether a call is under way that the world does not know of. Any thread's.
  bool busy() { return !std::unique_lock(calling_, std::try_to_lock); }
  /// A rank is missing: leaves MPI's part to MPI.
  void abandon();

 private:
  Communicator* world_ = nullptr;
  ProgressEngine* engine_ = nullptr;
  std::atomic<double> patience_s_;
  MPI_Comm base_ = MPI_COMM_NULL;
  std::unique_ptr<Communicator> own_;
  std::mutex calling_;
  std::unique_ptr<Messages> messages_;
};

}  // namespace ddl
