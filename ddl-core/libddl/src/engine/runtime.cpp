#include "engine/runtime.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <numeric>
#include <thread>

#include "engine/flight_recorder.hpp"
#include "engine/launcher.hpp"
#include "engine/member_watch.hpp"
#include "engine/private_communicator.hpp"
#include "engine/rendezvous.hpp"
#include "support/number.hpp"
#include "support/start_thread.hpp"
#include "transport/bounded_wait.hpp"
#include "transport/tree_exchange.hpp"

namespace ddl {
namespace {

/// Of rendezvous(): communicators of ddl_allreduce_mpi, which may have the same ranks as a group.
constexpr std::uint64_t kOfPart = 1;

/// Of those that wait for others in MPI_Init: both may be the ones that are waited for, but seldom are.
constexpr int kRanksThatWarn = 2;

constexpr const char* kMakingAGroup = "in the making of a group";
constexpr const char* kFirstCall = "in the first ddl_allreduce_mpi on a communicator";

std::string describe(const Launcher& launcher) {
  std::string text = "the launcher's environment says ";
  if (launcher.expected_rank) text += "rank " + std::to_string(*launcher.expected_rank) + " ";
  if (launcher.expected_size) text += "of " + std::to_string(*launcher.expected_size) + " ";
  return text;
}

/// An error instead of several trainings that never meet.
void refuse_ranks_without_mpi(const Launcher& launcher) {
  if (launcher.ranks_without_mpi.empty()) return;
  throw Error(DDL_ERR_LAUNCH, launcher.ranks_without_mpi, "in ddl_init", launcher.remedy);
}

/// MPI_Init waits for every rank and takes no time limit. While one of these lives, a process that waits for
/// longer ends with an error, upon which the launcher ends the others. Before, it warns.
class StartLimit {
 public:
  /// @param warns  of many ranks that wait a few are enough
  StartLimit(const WaitLimits& limits, bool warns)
      : thread_(start_thread([this, limits, warns] {
          std::unique_lock lock(mutex_);
          const double seconds = limits.timeout_s;
          const auto over_within = [&](double more_s) {
            return over_.wait_for(lock, std::chrono::duration<double>(more_s), [this] { return done_; });
          };
          const double late_s = std::min(limits.late_s, seconds);
          if (over_within(late_s)) return;
          if (warns && late_s < seconds) {
            std::fprintf(
                stderr,
                "[WARN DDL-1-8] MPI_Init has waited %g s for other ranks; in ddl_init; a rank has not "
                "initialised DDL or MPI yet, or has ended without: look at the output of the others. "
                "It is an error after %g s (-timeout in DDL_OPTIONS)\n",
                late_s, seconds);
          }
          if (over_within(seconds - late_s)) return;
          std::fprintf(
              stderr,
              "[ERROR DDL-1-8] MPI_Init did not return within %g s; in ddl_init; every rank must initialise "
              "DDL or MPI: look at the output of the others, or raise -timeout in DDL_OPTIONS\n",
              seconds);
          std::fflush(stderr);
          _exit(1);
        })) {}
  ~StartLimit() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  StartLimit(const StartLimit&) = delete;
  StartLimit& operator=(const StartLimit&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::thread thread_;  // last: it uses the others
};

/// Waits for a mutex as long as the limit, while the thread's watches look on. @throws Error
/// (DDL_ERR_TIMEOUT)
std::unique_lock<std::mutex> lock_within(std::mutex& mutex, double limit_s) {
  std::unique_lock lock(mutex, std::try_to_lock);
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit_s));
  while (!lock) {
    WatchedWaits::look();
    if (Clock::now() > end) {
      throw Error(DDL_ERR_TIMEOUT,
                  "Timed out after " + format_number(limit_s) +
                      " s: another thread waits for the same ranks, on another communicator",
                  kFirstCall, "every rank must make the call: look at the output of the others");
    }
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
    static_cast<void>(lock.try_lock());
  }
  return lock;
}

bool same_ranks(MPI_Comm one, MPI_Comm other) {
  int relation = MPI_UNEQUAL;
  check_mpi(MPI_Comm_compare(one, other, &relation), "MPI_Comm_compare");
  return relation == MPI_IDENT || relation == MPI_CONGRUENT;
}

/// The racks that the job has measured, for its groups; null where their source is another.
std::shared_ptr<const HostRacks> measured_racks(const Topology& topology) {
  if (topology.source() != "measurement") return nullptr;
  auto racks = std::make_shared<HostRacks>();
  for (std::size_t rack = 0; rack < topology.root().children.size(); ++rack) {
    for (const int rank : topology.root().children[rack].ranks) {
      const auto host = static_cast<std::size_t>(topology.host_of(rank));
      // Without racks the children are hosts.
      const bool of_hosts = topology.root().children[rack].leaf();
      racks->emplace(topology.hosts()[host].key, of_hosts ? 0 : static_cast<int>(rack));
    }
  }
  return racks;
}

/// 0, 1, … below n.
std::vector<int> numbers_to(int n) {
  std::vector<int> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// Does what `ranks` of comm do together: where it takes too long for one of them, the error names it.
template <class Action>
void naming_missing(MPI_Comm comm, const std::vector<int>& ranks, const std::string& where,
                    const WaitLimits& limits, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.code() == DDL_ERR_TIMEOUT) name_missing(comm, ranks, where, limits.timeout_s);
    throw;
  }
}

