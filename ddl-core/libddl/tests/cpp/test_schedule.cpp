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

/// @param divisor  of what completes the last level
void reduce(Owners& world, std::size_t owner, const Reduction& reduction, DDL_Op op, std::int64_t divisor,
            std::size_t levels) {
  const std::int64_t by = reduction.completes == levels ? divisor : 1;
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
void run_round(Owners& world, std::size_t number, bool up, DDL_Op op, std::int64_t divisor,
               std::size_t levels) {
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
    for (const Reduction& reduction : rounds[number].reductions)
      reduce(world, i, reduction, op, divisor, levels);
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

/// One reduction in each group, innermost first, of what its members have. `divisor` is of the last one.
std::vector<char> reduced(const Nesting& nesting, const std::vector<std::vector<char>>& inputs, DDL_Type type,
                          DDL_Op op, std::int64_t divisor) {
  if (nesting.inner.empty()) return inputs[nesting.leaf];
  std::vector<std::vector<char>> sums;
  for (const Nesting& inner : nesting.inner) sums.push_back(reduced(inner, inputs, type, op, 1));
  std::vector<const void*> sources;
  for (const auto& sum : sums) sources.push_back(sum.data());
  std::vector<char> into(sums.front().size());
  reduce_kernel(type, op)(into.data(), sources.data(), static_cast<int>(sources.size()),
                          into.size() / size_of(type), divisor);
  return into;
}

/// @return what the owners sent and received; EXPECTs the bits of one reduction of all inputs, or of one in
/// each group of `nesting`
std::vector<Traffic> all_reduce(Algorithm algorithm, std::size_t owners, std::size_t count, std::size_t grain,
                                DDL_Type type, DDL_Op op, const Nesting* nesting = nullptr) {
  std::mt19937 random(static_cast<unsigned>(owners * 7919 + count));
  Owners world;
  world.type = type;
  world.traffic.resize(owners);
  const bool rounds_each_step = type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16;
  Segment segment{{0, count}, {}, 0};
  for (std::size_t i = 0; i < owners; ++i) segment.owners.push_back(static_cast<int>(i));
  for (std::size_t i = 0; i < owners; ++i) {
    segment.mine = i;
    world.schedules.push_back(schedule_tier({segment}, algorithm, grain, nesting, rounds_each_step));
    world.chunk.push_back(random_values(type, count, random));
    world.scratch.emplace_back(world.schedules.back().scratch * size_of(type));
    world.wide.emplace_back(world.schedules.back().wide);
  }
  const auto divisor = static_cast<std::int64_t>(op == DDL_OP_AVG ? owners : 1);
  Nesting flat;
  std::vector<std::vector<char>> inputs;
  for (const std::size_t place : places_near_first(owners)) inputs.push_back(world.chunk[place]);
  for (const std::size_t child : near_first(owners)) flat.inner.push_back({{}, child});
  const std::size_t levels = nesting == nullptr ? 1 : nesting->levels();
  const std::vector<char> expected = reduced(nesting == nullptr ? flat : *nesting, inputs, type, op, divisor);
  for (const bool up : {true, false}) {
    std::size_t rounds = 0;
    for (const TierSchedule& schedule : world.schedules) {
      rounds = std::max(rounds, rounds_of(schedule, up).size());
    }
    for (std::size_t round = 0; round < rounds; ++round) {
      run_round(world, round, up, op, divisor, levels);
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
                                         Algorithm::kMultiplying, Algorithm::kRecursive),
                         [](const auto& of) {
                           std::string name = name_of(of.param);
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

/// Groups of groups: of the numbers of members, innermost first, one after the other.
Nesting nested(const std::vector<std::vector<std::size_t>>& levels, std::size_t leaves) {
  std::vector<Nesting> groups(leaves);
  for (std::size_t i = 0; i < leaves; ++i) groups[i].leaf = i;
  for (const std::vector<std::size_t>& sizes : levels) {
    std::vector<Nesting> outer;
    std::size_t at = 0;
    for (const std::size_t size : sizes) {
      Nesting& group = outer.emplace_back();
      for (std::size_t i = 0; i < size; ++i) group.inner.push_back(groups[at++]);
    }
    EXPECT_EQ(at, groups.size());
    groups = std::move(outer);
  }
  EXPECT_EQ(groups.size(), 1U);
  return groups.front();
}

/// Nestings of up to 64 leaves.
std::vector<std::pair<Nesting, std::size_t>> nestings() {
  std::vector<std::pair<Nesting, std::size_t>> all;
  const auto add = [&](std::size_t leaves, const std::vector<std::vector<std::size_t>>& levels) {
    all.emplace_back(nested(levels, leaves), leaves);
  };
  add(4, {{2, 2}, {2}});
  add(3, {{2, 1}, {2}});
  add(16, {{4, 4, 4, 4}, {4}});
  add(64, {{8, 8, 8, 8, 8, 8, 8, 8}, {8}});
  add(12, {{3, 5, 4}, {3}});
  add(17, {{1, 16}, {2}});
  add(40, {{15, 1, 7, 9, 8}, {3, 2}, {2}});
  add(9, {{1, 1, 1, 1, 1, 1, 1, 1, 1}, {9}});
  std::mt19937 random(5);
  for (int i = 0; i < 40; ++i) {
    std::vector<std::size_t> racks;
    for (std::size_t left = 2 + random() % 63; left > 0; left -= racks.back()) {
      racks.push_back(1 + random() % std::min<std::size_t>(left, 20));
    }
    add(std::accumulate(racks.begin(), racks.end(), std::size_t{0}), {racks, {racks.size()}});
  }
  return all;
}

TEST(Schedule, NestedSumsAreThoseOfOneReductionInEachGroup) {
  for (const auto& [nesting, leaves] : nestings()) {
    for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kDoubling, Algorithm::kMultiplying}) {
      for (const DDL_Type type : {DDL_TYPE_FLOAT, DDL_TYPE_HALF, DDL_TYPE_BFLOAT16}) {
        for (const DDL_Op op : {DDL_OP_SUM, DDL_OP_AVG}) {
          SCOPED_TRACE(std::string(name_of(algorithm)) + ", leaves: " + std::to_string(leaves) + ", " +
                       name_of(type));
          all_reduce(algorithm, leaves, 37, 1, type, op, &nesting);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(Schedule, NobodySendsAnotherTwoMessages) {
  // Leaders have room for one packet of each.
  for (const auto& [nesting, leaves] : nestings()) {
    for (const Algorithm algorithm : {Algorithm::kDoubling, Algorithm::kMultiplying}) {
      Segment segment{{0, 1}, {}, 0};
      for (std::size_t i = 0; i < leaves; ++i) segment.owners.push_back(static_cast<int>(i));
      for (segment.mine = 0; segment.mine < leaves; ++segment.mine) {
        const TierSchedule schedule = schedule_tier({segment}, algorithm, 1, &nesting, true);
        EXPECT_TRUE(schedule.down.empty());
        std::set<int> from;
        std::set<int> to;
        for (const Round& round : schedule.up) {
          for (const Transfer& send : round.sends) EXPECT_TRUE(to.insert(send.peer).second);
          for (const Transfer& receive : round.receives) EXPECT_TRUE(from.insert(receive.peer).second);
        }
      }
    }
  }
}

TEST(Schedule, FoursHalveTheRounds) {
  using Radices = std::vector<std::size_t>;
  EXPECT_EQ(radices(Algorithm::kMultiplying, 8), (Radices{4, 2}));
  EXPECT_EQ(radices(Algorithm::kMultiplying, 16), (Radices{4, 4}));
  EXPECT_EQ(radices(Algorithm::kMultiplying, 32), (Radices{4, 8}));
  EXPECT_EQ(radices(Algorithm::kMultiplying, 64), (Radices{4, 4, 4}));
  EXPECT_EQ(radices(Algorithm::kMultiplying, 128), (Radices{4, 4, 8}));
  EXPECT_EQ(radices(Algorithm::kMultiplying, 33), (Radices{4, 4, 2})) << "fewer messages";
  EXPECT_EQ(radices(Algorithm::kMultiplying, 2), Radices{2});
  EXPECT_EQ(radices(Algorithm::kMultiplying, 1), Radices{});
  EXPECT_EQ(radices(Algorithm::kDoubling, 8), (Radices{2, 2, 2}));
  for (std::size_t owners = 9; owners <= 64; ++owners) {
    EXPECT_LE(recursive_cost(Algorithm::kMultiplying, owners, 1).rounds, owners <= 32 ? 2 : 3) << owners;
  }
}

class Halving : public testing::TestWithParam<Algorithm> {};

TEST_P(Halving, CostsWhatTheModelCounts) {
  for (const std::size_t owners :
       std::vector<std::size_t>{2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 24, 31, 64, 96, 100}) {
    for (const DDL_Type type : {DDL_TYPE_FLOAT, DDL_TYPE_BFLOAT16}) {
      SCOPED_TRACE(std::string(name_of(type)) + ", owners: " + std::to_string(owners));
      // Parts are all alike, so that the model's figures are exact.
      const std::size_t count = 4 * owners * std::bit_floor(owners);
      const auto traffic = all_reduce(GetParam(), owners, count, 1, type, DDL_OP_SUM);
      const RecursiveCost cost = recursive_cost(GetParam(), owners, type == DDL_TYPE_FLOAT ? 1 : 2);
      double messages = 0;
      double bytes = 0;
      for (const Traffic& one : traffic) {
        messages = std::max(messages, one.messages);
        bytes = std::max({bytes, one.sent, one.received});
      }
      const double whole = static_cast<double>(count * size_of(type));
      if (GetParam() != Algorithm::kRecursive && !std::has_single_bit(owners)) {
        // Not all have as much to do.
        EXPECT_LE(messages, cost.messages);
        EXPECT_GE(messages, 0.5 * cost.messages);
        EXPECT_LE(bytes / whole, cost.bytes + 1e-9);
        EXPECT_GE(bytes / whole, 0.5 * cost.bytes);
        continue;
      }
      EXPECT_EQ(messages, cost.messages);
      // Halves differ by a part at most.
      const double parts = (std::log2(owners) + 2) / static_cast<double>(owners);
      EXPECT_NEAR(bytes / whole, cost.bytes, std::has_single_bit(owners) ? 1e-9 : 2 * parts);
    }
  }
}

TEST_P(Halving, GrowsWithTheLogarithmOfTheOwners) {
  for (const std::size_t owners : {4u, 61u, 1000u, 1024u, 2047u, 4093u, 4096u}) {
    const RecursiveCost cost = recursive_cost(GetParam(), owners, 2);
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
      // Whatever the number of owners: the chunk once more, and wide twice; and what some more send at once.
      const std::size_t at_once = GetParam() == Algorithm::kRecursive  ? 1
                                  : GetParam() == Algorithm::kDoubling ? 3
                                                                       : 7;
      EXPECT_LE(schedule.scratch, at_once * segment.range.size());
      EXPECT_LE(schedule.wide, (at_once + 1) * segment.range.size());
    }
    EXPECT_LE(static_cast<double>(most), cost.messages);
    EXPECT_GE(static_cast<double>(most), 0.5 * cost.messages);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedule, Halving,
                         testing::Values(Algorithm::kDoubling, Algorithm::kMultiplying,
                                         Algorithm::kRecursive),
                         [](const auto& of) {
                           return std::string(of.param == Algorithm::kDoubling      ? "doubling"
                                              : of.param == Algorithm::kMultiplying ? "multiplying"
                                                                                    : "halving");
                         });

TEST(Schedule, OrderIsKeptByAllButRingAndMpi) {
  for (const std::size_t owners : {2u, 3u, 8u, 1000u}) {
    EXPECT_TRUE(keeps_order(Algorithm::kDoubling, owners));
    EXPECT_TRUE(keeps_order(Algorithm::kMultiplying, owners));
    EXPECT_TRUE(keeps_order(Algorithm::kRecursive, owners));
    EXPECT_EQ(keeps_order(Algorithm::kRing, owners), owners == 2);
    EXPECT_FALSE(keeps_order(Algorithm::kMpi, owners));
  }
}

}  // namespace
}  // namespace ddl
