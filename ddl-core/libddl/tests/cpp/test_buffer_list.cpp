#include <gtest/gtest.h>

#include <numeric>

#include "collective/buffer_list.hpp"

namespace ddl {
namespace {

TEST(BufferList, ReadsAndWritesAcrossBuffers) {
  std::vector<int> a{0, 1, 2}, b, c{3}, d{4, 5, 6, 7};
  void* bufs[] = {a.data(), nullptr, c.data(), d.data()};
  const std::size_t counts[] = {3, 0, 1, 4};
  const BufferList list(bufs, counts, 4, DDL_TYPE_INT32);
  ASSERT_EQ(list.count(), 8u);
  for (std::size_t begin = 0; begin <= 8; ++begin) {
    for (std::size_t end = begin; end <= 8; ++end) {
      std::vector<int> out(end - begin), expected(end - begin);
      std::iota(expected.begin(), expected.end(), static_cast<int>(begin));
      Copies copies;
      list.copy_out({begin, end}, reinterpret_cast<char*>(out.data()), copies);
      EXPECT_TRUE(copies.done());
      EXPECT_EQ(out, expected);
    }
  }
  const std::vector<int> in{20, 30, 40};
  Copies copies;
  list.copy_in({2, 5}, reinterpret_cast<const char*>(in.data()), copies);
  EXPECT_EQ(a, (std::vector<int>{0, 1, 20}));
  EXPECT_EQ(c, (std::vector<int>{30}));
  EXPECT_EQ(d, (std::vector<int>{40, 5, 6, 7}));
}

TEST(BufferList, Empty) {
  const BufferList none(nullptr, nullptr, 0, DDL_TYPE_FLOAT);
  EXPECT_EQ(none.count(), 0u);
  none.for_each_piece({0, 0}, [](char*, std::size_t, std::size_t) { FAIL(); });
}

}  // namespace
}  // namespace ddl
