#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <thread>

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

TEST(SharedSegment, TheLastToPublishWakesTheSleeping) {
  const SharedSegment made = SharedSegment::create(name_of_own(), 3);
  SharedSegment sleeping = SharedSegment::open(made.name(), 3);
  SharedSegment publishing = SharedSegment::open(made.name(), 3);
  for (const bool alone : {false, true}) {
    const std::uint64_t call = alone ? 2 : 1;
    sleeping.publish(0, &RankCell::posted, call);
    const std::uint32_t seen = sleeping.prepare_sleep();
    bool rung = false;
    std::thread sleeper([&] { rung = sleeping.sleep(seen, kNever); });
    if (alone) {
      publishing.publish_alone(1, &RankCell::posted, call);
    } else {
      publishing.publish(1, &RankCell::posted, call);
      // Rank 2 is still missing: nobody was woken, and this falls asleep as well.
      EXPECT_FALSE(publishing.sleep(seen, 1e-3));
      publishing.publish(2, &RankCell::posted, call);
    }
    sleeper.join();
    sleeping.end_sleep();
    EXPECT_TRUE(rung);
  }
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