/// The ranks of `comm` as ranks of base; none where base has not all of them.
std::vector<int> ranks_within(MPI_Comm base, MPI_Comm comm) {
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  check_mpi(MPI_Comm_group(comm, &members), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(base, &all), "MPI_Comm_group");
  const std::vector<int> own = numbers_to(size);
  std::vector<int> ranks(own.size());
  check_mpi(MPI_Group_translate_ranks(members, size, own.data(), all, ranks.data()),
            "MPI_Group_translate_ranks");
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  if (std::find(ranks.begin(), ranks.end(), MPI_UNDEFINED) != ranks.end()) return {};
  return ranks;
}

/// Ranks of base as those of MPI_COMM_WORLD, where all of them are.
std::vector<int> ranks_in_job(MPI_Comm base, const std::vector<int>& ranks) {
  const std::vector<int> all = ranks_within(MPI_COMM_WORLD, base);
  if (all.empty()) return ranks;
  std::vector<int> theirs;
  for (const int rank : ranks) theirs.push_back(all[static_cast<std::size_t>(rank)]);
  return theirs;
}

/// Waits until `ranks` of the world are here, and then does what they do together, which is a call in the
/// flight record.
/// @param one_at_a_time  of the threads that wait for these ranks, whose messages nothing tells apart; may be
///                       null
template <class Action>
void together(ProgressEngine& engine, const std::vector<int>& ranks, const std::string& where,
              const WaitLimits& limits, std::uint64_t kind, std::mutex* one_at_a_time, const Action& action) {
  Communicator& world = engine.world();
  struct Recorded {
    std::uint64_t call;
    bool failed = true;
    ~Recorded() { FlightRecorder::instance().end(call, failed, FlightRecorder::Clock::now()); }
  } recorded{FlightRecorder::instance().begin_forming(ranks_in_job(world.data(), ranks))};
  const auto idle = [&engine] { return !engine.busy(); };
  {
    MemberWatch watch(world, ranks, where, limits.patience_s, idle);
    std::unique_lock<std::mutex> lock;
    if (one_at_a_time != nullptr) lock = lock_within(*one_at_a_time, limits.patience_s);
    const Late late{limits.late_s, [&](const std::vector<int>& missing) { watch.note_late(missing); }};
    try {
      rendezvous(world.data(), ranks, limits.patience_s, late, kind);
    } catch (const Error& error) {
      if (error.code() == DDL_ERR_TIMEOUT) watch.name_given_up(limits.patience_s);
      throw;
    }
  }
  // Something has moved.
  const MemberWatch watch(world, ranks, where, limits.patience_s, idle);
  naming_missing(world.data(), ranks, where, limits, action);
  recorded.failed = false;
}

void check_communicator(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL) {
    throw Error(DDL_ERR_ARGUMENT, "the communicator is MPI_COMM_NULL", "in ddl_init",
                "only the members of a communicator may call");
  }
  int inter = 0;
  check_mpi(MPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter");
  if (inter == 0) return;
  throw Error(DDL_ERR_ARGUMENT, "the communicator joins two groups", "in ddl_init",
              "pass one of a single group, such as MPI_Intercomm_merge makes");
}

}  // namespace

Runtime& Runtime::instance() {
  // Never destroyed: threads may still call in while the process exits.
  static auto* const runtime = new Runtime;
  return *runtime;
}

