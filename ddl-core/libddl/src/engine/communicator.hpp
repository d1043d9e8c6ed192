#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "collective/all_to_all.hpp"
#include "collective/broadcast.hpp"
#include "collective/collective_ref.hpp"
#include "collective/nccl_operations.hpp"
#include "collective/plain_allreduce.hpp"
#include "collective/reduction.hpp"
#include "engine/call_history.hpp"
#include "engine/call_validation.hpp"
#include "engine/device_ranks.hpp"
#include "engine/failure_detector.hpp"
#include "engine/inspection.hpp"
#include "engine/options.hpp"
#include "engine/plan_cache.hpp"
#include "engine/small_allreduce.hpp"
#include "engine/wire_residuals.hpp"
#include "plan/planner.hpp"
#include "topology/topology.hpp"

namespace ddl {

class Backoff;

/// How a call is run.
struct RunRules {
  bool eager = false;            ///< messages need not wait for the validation: they are few and small
  bool carries_headers = false;  ///< the collective's own messages carry the headers
  double patience_scale = 1.0;   ///< how many times the time limit ranks that answer are waited for
  /// How long a rank may sleep while messages are under way: far shorter than what is under way keeps a link
  /// busy.
  double longest_sleep_s = 200e-6;
};

/// Up to this size a call's messages are sent before it is known that all ranks make the same call.
inline constexpr std::size_t kEagerBytes = std::size_t{64} << 10;

/// From this size on a message to each member is worth it.
inline constexpr std::size_t kWorthAMessage = std::size_t{8} << 10;

/// What a world of one rank does, as reports name algorithms.
inline constexpr std::string_view kCopy = "copy";

/// Staging memory of a rank for each group beside the world.
inline constexpr std::size_t kGroupStageBytes = kStageBytes / 2;

/**
 * The ranks of one MPI communicator (or a single rank without MPI) and all that they need for collective
 * calls. Not thread-safe: the runtime serialises.
 *
 * collectives/ has a file for each collective, with the ways in which it can be made; communicator_run.cpp
 * how a call is run, whichever it is.
 */
class Communicator {
 public:
  /// What a call is checked by: sizes and name of its buffers.
  struct CallSignature {
    std::uint64_t buffers = 1;
    std::uint64_t counts_hash = 0;
    const char* name = nullptr;  ///< may be null
    std::int32_t memory = 0;     ///< kind of the buffers' memory
  };

  /// A world of one rank; never touches MPI.
  explicit Communicator(const Options& options);
  /// Collective over base, whose ranks must all be here already.
  /// @param of_part  beside the world: with less staging memory, which is taken when it is first needed
  Communicator(MPI_Comm base, const Options& options, bool of_part = false);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const Topology& topology() const { return topology_; }
  int rank() const { return rank_; }
  int size() const { return topology_.size(); }
  const WaitLimits& limits() const { return options_.limits; }

