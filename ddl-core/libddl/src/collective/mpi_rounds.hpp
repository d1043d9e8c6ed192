#pragma once

#include <vector>

#include "collective/collective_context.hpp"
#include "collective/tier_engine.hpp"

namespace ddl {

/// MPI's own reduce-scatter and all-gather, a round each, on communicators of the owners of each segment.
class MpiRounds : public TierEngine {
 public:
  explicit MpiRounds(CollectiveContext& context) : context_(context) {}

  void start(const ReductionWork& work, std::size_t tier, const Round& round,
             TierDirection direction) override;
  bool complete() const override { return pending_ == 0; }
  void finish(const ReductionWork& work, std::size_t tier, const Round& round,
              TierDirection direction) override;
  void turn(const ReductionWork&) override {}

  /// Forgets operations of a call that has failed.
  void reset() { pending_ = 0; }

 private:
  CollectiveContext& context_;
  int pending_ = 0;
  std::vector<char> scratch_;
  std::vector<std::vector<int>> counts_;
};

}  // namespace ddl