void Runtime::watch_forks() {
  // Asking the kernel for the process's number at every call would take longer than a small call.
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { instance().forked_.store(true, std::memory_order_relaxed); });
  if (registered != 0)
    throw Error(DDL_ERR_MEMORY, "out of memory", "in ddl_init", "free memory or raise its limit");
}

void Runtime::init(const char* text, std::optional<MPI_Comm> comm) {
  const std::lock_guard lock(mutex_);
  Callers::note();
  if (state_ == State::kRunning) {
    world();  // Not a rank's where this process was forked from one.
    // Whoever names no communicator takes what there is.
    if (comm) refuse_other_ranks(*comm);
    if (text != nullptr) change_options(text);
    return;
  }
  if (mpi_finalized_) {
    throw Error(DDL_ERR_STATE, "DDL was finalised, and MPI with it", "in ddl_init",
                "MPI can be started only once a process, so call ddl_finalize at the end only");
  }
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw Error(DDL_ERR_STATE, "MPI is already finalised", "in ddl_init",
                "initialise DDL before MPI_Finalize");
  }
  if (comm && initialized == 0) {
    throw Error(DDL_ERR_STATE, "there are no communicators before MPI_Init", "in ddl_init",
                "initialise MPI first, or let DDL do so and pass none");
  }
  if (comm) check_communicator(*comm);
  const char* const of_job = std::getenv("DDL_OPTIONS");
  std::optional<Error> refused;
  try {
    options_ = parse_options(of_job == nullptr ? "" : of_job);
    if (text != nullptr) options_ = parse_options(text, options_);
  } catch (const Error& error) {
    // Only where there are other ranks to be told.
    int size = 1;
    if (initialized != 0) MPI_Comm_size(comm.value_or(MPI_COMM_WORLD), &size);
    if (size == 1) throw;
    refused = error;
    options_ = {};
    options_.refused = error.what();
  }
  // A child of a rank inherits the options of the job, whose sizes are not its own.
  if (child_of_rank()) options_.dims.clear();
  const Launcher launcher = detect_launcher();
  if (initialized == 0 && !launcher.present) {
    refuse_ranks_without_mpi(launcher);
    world_ = std::make_unique<Communicator>(options_);
  } else {
    try {
      init_mpi(options_, comm.value_or(MPI_COMM_WORLD), initialized != 0);
    } catch (const Error&) {
      // This rank knows its own reason, whoever has come to be told.
      if (refused) throw Error(*refused);
      throw;
    }
  }
  // Another thread may be about to leave ddl_wait on the one before.
  if (engine_) retired_.push_back(std::move(engine_));
  engine_ = std::make_unique<ProgressEngine>(*world_, calling_, threaded_);
  watch_forks();
  state_ = State::kRunning;
}

void Runtime::init_mpi(const Options& options, MPI_Comm comm, bool initialized_by_user) {
  int provided = MPI_THREAD_SINGLE;
  if (initialized_by_user) {
    check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    const int launched_as = detect_launcher().expected_rank.value_or(0);
    const StartLimit limit(options.limits, launched_as < kRanksThatWarn);
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  }
  try {
    int size = 1;
    int rank = 0;
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    const Launcher launcher = detect_launcher();
    if (size == 1) refuse_ranks_without_mpi(launcher);
    // A program that spawned its MPI itself knows better than the environment.
    const bool lost =
        size == 1 && (launcher.expected_size.value_or(1) > 1 || launcher.expected_rank.value_or(0) > 0);
    if (lost) {
      char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
      int length = 0;
      MPI_Get_library_version(version, &length);
      const std::string library(version, std::min<std::size_t>(std::string(version).find(','), 80));
      throw Error(DDL_ERR_LAUNCH, describe(launcher) + "but MPI_COMM_WORLD has size 1", "in ddl_init",
                  "the launcher (mpirun, srun) and the MPI library of this process (" + library +
                      ") are probably of different MPI installations or versions: start the program with the "
                      "mpirun of the same environment, and in a container without OPAL_PREFIX of the host");
    }
    if (provided < MPI_THREAD_MULTIPLE && options.dbg_level > 0 && rank == 0) {
      std::fprintf(stderr,
                   "[WARN DDL-1-0] MPI was initialised without MPI_THREAD_MULTIPLE: do not call MPI and DDL "
                   "from two threads at a time\n");
    }
    threaded_ = provided == MPI_THREAD_MULTIPLE;
    only_thread_.reset();
    if (provided < MPI_THREAD_SERIALIZED) only_thread_ = std::this_thread::get_id();
    int world_rank = 0;
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), "MPI_Comm_rank");
    if (size > 1) FlightRecorder::instance().configure(std::getenv("DDL_FLIGHT_RECORDER"), world_rank, size);
    base_ = private_communicator(comm, options.limits.timeout_s);
    {
      const std::lock_guard lock(parts_mutex_);
      initial_ = comm;
      if (comm != MPI_COMM_WORLD) watch_end_of(comm);
    }
    make_world(options);
  } catch (const Error& error) {
    base_ = MPI_COMM_WORLD;  // not freed: a rank may be missing
    // With a rank missing, finalising MPI would wait for it.
    const bool missing = error.code() == DDL_ERR_TIMEOUT || error.code() == DDL_ERR_PEER_LOST;
    if (!initialized_by_user && !missing) {
      MPI_Finalize();
      mpi_finalized_ = true;
    }
    throw;
  }
  owns_mpi_ = !initialized_by_user;
}

