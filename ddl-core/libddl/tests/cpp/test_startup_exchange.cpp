#include <gtest/gtest.h>

#include "engine/startup_exchange.hpp"
#include "transport/shared_segment.hpp"

namespace ddl {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::vector<StartupRecord> records(const std::vector<std::pair<std::string, std::size_t>>& ranks) {
  std::vector<StartupRecord> made;
  for (const auto& [machine, free_mib] : ranks) {
    StartupRecord& record = made.emplace_back();
    record.machine = machine;
    record.shm_free = free_mib * kMiB;
  }
  return made;
}

std::vector<std::pair<std::string, std::size_t>> copies(std::size_t number,
                                                        const std::pair<std::string, std::size_t>& one) {
  return {number, one};
}

TEST(StagingMemory, LeavesHalfOfEveryMachinesToOthers) {
  const std::pair<std::string, std::size_t> roomy{"a", 1000};
  EXPECT_EQ(stage_bytes_for(records({roomy, roomy}), kStageBytes), kStageBytes);
  EXPECT_EQ(stage_bytes_for(records({roomy, roomy}), kStageBytes / 2), kStageBytes / 2);
  // A container of 64 MiB: 4 ranks of 8 MiB, 8 of 4 MiB, 16 of 2 MiB; what is more fails when it is reserved.
  const std::pair<std::string, std::size_t> small{"b", 64};
  EXPECT_EQ(stage_bytes_for(records(copies(4, small)), kStageBytes), 8 * kMiB);
  EXPECT_EQ(stage_bytes_for(records(copies(5, small)), kStageBytes), 4 * kMiB);
  EXPECT_EQ(stage_bytes_for(records(copies(8, small)), kStageBytes), 4 * kMiB);
  EXPECT_EQ(stage_bytes_for(records(copies(9, small)), kStageBytes), kLeastStageBytes);
  EXPECT_EQ(stage_bytes_for(records(copies(100, small)), kStageBytes), kLeastStageBytes);
  // The smallest of all machines decides, as all ranks cut alike; a rank alone on its machine needs none.
  EXPECT_EQ(stage_bytes_for(records({roomy, roomy, small, small, small, small, small}), kStageBytes),
            4 * kMiB);
  EXPECT_EQ(stage_bytes_for(records({roomy, roomy, {"c", 0}}), kStageBytes), kStageBytes);
  // Ranks look at different moments: what the last one saw counts.
  EXPECT_EQ(stage_bytes_for(records({roomy, {"a", 20}}), kStageBytes), 4 * kMiB);
}

}  // namespace
}  // namespace ddl
