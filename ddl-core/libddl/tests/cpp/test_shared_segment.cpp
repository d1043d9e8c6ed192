#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "plan/chunking.hpp"
#include "plan/exchange.hpp"
#include "support/error.hpp"
#include "transport/shared_segment.hpp"

namespace ddl {
namespace {

bool exists(const std::string& name) { return access(("/dev/shm" + name).c_str(), F_OK) == 0; }

std::string name_of_own() { return SharedSegment::name_for(static_cast<std::uint64_t>(getpid()), 1); }

TEST(SharedSegment, TwoMappingsShareAndTheNameGoesAtOnce) {
  SharedSegment first = SharedSegment::create(name_of_own(), 2);
  const std::string name = first.name();
  EXPECT_TRUE(exists(name));
  SharedSegment second = SharedSegment::open(name, 2);
  first.reserve_control();
  first.reserve_stage(0);
  second.reserve_stage(1);
  first.unlink();
  EXPECT_FALSE(exists(name));

  std::memset(second.stage(1, 7, kMaxChunkBytes), 0x5a, kMaxChunkBytes);
  EXPECT_EQ(first.stage(1, 7, kMaxChunkBytes)[kMaxChunkBytes - 1], 0x5a);
  second.cell(1).posted.store(42);
  EXPECT_EQ(first.cell(1).posted.load(), 42u);
  EXPECT_EQ(first.failure().state.load(), FailureRecord::kNone);
}

TEST(SharedSegment, DestructionRemovesTheName) {
  std::string name;
  {
    const SharedSegment segment = SharedSegment::create(name_of_own(), 3);
    name = segment.name();
    EXPECT_TRUE(exists(name));
  }
  EXPECT_FALSE(exists(name));
}

TEST(SharedSegment, AbsentOrDifferentOnesAreErrors) {
  try {
    SharedSegment::open("/ddl-absent", 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), DDL_ERR_MEMORY);
    EXPECT_NE(std::string(error.what()).find("/dev/shm/ddl-absent"), std::string::npos) << error.what();
  }
  const SharedSegment segment = SharedSegment::create(name_of_own(), 2);
  EXPECT_THROW(SharedSegment::open(segment.name(), 3), Error);
}

TEST(SharedSegment, TheLimitOfAddressSpaceIsNamed) {
  const std::string name = name_of_own();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  ASSERT_TRUE(statm >> pages);
  // Room for messages, but not for the stages.
  const rlimit limit{pages * 4096 + (std::size_t{2} << 20), before.rlim_max};
  std::string shared;
  std::string alone;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  try {
    SharedSegment::create(name, 2);
  } catch (const Error& error) {
    shared = error.what();
  }
  try {
    SharedSegment::create_private(kStageBytes);
  } catch (const Error& error) {
    alone = error.what();
  }
  setrlimit(RLIMIT_AS, &before);
  for (const std::string& text : {shared, alone}) {
    EXPECT_EQ(text.find("[ERROR DDL-1-6] cannot "), 0u) << text;
    EXPECT_NE(text.find("raise the limit of address space (ulimit -v), which is "), std::string::npos)
        << text;
    EXPECT_EQ(text.find("mount"), std::string::npos) << text;
  }
}

TEST(SharedSegment, WhatExistsIsNotTakenOver) {
  const SharedSegment segment = SharedSegment::create(name_of_own(), 2);
  try {
    SharedSegment::create(name_of_own(), 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), DDL_ERR_MEMORY);
    EXPECT_NE(std::string(error.what()).find(segment.name()), std::string::npos) << error.what();
  }
  EXPECT_TRUE(exists(segment.name()));
}

/// Far more than a wake-up takes: what ends by it has failed.
constexpr double kNever = 60;

CallHeader header(std::uint64_t sequence, std::uint64_t digest, std::uint64_t submitted = 1,
                  double last_s = 0) {
  CallHeader made;
  made.sequence = sequence;
  made.digest = digest;
  made.submitted = submitted;
  made.last_s = last_s;
  return made;
}

