// The rounds of all owners of a segment, executed in one process with the real kernels: the same bits as the
// direct exchange, and as many messages and bytes as the cost model counts, from 2 to 4096 owners.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "collective/kernels.hpp"
#include "plan/schedule.hpp"
#include "support/types.hpp"

namespace ddl {
namespace {

/// What an owner has sent and received.
struct Traffic {
  double messages = 0;
  double sent = 0;  ///< bytes
  double received = 0;
};

struct Owners {
  DDL_Type type = DDL_TYPE_FLOAT;
  std::vector<TierSchedule> schedules;
  std::vector<std::vector<char>> chunk;
  std::vector<std::vector<char>> scratch;
  std::vector<std::vector<float>> wide;
  std::vector<Traffic> traffic;

  char* place(std::size_t owner, Interval range, std::size_t at) {
    const std::size_t width = size_of(type);
    return at == Transfer::kInPlace ? chunk[owner].data() + range.begin * width
                                    : scratch[owner].data() + at * width;
  }
  char* place(std::size_t owner, const Transfer& transfer) {
    return transfer.wide ? reinterpret_cast<char*>(wide[owner].data() + transfer.scratch)
                         : place(owner, transfer.range, transfer.scratch);
  }
  std::size_t bytes(const Transfer& transfer) const {
    return transfer.range.size() * (transfer.wide ? sizeof(float) : size_of(type));
  }
};

const std::vector<Round>& rounds_of(const TierSchedule& schedule, bool up) {
  return up ? schedule.up : schedule.down;
}

void reduce(Owners& world, std::size_t owner, const Reduction& reduction, DDL_Op op, std::int64_t divisor) {
  const std::int64_t by = reduction.completes > 0 ? divisor : 1;
  const auto size = reduction.range.size();
  std::vector<const void*> sources;
  float* const wide = world.wide[owner].data();
  switch (reduction.form) {
    case Reduction::Form::kSame:
      for (const std::size_t operand : reduction.operands) {
        sources.push_back(world.place(owner, reduction.range, operand));
      }
      reduce_kernel(world.type, op)(world.place(owner, reduction.range, reduction.into), sources.data(),
                                    static_cast<int>(sources.size()), size, by);
      break;
    case Reduction::Form::kWiden:
      wide_kernels(world.type)
          .widen(wide + reduction.into, world.place(owner, reduction.range, reduction.operands[0]), size);
      break;
    case Reduction::Form::kWide:
      for (const std::size_t operand : reduction.operands) sources.push_back(wide + operand);
      reduce_kernel(DDL_TYPE_FLOAT, op)(wide + reduction.into, sources.data(),
                                        static_cast<int>(sources.size()), size, 1);
      break;
    case Reduction::Form::kNarrow:
      wide_kernels(world.type)
          .narrow(world.place(owner, reduction.range, reduction.into), wide + reduction.operands[0], size,
                  by);
      break;
  }
}

/// One round of all owners at once.
void run_round(Owners& world, std::size_t number, bool up, DDL_Op op, std::int64_t divisor) {
  std::map<std::pair<std::size_t, std::size_t>, std::vector<char>> under_way;
  const std::size_t owners = world.schedules.size();
  for (std::size_t i = 0; i < owners; ++i) {
    const auto& rounds = rounds_of(world.schedules[i], up);
    if (number >= rounds.size()) continue;
    for (const Transfer& send : rounds[number].sends) {
      const char* const from = world.place(i, send);
      const bool first = under_way
                             .emplace(std::pair(i, static_cast<std::size_t>(send.peer)),
                                      std::vector<char>(from, from + world.bytes(send)))
                             .second;
      ASSERT_TRUE(first) << "two messages from " << i << " to " << send.peer << " in a round";
      world.traffic[i].messages += 1;
      world.traffic[i].sent += static_cast<double>(world.bytes(send));
    }
  }
  for (std::size_t i = 0; i < owners; ++i) {
    const auto& rounds = rounds_of(world.schedules[i], up);
    if (number >= rounds.size()) continue;
    for (const Transfer& receive : rounds[number].receives) {
      const auto found = under_way.find({static_cast<std::size_t>(receive.peer), i});
      ASSERT_NE(found, under_way.end()) << "nobody sends what " << i << " waits for";
      ASSERT_EQ(found->second.size(), world.bytes(receive));
      std::memcpy(world.place(i, receive), found->second.data(), found->second.size());
      world.traffic[i].received += static_cast<double>(found->second.size());
      under_way.erase(found);
    }
    for (const Reduction& reduction : rounds[number].reductions) reduce(world, i, reduction, op, divisor);
  }
  EXPECT_TRUE(under_way.empty()) << "sent to nobody who waits";
}

std::vector<char> random_values(DDL_Type type, std::size_t count, std::mt19937& random) {
  std::vector<char> bytes(count * size_of(type));
  std::normal_distribution<float> normal(0, 3);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normal(random);
    if (type == DDL_TYPE_FLOAT) std::memcpy(bytes.data() + 4 * i, &value, 4);
    if (type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16) {
      wide_kernels(type).narrow(bytes.data() + 2 * i, &value, 1, 1);
    }
    if (type == DDL_TYPE_INT32) {
      const auto whole = static_cast<std::int32_t>(value * 1e8F);
      std::memcpy(bytes.data() + 4 * i, &whole, 4);
    }
  }
  return bytes;
}

/// @return what the owners sent and received; EXPECTs the bits of one reduction of all inputs
std::vector<Traffic> all_reduce(Algorithm algorithm, std::size_t owners, std::size_t count, std::size_t grain,
                                DDL_Type type, DDL_Op op) {
  std::mt19937 random(static_cast<unsigned>(owners * 7919 + count));
  Owners world;
  world.type = type;
  world.traffic.resize(owners);
  const bool rounds_each_step = type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16;
  Segment segment{{0, count}, {}, 0};
  for (std::size_t i = 0; i < owners; ++i) segment.owners.push_back(static_cast<int>(i));
  for (std::size_t i = 0; i < owners; ++i) {
    segment.mine = i;
    world.schedules.push_back(schedule_tier({segment}, algorithm, grain, nullptr, rounds_each_step));
    world.chunk.push_back(random_values(type, count, random));
    world.scratch.emplace_back(world.schedules.back().scratch * size_of(type));
    world.wide.emplace_back(world.schedules.back().wide);
  }
  std::vector<char> expected(count * size_of(type));
  std::vector<const void*> inputs;
  for (const auto& chunk : world.chunk) inputs.push_back(chunk.data());
  const auto divisor = static_cast<std::int64_t>(op == DDL_OP_AVG ? owners : 1);
  reduce_kernel(type, op)(expected.data(), inputs.data(), static_cast<int>(owners), count, divisor);
  for (const bool up : {true, false}) {
    std::size_t rounds = 0;
    for (const TierSchedule& schedule : world.schedules) {
      rounds = std::max(rounds, rounds_of(schedule, up).size());
    }
    for (std::size_t round = 0; round < rounds; ++round) {
      run_round(world, round, up, op, divisor);
      if (testing::Test::HasFatalFailure()) return world.traffic;
    }
    // What a tier above goes on with: every owner has the sum of its own part.
    for (std::size_t i = 0; up && i < owners; ++i) {
      const Interval own = segment.part(i, grain);
      const std::size_t width = size_of(type);
      EXPECT_EQ(std::memcmp(world.chunk[i].data() + own.begin * width, expected.data() + own.begin * width,
                            own.size() * width),
                0)
          << "owner " << i;
    }
  }
  for (std::size_t i = 0; i < owners; ++i) EXPECT_EQ(world.chunk[i], expected) << "owner " << i;
  return world.traffic;
}

class EveryNumber : public testing::TestWithParam<Algorithm> {};

TEST_P(EveryNumber, OfOwnersGivesTheBitsOfOneReduction) {
  for (const DDL_Type type : {DDL_TYPE_FLOAT, DDL_TYPE_HALF, DDL_TYPE_BFLOAT16, DDL_TYPE_INT32}) {
    for (const DDL_Op op : {DDL_OP_SUM, DDL_OP_AVG, DDL_OP_MAX, DDL_OP_PRODUCT}) {
      for (std::size_t owners = 2; owners <= 34; ++owners) {
        SCOPED_TRACE(std::string(name_of(type)) + ", " + name_of(op) + ", owners: " + std::to_string(owners));
        for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{700}}) {
          all_reduce(GetParam(), owners, count, count == 700 ? 16 : 1, type, op);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(EveryNumber, OfManyOwnersToo) {
  for (const std::size_t owners : {61u, 64u, 127u, 250u, 256u, 509u, 1000u, 1024u}) {
    SCOPED_TRACE(owners);
    all_reduce(GetParam(), owners, owners + 11, 1, DDL_TYPE_BFLOAT16, DDL_OP_SUM);
    all_reduce(GetParam(), owners, 300, 16, DDL_TYPE_FLOAT, DDL_OP_AVG);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Schedule, EveryNumber,
                         testing::Values(Algorithm::kDirect, Algorithm::kOneShot, Algorithm::kDoubling,
                                         Algorithm::kRecursive),
                         [](const auto& of) {
                           std::string name = name_of(of.param);
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

class Halving : public testing::TestWithParam<Algorithm> {};

TEST_P(Halving, CostsWhatTheModelCounts) {
  for (const std::size_t owners :
       std::vector<std::size_t>{2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 24, 31, 64, 96, 100}) {
    for (const DDL_Type type : {DDL_TYPE_FLOAT, DDL_TYPE_BFLOAT16}) {
      SCOPED_TRACE(std::string(name_of(type)) + ", owners: " + std::to_string(owners));
      // Parts are all alike, so that the model's figures are exact.
      const std::size_t count = 4 * owners * std::bit_floor(owners);
      const auto traffic = all_reduce(GetParam(), owners, count, 1, type, DDL_OP_SUM);
      const HalvingCost cost = halving_cost(GetParam(), owners, type == DDL_TYPE_FLOAT ? 1 : 2);
      double messages = 0;
      double bytes = 0;
      for (const Traffic& one : traffic) {
        messages = std::max(messages, one.messages);
        bytes = std::max({bytes, one.sent, one.received});
      }
      EXPECT_EQ(messages, cost.messages);
      const double whole = static_cast<double>(count * size_of(type));
      // Halves differ by a part at most.
      const double parts = (std::log2(owners) + 2) / static_cast<double>(owners);
      EXPECT_NEAR(bytes / whole, cost.bytes, std::has_single_bit(owners) ? 1e-9 : 2 * parts);
    }
  }
}

TEST_P(Halving, GrowsWithTheLogarithmOfTheOwners) {
  for (const std::size_t owners : {4u, 61u, 1000u, 1024u, 2047u, 4093u, 4096u}) {
    const HalvingCost cost = halving_cost(GetParam(), owners, 2);
    const double steps = std::ceil(std::log2(static_cast<double>(owners)));
    EXPECT_LE(cost.rounds, 2 * steps + 2);
    Segment segment{{0, 1 << 20}, {}, 0};
    for (std::size_t i = 0; i < owners; ++i) segment.owners.push_back(static_cast<int>(i));
    std::size_t most = 0;
    for (std::size_t i = 0; i < owners; i += (owners / 64) | 1) {
      segment.mine = i;
      const TierSchedule schedule = schedule_tier({segment}, GetParam(), 16, nullptr, true);
      EXPECT_LE(static_cast<double>(schedule.up.size() + schedule.down.size()), cost.rounds);
      most = std::max(most, messages_sent(schedule.up) + messages_sent(schedule.down));
      // Whatever the number of owners: the chunk once more, and wide twice.
      EXPECT_LE(schedule.scratch, segment.range.size());
      EXPECT_LE(schedule.wide, 2 * segment.range.size());
    }
    EXPECT_EQ(static_cast<double>(most), cost.messages);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedule, Halving, testing::Values(Algorithm::kDoubling, Algorithm::kRecursive),
                         [](const auto& of) {
                           return std::string(of.param == Algorithm::kDoubling ? "doubling" : "halving");
                         });

TEST(Schedule, OrderIsKeptByAllButRingAndMpi) {
  for (const std::size_t owners : {2u, 3u, 8u, 1000u}) {
    EXPECT_TRUE(keeps_order(Algorithm::kDoubling, owners));
    EXPECT_TRUE(keeps_order(Algorithm::kRecursive, owners));
    EXPECT_EQ(keeps_order(Algorithm::kRing, owners), owners == 2);
    EXPECT_FALSE(keeps_order(Algorithm::kMpi, owners));
  }
}

}  // namespace
}  // namespace ddl
