#include "engine/communicator.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <ctime>
#include <functional>
#include <utility>

#include "plan/chunking.hpp"
#include "support/hash.hpp"

namespace ddl {
namespace {

/// Up to this size a call's messages are sent before it is known that all ranks make the same call.
constexpr std::size_t kEagerBytes = std::size_t{64} << 10;

/// Calls of this size take so long that the ranks look anew at what was submitted.
constexpr std::size_t kLongCallBytes = std::size_t{4} << 20;

/// How many time limits ddl_finalize waits for ranks that answer: one may well evaluate or save while the
/// others are done.
constexpr double kFinalizePatienceScale = 10;

/// Of the blocks of all ranks a chunk has so much: enough chunks that memory and links are busy at the same
/// time.
constexpr std::size_t kBlocksChunks = 8;
constexpr std::size_t kLeastBlocksChunk = std::size_t{64} << 10;
constexpr std::size_t kMostBlocksChunk = std::size_t{256} << 10;

/// From this size on a message to each member is worth it.
constexpr std::size_t kWorthAMessage = std::size_t{8} << 10;

/// Of more ranks a plan for each would take more memory than was promised: each names all hosts.
constexpr std::size_t kMostPlansOfRoots = 512;

/// What a world of one rank does.
const std::string kCopy = "copy";
const std::string kByNccl = "NCCL";
constexpr const char* kByIpc = ", CUDA IPC within hosts";

/// The chunks of an all-reduce. A reference to it fits into a std::function without memory of its own.
struct Cuts {
  const Chunking& chunking;
  std::size_t elements;
  const ChunkPlan* whole;
  const ChunkPlan* last;

