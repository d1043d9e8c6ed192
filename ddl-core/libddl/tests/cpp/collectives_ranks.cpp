// Collectives on real ranks against the reference; the layout of hosts comes from DDL_EMULATE_HOSTS.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "ddl.hpp"
#include "reference.hpp"

namespace {

constexpr DDL_Type kTypes[] = {DDL_TYPE_FLOAT,    DDL_TYPE_HALF,  DDL_TYPE_DOUBLE,
                               DDL_TYPE_BFLOAT16, DDL_TYPE_INT32, DDL_TYPE_INT64};
constexpr DDL_Op kOps[] = {DDL_OP_SUM, DDL_OP_MIN, DDL_OP_MAX, DDL_OP_PRODUCT, DDL_OP_AVG};

size_t width(DDL_Type type) {
  return type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16  ? 2
         : type == DDL_TYPE_DOUBLE || type == DDL_TYPE_INT64 ? 8
                                                             : 4;
}

int get(int (*function)(int*)) {
  int value = -1;
  EXPECT_EQ(function(&value), DDL_SUCCESS) << ddl_last_error();
  return value;
}

/// Ranks from this one on multiply by values of at most 1, lest the product of many overflows.
constexpr int kLargeFactors = 5;

/// The values inputs are made of, as elements of a type; made once, as the reference is slow.
const std::vector<char>& palette(DDL_Type type, bool small) {
  static std::map<std::pair<DDL_Type, bool>, std::vector<char>> made;
  std::vector<char>& elements = made[{type, small}];
  if (elements.empty()) {
    elements.resize(2001 * width(type));
    for (size_t i = 0; i < 2001; ++i) {
      const double value = (static_cast<double>(i) - 1000) / (small ? 1000 : 500);
      reference::write(elements.data(), i, type,
                       reference::is_integer(type) ? std::round(value * (small ? 1 : 10)) : value);
    }
  }
  return elements;
}

/// The input of a rank is known to all ranks.
std::vector<char> input(int rank, size_t count, DDL_Type type, DDL_Op op = DDL_OP_SUM) {
  std::minstd_rand random(static_cast<unsigned>(rank * 7919 + static_cast<int>(type) * 31 + 1) +
                          static_cast<unsigned>(count));
  const std::vector<char>& elements = palette(type, op == DDL_OP_PRODUCT && rank >= kLargeFactors);
  const size_t bytes = width(type);
  std::vector<char> out(count * bytes);
  for (size_t i = 0; i < count; ++i) std::memcpy(&out[i * bytes], &elements[random() % 2001 * bytes], bytes);
  return out;
}

void expect_reduced(const std::vector<char>& result, size_t count, DDL_Type type, DDL_Op op) {
  const int size = get(ddl_size);
  std::vector<std::vector<char>> inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(input(rank, count, type, op));
  int bad = 0;
  for (size_t i = 0; i < count && bad < 5; ++i) {
    double expected = reference::read(inputs[0].data(), i, type);
    double magnitude = std::fabs(expected);
    for (int rank = 1; rank < size; ++rank) {
      const double next = reference::read(inputs[static_cast<size_t>(rank)].data(), i, type);
      expected = reference::combine(op, expected, next);
      magnitude = op == DDL_OP_PRODUCT ? magnitude * std::fabs(next) : magnitude + std::fabs(next);
    }
    if (op == DDL_OP_AVG)
      expected = reference::is_integer(type) ? std::trunc(expected / size) : expected / size;
    // Every reduction may round once per rank and tier.
    const double tolerance =
        reference::is_integer(type)
            ? 0
            : magnitude * (size + 1) * reference::unit_roundoff(type) + std::ldexp(1, -24);
    const double got = reference::read(result.data(), i, type);
    if (!(std::fabs(got - expected) <= tolerance)) {
      ADD_FAILURE() << "type " << type << " op " << op << " count " << count << " element " << i << ": "
                    << got << ", expected " << expected;
      ++bad;
    }
  }
}

TEST(Ranks, KnowTheirPlace) {
  const int rank = get(ddl_rank), size = get(ddl_size), local_rank = get(ddl_local_rank),
            local_size = get(ddl_local_size), hosts = get(ddl_num_hosts), host = get(ddl_host_index);
  EXPECT_LT(rank, size);
  EXPECT_LT(local_rank, local_size);
  EXPECT_LT(host, hosts);
  const char* emulated = std::getenv("DDL_EMULATE_HOSTS");
  if (emulated == nullptr) {
    EXPECT_EQ(local_size, size);
    EXPECT_EQ(local_rank, rank);
  } else {
    EXPECT_EQ(hosts, 1 + std::count(emulated, emulated + std::strlen(emulated), ','));
  }
  // Every rank counts itself once on its host.
  std::vector<int> sizes(static_cast<size_t>(hosts), 0);
  sizes[static_cast<size_t>(host)] = 1;
  ASSERT_EQ(ddl_allreduce(sizes.data(), sizes.size(), DDL_TYPE_INT32), DDL_SUCCESS) << ddl_last_error();
  EXPECT_EQ(sizes[static_cast<size_t>(host)], local_size);
}

TEST(Allreduce, EveryTypeOpAndSize) {
  for (const DDL_Type type : kTypes) {
    for (const DDL_Op op : kOps) {
      for (const size_t count : {0u, 1u, 2u, 17u, 1009u, 20011u}) {
        std::vector<char> data = input(get(ddl_rank), count, type, op);
        ASSERT_EQ(ddl_allreduce(data.data(), count, type, op), DDL_SUCCESS) << ddl_last_error();
        expect_reduced(data, count, type, op);
      }
    }
  }
}

TEST(Allreduce, SeveralChunksAndATail) {
  for (const size_t count : {300000u, 1048583u}) {
    for (const DDL_Type type : {DDL_TYPE_FLOAT, DDL_TYPE_BFLOAT16, DDL_TYPE_INT64}) {
      std::vector<char> data = input(get(ddl_rank), count, type);
      ASSERT_EQ(ddl_allreduce(data.data(), count, type, DDL_OP_SUM), DDL_SUCCESS) << ddl_last_error();
      expect_reduced(data, count, type, DDL_OP_SUM);
    }
  }
}

/// What was planned for one size must suit the sizes next to it: those on the other side of what is a limit
/// between 2 to 9 hosts above all.
TEST(Allreduce, SizesOnBothSidesOfALimitFollowEachOther) {
  constexpr size_t kKiB = 1024;
  for (const size_t limit : {32 * kKiB, 64 * kKiB, 128 * kKiB, 256 * kKiB, 512 * kKiB, 1024 * kKiB / 3}) {
    for (const DDL_Type type : {DDL_TYPE_FLOAT, DDL_TYPE_HALF}) {
      const size_t at = limit / width(type);
      // From the limit on upwards, where the first size decides, and from above down to it.
      for (const auto& [first, second] : {std::pair(at, at * 5 / 4 - 60), std::pair(at + 1, at)}) {
        const std::vector<char> inputs[] = {input(get(ddl_rank), first, type),
                                            input(get(ddl_rank), second, type)};
        std::vector<char> expected;
        for (int i = 0; i < 40; ++i) {
          const size_t count = i < 3 ? first : second;
          std::vector<char> data = inputs[i < 3 ? 0 : 1];
          ASSERT_EQ(ddl_allreduce(data.data(), count, type, DDL_OP_SUM), DDL_SUCCESS) << ddl_last_error();
          // In one order of reduction, the bits are the same every time.
          if (i == 0 || i == 3) {
            expect_reduced(data, count, type, DDL_OP_SUM);
            expected = data;
          }
          ASSERT_TRUE(data == expected) << i << ": " << count << " elements of type " << type;
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

/// All ways to reduce `count` elements of every rank into one result, on every rank; the inputs are alike in
/// all blocks of the reduce-scatter.
template <class Check>
void reduce_in_every_way(const std::vector<char>& mine, size_t count, DDL_Type type, DDL_Op op,
                         const Check& check) {
  std::vector<char> data = mine;
  ASSERT_EQ(ddl_allreduce(data.data(), count, type, op), DDL_SUCCESS) << ddl_last_error();
  check("allreduce", data);
  data = mine;
  ASSERT_EQ(ddl_allreduce_plain(data.data(), count, type, op), DDL_SUCCESS) << ddl_last_error();
  check("allreduce_plain", data);
  data = mine;
  const size_t counts[] = {count / 3, count - count / 3};
  void* const parts[] = {data.data(), data.data() + counts[0] * width(type)};
  ASSERT_EQ(ddl_allreduce_n(parts, counts, 2, type, op, nullptr), DDL_SUCCESS) << ddl_last_error();
  check("allreduce_n", data);
  data = mine;
  ASSERT_EQ(ddl_reduce(data.data(), count, type, op, 0), DDL_SUCCESS) << ddl_last_error();
  if (get(ddl_rank) == 0) check("reduce", data);
  std::vector<char> blocks;
  for (int i = 0; i < get(ddl_size); ++i) blocks.insert(blocks.end(), mine.begin(), mine.end());
  std::vector<char> block(mine.size());
  ASSERT_EQ(ddl_reduce_scatter(blocks.data(), block.data(), count, type, op), DDL_SUCCESS)
      << ddl_last_error();
  check("reduce_scatter", block);
}

/// An average lies between the inputs, so no layout of hosts and racks makes an infinity of it, nor of their
/// partial sums.
TEST(Averages, OfTheLargestNumbersAreFinite) {
  const int size = get(ddl_size);
  for (const DDL_Type type : {DDL_TYPE_HALF, DDL_TYPE_BFLOAT16}) {
    // The whole sum of bfloat16s must be a float, as on one host.
    const double largest = type == DDL_TYPE_HALF ? 65504 : std::ldexp(255, 120) / size;
    for (const size_t count : {1u, 2000u, 30000u, 200000u}) {
      std::vector<double> expected(257, 0);
      std::vector<char> mine(count * width(type));
      for (int rank = 0; rank < size; ++rank) {
        std::vector<char> values(257 * width(type));
        for (size_t i = 0; i < 257; ++i) {
          const double part = 1 - static_cast<double>((i * 37 + static_cast<size_t>(rank) * 11) % 64) / 128;
          reference::write(values.data(), i, type, (i % 5 == 0 ? -1 : 1) * part * largest);
          expected[i] += reference::read(values.data(), i, type) / size;
        }
        if (rank != get(ddl_rank)) continue;
        for (size_t i = 0; i < count; ++i)
          std::memcpy(&mine[i * width(type)], &values[i % 257 * width(type)], width(type));
      }
      const auto check = [&](const char* way, const std::vector<char>& result) {
        for (size_t i = 0; i < count; ++i) {
          const double got = reference::read(result.data(), i, type);
          // MPI and rings round each partial sum.
          const double tolerance = std::fabs(expected[i % 257]) * (size + 2) * reference::unit_roundoff(type);
          ASSERT_NEAR(got, expected[i % 257], tolerance)
              << way << " of type " << type << ", element " << i << " of " << count;
        }
      };
      reduce_in_every_way(mine, count, type, DDL_OP_AVG, check);
      if (testing::Test::HasFailure()) return;
    }
  }
}

/// As good as within one host where nothing is near a limit: small numbers are not lost on the way.
TEST(Averages, OfSmallNumbersKeepTheirDigits) {
  const int size = get(ddl_size);
  constexpr size_t count = 5000;
  std::vector<char> mine(count * 2);
  std::vector<double> expected(count, 0);
  for (int rank = 0; rank < size; ++rank) {
    std::vector<char> values(count * 2);
    for (size_t i = 0; i < count; ++i) {
      reference::write(values.data(), i, DDL_TYPE_HALF,
                       1e-4 * (1 + static_cast<double>((i + 7 * static_cast<size_t>(rank)) % 100) / 100));
      expected[i] += reference::read(values.data(), i, DDL_TYPE_HALF) / size;
    }
    if (rank == get(ddl_rank)) mine = values;
  }
  const auto check = [&](const char* way, const std::vector<char>& result) {
    for (size_t i = 0; i < count; ++i) {
      const double unit = expected[i] * reference::unit_roundoff(DDL_TYPE_HALF);
      ASSERT_NEAR(reference::read(result.data(), i, DDL_TYPE_HALF), expected[i],
                  (size + 2) * (unit + std::ldexp(1, -25)))
          << way << ", element " << i;
    }
  };
  reduce_in_every_way(mine, count, DDL_TYPE_HALF, DDL_OP_AVG, check);
}

/// A NaN of any rank is the minimum and the maximum, and nothing else is.
TEST(NaN, IsKeptByEveryReduction) {
  for (const DDL_Type type : {DDL_TYPE_FLOAT, DDL_TYPE_DOUBLE, DDL_TYPE_HALF, DDL_TYPE_BFLOAT16}) {
    for (const DDL_Op op : {DDL_OP_MIN, DDL_OP_MAX}) {
      for (const size_t count : {3u, 1000u, 40000u}) {
        for (int culprit = 0; culprit < get(ddl_size); ++culprit) {
          std::vector<char> mine(count * width(type));
          for (size_t i = 0; i < count; ++i) reference::write(mine.data(), i, type, 1.5 + get(ddl_rank));
          const size_t bad = static_cast<size_t>(culprit) * 977 % count;
          if (get(ddl_rank) == culprit) reference::write(mine.data(), bad, type, NAN);
          const double others = op == DDL_OP_MIN ? 1.5 : 0.5 + get(ddl_size);
          const auto check = [&](const char* way, const std::vector<char>& result) {
            for (size_t i = 0; i < count; ++i) {
              const double got = reference::read(result.data(), i, type);
              if (i == bad ? std::isnan(got) : got == others) continue;
              FAIL() << way << " of type " << type << " op " << op << " count " << count << " element " << i
                     << ", NaN of rank " << culprit << " at " << bad << ": " << got;
            }
          };
          reduce_in_every_way(mine, count, type, op, check);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(Allreduce, GroupedBuffersAreOneCall) {
  const size_t counts[] = {3, 0, 100003, 1, 70000, 16};
  constexpr size_t n = std::size(counts);
  size_t total = 0;
  for (const size_t count : counts) total += count;
  const std::vector<char> joined = input(get(ddl_rank), total, DDL_TYPE_FLOAT);
  std::vector<std::vector<char>> parts;
  std::vector<void*> pointers;
  for (size_t at = 0; const size_t count : counts) {
    parts.emplace_back(joined.begin() + static_cast<std::ptrdiff_t>(at * 4),
                       joined.begin() + static_cast<std::ptrdiff_t>((at + count) * 4));
    at += count;
  }
  for (auto& part : parts) pointers.push_back(part.empty() ? nullptr : part.data());
  ASSERT_EQ(ddl_allreduce_n(pointers.data(), counts, n, DDL_TYPE_FLOAT, DDL_OP_AVG, "gradients"), DDL_SUCCESS)
      << ddl_last_error();
  std::vector<char> result;
  for (const auto& part : parts) result.insert(result.end(), part.begin(), part.end());
  expect_reduced(result, total, DDL_TYPE_FLOAT, DDL_OP_AVG);
}

TEST(Allreduce, IsBitwiseEqualOnAllRanksAndEveryTime) {
  constexpr size_t count = 200003;
  std::vector<char> first;
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::vector<char> data = input(get(ddl_rank), count, DDL_TYPE_FLOAT);
    ASSERT_EQ(ddl_allreduce(data.data(), count, DDL_TYPE_FLOAT, DDL_OP_SUM), DDL_SUCCESS);
    if (repeat == 0) first = data;
    EXPECT_EQ(data, first);
  }
  std::vector<char> roots = first;
  ASSERT_EQ(ddl_broadcast(roots.data(), count, DDL_TYPE_FLOAT, 0), DDL_SUCCESS);
  EXPECT_EQ(roots, first);
}

TEST(Allreduce, PlainAgrees) {
  for (const DDL_Type type : kTypes) {
    for (const DDL_Op op : kOps) {
      std::vector<char> data = input(get(ddl_rank), 1009, type, op);
      ASSERT_EQ(ddl_allreduce_plain(data.data(), 1009, type, op), DDL_SUCCESS) << ddl_last_error();
      expect_reduced(data, 1009, type, op);
    }
  }
}

TEST(Broadcast, EveryRootAndSize) {
  const int size = get(ddl_size);
  for (int root = 0; root < size; ++root) {
    for (const size_t count : {0u, 1u, 1009u, 700001u}) {
      std::vector<char> data = input(get(ddl_rank), count, DDL_TYPE_DOUBLE);
      ASSERT_EQ(ddl_broadcast(data.data(), count, DDL_TYPE_DOUBLE, root, "weights"), DDL_SUCCESS)
          << ddl_last_error();
      EXPECT_EQ(data, input(root, count, DDL_TYPE_DOUBLE)) << "root " << root << " count " << count;
    }
  }
}

TEST(Broadcast, ManyInARowWithoutWaiting) {
  // The root runs ahead of the others; slots and headers must not be overwritten before they are read.
  std::vector<std::int32_t> values(5000);
  for (int i = 0; i < 200; ++i) {
    const int root = i % get(ddl_size);
    std::fill(values.begin(), values.end(), get(ddl_rank) == root ? i : -1);
    ASSERT_EQ(ddl_broadcast(values.data(), values.size(), DDL_TYPE_INT32, root), DDL_SUCCESS)
        << ddl_last_error();
    EXPECT_EQ(values.front(), i);
    EXPECT_EQ(values.back(), i);
  }
}

TEST(Mixture, OfCallsAndSizes) {
  std::mt19937 random(99);  // the same on all ranks
  for (int i = 0; i < 100; ++i) {
    const size_t count = random() % 3 == 0 ? random() % 4 : random() % 40000;
    const auto type = kTypes[random() % std::size(kTypes)];
    const auto op = kOps[random() % std::size(kOps)];
    const int root = static_cast<int>(random() % static_cast<unsigned>(get(ddl_size)));
    std::vector<char> data = input(get(ddl_rank), count, type, op);
    switch (random() % 4) {
      case 0:
        ASSERT_EQ(ddl_barrier(), DDL_SUCCESS) << ddl_last_error();
        break;
      case 1:
        ASSERT_EQ(ddl_broadcast(data.data(), count, type, root), DDL_SUCCESS) << ddl_last_error();
        EXPECT_EQ(data, input(root, count, type, op));
        break;
      default:
        ASSERT_EQ(ddl_allreduce(data.data(), count, type, op), DDL_SUCCESS) << ddl_last_error();
        expect_reduced(data, count, type, op);
    }
  }
}

TEST(Arguments, AreChecked) {
  float x = 1;
  EXPECT_EQ(ddl_allreduce(nullptr, 1), DDL_ERR_ARGUMENT);
  EXPECT_NE(std::string(ddl_last_error()).find("[ERROR DDL-1-1]"), std::string::npos);
  EXPECT_EQ(ddl_allreduce(&x, 1, static_cast<DDL_Type>(17)), DDL_ERR_ARGUMENT);
  EXPECT_EQ(ddl_allreduce(&x, 1, DDL_TYPE_FLOAT, static_cast<DDL_Op>(-1)), DDL_ERR_ARGUMENT);
  EXPECT_EQ(ddl_broadcast(&x, 1, DDL_TYPE_FLOAT, get(ddl_size)), DDL_ERR_ARGUMENT);
  const size_t huge[] = {SIZE_MAX / 4, SIZE_MAX / 4};
  void* bufs[] = {&x, &x};
  EXPECT_EQ(ddl_allreduce_n(bufs, huge, 2), DDL_ERR_ARGUMENT);
  EXPECT_EQ(ddl_rank(nullptr), DDL_ERR_ARGUMENT);
  void* memory = nullptr;
  EXPECT_EQ(ddl_malloc(&memory, 3, 8), 0u);
  EXPECT_GE(ddl_malloc(&memory, 4096, 100), 100u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
  EXPECT_EQ(ddl_free(memory), DDL_SUCCESS);
  EXPECT_EQ(ddl_init(nullptr), DDL_SUCCESS) << "a second call that changes nothing";
  EXPECT_EQ(ddl_init("-nonsense"), DDL_ERR_OPTION);
  EXPECT_NE(std::string(ddl_last_error()).find("nonsense"), std::string::npos);
  // The first call of all ranks was made long ago.
  EXPECT_EQ(ddl_init("-timeout 123"), DDL_ERR_STATE);
  EXPECT_NE(std::string(ddl_last_error()).find("before the first call"), std::string::npos);
}

TEST(Describe, FitsOrSaysWhatItNeeds) {
  size_t needed = 0;
  ASSERT_EQ(ddl_describe(nullptr, 0, &needed), DDL_SUCCESS);
  ASSERT_GT(needed, 100u);
  std::vector<char> small(20);
  EXPECT_EQ(ddl_describe(small.data(), small.size(), nullptr), DDL_ERR_ARGUMENT);
  EXPECT_EQ(std::strlen(small.data()), 19u);
  std::vector<char> text(needed);
  ASSERT_EQ(ddl_describe(text.data(), text.size(), nullptr), DDL_SUCCESS);
  EXPECT_NE(std::string(text.data()).find("\"size\":" + std::to_string(get(ddl_size))), std::string::npos);
}

}  // namespace
