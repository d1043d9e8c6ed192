#include <gtest/gtest.h>

#include <random>

#include "collective/kernels.hpp"
#include "reference.hpp"
#include "support/types.hpp"

namespace ddl {
namespace {

struct Isa {
  const char* name;
  ReduceKernel (*select)(DDL_Type, DDL_Op);
  WideKernels (*select_wide)(DDL_Type);
};

std::vector<Isa> isas() {
  std::vector<Isa> all{{"baseline", kernels_baseline::select, kernels_baseline::select_wide}};
#ifdef DDL_HAVE_AVX2_KERNELS
  // Only where it can run; kernel_isa() says what the processor has.
  if (std::string(kernel_isa()) == "avx2")
    all.push_back({"avx2", kernels_avx2::select, kernels_avx2::select_wide});
#endif
  return all;
}

std::string label(const Isa& isa, DDL_Type type, DDL_Op op, int n, std::size_t count) {
  return std::string(isa.name) + " " + name_of(type) + " " + name_of(op) + " n=" + std::to_string(n) +
         " count=" + std::to_string(count);
}

TEST(Kernels, AgreeWithTheReference) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> values(-2, 2);
  for (const Isa& isa : isas()) {
    for (int t = 0; t < kTypeCount; ++t) {
      for (int o = 0; o < kOpCount; ++o) {
        const auto type = static_cast<DDL_Type>(t);
        const auto op = static_cast<DDL_Op>(o);
        for (const int n : {1, 2, 3, 5}) {
          for (const std::size_t count : {0u, 1u, 7u, 31u, 512u, 513u, 1031u}) {
            SCOPED_TRACE(label(isa, type, op, n, count));
            // One element more, to see that nothing behind the end is written.
            std::vector<std::vector<char>> sources;
            std::vector<const void*> pointers;
            for (int s = 0; s < n; ++s) {
              sources.emplace_back((count + 1) * size_of(type));
              for (std::size_t i = 0; i <= count; ++i) {
                const double value =
                    reference::is_integer(type) ? std::round(values(random) * 9) : values(random);
                reference::write(sources.back().data(), i, type, value);
              }
            }
            for (const auto& source : sources) pointers.push_back(source.data());
            std::vector<char> out((count + 1) * size_of(type), 0x77);
            const std::vector<char> before = out;
            isa.select(type, op)(out.data(), pointers.data(), n, count, n);
            EXPECT_EQ(std::memcmp(out.data() + count * size_of(type), before.data(), size_of(type)), 0);
            for (std::size_t i = 0; i < count; ++i) {
              double expected = reference::read(pointers[0], i, type);
              double magnitude = std::fabs(expected);
              for (int s = 1; s < n; ++s) {
                const double next = reference::read(pointers[static_cast<std::size_t>(s)], i, type);
                expected = reference::combine(op, expected, next);
                magnitude = op == DDL_OP_PRODUCT ? magnitude * std::fabs(next) : magnitude + std::fabs(next);
              }
              if (op == DDL_OP_AVG)
                expected = reference::is_integer(type) ? std::trunc(expected / n) : expected / n;
              // n - 1 operations in float (or the type itself), one rounding to the type.
              const double working = type == DDL_TYPE_DOUBLE ? std::ldexp(1, -53) : std::ldexp(1, -24);
              const double tolerance = reference::is_integer(type)
                                           ? 0
                                           : magnitude * n * working +
                                                 std::fabs(expected) * reference::unit_roundoff(type) +
                                                 (type == DDL_TYPE_HALF ? std::ldexp(1, -25) : 0);
              EXPECT_NEAR(reference::read(out.data(), i, type), expected, tolerance) << "element " << i;
            }
          }
        }
      }
    }
  }
}

TEST(Kernels, DestinationMayBeAnySource) {
  for (const Isa& isa : isas()) {
    for (int t = 0; t < kTypeCount; ++t) {
      const auto type = static_cast<DDL_Type>(t);
      for (const int n : {1, 2, 3, 4}) {
        for (int which = 0; which < n; ++which) {
          constexpr std::size_t count = 1031;
          std::vector<std::vector<char>> sources(static_cast<std::size_t>(n),
                                                 std::vector<char>(count * size_of(type)));
          std::vector<const void*> pointers;
          for (std::size_t s = 0; s < sources.size(); ++s) {
            for (std::size_t i = 0; i < count; ++i) {
              reference::write(sources[s].data(), i, type, static_cast<double>((i + s * 3) % 11));
            }
            pointers.push_back(sources[s].data());
          }
          std::vector<char> apart(count * size_of(type));
          isa.select(type, DDL_OP_SUM)(apart.data(), pointers.data(), n, count, 1);
          auto& in_place = sources[static_cast<std::size_t>(which)];
          isa.select(type, DDL_OP_SUM)(in_place.data(), pointers.data(), n, count, 1);
          EXPECT_EQ(in_place, apart) << label(isa, type, DDL_OP_SUM, n, count) << " destination " << which;
        }
      }
    }
  }
}

/// Every 16-bit pattern through decode and encode: x * 1 and x + 0 must be x.
TEST(Kernels, SixteenBitFormatsRoundTrip) {
  std::vector<std::uint16_t> all(65536), one(65536), out(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const Isa& isa : isas()) {
    for (const auto& [type, exponent] : {std::pair(DDL_TYPE_HALF, reference::kHalfExponent),
                                         std::pair(DDL_TYPE_BFLOAT16, reference::kBFloat16Exponent)}) {
      std::fill(one.begin(), one.end(), reference::encode16(1, exponent));
      const void* pointers[] = {all.data(), one.data()};
      isa.select(type, DDL_OP_PRODUCT)(out.data(), pointers, 2, all.size(), 1);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (std::isnan(reference::decode16(all[i], exponent))) {
          EXPECT_TRUE(std::isnan(reference::decode16(out[i], exponent))) << isa.name << " " << i;
        } else {
          EXPECT_EQ(out[i], all[i]) << isa.name << " " << name_of(type) << " " << i;
        }
      }
    }
  }
}