  /// The buffers of the next call, in memory that is kept from call to call. Valid until it is asked for
  /// again.
  const BufferList& list(void* const* bufs, const std::size_t* counts, std::size_t n, DDL_Type type,
                         Executor& executor) {
    input_.assign(bufs, counts, n, type, executor);
    return input_;
  }
  /// All in elements of `type`; collective; complete on return. @throws Error
  void allreduce(const BufferList& buffers, const CallSignature& signature, DDL_Type type, DDL_Op op);
  void reduce(const BufferList& buffers, const CallSignature& signature, DDL_Type type, DDL_Op op, int root);
  void broadcast(const BufferList& buffers, const CallSignature& signature, DDL_Type type, int root);
  /// in: count elements for each rank, out: count; both in the executor's memory, as in what follows.
  void reduce_scatter(const void* in, void* out, std::size_t count, DDL_Type type, DDL_Op op,
                      const char* name, Executor& executor = host_executor());
  /// in: count elements, out: count from each rank.
  void all_gather(const void* in, void* out, std::size_t count, DDL_Type type, const char* name,
                  Executor& executor = host_executor());
  /// in and out: count elements for, and from, each rank.
  void all_to_all(const void* in, void* out, std::size_t count, DDL_Type type, const char* name,
                  Executor& executor = host_executor());
  /// One block for and from each rank, of any sizes. @param name  may be null
  void alltoallv(std::vector<ExchangedBlocks> blocks, const char* name);
  void barrier();
  void allreduce_plain(void* buf, std::size_t count, DDL_Type type, DDL_Op op);
  /// Makes a call: action(*this). Whatever ends it here, be it before the others know of the call, ends it
  /// for all, who learn of it at once. @throws Error which is the same for all
  template <class Action>
  void make(const Action& action) {
    try {
      action(*this);
    } catch (...) {
      refuse_call();
      throw;
    }
  }
  /// A call that all ranks are to make cannot be made here: a failure, of which the others learn at once.
  /// Nothing for a rank that is alone. @throws Error which is the same for all
  void refuse(const Error& error) {
    if (distributed_) fail(error);
  }
  /// A call that its arguments forbid: nothing where all ranks refuse it, else a mismatch that names the
  /// reason.
  /// @throws Error
  void refuse_alike(const Error& error);
  /// Makes a failure known to all ranks, while another thread may make a call. The next call, or that one,
  /// ends with it. Any thread's.
  /// @param all_alive  no rank is missing, nor will one be
  void announce(const Error& error, bool all_alive) noexcept;
  /// The exception that is being handled, as all ranks are told of it.
  Error error_here() const;
  /// This rank makes no further call here but finalize(): who waits for it in one is told when it asks.
  void note_finalizing();
  /// Waits for all ranks before anything is torn down. In the failed state it returns at once.
  /// @param kind  as it is shown where another rank makes another call
  void finalize(CallKind kind = CallKind::kFinalize);

  /// How many calls this rank has submitted since the start, which the other ranks are told with the next
  /// one.
  /// May be called while another thread makes a call.
  void set_submitted(std::uint64_t calls) { submitted_ = calls; }
  /// Some of them are started and made later: from now on what others have submitted decides the order. Also
  /// while another thread makes a call.
  void note_started() { started_ = true; }
  /// Of the last call: how many every rank had submitted by then.
  std::uint64_t submitted_by_all() const { return submitted_by_all_; }
  /// The next calls are made by a thread that others compute beside: it must not spin.
  void set_background(bool background) { background_ = background; }
  /// How long the next calls may wait for ranks that are late; none: as the options say.
  void set_patience(std::optional<double> patience_s) { patience_s_ = patience_s; }
  /// All-reduces that are made together give the same bits as those made one by one.
  bool may_group() const { return options_.mode == 'p' && options_.wire != WireFormat::kQ8; }

  /// For messages with tags of their own. Not of a world without MPI.
  MPI_Comm data() const { return transport_->data(); }
  /// Whether there are other ranks.
  bool distributed() const { return distributed_; }
  /// Whether a call was made.
  bool used() const { return history_.counters.calls > 0; }
  bool failed() const { return detector_ && detector_->failure(); }
  /// Null where there are no other ranks.
  FailureDetector* detector() { return detector_ ? &*detector_ : nullptr; }
  /// Only where it has failed.
  const Error& failure() const { return *detector_->failure(); }
  /// Whether nothing is left to be made ready for calls on GPUs. Any thread's.
  bool devices_ready() const { return !distributed_ || devices_ready_.load(std::memory_order_acquire); }
  /// A rank is missing: MPI must not be finalised, since that would wait for it.
  bool ranks_missing() const;
  /// After a failure: all ranks have been seen since.
  void note_all_alive();
  /// For a look at it, by stats_json() and to_json(), while another thread makes a call.
  Inspection& inspection() { return inspection_; }
  std::string to_json() const;
  std::string stats_json() const;