/// So many ranks in domains of so many, the last of which may have fewer.
Division domains_of(std::size_t each, std::size_t ranks) {
  Division division;
  for (std::size_t rank = 0; rank < ranks; ++rank) division.push_back(rank / each);
  return division;
}

/// Two of the four ranks of a host with their own mappings: one that sleeps, one that publishes for the
/// others.
struct Sleepers {
  explicit Sleepers(const Division& division)
      : made(SharedSegment::create(name_of_own(), 4, kLeastStageBytes, division)),
        sleeping(SharedSegment::open(made.name(), 4, kLeastStageBytes, division)),
        publishing(SharedSegment::open(made.name(), 4, kLeastStageBytes, division)) {}

  /// Whether a rank that sleeps is woken by the end of `publish`, which is told what it sleeps on.
  template <class Publish>
  bool woken_by(Publish publish) {
    const std::uint32_t seen = sleeping.prepare_sleep();
    bool rung = false;
    std::thread sleeper([&] { rung = sleeping.sleep(seen, kNever); });
    publish(seen);
    sleeper.join();
    sleeping.end_sleep();
    return rung;
  }
  /// Nobody has been woken so far: this falls asleep as well.
  bool nobody_woken(std::uint32_t seen) { return !publishing.sleep(seen, 1e-3); }

  const SharedSegment made;
  SharedSegment sleeping;
  SharedSegment publishing;
};

class WakingUp : public testing::TestWithParam<Division> {};

INSTANTIATE_TEST_SUITE_P(SharedSegment, WakingUp, testing::Values(Division{}, domains_of(2, 4)),
                         [](const auto& info) { return info.param.empty() ? "undivided" : "in_domains"; });

TEST_P(WakingUp, ByTheLastToPublish) {
  Sleepers ranks(GetParam());
  ranks.sleeping.publish(0, &RankCell::reduced, 1);
  EXPECT_TRUE(ranks.woken_by([&](std::uint32_t seen) {
    ranks.publishing.publish(1, &RankCell::reduced, 1);
    ranks.publishing.publish(2, &RankCell::reduced, 1);
    EXPECT_TRUE(ranks.nobody_woken(seen)) << "rank 3 is missing";
    ranks.publishing.publish(3, &RankCell::reduced, 1);
  }));
}

TEST_P(WakingUp, ByWhomIsWaitedForAlone) {
  Sleepers ranks(GetParam());
  ranks.sleeping.publish(0, &RankCell::reduced, 1);
  EXPECT_TRUE(
      ranks.woken_by([&](std::uint32_t) { ranks.publishing.publish_alone(1, &RankCell::reduced, 1); }));
  ranks.publishing.publish(2, &RankCell::reduced, 1);
  ranks.publishing.publish(3, &RankCell::reduced, 1);
  if (!GetParam().empty()) {
    EXPECT_EQ(ranks.publishing.passed_by_all(0, &RankCell::reduced), 1u) << "it counts as well";
  }
}

TEST_P(WakingUp, ByTheLastToArriveForWhatAllHavePostedBefore) {
  Sleepers ranks(GetParam());
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const bool last = rank == 3;
    const auto come = [&](std::uint32_t seen) {
      ranks.publishing.publish(rank, &RankCell::posted, 1, false);
      EXPECT_TRUE(!last || ranks.nobody_woken(seen));
      ranks.publishing.arrive(rank, header(1, 7));
    };
    if (last) {
      EXPECT_TRUE(ranks.woken_by(come));
    } else {
      come(0);
    }
  }
  EXPECT_EQ(ranks.sleeping.cell(3).posted.load(), 1u);
}

