// Whom hosts meet when links are measured, and what is made of the figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "topology/matchings.hpp"
#include "topology/rack_evidence.hpp"

namespace ddl {
namespace {

using Groups = std::vector<std::vector<int>>;
using Pairs = std::set<std::pair<std::size_t, std::size_t>>;

/// Everybody's partner has him as partner.
Pairs pairs_of(const Matching& matching) {
  Pairs pairs;
  for (std::size_t a = 0; a < matching.size(); ++a) {
    const std::size_t b = matching[a];
    if (b == kAlone) continue;
    EXPECT_LT(b, matching.size());
    EXPECT_NE(a, b);
    EXPECT_EQ(matching[b], a);
    pairs.emplace(std::min(a, b), std::max(a, b));
  }
  return pairs;
}

TEST(Matchings, InTheCircleEverybodyMeetsEverybodyOnce) {
  for (std::size_t n = 2; n < 40; ++n) {
    Pairs all;
    for (std::size_t round = 0; round < circle_rounds(n); ++round) {
      const Pairs pairs = pairs_of(circle_matching(n, round));
      EXPECT_EQ(pairs.size(), n / 2) << n;
      for (const auto& pair : pairs) EXPECT_TRUE(all.insert(pair).second) << n;
    }
    EXPECT_EQ(all.size(), n * (n - 1) / 2) << n;
  }
}

TEST(Matchings, DoublingReachesBothSidesInLogarithmicallyManyRounds) {
  for (std::size_t n = 2; n < 300; ++n) {
    const auto rounds = doubling_matchings(n);
    std::size_t doublings = 0;
    for (std::size_t d = 1; d < n; d *= 2) ++doublings;
    EXPECT_LE(rounds.size(), 2 * doublings);
    Pairs all;
    for (const Matching& matching : rounds) all.merge(pairs_of(matching));
    Pairs wanted;
    for (std::size_t d = 1; d < n; d *= 2) {
      for (std::size_t i = 0; i + d < n; ++i) wanted.emplace(i, i + d);
    }
    EXPECT_EQ(all, wanted) << n;
  }
}

TEST(Matchings, InsideAndAcross) {
  const Groups groups{{0, 3, 4}, {1, 2}, {5, 6}};
  EXPECT_EQ(pairs_of(matching_inside(groups, 7)), (Pairs{{0, 3}, {1, 2}, {5, 6}}));
  EXPECT_EQ(pairs_of(matching_across(groups, 7)), (Pairs{{0, 1}, {2, 3}}));
}

TEST(RackEvidence, IsWrittenAndRead) {
  const RackEvidence known{{{0, 2}, {1}, {3, 4}}, 940, 95.5};
  const auto read = RackEvidence::from_text(known.to_text(), 5);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->groups, known.groups);
  EXPECT_DOUBLE_EQ(read->near, 940);
  EXPECT_DOUBLE_EQ(read->far, 95.5);
}

TEST(RackEvidence, WhatIsNoneIsNotRead) {
  const std::string good = RackEvidence{{{0, 1}, {2}}, 940, 95}.to_text();
  EXPECT_TRUE(RackEvidence::from_text(good, 3));
  for (const std::string& bad :
       {std::string(), std::string("ddl-racks-1"), good + "0", good.substr(0, good.size() - 3),
        "ddl-racks-2" + good.substr(11), std::string("ddl-racks-1\n0 95\n0 0 1"),
        std::string("ddl-racks-1\nnan 95\n0 0 1"), std::string("ddl-racks-1\n940 inf\n0 0 1"),
        std::string("ddl-racks-1\n940 95\n0 2 1"), std::string("ddl-racks-1\n940 95\n0 -1 1"),
        std::string("ddl-racks-1\n940 95\n0 99999999999999999999 1"), std::string("\0\0\xff", 3)}) {
    EXPECT_FALSE(RackEvidence::from_text(bad, 3)) << bad;
  }
  EXPECT_FALSE(RackEvidence::from_text(good, 2));
  EXPECT_FALSE(RackEvidence::from_text(good, 4));
  EXPECT_FALSE(RackEvidence::from_text("ddl-racks-1\n1 1\n", 0));
}

TEST(RackEvidence, AQuarterIsBelieved) {
  const RackEvidence known{{{0, 1}, {2, 3}}, 900, 100};
  EXPECT_FALSE(known.contradicted_by(900, 100));
  EXPECT_FALSE(known.contradicted_by(450, 50)) << "a busy machine slows all down";
  EXPECT_FALSE(known.contradicted_by(900, 120));
  EXPECT_TRUE(known.contradicted_by(900, 130));
  EXPECT_TRUE(known.contradicted_by(900, 70));
  EXPECT_TRUE(known.contradicted_by(0, 100));
  EXPECT_TRUE(known.contradicted_by(900, 0));
}

TEST(RackEvidence, OneGroupOfUnequalLinksIsNone) {
  EXPECT_TRUE((RackEvidence{{{0, 1, 2}}, 950, 104}.contradicts_itself()));
  EXPECT_TRUE((RackEvidence{{{0, 1, 2}}, 104, 950}.contradicts_itself()));
  EXPECT_TRUE((RackEvidence{{{0, 1, 2}}, 0, 950}.contradicts_itself()));
  EXPECT_FALSE((RackEvidence{{{0, 1, 2}}, 950, 700}.contradicts_itself()));
  EXPECT_FALSE((RackEvidence{{{0, 1}, {2}}, 950, 104}.contradicts_itself()));
}

TEST(RackEvidence, Suspicion) {
  EXPECT_FALSE(racks_suspected({100, 120, 140}));
  EXPECT_TRUE(racks_suspected({100, 120, 150}));
}

TEST(RackEvidence, Plausible) {
  EXPECT_TRUE(plausible_racks({{0, 1}, {2, 3}}));
  EXPECT_TRUE(plausible_racks({{0, 1, 2}, {3}}));
  EXPECT_FALSE(plausible_racks({{0, 1}, {2}, {3}}));
  EXPECT_FALSE(plausible_racks({{0}, {1}, {2}}));
  EXPECT_FALSE(plausible_racks({{0, 1, 2}}));
}

TEST(RackEvidence, Median) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
}

}  // namespace
}  // namespace ddl