/// Sums of random pairs are the exact sum, rounded once to nearest even; overflow becomes infinity.
TEST(Kernels, SixteenBitSumsAreRoundedOnce) {
  std::mt19937 random(5);
  constexpr std::size_t count = 200000;
  std::vector<std::uint16_t> a(count), b(count), out(count);
  for (std::size_t i = 0; i < count; ++i) {
    a[i] = static_cast<std::uint16_t>(random());
    // Often close to -a or of like size, where rounding and cancellation happen.
    b[i] = random() % 2 == 0 ? static_cast<std::uint16_t>(random())
                             : static_cast<std::uint16_t>(a[i] ^ (random() % 2 << 15) ^ (random() & 0x0fff));
  }
  for (const Isa& isa : isas()) {
    const void* pointers[] = {a.data(), b.data()};
    isa.select(DDL_TYPE_HALF, DDL_OP_SUM)(out.data(), pointers, 2, count, 1);
    for (std::size_t i = 0; i < count; ++i) {
      // The sum of two halves is exact in double; float loses nothing that half keeps but for double
      // rounding, which 24 >= 2 * 11 + 2 bits exclude.
      const double sum = reference::decode16(a[i], 5) + reference::decode16(b[i], 5);
      if (std::isnan(sum)) {
        EXPECT_TRUE(std::isnan(reference::decode16(out[i], 5)));
      } else {
        EXPECT_EQ(reference::decode16(out[i], 5), reference::decode16(reference::encode16(sum, 5), 5))
            << isa.name << " " << a[i] << " + " << b[i];
      }
    }
  }
}

