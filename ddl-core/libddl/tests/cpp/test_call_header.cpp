#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "engine/call_validation.hpp"
#include "transport/call_header.hpp"
#include "transport/shared_segment.hpp"

namespace ddl {
namespace {

CallHeader example() {
  CallHeader header;
  header.sequence = 7;
  header.kind = CallKind::kAllreduce;
  header.count = 1000;
  header.buffers = 3;
  header.counts_hash = 11;
  header.name_hash = 13;
  return header;
}

TEST(CallHeader, EveryDifferenceShowsInTheDigest) {
  const std::vector<std::function<void(CallHeader&)>> changes = {
      [](CallHeader& h) { h.sequence = 8; },
      [](CallHeader& h) { h.kind = CallKind::kReduce; },
      [](CallHeader& h) { h.type = 1; },
      [](CallHeader& h) { h.op = 1; },
      [](CallHeader& h) { h.root = 1; },
      [](CallHeader& h) { h.count = 1001; },
      [](CallHeader& h) { h.count = 1000ULL << 32; },
      [](CallHeader& h) { h.buffers = 2; },
      [](CallHeader& h) { h.counts_hash = 1ULL << 63; },
      [](CallHeader& h) { h.name_hash = 0; },
      [](CallHeader& h) { h.plan_hash = 17; },
      // values that have changed places
      [](CallHeader& h) { std::swap(h.counts_hash, h.name_hash); },
      [](CallHeader& h) { std::swap(h.count, h.buffers); },
  };
  std::set<std::uint64_t> digests{digest_of(example())};
  for (const auto& change : changes) {
    CallHeader header = example();
    change(header);
    digests.insert(digest_of(header));
  }
  EXPECT_EQ(digests.size(), changes.size() + 1);
}

TEST(CallHeader, WhatMayDifferDoesNotShow) {
  CallHeader header = example();
  header.submitted = 5;
  header.last_s = 0.5;
  std::snprintf(header.name, sizeof header.name, "grads");
  EXPECT_EQ(digest_of(header), digest_of(example()));
}

TEST(CallHeader, PlansAreBlamedOnlyWhereTheCallsAreTheSame) {
  CallHeader header = example();
  header.plan_hash = 17;
  EXPECT_EQ(difference(header, example()), "plan, which is a defect of DDL: please report it");
  header.count = 1001;
  EXPECT_EQ(difference(header, example()), "element count");
}

TEST(CallHeader, CopiesHaveTheNameAsFarAsThereIsOne) {
  CallHeader named = example();
  std::snprintf(named.name, sizeof named.name, "%s", std::string(300, 'n').c_str());
  CallHeader copy = named;
  EXPECT_EQ(std::string(copy.name), std::string(sizeof copy.name - 1, 'n'));
  EXPECT_EQ(difference(copy, named), "");
  EXPECT_EQ(whole_bytes(copy), sizeof copy);
  copy = CallHeader();
  EXPECT_STREQ(copy.name, "") << "nothing is left of the one before";
  EXPECT_EQ(whole_bytes(copy), offsetof(CallHeader, name) + 1);
}

TEST(CallHeader, WhatSeveralRanksHaveSubmitted) {
  EXPECT_EQ(least_submitted(7, 5), 5u);
  EXPECT_EQ(least_submitted(7 | kStartedCalls, 5), 5 | kStartedCalls) << "one of them has started calls";
  EXPECT_EQ(least_submitted(5, 7 | kStartedCalls), 5 | kStartedCalls);
}

TEST(CallHeader, WhatRanksLookAtLiesInOneCacheLine) {
  const std::size_t line = offsetof(RankCell, arrived);
  EXPECT_EQ(line % kCacheLine, 0u);
  EXPECT_LE(offsetof(RankCell, summaries) + sizeof(RankCell::summaries), line + kCacheLine);
  EXPECT_GE(offsetof(RankCell, validated), line + kCacheLine) << "nothing else is written there";
  EXPECT_LE(kTravellingBytes, 32u) << "between hosts";
}

}  // namespace
}  // namespace ddl
