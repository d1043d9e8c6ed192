#include "engine/plan_cache.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "support/hash.hpp"
#include "transport/shared_segment.hpp"

namespace ddl {
namespace {

/// Owners of parts smaller than this would write the same cache lines.
constexpr std::size_t kGrainBytes = kCacheLine;

/// Where more ranks than cores share one host, they reduce one after the other, and every part costs every
/// rank a copy: parts are not smaller than this.
constexpr std::size_t kTurnBytes = 4096;

/// What is kept: a training step repeats the same sizes. Plans grow with the number of hosts.
constexpr std::size_t kMostPlans = 4096;
constexpr std::size_t kMostMemory = std::size_t{8} << 20;

}  // namespace

std::size_t grain_of(std::size_t width) { return std::max<std::size_t>(1, kGrainBytes / width); }

PlanCache::PlanCache(const Topology& topology, int rank, bool oversubscribed, bool many)
    : topology_(topology),
      rank_(rank),
      taking_turns_(oversubscribed && innermost_groups(topology.root()).size() == 1),
      undivided_bytes_(many && innermost_groups(topology.root()).size() == 1 ? kUndividedAmongMany
                                                                             : kUndividedBytes),
      nesting_(nesting_of(topology)),
      owners_(ddl::order_of_owners(topology.root())) {
  if (owners_)
    place_ = static_cast<std::size_t>(std::find(owners_->begin(), owners_->end(), rank) - owners_->begin());
  for (const Shape shape : {Shape::kTiers, Shape::kHosts, Shape::kRanks}) {
    const Group& tree = trees_.emplace(shape, shaped_tree(topology_, shape)).first->second;
    levels_.emplace(shape, level_sizes(tree));
  }
}

void PlanCache::trim() {
  if (memory_ <= kMostMemory && chunk_plans_.size() <= kMostPlans && prepared_.size() <= kMostPlans) return;
  // The half that was not used for longest goes, so that this is rare.
  std::vector<std::uint64_t> uses;
  for (const auto& [key, kept] : chunk_plans_) uses.push_back(kept.used);
  for (const auto& [id, kept] : prepared_) uses.push_back(kept.used);
  const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
  std::nth_element(uses.begin(), middle, uses.end());
  discard_before(*middle);
  // A few plans may take most of the memory.
  if (memory_ > kMostMemory) discard_before(uses_ + 1);
}

void PlanCache::discard_before(std::uint64_t use) {
  std::erase_if(prepared_, [use](const auto& entry) { return entry.second.used < use; });
  std::erase_if(chunk_plans_, [&](const auto& entry) {
    if (entry.second.used >= use || entry.second.plan.use_count() > 1) return false;
    memory_ -= memory_of(*entry.second.plan);
    return true;
  });
}

const ChunkPlan& PlanCache::chunk_plan(const Plan& plan, std::size_t count, std::size_t grain, int root,
                                       bool rounds_each_step) {
  return *keep(plan, count, grain, root, rounds_each_step);
}

const std::shared_ptr<const ChunkPlan>& PlanCache::keep(const Plan& plan, std::size_t count,
                                                        std::size_t grain, int root, bool rounds_each_step) {
  const std::array<std::uint64_t, 6> words{hash_bytes(plan.algorithms.data(), plan.algorithms.size()),
                                           count,
                                           grain,
                                           static_cast<std::uint64_t>(root),
                                           static_cast<std::uint64_t>(plan.shape),
                                           rounds_each_step ? 1U : 0U};
  const std::uint64_t key = hash_words(words.data(), words.size(), 0);
  const auto [first, last] = chunk_plans_.equal_range(key);
  for (auto at = first; at != last; ++at) {
    Kept& kept = at->second;
    if (kept.shape != plan.shape || kept.algorithms != plan.algorithms || kept.count != count ||
        kept.grain != grain || kept.root != root || kept.rounds_each_step != rounds_each_step) {
      continue;
    }
    kept.used = ++uses_;
    return kept.plan;
  }
  const Group& tree = trees_.at(plan.shape);
  auto made = std::make_shared<const ChunkPlan>(
      root < 0 ? plan_allreduce_chunk(tree, rank_, count, grain, plan.algorithms,
                                      plan.shape == Shape::kHosts ? &nesting_ : nullptr, rounds_each_step)
               : plan_reduce_chunk(tree, rank_, root, count, grain));
  const std::size_t bytes = memory_of(*made);
  const Kept kept{plan.shape, plan.algorithms,  count,           grain,
                  root,       rounds_each_step, std::move(made), ++uses_};
  const auto entered = chunk_plans_.emplace(key, kept);
  memory_ += bytes;
  return entered->second.plan;
}

const PlanCache::Prepared& PlanCache::prepared(const Plan& plan, const AllreduceShape& shape,
                                               WireFormat wire) {
  const auto found = prepared_.find(plan.id);
  if (found != prepared_.end()) {
    found->second.used = ++uses_;
    return found->second.prepared;
  }
  Prepared made;
  made.text = plan.to_text();
  const Chunking& cut = plan.chunking;
  const std::array<std::uint64_t, 5> cuts{hash_bytes(made.text.data(), made.text.size()), cut.chunk_elements,
                                          cut.chunks, cut.slot_bytes, cut.slots};
  made.hash = hash_words(cuts.data(), cuts.size(), 0);
  made.divided_in = divided_in(plan, shape.narrow_range || wire != WireFormat::kFull);
  const bool in_chunks = !plan.plain_mpi && plan.device != DevicePath::kNccl &&
                         plan.device != DevicePath::kNcclTiers && plan.shape != Shape::kLeaders &&
                         cut.chunks > 0;
  if (in_chunks) {
    std::size_t grain = wire == WireFormat::kQ8 ? kWireBlockElements : grain_of(shape.width);
    // Small messages cost their number, not their bytes: one rank of a group exchanges all of it.
    if (taking_turns_) {
      grain = std::max<std::size_t>(1, kTurnBytes / shape.width);
    } else if (shape.bytes() <= undivided_bytes_) {
      grain = std::max<std::size_t>(shape.elements, 1);
    }
    made.last =
        keep(plan, shape.elements - (cut.chunks - 1) * cut.chunk_elements, grain, -1, shape.rounds_each_step);
    made.whole =
        cut.chunks == 1 ? made.last : keep(plan, cut.chunk_elements, grain, -1, shape.rounds_each_step);
    made.by_mpi =
        std::find(made.whole->by_mpi.begin(), made.whole->by_mpi.end(), 1) != made.whole->by_mpi.end();
  }
  return prepared_.emplace(plan.id, KeptPrepared{std::move(made), ++uses_}).first->second.prepared;
}

std::size_t PlanCache::divided_in(const Plan& plan, bool narrow) const {
  const std::vector<Algorithm>& algorithms = plan.algorithms;
  const bool leaders = plan.shape == Shape::kLeaders;
  // These nest their sums as the topology does.
  const bool nested =
      leaders || (plan.shape == Shape::kHosts && algorithms.size() == 1 && nests(algorithms.front()));
  const std::vector<LevelSizes>& levels = levels_.at(nested ? Shape::kTiers : plan.shape);
  if (!narrow) return levels.size() - 1;
  // What rounds several times on the way to one sum gets quotients.
  if (leaders) {
    const bool halves = algorithms.front() == Algorithm::kRecursive;
    if (halves && innermost_groups(topology_.root()).size() > 2) return 0;
  }
  for (std::size_t t = 0; t < algorithms.size() && !leaders && !nested; ++t) {
    if (algorithms[t] == Algorithm::kMpi) return 0;
    if (algorithms[t] == Algorithm::kRing && levels[t + 1].most > 2) return 0;
  }
  const auto first =
      std::find_if(levels.begin(), levels.end(), [](const LevelSizes& level) { return level.most > 1; });
  // Where some groups of that level have nothing to add up, all divide what they have in the innermost ones.
  return first == levels.end() || first->least == 1 ? 0 : static_cast<std::size_t>(first - levels.begin());
}

const RelayNode& PlanCache::relays(int root, bool chain) {
  const std::uint64_t key = 2 * static_cast<std::uint64_t>(root) + (chain ? 1 : 0);
  const auto found = relays_.find(key);
  if (found != relays_.end()) return found->second;
  return relays_.emplace(key, relay_node(topology_.root(), rank_, root, chain)).first->second;
}

}  // namespace ddl