/// Averages are divided before they are rounded: sums of many of the largest numbers, one number that is
/// divided by all ranks, and wide sums alike.
TEST(Kernels, AveragesOfTheLargestNumbersAreFinite) {
  constexpr std::size_t count = 1031;
  for (const Isa& isa : isas()) {
    for (const DDL_Type type : {DDL_TYPE_HALF, DDL_TYPE_BFLOAT16}) {
      const double largest = type == DDL_TYPE_HALF ? 65504 : std::ldexp(255, 112);
      for (const int n : {1, 2, 3, 8, 200}) {
        std::vector<char> source(count * 2), out(count * 2), narrowed(count * 2);
        std::vector<float> sums(count);
        for (std::size_t i = 0; i < count; ++i) {
          reference::write(source.data(), i, type, largest * (1 - static_cast<double>(i % 64) / 64));
          sums[i] = static_cast<float>(n * reference::read(source.data(), i, type));
        }
        const std::vector<const void*> pointers(static_cast<std::size_t>(n), source.data());
        for (const int divisor : {n, 256}) {
          isa.select(type, DDL_OP_AVG)(out.data(), pointers.data(), n, count, divisor);
          isa.select_wide(type).narrow(narrowed.data(), sums.data(), count, divisor);
          for (std::size_t i = 0; i < count; ++i) {
            const double expected = reference::read(source.data(), i, type) * n / divisor;
            const double tolerance = expected * 1.01 * reference::unit_roundoff(type) + std::ldexp(1, -25);
            ASSERT_NEAR(reference::read(out.data(), i, type), expected, tolerance)
                << label(isa, type, DDL_OP_AVG, n, i) << " divided by " << divisor;
            ASSERT_NEAR(reference::read(narrowed.data(), i, type), expected, tolerance);
          }
        }
      }
    }
  }
}

TEST(Kernels, NanWinsOnEitherSide) {
  for (const Isa& isa : isas()) {
    for (const DDL_Op op : {DDL_OP_MIN, DDL_OP_MAX, DDL_OP_SUM, DDL_OP_PRODUCT}) {
      for (const DDL_Type type : {DDL_TYPE_FLOAT, DDL_TYPE_DOUBLE, DDL_TYPE_HALF, DDL_TYPE_BFLOAT16}) {
        std::vector<char> numbers(17 * 8), nans(17 * 8), out(17 * 8);
        for (std::size_t i = 0; i < 17; ++i) {
          reference::write(numbers.data(), i, type, 1.5);
          reference::write(nans.data(), i, type, NAN);
        }
        for (const auto& order : {std::pair(&numbers, &nans), std::pair(&nans, &numbers)}) {
          const void* pointers[] = {order.first->data(), order.second->data()};
          isa.select(type, op)(out.data(), pointers, 2, 17, 1);
          for (std::size_t i = 0; i < 17; ++i) {
            EXPECT_TRUE(std::isnan(reference::read(out.data(), i, type))) << label(isa, type, op, 2, i);
          }
        }
      }
    }
  }
}

TEST(Kernels, IntegersWrap) {
  for (const Isa& isa : isas()) {
    const std::int32_t big[] = {INT32_MAX, INT32_MIN}, two[] = {2, -2};
    std::int32_t out[2];
    const void* pointers[] = {big, two};
    isa.select(DDL_TYPE_INT32, DDL_OP_SUM)(out, pointers, 2, 2, 1);
    EXPECT_EQ(out[0], INT32_MIN + 1);
    EXPECT_EQ(out[1], INT32_MAX - 1);
    isa.select(DDL_TYPE_INT32, DDL_OP_PRODUCT)(out, pointers, 2, 2, 1);
    EXPECT_EQ(out[0], -2);
    const std::int64_t odd[] = {-7, 7}, none[] = {0, 0};
    std::int64_t mean[2];
    const void* pair[] = {odd, none};
    isa.select(DDL_TYPE_INT64, DDL_OP_AVG)(mean, pair, 2, 2, 2);
    EXPECT_EQ(mean[0], -3);
    EXPECT_EQ(mean[1], 3);
  }
}

}  // namespace
}  // namespace ddl