void Runtime::make_world(const Options& options) {
  int ranks = 1;
  check_mpi(MPI_Comm_size(base_, &ranks), "MPI_Comm_size");
  naming_missing(base_, numbers_to(ranks), "in ddl_init", options.limits,
                 [&] { world_ = std::make_unique<Communicator>(base_, options); });
  options_ = options;
  options_.known_racks = measured_racks(world_->topology());
  if (options.dbg_level == 0 || world_->rank() != 0) return;
  if (options.mode == 'b' || options.mode == 'n') {
    std::fprintf(stderr,
                 "[WARN DDL-1-0] mode %c is NCCL for buffers of GPUs; for those of the host every tier "
                 "uses a ring\n",
                 options.mode);
  }
  std::fprintf(stderr, "[DDL] topology %s\n", world_->topology().to_json().c_str());
}

bool Runtime::used() {
  if (engine_->busy() || world_->used()) return true;
  {
    const std::lock_guard lock(parts_mutex_);
    if (!parts_.empty()) return true;
  }
  const std::lock_guard lock(groups_mutex_);
  return last_group_ > 0;
}

void Runtime::change_options(const char* text) {
  Options wanted = parse_options(text, options_);
  // A child of a rank is given the options of the job, whose sizes are not its own.
  if (child_of_rank()) wanted.dims.clear();
  if (same_effect(wanted, options_)) return;
  if (used()) {
    throw Error(DDL_ERR_STATE,
                "DDL has made calls with the options '" + options_.text + "', and now gets '" + text + "'",
                "in ddl_init",
                "initialise with these options before the first call, or start the job with them in "
                "DDL_OPTIONS (ddlrun -ddlarg)");
  }
  check_dims(wanted, world_->size());
  {
    const std::lock_guard calling(calling_);
    if (world_->failed()) throw Error(world_->failure());
    world_->finalize(CallKind::kInit);
    engine_->end();
    // Unless the next one can be made there is none.
    state_ = State::kFinalized;
    const bool alone = !world_->distributed();
    world_.reset();
    if (alone) {
      options_ = wanted;
      world_ = std::make_unique<Communicator>(options_);
    } else {
      wanted.known_racks.reset();
      make_world(wanted);
    }
  }
  retired_.push_back(std::move(engine_));
  engine_ = std::make_unique<ProgressEngine>(*world_, calling_, threaded_);
  state_ = State::kRunning;
}

Communicator& Runtime::world() {
  if (state_ == State::kRunning && forked_.load(std::memory_order_relaxed)) {
    throw Error(DDL_ERR_STATE, "this process was forked from rank " + std::to_string(world_->rank()),
                "in this process",
                "only the rank itself may call DDL: start helpers with another program, or before ddl_init");
  }
  if (state_ == State::kRunning) return *world_;
  throw Error(DDL_ERR_STATE, state_ == State::kFresh ? "DDL is not initialised" : "DDL was finalised",
              "in this process", state_ == State::kFresh ? "call ddl_init first" : "call ddl_finalize last");
}

