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

#include "engine/callers.hpp"
#include "engine/communicator.hpp"
#include "engine/progress_engine.hpp"
#include "engine/rank_group.hpp"

namespace ddl {

/// The one DDL of a process: initialises and finalises, and serialises the calls of its threads. Its world is
/// MPI's, or another communicator that it was initialised over.
class Runtime {
 public:
  static Runtime& instance();

  /// options prevail over those of DDL_OPTIONS, and may be null. Collective over comm, by default
  /// MPI_COMM_WORLD. @throws Error
  void init(const char* options, std::optional<MPI_Comm> comm = {});
  void finalize();
  bool initialized();

  /// What never changes between init and finalize, such as rank and topology. @throws Error (DDL_ERR_STATE)
  /// outside
  const Communicator& view() { return world(); }
  /// The same, also in a process that was forked from a rank: the numbers of that rank.
  const Communicator& numbering() { return state_ == State::kRunning ? *world_ : world(); }
  /// The calls of the world. @throws Error (DDL_ERR_STATE) outside init … finalize
  ProgressEngine& engine() {
    world();
    if (only_thread_ && *only_thread_ != std::this_thread::get_id()) refuse_thread();
    Callers::note();
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
    throw Error(DDL_ERR_STATE, "a call is under way whose thread has not come by for 5 s", "in this process",
                "it is probably held up within MPI: look at the other ranks, and at its stack");
  }
  /// Makes a call on the communicator that belongs to comm, made at its first use. Only comm's ranks make it,
  /// so it has no place in the order that all ranks share, and calls of the world go on meanwhile.
  template <class Action>
  void with_communicator(MPI_Comm comm, Action action) {
    ProgressEngine& of_world = engine();
    if (is_world(comm)) {
      of_world.call(action);
      return;
    }
    // Nobody else makes what was started: another rank may wait for it before it makes this call.
    if (!threaded_) of_world.drain();
    const std::shared_ptr<Part> part = part_of(comm);
    // One thread at a time may be within MPI where it allows for no more.
    const std::lock_guard lock(threaded_ ? part->calling : calling_);
    of(*part, comm).make(action);
  }

  /// A group of these ranks of the world, in this order; none: all. Collective over them. @throws Error
  std::uint64_t create_group(const std::vector<int>& ranks, double timeout_s);
  /// @throws Error when there is none
  std::shared_ptr<RankGroup> group(std::uint64_t number);
  /// When the calls of other threads in it are over.
  void free_group(std::uint64_t number);

  /// Lets the other ranks know that this one's program ends, in all communicators: calls under way end with
  /// that error, and so do later ones. Waits for nobody. Any thread's.
  /// @param reason  as the error tells it; may be null
  void abort(const char* reason);
  /// Whether a call of this rank is under way, or was started and has yet to be made. Any thread's.
  bool busy();

 private:
  enum class State { kFresh, kRunning, kFinalized };
  /// What belongs to an MPI communicator beside the world's.
  struct Part {
    std::mutex calling;  ///< held while a call is made
    std::unique_ptr<Communicator> communicator;
  };

  Communicator& world();
  [[noreturn]] static void refuse_thread();
  bool is_world(MPI_Comm comm);
  /// So that forget() is called at its end. With parts_mutex_ held.
  void watch_end_of(MPI_Comm comm);
  void refuse_other_ranks(MPI_Comm comm);
  /// The world of base_, with these options. Collective. @throws Error
  void make_world(const Options& options);
  /// Whether anything depends on the world: a call, a group, or another communicator.
  bool used();
  /// DDL runs already: has these options obeyed as well, as long as nothing depends on the world. Collective
  /// where they change something. @throws Error
  void change_options(const char* text);
  void give_ranks_back();
  /// Until the calls that other threads make in groups, and on other communicators, are over.
  void wait_for_parts();
  std::shared_ptr<Part> part_of(MPI_Comm comm);
  /// Collective at the first use.
  Communicator& of(Part& part, MPI_Comm comm);
  /// The world's options as they hold for some of its ranks.
  Options options_of_part() const;
  /// Of all communicators and groups, while they exist.
  template <class Action>
  void for_each_communicator(Action action);
  /// On the communicator of the world, or on one of its own where a call has failed there.
  std::shared_ptr<RankGroup> group_of_all(const Options& options);
  void init_mpi(const Options& options, MPI_Comm comm, bool initialized_by_user);
  void watch_forks();
  static int forget(MPI_Comm comm, int keyval, void* attribute, void* extra);
  static void release(std::unique_ptr<Communicator> communicator);

  std::mutex mutex_;    ///< of init and finalize
  std::mutex calling_;  ///< held while a collective call of the world is made
  std::atomic<State> state_ = State::kFresh;
  std::atomic<bool> forked_ = false;  ///< this process is a copy of the one that initialised
  Options options_;
  bool owns_mpi_ = false;
  bool mpi_finalized_ = false;
  int keyval_ = MPI_KEYVAL_INVALID;
  bool threaded_ = true;
  MPI_Comm base_ =
      MPI_COMM_WORLD;  ///< the ranks that DDL was initialised over; another than the world is ours
  /// The caller's own, of which base_ is a duplicate; MPI_COMM_NULL: it was freed.
  std::atomic<MPI_Comm> initial_ = MPI_COMM_WORLD;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<ProgressEngine> engine_;
  std::vector<std::unique_ptr<ProgressEngine>> retired_;  ///< of worlds that were finalised
  std::optional<std::thread::id> only_thread_;            ///< that MPI may be called by, if it is one
  std::mutex parts_mutex_;                                ///< of the map, and of the pointers in it
  std::map<MPI_Comm, std::shared_ptr<Part>> parts_;
  std::map<std::vector<int>, std::mutex> first_calls_;  ///< by ranks: held until all have come to one
  std::mutex making_group_;
  std::mutex groups_mutex_;
  std::map<std::uint64_t, std::shared_ptr<RankGroup>> groups_;
  std::uint64_t last_group_ = 0;
};

}  // namespace ddl