 private:
  void connect(int size);
  CallHeader header_of(CallKind kind, DDL_Type type, int op, int root, std::uint64_t count,
                       const CallSignature& signature);
  /// Runs one call: validation and, at the same time, what moves its data.
  void run(const CallHeader& header, const CollectiveRef& collective, const RunRules& rules = {});
  /// Of calls whose tiers have so many bytes under way.
  double longest_sleep(const std::vector<std::size_t>& windows) const;
  /// Runs a call that is cut into chunks, by a collective that is started with `call`.
  template <class Collective, class Call>
  void carry_out(const CallHeader& header, Collective& collective, const Call& call,
                 const std::vector<std::size_t>& windows = {}, RunRules rules = {}) {
    scheduler_->set_windows(windows);
    rules.longest_sleep_s = longest_sleep(windows);
    collective.start(call);
    run(header, CollectiveRef(collective), rules);
    context_->chunks_done += call.chunking.chunks;
    history_.last_chunking = call.chunking;
  }
  /// Where a call's data is.
  struct CallMemory {
    Executor& executor;
    std::size_t bytes;         ///< of the call, for the counters
    const void* in = nullptr;  ///< null: the call is in place
    void* out = nullptr;
    std::size_t own_bytes = 0;  ///< of in that a rank which is alone copies to out
  };
  /// Makes a call that NCCL knows as well, and accounts for it: by NCCL where that can, else by DDL's own
  /// means.
  /// @param reduces  what NCCL would have to reduce; none: it only moves bytes
  /// @param put  puts NCCL's operation on a stream: put(ranks, stream)
  /// @param by_ddl  runs the call without NCCL, and returns its algorithm
  template <class Put, class ByDdl>
  void make_call(CallHeader& header, const CallMemory& memory, const char* what,
                 std::optional<std::pair<DDL_Type, DDL_Op>> reduces, const Put& put, const ByDdl& by_ddl) {
    std::string_view algorithm = kCopy;
    if (distributed_) {
      prepare_devices(header, memory.executor);
      if (nccl_takes(memory.executor, reduces)) {
        run_by_nccl(header, memory.executor, what, NcclCollective::Put(put));
        algorithm = "NCCL";
      } else {
        algorithm = by_ddl();
      }
    } else if (memory.in != nullptr) {
      copy_within(memory.executor, memory.out, memory.in, memory.own_bytes);
    }
    account(header, memory.bytes, algorithm);
  }
  /// Text of an algorithm, and of CUDA IPC where it is used; valid until the next.
  std::string_view by_way(const char* way, const IpcHost* ipc);
  /// An all-reduce of several ranks; its algorithm in words. @param name  the whole one, or null
  const std::string& run_allreduce(CallHeader header, const BufferList& buffers, DDL_Type type, DDL_Op op,
                                   const char* name);
  /// A call without chunks yet.
  ReductionCall reduction_of(const BufferList& input, const BufferList& output, DDL_Type type,
                             DDL_Op op) const;
  // Ways of a reduce-scatter of `count` elements for each rank.
  /// Each tier leaves the ranks with their parts of every block, as cut_blocks() has cut them.
  void scatter_by_tiers(const CallHeader& header, ReductionCall& call);
  /// Hosts of different sizes: no exchange leaves each rank just its block. A sum of everything for everybody
  /// takes twice the bytes, and logarithmically many messages.
  void keep_own_block(const CallHeader& header, ReductionCall& call, std::size_t count);
  /// A reduction for each rank in turn.
  void send_to_each_rank(const CallHeader& header, ReductionCall& call, std::size_t count);
  // Ways of an all-gather.
  /// Each tier gives the ranks the others' parts of every block, as cut_blocks() has cut them.
  void gather_by_tiers(const CallHeader& header, ReductionCall& call);
  /// For hosts of different sizes. @param count  elements of each rank
  void broadcast_from_each_rank(const CallHeader& header, std::size_t count, DDL_Type type);
  /// Copies within one kind of memory, of a rank that is alone.
  void copy_within(Executor& executor, void* to, const void* from, std::size_t bytes) const;
  /// Goes on with the validation alone. @throws Error when it finds that the calls differ
  void agree_after_failure(Backoff& backoff);
  /// Lets the others know while this rank's GPU has not come to the call.
  void note_held_up(const CallHeader& header);
  LinkModel links();
  /// Makes ready for calls on GPUs, in the first of them; the call's header then has another number. Nothing
  /// for other memory.
  void prepare_devices(CallHeader& header, Executor& executor);
  /// Whether a call can be NCCL's own. @param reduces  what NCCL would have to reduce; none: it only moves
  /// bytes
  bool nccl_takes(const Executor& executor, std::optional<std::pair<DDL_Type, DDL_Op>> reduces) const;
  void run_by_nccl(CallHeader& header, Executor& executor, const char* what, NcclCollective::Put put);
  /// What a call's chunks use of CUDA IPC; null where they do not.
  IpcHost* ipc_of(const Executor& executor) const;
  void make_segment_comms(const ChunkPlan& plan);
  /// Cuts blocks of `count` elements for a reduce-scatter or all-gather by all tiers at once; false where
  /// ranks do not own equally much of a chunk.
  bool cut_blocks(std::size_t count, ReductionCall& call);
  /// How the tiers exchange chunks of such a size among all ranks; into blocks_plan_.
  void choose_rounds(std::size_t chunk_bytes);
  /// @param on_device  chunks are reduced by the GPU, to which a small one is not worth its launch
  Chunking plain_chunking(std::size_t elements, std::size_t width, bool on_device = false) const;
  bool use_chain(std::size_t bytes) const;
  void learn();
  /// Of the call that header_of() began and whose last run has ended.
  void account(const CallHeader& header, std::size_t bytes, std::string_view algorithm);
  void dump(double seconds);
  void abandon();
  /// The exception that is being handled has ended a call. @throws Error unless the others know it already
  void refuse_call();
  /// Makes the failure known to all ranks, and writes the flight record. @throws Error which is the same for
  /// all
  [[noreturn]] void fail(const Error& error);