void Runtime::refuse_thread() {
  throw Error(
      DDL_ERR_STATE, "MPI was initialised for calls by one thread only, and this is another",
      "in this process",
      "call DDL from the thread that initialised it, or ask for MPI_THREAD_MULTIPLE in MPI_Init_thread");
}

void Runtime::give_ranks_back() {
  if (base_ != MPI_COMM_WORLD) MPI_Comm_free(&base_);
  base_ = MPI_COMM_WORLD;
}

void Runtime::refuse_other_ranks(MPI_Comm comm) {
  check_communicator(comm);
  if (same_ranks(comm, base_)) return;
  throw Error(DDL_ERR_STATE,
              "DDL is initialised already, over " + std::to_string(world_->size()) + " other ranks",
              "in ddl_init", "in Python set DDL_AUTO_INIT=0 before `import ddl`, and initialise once");
}

bool Runtime::is_world(MPI_Comm comm) {
  world();
  if (comm == MPI_COMM_NULL) {
    throw Error(DDL_ERR_ARGUMENT, "the communicator is MPI_COMM_NULL", "in ddl_allreduce_mpi",
                "only its members may call");
  }
  // Another one of the same ranks has an order of calls of its own.
  return comm == initial_;
}

void Runtime::watch_end_of(MPI_Comm comm) {
  if (keyval_ == MPI_KEYVAL_INVALID) {
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval_, this),
              "MPI_Comm_create_keyval");
  }
  // The value means nothing.
  check_mpi(MPI_Comm_set_attr(comm, keyval_, this), "MPI_Comm_set_attr");
}

std::shared_ptr<Runtime::Part> Runtime::part_of(MPI_Comm comm) {
  const std::lock_guard lock(parts_mutex_);
  if (const auto found = parts_.find(comm); found != parts_.end()) return found->second;
  const auto made = std::make_shared<Part>();
  watch_end_of(comm);
  parts_.emplace(comm, made);
  return made;
}

Communicator& Runtime::of(Part& part, MPI_Comm comm) {
  if (part.communicator) return *part.communicator;
  const std::vector<int> ranks = ranks_within(base_, comm);
  std::unique_ptr<Communicator> made;
  const auto make = [&] { made = std::make_unique<Communicator>(comm, options_of_part(), true); };
  if (ranks.size() < 2 || !world_->distributed()) {
    make();
  } else {
    std::mutex* one_at_a_time = nullptr;
    {
      const std::lock_guard lock(parts_mutex_);
      one_at_a_time = &first_calls_[ranks];
    }
    together(*engine_, ranks, kFirstCall, options_.limits, kOfPart, one_at_a_time, [&] {
      // A rank may have come for another communicator of the same ranks, with a thread of its own.
      std::array<MPI_Request, 1> all_here{MPI_REQUEST_NULL};
      check_mpi(MPI_Ibarrier(comm, all_here.data()), "MPI_Ibarrier");
      wait_for(all_here, options_.limits.patience_s,
               {"a rank", kFirstCall, "every rank must make the call: look at the output of the others"});
      make();
    });
  }
  const std::lock_guard lock(parts_mutex_);
  part.communicator = std::move(made);
  return *part.communicator;
}

int Runtime::forget(MPI_Comm comm, int, void*, void* extra) {
  auto* const self = static_cast<Runtime*>(extra);
  std::unique_ptr<Communicator> last;
  {
    const std::lock_guard lock(self->parts_mutex_);
    // MPI may give its handle to another one.
    if (comm == self->initial_) self->initial_ = MPI_COMM_NULL;
    const auto found = self->parts_.find(comm);
    if (found == self->parts_.end()) return MPI_SUCCESS;
    last = std::move(found->second->communicator);
    self->parts_.erase(found);
  }
  release(std::move(last));
  return MPI_SUCCESS;
}

void Runtime::release(std::unique_ptr<Communicator> communicator) {
  // After a failure messages may still be under way to its memory, so it stays.
  if (communicator && communicator->failed()) static_cast<void>(communicator.release());
}

Options Runtime::options_of_part() const {
  Options options = options_;
  // They describe the world, and its file is the world's.
  options.dims.clear();
  options.timeline.clear();
  return options;
}

template <class Action>
void Runtime::for_each_communicator(Action action) {
  action(*world_);
  {
    const std::lock_guard lock(parts_mutex_);
    for (const auto& [comm, part] : parts_) {
      if (part->communicator) action(*part->communicator);
    }
  }
  const std::lock_guard lock(groups_mutex_);
  for (const auto& [number, group] : groups_) {
    if (group->own() != nullptr) action(*group->own());
  }
}

