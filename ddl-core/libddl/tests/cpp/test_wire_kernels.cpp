#include <gtest/gtest.h>

#include <algorithm>

#include "reference.hpp"
#include "wire_inputs.hpp"
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace ddl {
namespace {

std::string label(const WireIsa& isa, WireFormat format, const std::string& what, std::size_t count) {
  return isa.name + " " + name_of(format) + " " + what + " count=" + std::to_string(count);
}

TEST(WireKernels, FullLosesNothing) {
  for (const WireIsa& isa : wire_isas()) {
    for (const WireInput& input : all_inputs(1031, 2)) {
      const auto wire = encoded(isa, WireFormat::kFull, input.values);
      EXPECT_TRUE(same_bits(decoded(isa, WireFormat::kFull, wire, input.values.size()), input.values));
    }
  }
}

TEST(WireKernels, SixteenBitFormatsAreTheNearestValue) {
  for (const WireIsa& isa : wire_isas()) {
    for (const auto& [format, exponent] : {std::pair(WireFormat::kFp16, reference::kHalfExponent),
                                           std::pair(WireFormat::kBf16, reference::kBFloat16Exponent)}) {
      for (const WireInput& input : all_inputs(4103, 3)) {
        SCOPED_TRACE(label(isa, format, input.name, input.values.size()));
        const std::vector<char> wire = encoded(isa, format, input.values);
        const std::vector<float> values = decoded(isa, format, wire, input.values.size());
        for (std::size_t i = 0; i < input.values.size(); ++i) {
          std::uint16_t bits;
          std::memcpy(&bits, wire.data() + 2 * i, sizeof bits);
          const double value = input.values[i];
          if (std::isnan(value)) {
            ASSERT_TRUE(std::isnan(reference::decode16(bits, exponent))) << i;
            ASSERT_TRUE(std::isnan(values[i])) << i;
          } else {
            ASSERT_EQ(bits, reference::encode16(value, exponent)) << i << ": " << value;
            ASSERT_EQ(values[i], reference::decode16(bits, exponent)) << i << ": " << value;
            ASSERT_EQ(std::signbit(values[i]), std::signbit(value)) << i;
          }
        }
      }
    }
  }
}

/// All 65536 patterns, also at the places that the vector code leaves to the scalar code.
TEST(WireKernels, SixteenBitFormatsDecodeEveryPattern) {
  for (const WireIsa& isa : wire_isas()) {
    for (const auto& [format, exponent] : {std::pair(WireFormat::kFp16, reference::kHalfExponent),
                                           std::pair(WireFormat::kBf16, reference::kBFloat16Exponent)}) {
      for (const std::size_t step : {65536u, 7u}) {
        for (std::size_t begin = 0; begin < 65536; begin += step) {
          const std::size_t count = std::min<std::size_t>(step, 65536 - begin);
          std::vector<std::uint16_t> patterns(count);
          for (std::size_t i = 0; i < count; ++i) patterns[i] = static_cast<std::uint16_t>(begin + i);
          std::vector<float> values(count);
          isa.of(format).decode(patterns.data(), count, values.data());
          for (std::size_t i = 0; i < count; ++i) {
            const double expected = reference::decode16_fast(patterns[i], exponent);
            ASSERT_TRUE(values[i] == expected || (std::isnan(values[i]) && std::isnan(expected)))
                << label(isa, format, "pattern", begin + i);
            ASSERT_EQ(std::signbit(values[i]), patterns[i] >= 0x8000) << begin + i;
          }
        }
      }
    }
  }
}

/// The bounds that docs/reference/wire-formats.md states.
TEST(WireKernels, TheErrorIsWithinTheBound) {
  for (const WireIsa& isa : wire_isas()) {
    for (const std::size_t count : kWireCounts) {
      for (const WireInput& input : all_inputs(count, 4)) {
        for (const WireFormat format : kAllFormats) {
          SCOPED_TRACE(label(isa, format, input.name, count));
          const auto values = decoded(isa, format, encoded(isa, format, input.values), count);
          for (std::size_t i = 0; i < count; ++i) {
            const double exact = input.values[i];
            if (std::isnan(exact)) {
              ASSERT_TRUE(std::isnan(values[i])) << i;
              continue;
            }
            if (std::isinf(exact)) {
              ASSERT_EQ(values[i], exact) << i;
              continue;
            }
            double bound = 0;
            if (format == WireFormat::kFp16) {
              if (std::fabs(exact) >= 65520) {
                ASSERT_TRUE(std::isinf(values[i]) && std::signbit(values[i]) == std::signbit(exact)) << i;
                continue;
              }
              bound = std::max(std::ldexp(std::fabs(exact), -11), std::ldexp(1, -25));
            } else if (format == WireFormat::kBf16) {
              if (std::fabs(exact) >= std::ldexp(2 - std::ldexp(1, -8), 127)) {
                ASSERT_TRUE(std::isinf(values[i]) && std::signbit(values[i]) == std::signbit(exact)) << i;
                continue;
              }
              bound = std::max(std::ldexp(std::fabs(exact), -8), std::ldexp(1, -134));
            } else if (format == WireFormat::kQ8) {
              const BlockOf block(input.values, i);
              bound = std::max(block.largest / (block.special ? 252 : 254), std::ldexp(1, -126)) *
                      (1 + std::ldexp(1, -14));
            }
            ASSERT_LE(std::fabs(values[i] - exact), bound) << i << ": " << exact << " became " << values[i];
          }
        }
      }
    }
  }
}

/// The layout of q8, read from the bytes: scale, then codes, block after block.
TEST(WireKernels, Q8IsLaidOutAsDocumented) {
  for (const WireIsa& isa : wire_isas()) {
    for (const std::size_t count : kWireCounts) {
      for (const WireInput& input : all_inputs(count, 5)) {
        SCOPED_TRACE(label(isa, WireFormat::kQ8, input.name, count));
        const std::vector<char> wire = encoded(isa, WireFormat::kQ8, input.values);
        const std::vector<float> values = decoded(isa, WireFormat::kQ8, wire, count);
        std::size_t at = 0;
        for (std::size_t begin = 0; begin < count; begin += kWireBlockElements) {
          const BlockOf block(input.values, begin);
          float marked;
          std::memcpy(&marked, wire.data() + at, sizeof marked);
          at += sizeof marked;
          ASSERT_EQ(std::signbit(marked), block.special);
          const double scale = std::fabs(static_cast<double>(marked));
          const double levels = block.special ? 126 : 127;
          const double exact_scale = block.largest / levels;
          if (exact_scale < std::ldexp(1, -125)) {
            ASSERT_EQ(scale, std::ldexp(1, -125));
          } else {
            ASSERT_LE(scale, exact_scale * (1 + std::ldexp(1, -24)));
            ASSERT_GE(scale, exact_scale * (1 - std::ldexp(1, -16)));
          }
          const double significand = std::ldexp(scale, 16 - std::ilogb(scale));
          ASSERT_EQ(significand, std::trunc(significand)) << "more than 17 significant bits";
          for (std::size_t i = begin; i < std::min(count, begin + kWireBlockElements); ++i) {
            const int code = static_cast<signed char>(wire[at++]);
            const float value = input.values[i];
            if (std::isnan(value)) {
              ASSERT_EQ(code, -128);
            } else if (std::isinf(value)) {
              ASSERT_EQ(code, value > 0 ? 127 : -127);
            } else {
              ASSERT_LE(std::abs(code), levels) << i;
              ASSERT_LE(std::fabs(value / scale - code), 0.5 + std::ldexp(1, -15)) << i << ": " << value;
              ASSERT_EQ(values[i], code * scale) << i;
            }
          }
        }
        ASSERT_EQ(at, wire.size());
      }
    }
  }
}

TEST(WireKernels, Q8RoundsTiesToEven) {
  for (const WireIsa& isa : wire_isas()) {
    std::vector<float> values;
    std::vector<int> expected;
    for (int k = -126; k < 126; ++k) {
      values.push_back(static_cast<float>(k) + 0.5f);
      expected.push_back(k % 2 == 0 ? k : k + 1);
    }
    values.push_back(127);
    expected.push_back(127);
    const std::vector<char> wire = encoded(isa, WireFormat::kQ8, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(static_cast<signed char>(wire[4 + i]), expected[i]) << isa.name << " " << values[i];
    }
  }
}

TEST(WireKernels, Q8HasNoMinusZeroAndLosesSubnormals) {
  for (const WireIsa& isa : wire_isas()) {
    for (const WireInput& input : finite_inputs(300, 6)) {
      if (input.name != "minus zeros" && input.name != "subnormals") continue;
      for (const float value :
           decoded(isa, WireFormat::kQ8, encoded(isa, WireFormat::kQ8, input.values), 300)) {
        EXPECT_EQ(value, 0) << input.name;
        EXPECT_FALSE(std::signbit(value)) << input.name;
      }
    }
  }
}

/// One NaN or infinity costs the rest of its block nothing but one of 127 levels, and other blocks nothing.
TEST(WireKernels, Q8KeepsWhatStandsBesideANaN) {
  for (const WireIsa& isa : wire_isas()) {
    for (const float other : {NAN, INFINITY, -INFINITY}) {
      std::vector<float> values = finite_inputs(3 * kWireBlockElements, 7)[0].values;
      const auto without =
          decoded(isa, WireFormat::kQ8, encoded(isa, WireFormat::kQ8, values), values.size());
      const std::size_t place = kWireBlockElements + 11;
      values[place] = other;
      const auto with = decoded(isa, WireFormat::kQ8, encoded(isa, WireFormat::kQ8, values), values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (i == place) {
          EXPECT_TRUE(std::isnan(other) ? std::isnan(with[i]) : with[i] == other);
        } else if (i / kWireBlockElements == 1) {
          EXPECT_NEAR(with[i], values[i], BlockOf(values, i).largest / 252 * 1.0001) << i;
        } else {
          EXPECT_EQ(with[i], without[i]) << i;
        }
      }
    }
  }
}

TEST(WireKernels, EveryInstructionSetGivesTheSameBits) {
  const std::vector<WireIsa> isas = wire_isas();
  if (isas.size() < 2)
    GTEST_SKIP() << "this processor or compiler has one instruction set only: " << isas[0].name;
  for (const std::size_t count : kWireCounts) {
    for (const WireInput& input : all_inputs(count, 8)) {
      for (const WireFormat format : kAllFormats) {
        for (const bool feedback : {false, true}) {
          SCOPED_TRACE(label(isas[1], format, input.name, count));
          std::vector<std::vector<float>> residuals(2, std::vector<float>(count));
          // Twice: the second encoding starts from a residual that is not zero.
          std::vector<char> wires[2];
          for (int step = 0; step < 2; ++step) {
            for (std::size_t k = 0; k < 2; ++k) {
              wires[k] = encoded(isas[k], format, input.values, feedback ? residuals[k].data() : nullptr);
            }
            ASSERT_EQ(wires[0], wires[1]);
            ASSERT_TRUE(same_bits(residuals[0], residuals[1]));
          }
          std::vector<float> values[2], sums[2];
          for (std::size_t k = 0; k < 2; ++k) {
            values[k] = decoded(isas[k], format, wires[0], count);
            sums[k].assign(count, 0.75f);
            isas[k].of(format).decode_add(wires[0].data(), count, sums[k].data());
          }
          ASSERT_TRUE(same_bits(values[0], values[1]));
          ASSERT_TRUE(same_bits(sums[0], sums[1]));
        }
      }
    }
  }
}

TEST(WireKernels, DecodeAddAddsInFloat32) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  for (const WireIsa& isa : wire_isas()) {
    for (const std::size_t count : kWireCounts) {
      for (const WireInput& input : finite_inputs(count, 9)) {
        for (const WireFormat format : kAllFormats) {
          const std::vector<char> wire = encoded(isa, format, input.values);
          const std::vector<float> values = decoded(isa, format, wire, count);
          std::vector<float> sums(count), expected(count);
          for (std::size_t i = 0; i < count; ++i) {
            sums[i] = normal(random);
            expected[i] = sums[i] + values[i];
          }
          isa.of(format).decode_add(wire.data(), count, sums.data());
          ASSERT_TRUE(same_bits(sums, expected)) << label(isa, format, input.name, count);
        }
      }
    }
  }
}

/// The wire buffer may begin anywhere, and nothing before or behind it is touched.
TEST(WireKernels, WireBuffersMayHaveAnyAlignment) {
  for (const WireIsa& isa : wire_isas()) {
    for (const WireFormat format : kAllFormats) {
      for (const std::size_t count : {1u, 9u, 257u, 1031u}) {
        const std::vector<float> values = finite_inputs(count, 10)[0].values;
        const std::vector<char> aligned = encoded(isa, format, values);
        for (const std::size_t shift : {1u, 2u, 3u, 5u, 31u}) {
          SCOPED_TRACE(label(isa, format, "shift " + std::to_string(shift), count));
          std::vector<char> room(shift + aligned.size() + 64, 0x55);
          isa.of(format).encode(values.data(), count, room.data() + shift, nullptr);
          EXPECT_TRUE(std::equal(aligned.begin(), aligned.end(), room.begin() + static_cast<long>(shift)));
          const auto untouched = [](char byte) { return byte == 0x55; };
          EXPECT_TRUE(std::all_of(room.begin(), room.begin() + static_cast<long>(shift), untouched));
          EXPECT_TRUE(std::all_of(room.end() - 64, room.end(), untouched));
          std::vector<float> out(count + 64, 7);
          isa.of(format).decode(room.data() + shift, count, out.data());
          EXPECT_TRUE(
              std::all_of(out.begin() + static_cast<long>(count), out.end(), [](float x) { return x == 7; }));
          out.resize(count);
          EXPECT_TRUE(same_bits(out, decoded(isa, format, aligned, count)));
        }
      }
    }
  }
}

/// What a rank decoded and hands on is the same on the wire again, and shards that begin at whole blocks are
/// slices of the whole: two things the all-reduce may rely on to have equal bits on all ranks.
TEST(WireKernels, DecodedValuesEncodeToTheSameBytes) {
  for (const WireIsa& isa : wire_isas()) {
    for (const WireInput& input : all_inputs(1031, 11)) {
      for (const WireFormat format : kAllFormats) {
        SCOPED_TRACE(label(isa, format, input.name, input.values.size()));
        const std::vector<char> once = encoded(isa, format, input.values);
        const std::vector<char> twice = encoded(isa, format, decoded(isa, format, once, input.values.size()));
        EXPECT_EQ(once, twice);
      }
    }
  }
}

TEST(WireKernels, ShardsOfWholeBlocksAreSlicesOfTheWhole) {
  for (const WireIsa& isa : wire_isas()) {
    for (const WireInput& input : all_inputs(5 * kWireBlockElements + 100, 12)) {
      for (const WireFormat format : kAllFormats) {
        const std::vector<char> whole = encoded(isa, format, input.values);
        std::vector<char> parts;
        const std::size_t bounds[] = {0, 2 * kWireBlockElements, 3 * kWireBlockElements, input.values.size()};
        for (std::size_t k = 0; k < 3; ++k) {
          const std::vector<float> part(input.values.begin() + static_cast<long>(bounds[k]),
                                        input.values.begin() + static_cast<long>(bounds[k + 1]));
          const std::vector<char> wire = encoded(isa, format, part);
          parts.insert(parts.end(), wire.begin(), wire.end());
        }
        EXPECT_EQ(whole, parts) << label(isa, format, input.name, input.values.size());
      }
    }
  }
}

/// No bytes are invalid: what a broken peer sends decodes to something, on every instruction set to the same,
/// and touches nothing else.
TEST(WireKernels, AnyBytesDecode) {
  std::mt19937 random(13);
  const std::vector<WireIsa> isas = wire_isas();
  for (const WireFormat format : kAllFormats) {
    for (int round = 0; round < 200; ++round) {
      const std::size_t count = random() % 1500;
      std::vector<char> wire(wire_bytes(format, count));
      for (char& byte : wire) byte = static_cast<char>(random());
      std::vector<std::vector<float>> values(isas.size(), std::vector<float>(count + 1, 3)), sums = values;
      for (std::size_t k = 0; k < isas.size(); ++k) {
        isas[k].of(format).decode(wire.data(), count, values[k].data());
        isas[k].of(format).decode_add(wire.data(), count, sums[k].data());
        ASSERT_EQ(values[k][count], 3);
        ASSERT_EQ(sums[k][count], 3);
        ASSERT_TRUE(same_bits(values[k], values[0])) << label(isas[k], format, "any bytes", count);
        ASSERT_TRUE(same_bits(sums[k], sums[0])) << label(isas[k], format, "any bytes", count);
      }
    }
  }
}

#if defined(__SSE__)
/// Frameworks switch the flushing of subnormals on in their threads, but not in every thread of every rank.
TEST(WireKernels, FlushingSubnormalsChangesNothing) {
  constexpr unsigned kFlushAndDenormalsAreZero = 0x8040;
  for (const WireIsa& isa : wire_isas()) {
    for (const WireInput& input : all_inputs(1031, 14)) {
      for (const WireFormat format : kAllFormats) {
        const std::vector<char> wire = encoded(isa, format, input.values);
        const std::vector<float> values = decoded(isa, format, wire, input.values.size());
        const unsigned before = _mm_getcsr();
        _mm_setcsr(before | kFlushAndDenormalsAreZero);
        const std::vector<char> flushed_wire = encoded(isa, format, input.values);
        const std::vector<float> flushed_values = decoded(isa, format, wire, input.values.size());
        _mm_setcsr(before);
        EXPECT_EQ(wire, flushed_wire) << label(isa, format, input.name, input.values.size());
        EXPECT_TRUE(same_bits(values, flushed_values)) << label(isa, format, input.name, input.values.size());
      }
    }
  }
}
#endif

}  // namespace
}  // namespace ddl