  const Options options_;
  std::uint64_t recorded_as_ = 0;  ///< number in the flight record
  const bool explain_;
  const bool of_part_ = false;
  int rank_ = 0;
  Topology topology_;
  bool oversubscribed_ = false;
  bool background_ = false;
  std::optional<double> patience_s_;
  bool distributed_ = false;

  CallHistory history_;
  Clock::time_point began_;  ///< the call
  Clock::time_point ended_;  ///< its last run
  CallHeader under_way_;
  std::optional<Clock::time_point> under_way_since_;  ///< none: no call is
  std::atomic<bool> in_call_ = false;                 ///< for other threads
  Inspection inspection_;
  std::uint64_t sequence_ = 0;
  // Their memory is kept from call to call.
  BufferList input_;
  BufferList output_;
  Plan blocks_plan_;
  std::string way_;
  std::atomic<std::uint64_t> submitted_ = 0;
  std::atomic<bool> started_ = false;
  std::uint64_t submitted_by_all_ = 0;
  struct Timed {
    AllreduceShape shape;
    std::size_t candidate;
  };
  std::optional<Timed> timed_;  ///< the call before, whose slowest time comes with this one's validation

  // In the order of their construction; all null in a world of one.
  std::optional<MpiTransport> transport_;
  std::optional<SendScheduler> scheduler_;
  std::optional<Timeline> timeline_;
  std::optional<SharedSegment> segment_;
  std::optional<FailureDetector> detector_;
  std::optional<CollectiveContext> context_;
  std::optional<CallValidation> validation_;
  std::optional<Planner> planner_;
  std::optional<PlanCache> plans_;
  std::optional<TieredReduction> reduction_;
  std::optional<SmallAllreduce> small_;
  std::optional<Broadcast> broadcast_;
  std::optional<AllToAll> all_to_all_;
  std::optional<BlockSizes> block_sizes_;
  std::optional<PlainAllreduce> plain_;
  NcclCollective by_nccl_;
  NcclTieredAllreduce in_tiers_;
  std::unique_ptr<DeviceRanks> devices_;  ///< from the first call on GPUs on
  std::atomic<bool> devices_ready_ = false;
  std::string awaited_of_device_;    ///< by the next run, for texts
  Executor* device_call_ = nullptr;  ///< of the call under way, if it is one on GPUs
  WireResiduals residuals_;
};

/// While it lives, calls of a communicator wait for so long instead of -patience.
class TimeLimit {
 public:
  TimeLimit(Communicator& of, double seconds) : of_(of) { of_.set_patience(seconds); }
  ~TimeLimit() { of_.set_patience({}); }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  Communicator& of_;
};

}  // namespace ddl