  ChunkSpec chunk(std::size_t i) const {
    const bool is_last = i + 1 == chunking.chunks;
    const std::size_t begin = i * chunking.chunk_elements;
    const std::size_t end = is_last ? elements : begin + chunking.chunk_elements;
    return ChunkSpec{{begin, end}, begin, is_last ? last : whole, nullptr, -1};
  }
};

}  // namespace

template <class Collective, class Call>
void Communicator::carry_out(const CallHeader& header, Collective& collective, const Call& call,
                             const std::vector<std::size_t>& windows, RunRules rules) {
  scheduler_->set_windows(windows);
  rules.longest_sleep_s = longest_sleep(windows);
  collective.start(call);
  run(header, CollectiveRef(collective), rules);
  context_->chunks_done += call.chunking.chunks;
  last_chunking_ = call.chunking;
}

double Communicator::longest_sleep(const std::vector<std::size_t>& windows) const {
  // Of the time in which the window of a tier empties, if this rank had the link to itself. Where others
  // share the link, or both directions of it are in use, that takes longer.
  constexpr double kPartOfWindow = 1.0 / 4;
  constexpr double kLongest = 2e-3;
  double seconds = kLongest;
  const std::vector<LinkFigures>& tiers = planner_->model().tiers;
  for (std::size_t t = 0; t < std::min(windows.size(), tiers.size()); ++t) {
    if (tiers[t].bytes_per_s > 0)
      seconds = std::min(seconds, kPartOfWindow * static_cast<double>(windows[t]) / tiers[t].bytes_per_s);
  }
  return windows.empty() ? RunRules{}.longest_sleep_s : std::max(seconds, RunRules{}.longest_sleep_s);
}

ReductionCall Communicator::reduction_of(const BufferList& input, const BufferList& output, DDL_Type type,
                                         DDL_Op op) const {
  return ReductionCall{.input = input,
                       .output = output,
                       .type = type,
                       .op = op,
                       .kernel = reduce_kernel(type, op),
                       .divisor = op == DDL_OP_AVG ? size() : 1};
}

void Communicator::note_all_alive() {
  if (detector_) detector_->note_all_alive();
}

bool Communicator::ranks_missing() const {
  return detector_ && detector_->failure() && !detector_->all_alive();
}

Chunking Communicator::plain_chunking(std::size_t elements, std::size_t width, bool on_device) const {
  Chunking chunking;
  chunking.slot_bytes = on_device ? kMaxChunkBytes : std::size_t{256} << 10;
  chunking.slots = std::min(kMaxSlots, segment_->stage_bytes() / chunking.slot_bytes);
  if (elements == 0) return chunking;
  chunking.chunk_elements = std::min(elements, chunking.slot_bytes / width);
  chunking.chunks = (elements + chunking.chunk_elements - 1) / chunking.chunk_elements;
  return chunking;
}

bool Communicator::use_chain(std::size_t bytes) const {
  // The binomial tree's first link carries everything log2(H) times; the chain's last host waits for H - 1
  // chunks.
  const auto hosts = static_cast<double>(context_->groups.size());
  double steps = 0;
  for (double reached = 1; reached < hosts; reached *= 2) ++steps;
  const double chunk = 256 << 10;
  return hosts > 2 && static_cast<double>(bytes) * (steps - 1) > (hosts - 1) * chunk;
}

void Communicator::allreduce(const BufferList& buffers, const CallSignature& signature, DDL_Type type,
                             DDL_Op op) {
  CallHeader header = header_of(CallKind::kAllreduce, type, op, 0, buffers.count(), signature);
  const std::string* algorithm = &kCopy;
  if (distributed_) {
    prepare_devices(header, buffers.executor());
    algorithm = &run_allreduce(header, buffers, type, op, signature.name);
  }
  account(header, buffers.count() * size_of(type), *algorithm);
  if (distributed_ && buffers.count() * size_of(type) >= kLongCallBytes && validation_->any_started()) {
    // Much may have been submitted meanwhile; what is urgent among it should not wait for one call more.
    run(header_of(CallKind::kSchedule, DDL_TYPE_FLOAT, 0, 0, 0, CallSignature{0, 0, nullptr}), {});
  }
}

const std::string& Communicator::run_allreduce(CallHeader header, const BufferList& buffers, DDL_Type type,
                                               DDL_Op op, const char* name) {
  const WireFormat wire =
      type == DDL_TYPE_FLOAT && (op == DDL_OP_SUM || op == DDL_OP_AVG) && context_->groups.size() > 1
          ? options_.wire
          : WireFormat::kFull;
  AllreduceShape shape;
  shape.elements = buffers.count();
  shape.width = size_of(type);
  shape.order_free = type == DDL_TYPE_INT32 || type == DDL_TYPE_INT64;
  shape.rounds_each_step = is_16bit(type);
  shape.narrow_range = type == DDL_TYPE_HALF;
  shape.one_buffer = buffers.buffers() == 1;
  shape.encoded = wire != WireFormat::kFull;
  shape.memory = buffers.executor().kind();
  if (shape.memory == DDL_MEMORY_CUDA && devices_->all() != nullptr && cuda::nccl_reduces(type, op)) {
    shape.nccl = true;
    shape.nccl_tiers = !devices_->tiers().tiers.empty();
    shape.nccl_hosts = devices_->host().scratch != nullptr && !shape.encoded;
  }
  shape.ipc = ipc_of(buffers.executor()) != nullptr && !shape.encoded;
  const Plan& plan = planner_->choose(shape);
  const PlanCache::Prepared& ready = plans_->prepared(plan, shape, wire);
  header.plan_hash = ready.hash;
  if (plan.device == DevicePath::kNccl) {
    run_by_nccl(header, buffers.executor(), std::pair(type, op), "all-reduce",
                [&](cuda::NcclRanks& ranks, cuda::Stream stream) {
                  nccl::all_reduce(ranks, stream, buffers, type, op);
                });
  } else if (plan.device == DevicePath::kNcclTiers) {
    awaited_of_device_ = ", for NCCL's operations in the tiers";
    in_tiers_.start(*context_, devices_->tiers(), *devices_->all(), buffers, type, op, plan.chunking);
    run(header, CollectiveRef(in_tiers_));
    last_chunking_ = plan.chunking;
  } else if (plan.plain_mpi) {
    plain_->start(buffers.buffer(0), buffers.count(), type, op, size(), PlainAllreduce::Memory::kOwn);
    run(header, CollectiveRef(*plain_));
    last_chunking_ = {};
  } else if (plan.shape == Shape::kLeaders) {
    const SmallAllreduce::Call call{.buffers = buffers,
                                    .type = type,
                                    .op = op,
                                    .kernel = reduce_kernel(type, op),
                                    .divisor = op == DDL_OP_AVG ? size() : 1,
                                    .divided_in = ready.divided_in,
                                    .algorithm = plan.algorithms.front(),
                                    .chunking = plan.chunking};
    carry_out(header, *small_, call, {}, {.carries_headers = true});
  } else {
    const BufferList* residual = nullptr;
    // Only a name tells that it is the same tensor again; what another one lost must not be added to it.
    if (wire == WireFormat::kQ8 && header.name_hash != 0) residual = &residuals_.of(name, buffers);
    const Cuts cuts{plan.chunking, buffers.count(), ready.whole.get(), ready.last.get()};
    // Where ranks share processors the redundant work would take turns.
    const bool redundant = context_->groups.size() == 1 && plan.shape != Shape::kRanks && !oversubscribed_ &&
                           buffers.on_host() && shape.bytes() <= plans_->undivided_bytes();
    ReductionCall call = reduction_of(buffers, buffers, type, op);
    call.redundant = redundant;
    call.wire = wire;
    call.residual = residual;
    call.chunking = plan.chunking;
    call.chunks = [&cuts](std::size_t i) { return cuts.chunk(i); };
    call.divided_in = ready.divided_in;
    if (plan.device == DevicePath::kNcclHosts) call.nccl = &devices_->host();
    if (plan.device == DevicePath::kIpc) call.ipc = devices_->ipc();
    CallHeader data = header;
    if (ready.by_mpi) {
      // Communicators are made by those concerned, who must be known to be here.
      run(header, {});
      make_segment_comms(*ready.whole);
      make_segment_comms(*ready.last);
      data.sequence = ++sequence_;
    }
    carry_out(data, *reduction_, call, plan.windows,
              {.eager = !ready.by_mpi && shape.bytes() <= kEagerBytes});
  }
  timed_ = Timed{shape, plan.candidate};
  return ready.text;
}

void Communicator::copy_within(Executor& executor, void* to, const void* from, std::size_t bytes) const {
  Copies copies;
  copies.add(executor, to, from, bytes, CopyDirection::kWithin);
  while (!copies.done()) {
    const timespec pause{0, 20'000};
    nanosleep(&pause, nullptr);
  }
}

void Communicator::reduce(const BufferList& buffers, const CallSignature& signature, DDL_Type type, DDL_Op op,
                          int root) {
  CallHeader header = header_of(CallKind::kReduce, type, op, root, buffers.count(), signature);
  std::string& algorithm = way_;
  algorithm = distributed_ ? "tiers: direct, gather to the root" : "copy";
  if (distributed_) prepare_devices(header, buffers.executor());
  if (run_by_nccl(header, buffers.executor(), std::pair(type, op), "reduce",
                  [&](cuda::NcclRanks& ranks, cuda::Stream stream) {
                    nccl::reduce(ranks, stream, buffers, type, op, root);
                  })) {
    algorithm = kByNccl;
  } else if (distributed_) {
    IpcHost* const ipc = ipc_of(buffers.executor());
    if (ipc != nullptr) algorithm += kByIpc;
    const Chunking cut = plain_chunking(buffers.count(), size_of(type), ipc != nullptr);
    const std::size_t grain = grain_of(size_of(type));
    ReductionCall call = reduction_of(buffers, buffers, type, op);
    call.ipc = ipc;
    call.divided_in = plans_->divided_in(Plan{}, type == DDL_TYPE_HALF);
    call.chunking = cut;
    const auto chunk = [&](std::size_t i) {
      const std::size_t begin = i * cut.chunk_elements;
      const std::size_t end = std::min(buffers.count(), begin + cut.chunk_elements);
      return ChunkSpec{
          {begin, end}, begin, &plans_->chunk_plan(Plan{}, end - begin, grain, root), nullptr, root};
    };
    call.chunks = std::ref(chunk);
    carry_out(header, *reduction_, call);
  }
  account(header, buffers.count() * size_of(type), algorithm);
}

bool Communicator::cut_blocks(std::size_t count, DDL_Type type, Plan& plan, ReductionCall& call) {
  const std::vector<int>* const order = plans_->order_of_owners();
  const std::size_t width = size_of(type);
  const auto ranks = static_cast<std::size_t>(size());
  if (order == nullptr || ranks * width > kMaxChunkBytes) return false;
  Chunking& cut = call.chunking;
  const std::size_t most = call.ipc != nullptr ? kMaxChunkBytes : kMostBlocksChunk;
  const std::size_t wanted = std::clamp(count * ranks * width / kBlocksChunks, kLeastBlocksChunk, most);
  std::size_t elements = std::max<std::size_t>(wanted / width / ranks, 1);
  const std::size_t grain = grain_of(width);
  if (elements > grain) elements = elements / grain * grain;
  cut.chunk_elements = std::min(elements, std::max<std::size_t>(count, 1));
  cut.chunks = (count + cut.chunk_elements - 1) / cut.chunk_elements;
  cut.slot_bytes = std::max(kSmallSlotBytes, std::bit_ceil(cut.chunk_elements * ranks * width));
  cut.slots = std::min(kMaxSlots, segment_->stage_bytes() / cut.slot_bytes);
  choose_rounds(cut.chunk_elements * width * ranks, plan);
  call.blocks = {count, order, plans_->place_of_owner()};
  return true;
}

void Communicator::choose_rounds(std::size_t chunk_bytes, Plan& plan) const {
  // With many members a message for each costs more than it carries.
  const ClusterShape& cluster = planner_->cluster();
  for (const TierFacts& tier : cluster.tiers) {
    const std::size_t message = chunk_bytes / cluster.least_ranks_a_host / tier.groups;
    const bool direct = tier.groups <= 4 || message >= kWorthAMessage;
    plan.algorithms.push_back(direct ? Algorithm::kDirect : Algorithm::kRecursive);
    plan.windows.push_back(window_bytes(tier.hosts_below));
  }
}

void Communicator::reduce_scatter(const void* in, void* out, std::size_t count, DDL_Type type, DDL_Op op,
                                  const char* name, Executor& executor) {
  const std::size_t total = count * static_cast<std::size_t>(size());
  const std::size_t bytes = total * size_of(type);
  CallHeader header = header_of(CallKind::kReduceScatter, type, op, 0, total,
                                CallSignature{1, hash_bytes(&count, sizeof count), name, executor.kind()});
  // The input is only read: what is reduced lies in the stages.
  void* const input = const_cast<void*>(in);
  input_.assign(&input, &total, 1, type, executor);
  output_.assign(&out, &count, 1, type, executor);
  if (!distributed_) {
    copy_within(executor, out, in, count * size_of(type));
    account(header, bytes, kCopy);
    return;
  }
  prepare_devices(header, executor);
  if (run_by_nccl(header, executor, std::pair(type, op), "reduce-scatter",
                  [&](cuda::NcclRanks& ranks, cuda::Stream stream) {
                    nccl::reduce_scatter(ranks, stream, in, out, count, type, op);
                  })) {
    account(header, bytes, kByNccl);
    return;
  }
  ReductionCall call = reduction_of(input_, output_, type, op);
  call.ipc = ipc_of(executor);
  call.divided_in = plans_->divided_in(Plan{}, type == DDL_TYPE_HALF);
  blocks_plan_.algorithms.clear();
  blocks_plan_.windows.clear();
  if (cut_blocks(count, type, blocks_plan_, call)) {
    scatter_by_tiers(header, call, count);
  } else if (static_cast<std::size_t>(size()) > kMostPlansOfRoots ||
             (context_->groups.size() > 2 && count * size_of(type) < kWorthAMessage)) {
    keep_own_block(header, call, count);
  } else {
    send_to_each_rank(header, call, count);
  }
  if (call.ipc != nullptr) way_ += kByIpc;
  account(header, bytes, way_);
}

void Communicator::scatter_by_tiers(const CallHeader& header, ReductionCall& call, std::size_t count) {
  call.goal = Goal::kScatter;
  const auto ranks = static_cast<std::size_t>(size());
  const bool rounds = is_16bit(call.type);
  const auto chunk = [&](std::size_t i) {
    const std::size_t begin = i * call.chunking.chunk_elements;
    const std::size_t end = std::min(count, begin + call.chunking.chunk_elements);
    const ChunkPlan& plan = plans_->chunk_plan(blocks_plan_, (end - begin) * ranks, 1, -1, rounds);
    return ChunkSpec{{begin, end}, begin, &plan, nullptr, -1};
  };
  call.chunks = std::ref(chunk);
  carry_out(header, *reduction_, call, blocks_plan_.windows);
  way_ = "tiers: reduce-scatter";
}

void Communicator::keep_own_block(const CallHeader& header, ReductionCall& call, std::size_t count) {
  const std::size_t total = call.input.count();
  const std::size_t width = size_of(call.type);
  call.chunking = plain_chunking(total, width, call.ipc != nullptr);
  choose_rounds(call.chunking.chunk_elements * width, blocks_plan_);
  const std::size_t block = static_cast<std::size_t>(rank()) * count;
  call.kept = Interval{block, block + count};
  const std::size_t grain = grain_of(width);
  const bool rounds = is_16bit(call.type);
  const auto chunk = [&](std::size_t i) {
    const std::size_t begin = i * call.chunking.chunk_elements;
    const std::size_t end = std::min(total, begin + call.chunking.chunk_elements);
    const ChunkPlan& plan = plans_->chunk_plan(blocks_plan_, end - begin, grain, -1, rounds);
    return ChunkSpec{{begin, end}, begin, &plan, nullptr, -1};
  };
  call.chunks = std::ref(chunk);
  carry_out(header, *reduction_, call, blocks_plan_.windows);
  way_ = "tiers: all-reduce, each rank keeps its block";
}

void Communicator::send_to_each_rank(const CallHeader& header, ReductionCall& call, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(size());
  const std::size_t grain = grain_of(size_of(call.type));
  call.chunking = plain_chunking(count, size_of(call.type), call.ipc != nullptr);
  call.chunking.chunks *= ranks;
  // Rank by rank within each round of chunks, so that all links are busy throughout.
  const auto chunk = [&](std::size_t i) {
    const std::size_t root = i % ranks;
    const std::size_t begin = i / ranks * call.chunking.chunk_elements;
    const std::size_t end = std::min(count, begin + call.chunking.chunk_elements);
    const ChunkPlan& plan = plans_->chunk_plan(Plan{}, end - begin, grain, static_cast<int>(root));
    return ChunkSpec{
        {root * count + begin, root * count + end}, begin, &plan, nullptr, static_cast<int>(root)};
  };
  call.chunks = std::ref(chunk);
  carry_out(header, *reduction_, call);
  way_ = "tiers: direct, each block to its rank";
}

void Communicator::broadcast(const BufferList& buffers, const CallSignature& signature, DDL_Type type,
                             int root) {
  CallHeader header = header_of(CallKind::kBroadcast, type, 0, root, buffers.count(), signature);
  std::string_view algorithm = "copy";
  if (distributed_) prepare_devices(header, buffers.executor());
  if (run_by_nccl(header, buffers.executor(), {}, "broadcast",
                  [&](cuda::NcclRanks& ranks, cuda::Stream stream) {
                    nccl::broadcast(ranks, stream, buffers, size_of(type), root);
                  })) {
    algorithm = kByNccl;
  } else if (distributed_) {
    const Chunking cut = plain_chunking(buffers.count(), size_of(type));
    const bool chain = use_chain(buffers.count() * size_of(type));
    algorithm = chain ? "chain of hosts" : "binomial tree of hosts";
    const RelayNode& node = plans_->relays(root, chain);
    const auto chunk = [&](std::size_t i) {
      const std::size_t begin = i * cut.chunk_elements;
      const std::size_t end = std::min(buffers.count(), begin + cut.chunk_elements);
      return ChunkSpec{{begin, end}, begin, nullptr, &node, root};
    };
    const BroadcastCall call{.input = buffers,
                             .output = buffers,
                             .in_place = true,
                             .type = type,
                             .chunking = cut,
                             .chunks = std::ref(chunk)};
    carry_out(header, *broadcast_, call, {}, {.eager = buffers.count() * size_of(type) <= kEagerBytes});
  }
  account(header, buffers.count() * size_of(type), algorithm);
}

void Communicator::all_gather(const void* in, void* out, std::size_t count, DDL_Type type, const char* name,
                              Executor& executor) {
  const auto ranks = static_cast<std::size_t>(size());
  CallHeader header = header_of(CallKind::kAllGather, type, 0, 0, count * ranks,
                                CallSignature{1, hash_bytes(&count, sizeof count), name, executor.kind()});
  void* const input = const_cast<void*>(in);
  const std::size_t total = count * ranks;
  input_.assign(&input, &count, 1, type, executor);
  output_.assign(&out, &total, 1, type, executor);
  if (distributed_) {
    prepare_devices(header, executor);
    if (run_by_nccl(header, executor, {}, "all-gather", [&](cuda::NcclRanks& ranks, cuda::Stream stream) {
          nccl::all_gather(ranks, stream, in, out, count * size_of(type));
        })) {
      account(header, total * size_of(type), kByNccl);
      return;
    }
    ReductionCall blocks = reduction_of(input_, output_, type, DDL_OP_SUM);
    blocks.ipc = ipc_of(executor);
    Plan& plan = blocks_plan_;
    plan.algorithms.clear();
    plan.windows.clear();
    if (cut_blocks(count, type, plan, blocks)) {
      blocks.goal = Goal::kGather;
      const Chunking& parts = blocks.chunking;
      const auto chunk = [&](std::size_t i) {
        const std::size_t begin = i * parts.chunk_elements;
        const std::size_t end = std::min(count, begin + parts.chunk_elements);
        return ChunkSpec{
            {begin, end}, begin, &plans_->chunk_plan(plan, (end - begin) * ranks, 1), nullptr, -1};
      };
      blocks.chunks = std::ref(chunk);
      carry_out(header, *reduction_, blocks, plan.windows);
      way_ = "tiers: all-gather";
      if (blocks.ipc != nullptr) way_ += kByIpc;
      account(header, total * size_of(type), way_);
      return;
    }
    Chunking cut = plain_chunking(count, size_of(type));
    cut.chunks *= ranks;
    const bool chain = use_chain(count * ranks * size_of(type));
    // A chunk of every rank in turn: all chains are busy, each at another host.
    const auto chunk = [&](std::size_t i) {
      const std::size_t root = i % ranks;
      const std::size_t begin = i / ranks * cut.chunk_elements;
      const std::size_t end = std::min(count, begin + cut.chunk_elements);
      const RelayNode& node = plans_->relays(static_cast<int>(root), chain);
      return ChunkSpec{{begin, end}, root * count + begin, nullptr, &node, static_cast<int>(root)};
    };
    const BroadcastCall call{.input = input_,
                             .output = output_,
                             .in_place = false,
                             .type = type,
                             .chunking = cut,
                             .chunks = std::ref(chunk)};
    carry_out(header, *broadcast_, call);
  } else {
    copy_within(executor, out, in, count * size_of(type));
  }
  account(header, total * size_of(type), distributed_ ? "a broadcast from every rank" : "copy");
}

void Communicator::all_to_all(const void* in, void* out, std::size_t count, DDL_Type type, const char* name,
                              Executor& executor) {
  const std::size_t total = count * static_cast<std::size_t>(size());
  CallHeader header = header_of(CallKind::kAllToAll, type, 0, 0, total,
                                CallSignature{1, hash_bytes(&count, sizeof count), name, executor.kind()});
  if (distributed_) {
    prepare_devices(header, executor);
    if (run_by_nccl(header, executor, {}, "all-to-all", [&](cuda::NcclRanks& ranks, cuda::Stream stream) {
          nccl::all_to_all(ranks, stream, in, out, count * size_of(type));
        })) {
      account(header, total * size_of(type), kByNccl);
      return;
    }
    scheduler_->set_windows({});
    all_to_all_->start(static_cast<const char*>(in), static_cast<char*>(out), count * size_of(type),
                       executor);
    run(header, CollectiveRef(*all_to_all_));
  } else {
    copy_within(executor, out, in, total * size_of(type));
  }
  account(header, total * size_of(type), distributed_ ? "pairwise exchange" : "copy");
}

void Communicator::alltoallv(std::vector<ExchangedBlocks> blocks, const char* name) {
  std::size_t bytes = 0;
  for (const ExchangedBlocks& block : blocks) bytes += block.in_bytes;
  const CallHeader header =
      header_of(CallKind::kAllToAllv, DDL_TYPE_FLOAT, 0, 0, 0, CallSignature{1, 0, name});
  if (distributed_) {
    // Whether all sizes fit is a sum over the ranks; only where they do not everybody asks everybody.
    auto balance = static_cast<std::int64_t>(balance_of(rank_, blocks));
    void* buffer = &balance;
    const std::size_t one = 1;
    const BufferList sum(&buffer, &one, 1, DDL_TYPE_INT64);
    CallHeader sizes = header;
    sizes.type = DDL_TYPE_INT64;
    sizes.count = 1;
    run_allreduce(sizes, sum, DDL_TYPE_INT64, DDL_OP_SUM, nullptr);
    timed_.reset();
    scheduler_->set_windows({});
    CallHeader data = header;
    data.sequence = ++sequence_;
    if (balance != 0) {
      block_sizes_->start(blocks);
      run(data, CollectiveRef(*block_sizes_));
      data.sequence = ++sequence_;
    }
    all_to_all_->start(std::move(blocks), host_executor());
    run(data, CollectiveRef(*all_to_all_));
  } else if (bytes > 0) {
    std::memcpy(blocks[0].out, blocks[0].in, bytes);
  }
  account(header, bytes, distributed_ ? "pairwise exchange" : "copy");
}

void Communicator::barrier() {
  const CallHeader header =
      header_of(CallKind::kBarrier, DDL_TYPE_FLOAT, 0, 0, 0, CallSignature{0, 0, nullptr});
  if (distributed_) run(header, {});
  account(header, 0, "agreement");
}

void Communicator::finalize() {
  if (!distributed_ || detector_->failure()) return;
  const CallHeader header =
      header_of(CallKind::kFinalize, DDL_TYPE_FLOAT, 0, 0, 0, CallSignature{0, 0, nullptr});
  run(header, {}, {.patience_scale = kFinalizePatienceScale});
  if (devices_) devices_->finish(options_.limits.timeout_s);
}

void Communicator::allreduce_plain(void* buf, std::size_t count, DDL_Type type, DDL_Op op) {
  const CallSignature signature{1, hash_bytes(&count, sizeof count), nullptr};
  const CallHeader header = header_of(CallKind::kPlainAllreduce, type, op, 0, count, signature);
  if (distributed_) {
    plain_->start(static_cast<char*>(buf), count, type, op, size(), PlainAllreduce::Memory::kCallers);
    run(header, CollectiveRef(*plain_));
  }
  account(header, count * size_of(type), "MPI_Allreduce");
}

}  // namespace ddl
