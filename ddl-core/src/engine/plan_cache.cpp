#include "engine/plan_cache.hpp"

#include <algorithm>
#include <utility>

#include "transport/shared_segment.hpp"

namespace ddl {
namespace {

/// Owners of parts smaller than this would write the same cache lines.
constexpr std::size_t kGrainBytes = kCacheLine;

/// Where more ranks than cores share one host, they reduce one after the other, and every part costs every
/// rank a copy: parts are not smaller than this.
constexpr std::size_t kTurnBytes = 4096;

/// Plans of chunks that are kept: a training step repeats the same few sizes.
constexpr std::size_t kMostPlans = 512;

}  // namespace

std::size_t grain_of(std::size_t width) { return std::max<std::size_t>(1, kGrainBytes / width); }

PlanCache::PlanCache(const Topology& topology, int rank, bool oversubscribed)
    : topology_(topology),
      rank_(rank),
      taking_turns_(oversubscribed && innermost_groups(topology.root()).size() == 1),
      nesting_(nesting_of(topology)),
      owners_(ddl::order_of_owners(topology.root())) {
  if (owners_)
    place_ = static_cast<std::size_t>(std::find(owners_->begin(), owners_->end(), rank) - owners_->begin());
  for (const Shape shape : {Shape::kTiers, Shape::kHosts, Shape::kRanks}) {
    trees_.emplace(shape, shaped_tree(topology_, shape));
  }
}

void PlanCache::trim() {
  if (chunk_plans_.size() <= kMostPlans && prepared_.size() <= kMostPlans) return;
  prepared_.clear();
  chunk_plans_.clear();
}

const ChunkPlan& PlanCache::chunk_plan(const Plan& plan, std::size_t count, std::size_t grain, int root,
                                       bool rounds_each_step) {
  const PlanKey key{plan.shape, plan.algorithms, count, grain, root, rounds_each_step};
  const auto found = chunk_plans_.find(key);
  if (found != chunk_plans_.end()) return found->second;
  const Group& tree = trees_.at(plan.shape);
  ChunkPlan made =
      root < 0 ? plan_allreduce_chunk(tree, rank_, count, grain, plan.algorithms,
                                      plan.shape == Shape::kHosts ? &nesting_ : nullptr, rounds_each_step)
               : plan_reduce_chunk(tree, rank_, root, count, grain);
  return chunk_plans_.emplace(key, std::move(made)).first->second;
}

const PlanCache::Prepared& PlanCache::prepared(const Plan& plan, const AllreduceShape& shape,
                                               WireFormat wire) {
  const auto found = prepared_.find(plan.id);
  if (found != prepared_.end()) return found->second;
  Prepared made;
  made.text = plan.to_text();
  const Chunking& cut = plan.chunking;
  if (!plan.plain_mpi && plan.shape != Shape::kLeaders && cut.chunks > 0) {
    std::size_t grain = wire == WireFormat::kQ8 ? kWireBlockElements : grain_of(shape.width);
    // Small messages cost their number, not their bytes: one rank of a group exchanges all of it.
    if (taking_turns_) {
      grain = std::max<std::size_t>(1, kTurnBytes / shape.width);
    } else if (shape.bytes() <= kUndividedBytes) {
      grain = std::max<std::size_t>(shape.elements, 1);
    }
    made.last = &chunk_plan(plan, shape.elements - (cut.chunks - 1) * cut.chunk_elements, grain, -1,
                            shape.rounds_each_step);
    made.whole = cut.chunks == 1 ? made.last
                                 : &chunk_plan(plan, cut.chunk_elements, grain, -1, shape.rounds_each_step);
    made.by_mpi =
        std::find(made.whole->by_mpi.begin(), made.whole->by_mpi.end(), 1) != made.whole->by_mpi.end();
  }
  return prepared_.emplace(plan.id, std::move(made)).first->second;
}

const RelayNode& PlanCache::relays(int root, bool chain) {
  const auto found = relays_.find({root, chain});
  if (found != relays_.end()) return found->second;
  return relays_.emplace(std::pair(root, chain), relay_node(topology_.root(), rank_, root, chain))
      .first->second;
}

}  // namespace ddl