TEST(SharedSegment, WhatIsPublishedBeforeTheSleepEndsItAtOnce) {
  const SharedSegment made = SharedSegment::create(name_of_own(), 2);
  SharedSegment sleeping = SharedSegment::open(made.name(), 2);
  SharedSegment publishing = SharedSegment::open(made.name(), 2);
  sleeping.publish(0, &RankCell::reduced, 1);
  const std::uint32_t seen = sleeping.prepare_sleep();
  publishing.publish(1, &RankCell::reduced, 1);
  EXPECT_TRUE(sleeping.sleep(seen, kNever));
  sleeping.end_sleep();
  // While nobody sleeps nobody rings.
  publishing.publish_alone(1, &RankCell::reduced, 2);
  EXPECT_FALSE(sleeping.sleep(seen + 1, 1e-3));
}

TEST(SharedSegmentDomains, TheLastToArriveSaysWhatAllHaveSaid) {
  SharedSegment segment = SharedSegment::create(name_of_own(), 5, kLeastStageBytes, domains_of(2, 5));
  EXPECT_TRUE(segment.divided());
  const std::vector<std::size_t> order{4, 0, 3, 1, 2};
  for (std::uint64_t call = 1; call <= 3; ++call) {
    for (const std::size_t rank : order) {
      for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(segment.said_by_all(i, call), nullptr);
      const bool other = call == 2 && rank == 3;
      segment.arrive(rank, header(call, other ? 8 : 7, 10 + rank, rank == 1 ? 0.5 : 0.25));
      EXPECT_EQ(segment.cell(rank).arrived.load(), call);
    }
    for (std::size_t i = 0; i < 5; ++i) {
      const CombinedSummary* const all = segment.said_by_all(i, call);
      ASSERT_NE(all, nullptr);
      EXPECT_EQ(all->same, call == 2 ? 0u : 1u);
      EXPECT_EQ(all->submitted, 10u);
      EXPECT_EQ(all->last_s, 0.5);
    }
  }
}

TEST(SharedSegmentDomains, SomeOfADomainThatDifferAreNoticed) {
  for (std::size_t odd = 0; odd < 6; ++odd) {
    SharedSegment segment = SharedSegment::create(name_of_own(), 6, kLeastStageBytes, domains_of(3, 6));
    for (std::size_t rank = 0; rank < 6; ++rank) segment.arrive(rank, header(1, rank == odd ? 2 : 1));
    EXPECT_EQ(segment.said_by_all(0, 1)->same, 0u) << odd;
  }
}

TEST(SharedSegmentDomains, NobodyLooksAtAllOthers) {
  constexpr std::size_t ranks = 64;
  SharedSegment segment = SharedSegment::create(name_of_own(), ranks, kLeastStageBytes, domains_of(8, ranks));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    segment.arrive(rank, header(1, 7));
    segment.publish(rank, &RankCell::posted, 1);
    const bool all = rank + 1 == ranks;
    EXPECT_EQ(segment.said_by_all(rank, 1) != nullptr, all);
    EXPECT_EQ(segment.passed_by_all(rank, &RankCell::posted), all ? 1u : 0u);
    // Who has come is not looked at again: neither by those who wait nor by the last one.
    segment.cell(rank).posted.store(0);
    segment.cell(rank).arrived.store(0);
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    EXPECT_NE(segment.said_by_all(rank, 1), nullptr);
    EXPECT_EQ(segment.passed_by_all(rank, &RankCell::posted), 1u);
  }
}

TEST(SharedSegmentDomains, RanksMayBeChunksAheadOfEachOther) {
  SharedSegment segment = SharedSegment::create(name_of_own(), 4, kLeastStageBytes, domains_of(2, 4));
  std::vector<std::uint64_t> done(4, 0);
  const auto go_on = [&](std::size_t rank, std::uint64_t chunks) {
    for (; chunks > 0; --chunks) segment.publish(rank, &RankCell::gathered, ++done[rank]);
  };
  std::uint64_t all = 0;
  // More chunks than are counted at a time.
  for (int round = 0; round < 20; ++round) {
    go_on(0, 3);
    go_on(3, 2);
    go_on(1, 2);
    EXPECT_EQ(segment.passed_by_all(2, &RankCell::gathered), all);
    go_on(2, 1);
    EXPECT_EQ(segment.passed_by_all(2, &RankCell::gathered), ++all);
    go_on(2, 2);
    all += 1;
    EXPECT_EQ(segment.passed_by_all(0, &RankCell::gathered), all);
    go_on(1, 1);
    go_on(3, 1);
    ++all;
    EXPECT_EQ(segment.passed_by_all(0, &RankCell::gathered), all);
    EXPECT_EQ(segment.passed_by_all(0, &RankCell::posted), 0u);
  }
}

