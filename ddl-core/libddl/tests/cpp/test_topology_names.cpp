// Host lists, the order of names, and finding hosts by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "topology/host_names.hpp"
#include "topology/hostlist.hpp"

namespace ddl {
namespace {

using Names = std::vector<std::string>;

TEST(TopologyHostlist, Expands) {
  EXPECT_EQ(expand_hostlist("a"), (Names{"a"}));
  EXPECT_EQ(expand_hostlist("b,a"), (Names{"b", "a"}));
  EXPECT_EQ(expand_hostlist("node[08-11]"), (Names{"node08", "node09", "node10", "node11"}));
  EXPECT_EQ(expand_hostlist("h[1,3-4].x,z"), (Names{"h1.x", "h3.x", "h4.x", "z"}));
  EXPECT_EQ(expand_hostlist("r[0-1]n[1-2]"), (Names{"r0n1", "r0n2", "r1n1", "r1n2"}));
  EXPECT_EQ(expand_hostlist("[1-2]"), (Names{"1", "2"}));
  EXPECT_EQ(expand_hostlist("n[9-10]"), (Names{"n9", "n10"}));
  EXPECT_EQ(expand_hostlist("n[99998-100001]").back(), "n100001");
}

TEST(TopologyHostlist, Refuses) {
  for (const char* bad :
       {"", ",", "a,", ",a", "a,,b", "a[", "a]", "a[1", "a[]", "a[1-]", "a[-1]", "a[2-1]", "a[x]", "a[1,]",
        "a[1-2-3]", "a[[1]]", "a[1-1000000]", "a[0-999][0-999]", "a[1111111111111111111111]"}) {
    EXPECT_THROW(expand_hostlist(bad), HostlistError) << bad;
  }
  EXPECT_EQ(expand_hostlist("a[1-5]", 5).size(), 5u);
  EXPECT_THROW(expand_hostlist("a[1-6]", 5), HostlistError);
  EXPECT_THROW(expand_hostlist("a,b,c[1-4]", 5), HostlistError);
  EXPECT_THROW(expand_hostlist("a", 0), HostlistError);
}

TEST(TopologyNames, NaturalOrder) {
  const Names sorted = {"",   "0",  "1",    "01",    "2",    "10", "A",    "a",     "a-1",  "a1",
                        "a2", "a9", "a10b", "a10b2", "a011", "ab", "n1.x", "n1.x1", "n2.x", "n10"};
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t j = 0; j < sorted.size(); ++j) {
      const int order = natural_compare(sorted[i], sorted[j]);
      EXPECT_EQ(order < 0, i < j) << sorted[i] << " " << sorted[j];
      EXPECT_EQ(order > 0, i > j) << sorted[i] << " " << sorted[j];
    }
  }
}

TEST(TopologyNames, NaturalOrderIsAnOrder) {
  std::mt19937 random(3);
  Names names;
  for (int i = 0; i < 60; ++i) {
    std::string name;
    for (std::size_t n = random() % 6; n > 0; --n) name += "019ab.-"[random() % 7];
    names.push_back(name);
  }
  for (const std::string& a : names) {
    for (const std::string& b : names) {
      EXPECT_EQ(natural_compare(a, b) < 0, natural_compare(b, a) > 0);
      EXPECT_EQ(natural_compare(a, b) == 0, a == b);
      for (const std::string& c : names) {
        if (natural_compare(a, b) < 0 && natural_compare(b, c) < 0) {
          EXPECT_LT(natural_compare(a, c), 0) << a << " " << b << " " << c;
        }
      }
    }
  }
}

TEST(TopologyNames, HostsAreFoundByWholeOrShortName) {
  HostIndex index;
  EXPECT_TRUE(index.add("n1.site.org", 1));
  EXPECT_TRUE(index.add("n2", 2));
  EXPECT_TRUE(index.add("n3.a", 3));
  EXPECT_TRUE(index.add("n3.b", 4));
  EXPECT_FALSE(index.add("N2", 5));
  EXPECT_EQ(index.find("n1"), 1);
  EXPECT_EQ(index.find("N1.Site.org"), 1);
  EXPECT_EQ(index.find("n1.other.org"), HostIndex::kNone);
  EXPECT_EQ(index.find("n2"), 2);
  EXPECT_EQ(index.find("n2.anywhere"), 2);
  EXPECT_EQ(index.find("n3"), HostIndex::kAmbiguous);
  EXPECT_EQ(index.find("n3.b"), 4);
  EXPECT_EQ(index.find("n3.c"), HostIndex::kNone);
  EXPECT_EQ(index.find("n4"), HostIndex::kNone);
}

TEST(TopologyNames, ValidHostNames) {
  for (const char* good : {"a", "node-1.site.org", "x_y", "10.0.0.1"})
    EXPECT_TRUE(valid_host_name(good)) << good;
  for (const char* bad : {"", "a b", "a/b", "a;b", "\xc3\xa9", "a\n"})
    EXPECT_FALSE(valid_host_name(bad)) << bad;
  EXPECT_FALSE(valid_host_name(std::string(256, 'a')));
}

}  // namespace
}  // namespace ddl
