#include "collective/mpi_rounds.hpp"

#include "collective/local_exchange.hpp"
#include "collective/mpi_operations.hpp"
#include "support/stopwatch.hpp"

namespace ddl {

void MpiRounds::start(const ReductionWork& work, std::size_t tier, const Round&, TierDirection direction) {
  const Exchange& exchange = work.spec.plan->exchange;
  const auto& segments = exchange.tiers[tier];
  const std::size_t needed = work.spec.plan->scratch * work.width;
  if (scratch_.size() < needed) scratch_.resize(needed);
  // MPI reads the counts until it is done.
  counts_.assign(segments.size() * 2, {});
  std::size_t scratch = 0;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    const MPI_Comm comm = context_.segment_comms.at(segment.owners);
    std::vector<int>& counts = counts_[2 * s];
    std::vector<int>& starts = counts_[2 * s + 1];
    for (std::size_t i = 0; i < segment.owners.size(); ++i) {
      const Interval part = segment.part(i, exchange.grain);
      counts.push_back(static_cast<int>(part.size()));
      starts.push_back(static_cast<int>(part.begin - segment.range.begin));
    }
    MPI_Request request = MPI_REQUEST_NULL;
    char* const whole = work.local->staged(segment.range.begin);
    const DDL_Type type = work.call->type;
    if (direction == TierDirection::kUp) {
      check_mpi(MPI_Ireduce_scatter(whole, scratch_.data() + scratch * work.width, counts.data(),
                                    mpi_datatype(type), mpi_operation(type, work.call->op), comm, &request),
                "MPI_Ireduce_scatter");
      scratch += segment.part(segment.mine, exchange.grain).size();
    } else {
      check_mpi(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, counts.data(), starts.data(),
                                mpi_datatype(type), comm, &request),
                "MPI_Iallgatherv");
    }
    context_.scheduler.watch(request, &pending_);
  }
}

void MpiRounds::finish(const ReductionWork& work, std::size_t tier, const Round&, TierDirection direction) {
  if (direction == TierDirection::kDown) return;
  const Stopwatch watch(context_.counters.reduce_s, work.timed);
  const Exchange& exchange = work.spec.plan->exchange;
  const std::int64_t divisor = work.divisor_of(tier + 1);
  std::size_t scratch = 0;
  for (const Segment& segment : exchange.tiers[tier]) {
    const Interval part = segment.part(segment.mine, exchange.grain);
    const void* source = scratch_.data() + scratch * work.width;
    work.call->kernel(work.local->staged(part.begin), &source, 1, part.size(), divisor);
    scratch += part.size();
  }
}

}  // namespace ddl