void Runtime::abort(const char* reason) {
  world();
  // Where MPI allows for one thread at a time, another one may be within it.
  std::unique_lock<std::mutex> lock;
  if (!threaded_) {
    if (only_thread_ && *only_thread_ != std::this_thread::get_id()) refuse_thread();
    lock = std::unique_lock(calling_, std::try_to_lock);
    if (!lock) return;
  }
  const bool told = reason != nullptr && *reason != 0;
  for_each_communicator([&](Communicator& communicator) {
    communicator.announce(
        Error(DDL_ERR_PEER_LOST,
              "the program of " + communicator.topology().describe_rank(communicator.rank()) +
                  " ends with an error" + (told ? ": " + std::string(reason) : ""),
              "on that rank", "look at its output for the reason"),
        false);
  });
}

bool Runtime::busy() {
  world();
  if (engine_->busy()) return true;
  const auto held = [](std::mutex& calling) { return !std::unique_lock(calling, std::try_to_lock); };
  {
    const std::lock_guard lock(parts_mutex_);
    for (const auto& [comm, part] : parts_) {
      if (held(part->calling)) return true;
    }
  }
  const std::lock_guard lock(groups_mutex_);
  return std::any_of(groups_.begin(), groups_.end(), [](const auto& group) { return group.second->busy(); });
}

std::uint64_t Runtime::create_group(const std::vector<int>& ranks, double timeout_s) {
  Communicator& all = world();
  const std::string where = "in ddl_group_create";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= all.size()) {
      throw Error(DDL_ERR_ARGUMENT, "rank " + std::to_string(ranks[i]) + " is no rank", where,
                  "pass 0 to " + std::to_string(all.size() - 1));
    }
    if (std::find(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(i), ranks[i]) !=
        ranks.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw Error(DDL_ERR_ARGUMENT, "rank " + std::to_string(ranks[i]) + " is there twice", where,
                  "name each rank once");
    }
  }
  if (!ranks.empty() && std::find(ranks.begin(), ranks.end(), all.rank()) == ranks.end()) {
    throw Error(DDL_ERR_ARGUMENT, "rank " + std::to_string(all.rank()) + " is not in the group", where,
                "only its ranks may make it");
  }
  if (!(timeout_s >= 0) || timeout_s > 1e9) {
    throw Error(DDL_ERR_ARGUMENT, "a time limit of " + std::to_string(timeout_s) + " s", where,
                "pass seconds, or 0 for -patience");
  }
  if (!threaded_) {
    throw Error(DDL_ERR_STATE, "MPI was initialised without MPI_THREAD_MULTIPLE, which groups need", where,
                "let DDL initialise MPI, or ask for that level in MPI_Init_thread");
  }
  Options options = options_of_part();
  if (timeout_s > 0) options.limits.patience_s = timeout_s;
  Callers::note();
  const std::lock_guard making(making_group_);
  std::shared_ptr<RankGroup> made;
  if (ranks.empty()) {
    made = group_of_all(options);
  } else if (ranks.size() == 1) {
    made = std::make_shared<RankGroup>(options);
  } else {
    together(*engine_, ranks, kMakingAGroup, options.limits, 0, nullptr, [&] {
      made = std::make_shared<RankGroup>(communicator_of(base_, ranks, options.limits.timeout_s), options);
    });
  }
  const std::lock_guard lock(groups_mutex_);
  groups_.emplace(++last_group_, std::move(made));
  return last_group_;
}

std::shared_ptr<RankGroup> Runtime::group_of_all(const Options& options) {
  const auto shared = [&] {
    return std::make_shared<RankGroup>(base_, world(), *engine_, options.limits.patience_s);
  };
  if (world().size() == 1) return shared();
  const std::vector<int> everyone = numbers_to(world().size());
  const double limit_s = options.limits.timeout_s;
  std::shared_ptr<RankGroup> made;
  together(*engine_, everyone, kMakingAGroup, options.limits, 0, nullptr, [&] {
    MPI_Comm own = communicator_of(base_, everyone, limit_s);
    bool failed = false;
    engine_->call([&](Communicator& communicator) { failed = communicator.failed(); });
    const TreeExchange tree(own, everyone, limit_s, kMakingAGroup, "look at the output of its ranks");
    const auto either = [](std::string a, const std::string& b) { return a.empty() ? b : a; };
    const bool of_no_use = !tree.broadcast(tree.reduce(failed ? "failed" : "", either)).empty();
    // The world's communicator is of no use any more; all agree on that, also those that did not notice yet.
    if (of_no_use) {
      world().note_all_alive();
      made = std::make_shared<RankGroup>(own, options);
      return;
    }
    MPI_Comm_free(&own);
    made = shared();
  });
  return made;
}

