#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "ddl_pack.h"

namespace {

TEST(Pack, RoundTrip) {
  std::vector<double> a{1, 2}, b{3}, c(3), d(2), e(1);
  const void* from[] = {a.data(), nullptr, b.data()};
  const size_t counts[] = {2, 0, 1};
  size_t total = 0;
  ASSERT_EQ(ddl_pack_count(counts, 3, DDL_TYPE_DOUBLE, &total), DDL_SUCCESS);
  EXPECT_EQ(total, 3u);
  ASSERT_EQ(ddl_pack(c.data(), from, counts, 3, DDL_TYPE_DOUBLE), DDL_SUCCESS);
  EXPECT_EQ(c, (std::vector<double>{1, 2, 3}));
  void* to[] = {d.data(), nullptr, e.data()};
  ASSERT_EQ(ddl_unpack(to, counts, 3, DDL_TYPE_DOUBLE, c.data()), DDL_SUCCESS);
  EXPECT_EQ(d, a);
  EXPECT_EQ(e, b);
}

TEST(Pack, BadArguments) {
  const size_t huge[] = {SIZE_MAX / 8, SIZE_MAX / 8};
  size_t total = 0;
  EXPECT_EQ(ddl_pack_count(huge, 2, DDL_TYPE_DOUBLE, &total), DDL_ERR_ARGUMENT);
  EXPECT_EQ(ddl_pack_count(huge, 1, static_cast<DDL_Type>(99), &total), DDL_ERR_ARGUMENT);
  const size_t one[] = {1};
  const void* null[] = {nullptr};
  double x = 0;
  EXPECT_EQ(ddl_pack(&x, null, one, 1, DDL_TYPE_DOUBLE), DDL_ERR_ARGUMENT);
}

// Linking libddl_pack alone brings libddl.
TEST(Pack, BringsDdl) { EXPECT_STRNE(ddl_version(), ""); }

}  // namespace
