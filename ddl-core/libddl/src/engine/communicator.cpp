#include "engine/communicator.hpp"

#include <algorithm>
#include <bit>
#include <ctime>

#include "plan/chunking.hpp"

namespace ddl {
namespace {

/// How many time limits ddl_finalize waits for ranks that answer: one may well evaluate or save while the
/// others are done.
constexpr double kFinalizePatienceScale = 10;

/// Of the blocks of all ranks a chunk has so much: enough chunks that memory and links are busy at the same
/// time.
constexpr std::size_t kBlocksChunks = 8;
constexpr std::size_t kLeastBlocksChunk = std::size_t{64} << 10;
constexpr std::size_t kMostBlocksChunk = std::size_t{256} << 10;

}  // namespace

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

std::string_view Communicator::by_way(const char* way, const IpcHost* ipc) {
  way_ = way;
  if (ipc != nullptr) way_ += ", CUDA IPC within hosts";
  return way_;
}

void Communicator::copy_within(Executor& executor, void* to, const void* from, std::size_t bytes) const {
  Copies copies;
  copies.add(executor, to, from, bytes, CopyDirection::kWithin);
  while (!copies.done()) {
    const timespec pause{0, 20'000};
    nanosleep(&pause, nullptr);
  }
}

bool Communicator::cut_blocks(std::size_t count, ReductionCall& call) {
  const std::vector<int>* const order = plans_->order_of_owners();
  const std::size_t width = size_of(call.type);
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
  choose_rounds(cut.chunk_elements * width * ranks);
  call.blocks = {count, order, plans_->place_of_owner()};
  return true;
}

void Communicator::choose_rounds(std::size_t chunk_bytes) {
  blocks_plan_.algorithms.clear();
  blocks_plan_.windows.clear();
  // With many members a message for each costs more than it carries.
  const ClusterShape& cluster = planner_->cluster();
  for (const TierFacts& tier : cluster.tiers) {
    const std::size_t message = chunk_bytes / cluster.least_ranks_a_host / tier.groups;
    const bool direct = tier.groups <= 4 || message >= kWorthAMessage;
    blocks_plan_.algorithms.push_back(direct ? Algorithm::kDirect : Algorithm::kRecursive);
    blocks_plan_.windows.push_back(window_bytes(tier.hosts_below));
  }
}

void Communicator::barrier() {
  const CallHeader header =
      header_of(CallKind::kBarrier, DDL_TYPE_FLOAT, 0, 0, 0, CallSignature{0, 0, nullptr});
  if (distributed_) run(header, {});
  account(header, 0, "agreement");
}

void Communicator::finalize(CallKind kind) {
  if (!distributed_ || detector_->failure()) return;
  const CallHeader header = header_of(kind, DDL_TYPE_FLOAT, 0, 0, 0, CallSignature{0, 0, nullptr});
  run(header, {}, {.patience_scale = kFinalizePatienceScale});
  if (devices_) devices_->finish(options_.limits.timeout_s);
}

}  // namespace ddl
