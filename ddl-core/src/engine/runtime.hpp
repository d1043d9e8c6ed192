#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/communicator.hpp"
#include "engine/progress_engine.hpp"
#include "engine/rank_group.hpp"

namespace ddl {

/// The one DDL of a process: initialises and finalises, and serialises the calls of its threads. Its world is
/// MPI's, or another communicator that it was initialised over.
class Runtime {
 public:
  static Runtime& instance();

  /// options may be null: DDL_OPTIONS. Collective over comm, by default MPI_COMM_WORLD. @throws Error
  void init(const char* options, std::optional<MPI_Comm> comm = {});
  void finalize();
  bool initialized();

  /// What never changes between init and finalize, such as rank and topology. @throws Error (DDL_ERR_STATE)
  /// outside
  const Communicator& view() { return world(); }
  /// The calls of the world. @throws Error (DDL_ERR_STATE) outside init … finalize
  ProgressEngine& engine() {
    world();
    if (only_thread_ && *only_thread_ != std::this_thread::get_id()) refuse_thread();
    return *engine_;
  }
  /// Calls look(const Communicator&) on the world: between two calls, or within one, by the thread that makes
  /// it.
  /// @throws Error (DDL_ERR_STATE) when that thread does not come by: it is held up within MPI
  template <class Look>
  void inspect(Look look) {
    Communicator& all = world();
    constexpr std::chrono::milliseconds kBetween{50};
    for (int tries = 0; tries < 100; ++tries) {
      if (const std::unique_lock lock(calling_, std::try_to_lock); lock) {
        look(all);
        return;
      }
      if (all.inspection().ask([&] { look(all); }, kBetween)) return;
    }
    throw Error(
        DDL_ERR_STATE,
        "a call is under way whose thread has not come by for 5 s; in this process; it is probably held up "
        "within MPI: look at the other ranks, and at its stack");
  }
  /// Makes a call on the communicator that belongs to comm, made at its first use, when those of the world
  /// are done.
  template <class Action>
  void with_communicator(MPI_Comm comm, Action action) {
    if (is_world(comm)) {
      engine().call(action);
      return;
    }
    // Only comm's ranks make this call, so it has no place in the order that all ranks share.
    engine().drain();
    const std::lock_guard lock(calling_);
    action(of(comm));
  }

  /// A group of these ranks of the world, in this order; none: all. Collective over them. @throws Error
  std::uint64_t create_group(const std::vector<int>& ranks, double timeout_s);
  /// @throws Error when there is none
  std::shared_ptr<RankGroup> group(std::uint64_t number);
  /// When the calls of other threads in it are over.
  void free_group(std::uint64_t number);

 private:
  enum class State { kFresh, kRunning, kFinalized };

  Communicator& world();
  [[noreturn]] static void refuse_thread();
  bool is_world(MPI_Comm comm);
  void refuse_other_ranks(MPI_Comm comm);
  void give_ranks_back();
  Communicator& of(MPI_Comm comm);
  /// On the communicator of the world, or on one of its own where a call has failed there.
  std::shared_ptr<RankGroup> group_of_all(const Options& options);
  void init_mpi(const Options& options, MPI_Comm comm, bool initialized_by_user);
  void watch_forks();
  static int forget(MPI_Comm comm, int keyval, void* attribute, void* extra);
  void release(std::unique_ptr<Communicator> communicator);

  std::mutex mutex_;    ///< of init and finalize
  std::mutex calling_;  ///< held while a collective call is made
  std::atomic<State> state_ = State::kFresh;
  std::atomic<bool> forked_ = false;  ///< this process is a copy of the one that initialised
  Options options_;
  bool owns_mpi_ = false;
  bool mpi_finalized_ = false;
  int keyval_ = MPI_KEYVAL_INVALID;
  bool threaded_ = true;
  MPI_Comm base_ =
      MPI_COMM_WORLD;  ///< the ranks that DDL was initialised over; another than the world is ours
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<ProgressEngine> engine_;
  std::vector<std::unique_ptr<ProgressEngine>> retired_;  ///< of worlds that were finalised
  std::optional<std::thread::id> only_thread_;            ///< that MPI may be called by, if it is one
  std::vector<MPI_Comm> others_;
  std::mutex making_group_;
  std::mutex groups_mutex_;
  std::map<std::uint64_t, std::shared_ptr<RankGroup>> groups_;
  std::uint64_t last_group_ = 0;
};

}  // namespace ddl