TEST(SharedSegmentDomains, RanksAtOnce) {
  constexpr std::size_t ranks = 9;
  constexpr std::uint64_t calls = 300, chunks = 4;
  constexpr std::uint64_t slots = 3;
  SharedSegment segment = SharedSegment::create(name_of_own(), ranks, kLeastStageBytes, domains_of(4, ranks));
  const auto value = [](std::size_t rank, std::uint64_t chunk) { return chunk * 100 + rank; };
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::size_t self = 0; self < ranks; ++self) {
    threads.emplace_back([&, self] {
      const auto wait = [&](SharedSegment::Counter counter, std::uint64_t until) {
        while (segment.passed_by_all(self, counter) < until) std::this_thread::yield();
      };
      const auto place = [&](std::size_t rank, std::uint64_t chunk) -> std::uint64_t& {
        return *reinterpret_cast<std::uint64_t*>(segment.stage(rank, chunk % slots, kCacheLine));
      };
      for (std::uint64_t call = 1; call <= calls; ++call) {
        segment.arrive(self, header(call, call, call + self));
        const CombinedSummary* all = nullptr;
        while ((all = segment.said_by_all(self, call)) == nullptr) std::this_thread::yield();
        if (all->same != 1 || all->digest != call || all->submitted != call) ++wrong;
        for (std::uint64_t i = 0; i < chunks; ++i) {
          const std::uint64_t chunk = (call - 1) * chunks + i;
          if (chunk >= slots) wait(&RankCell::gathered, chunk - slots + 1);
          place(self, chunk) = value(self, chunk);
          segment.publish(self, &RankCell::posted, chunk + 1);
          wait(&RankCell::posted, chunk + 1);
          for (std::size_t rank = 0; rank < ranks; ++rank) {
            if (place(rank, chunk) != value(rank, chunk)) ++wrong;
          }
          segment.publish(self, &RankCell::reduced, chunk + 1);
          segment.publish(self, &RankCell::gathered, chunk + 1);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(SharedSegmentDomains, LieBehindTheCells) {
  const Division division = domains_of(2, 5);
  const SharedSegment segment = SharedSegment::create(name_of_own(), 5, kLeastStageBytes, division);
  const std::size_t control = SharedSegment::bytes_for(5, 0, division);
  EXPECT_EQ(static_cast<std::size_t>(segment.stage(0, 0, 1) - segment.whole().first), control);
  EXPECT_GE(segment.whole().first + control,
            reinterpret_cast<const char*>(&segment.cell(5)) + 3 * sizeof(DomainCell) + sizeof(Tally));
}

TEST(SharedSegment, PartsDoNotOverlap) {
  const SharedSegment segment = SharedSegment::create_private();
  const char* control_end = reinterpret_cast<const char*>(&segment.cell(0) + 1);
  EXPECT_LE(control_end, segment.stage(0, 0, kMaxChunkBytes));
  EXPECT_GE(reinterpret_cast<const char*>(&segment.cell(0)),
            reinterpret_cast<const char*>(&segment.failure() + 1));
  EXPECT_EQ(segment.stage(0, 1, kMaxChunkBytes) - segment.stage(0, 0, kMaxChunkBytes),
            static_cast<std::ptrdiff_t>(kMaxChunkBytes));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&segment.cell(0).posted) % kCacheLine, 0u);
}

}  // namespace
}  // namespace ddl