std::shared_ptr<RankGroup> Runtime::group(std::uint64_t number) {
  world();
  Callers::note();
  const std::lock_guard lock(groups_mutex_);
  const auto found = groups_.find(number);
  if (found != groups_.end()) return found->second;
  throw Error(DDL_ERR_ARGUMENT, "group " + std::to_string(number) + " is none", "in this process",
              "pass what ddl_group_create gave, until ddl_group_free");
}

void Runtime::free_group(std::uint64_t number) {
  const std::shared_ptr<RankGroup> last = group(number);
  const std::lock_guard lock(groups_mutex_);
  groups_.erase(number);
}

void Runtime::wait_for_parts() {
  const auto settle = [&](std::mutex& of_calls, Communicator* communicator) {
    // Where the world has failed nobody is waited for.
    if (communicator != nullptr && world_->failed()) {
      communicator->announce(world_->failure(), !world_->ranks_missing());
    }
    const std::lock_guard over(of_calls);
  };
  std::vector<std::shared_ptr<Part>> parts;
  {
    const std::lock_guard lock(parts_mutex_);
    for (const auto& [comm, part] : parts_) parts.push_back(part);
  }
  for (const auto& part : parts) settle(part->calling, part->communicator.get());
  std::vector<std::shared_ptr<RankGroup>> groups;
  {
    const std::lock_guard lock(groups_mutex_);
    for (const auto& [number, group] : groups_) groups.push_back(group);
  }
  for (const auto& group : groups) settle(group->calling(), group->own());
}

void Runtime::finalize() {
  const std::lock_guard lock(mutex_);
  // A forked copy has nothing to finalise: the rank itself will.
  if (state_ != State::kRunning || forked_) return;
  engine_->drain();
  engine_->end();
  state_ = State::kFinalized;
  const std::lock_guard calling(calling_);
  wait_for_parts();
  for_each_communicator([](Communicator& communicator) { communicator.note_finalizing(); });
  int mpi_gone = 0;
  MPI_Finalized(&mpi_gone);
  std::exception_ptr failure;
  try {
    if (mpi_gone == 0) world_->finalize();
  } catch (const Error&) {
    failure = std::current_exception();
  }
  bool missing = world_->ranks_missing();
  {
    const std::lock_guard groups(groups_mutex_);
    for (const auto& [number, group] : groups_) missing = missing || group->ranks_missing();
    for (const auto& [number, group] : groups_) {
      if (missing || mpi_gone != 0) group->abandon();
    }
    groups_.clear();
  }
  if (mpi_gone != 0 || world_->failed()) {
    static_cast<void>(world_.release());
  } else {
    std::vector<MPI_Comm> parts;
    {
      const std::lock_guard lock_parts(parts_mutex_);
      for (const auto& [comm, part] : parts_) parts.push_back(comm);
      if (initial_ != MPI_COMM_WORLD && initial_ != MPI_COMM_NULL) parts.push_back(initial_);
    }
    for (const MPI_Comm comm : parts) MPI_Comm_delete_attr(comm, keyval_);
    if (keyval_ != MPI_KEYVAL_INVALID) MPI_Comm_free_keyval(&keyval_);
    world_.reset();
    give_ranks_back();
  }
  if (missing) {
    // MPI stays unfinalised, so the launcher ends the other ranks as soon as this process ends. They may need
    // a moment longer to notice and report the failure.
    std::this_thread::sleep_for(std::chrono::seconds(1));
  } else if (owns_mpi_ && mpi_gone == 0) {
    MPI_Finalize();
  }
  mpi_finalized_ = owns_mpi_;
  FlightRecorder::instance().stop();
  if (failure) std::rethrow_exception(failure);
}

bool Runtime::initialized() { return state_ == State::kRunning && !forked_; }

}  // namespace ddl
