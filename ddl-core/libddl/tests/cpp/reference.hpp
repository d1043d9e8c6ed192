// An independent reference: reductions in double (64-bit integers for integers), and 16-bit formats taken
// apart by ldexp rather than by the bits the library shuffles.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "ddl.h"

namespace reference {

/// Value of a 16-bit float with the given number of exponent and mantissa bits.
inline double decode16(std::uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

/// The nearest 16-bit float, ties to even: found by looking at all of them of the right sign that bracket the
/// value.
inline std::uint16_t encode16(double value, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const auto infinity = static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity | (1 << (mantissa_bits - 1)));
  const double magnitude = std::fabs(value);
  // Encodings of one sign are ordered like their values: search for the largest not above the magnitude.
  std::uint16_t low = 0, high = infinity;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (decode16(middle, exponent_bits) <= magnitude ? low : high) = middle;
  }
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity);
  // What infinity would be, were it one more finite number: the threshold of rounding up to it.
  const double below = decode16(low, exponent_bits);
  const double above = high == infinity
                           ? 2 * below - decode16(static_cast<std::uint16_t>(low - 1), exponent_bits)
                           : decode16(high, exponent_bits);
  const double middle = below + (above - below) / 2;
  const bool up = magnitude > middle || (magnitude == middle && (low & 1) != 0);
  return static_cast<std::uint16_t>(sign | (up ? high : low));
}

inline constexpr int kHalfExponent = 5;
inline constexpr int kBFloat16Exponent = 8;

/// decode16 from a table.
inline double decode16_fast(std::uint16_t bits, int exponent_bits) {
  static const auto make = [](int exponent) {
    std::vector<double> values;
    for (int i = 0; i < 65536; ++i) values.push_back(decode16(static_cast<std::uint16_t>(i), exponent));
    return values;
  };
  static const std::vector<double> half = make(kHalfExponent);
  static const std::vector<double> bfloat16 = make(kBFloat16Exponent);
  return (exponent_bits == kHalfExponent ? half : bfloat16)[bits];
}

inline double combine(DDL_Op op, double a, double b) {
  switch (op) {
    case DDL_OP_MIN:
      return std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b);
    case DDL_OP_MAX:
      return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b);
    case DDL_OP_PRODUCT:
      return a * b;
    default:
      return a + b;
  }
}

inline std::int64_t combine(DDL_Op op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case DDL_OP_MIN:
      return a < b ? a : b;
    case DDL_OP_MAX:
      return a > b ? a : b;
    case DDL_OP_PRODUCT:
      return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    default:
      return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
}

inline bool is_integer(DDL_Type type) { return type == DDL_TYPE_INT32 || type == DDL_TYPE_INT64; }

/// Element i of a buffer as a double; integers must be small enough.
inline double read(const void* buffer, std::size_t i, DDL_Type type) {
  const auto at = [&](auto value) {
    std::memcpy(&value, static_cast<const char*>(buffer) + i * sizeof value, sizeof value);
    return value;
  };
  switch (type) {
    case DDL_TYPE_FLOAT:
      return at(float{});
    case DDL_TYPE_DOUBLE:
      return at(double{});
    case DDL_TYPE_HALF:
      return decode16_fast(at(std::uint16_t{}), kHalfExponent);
    case DDL_TYPE_BFLOAT16:
      return decode16_fast(at(std::uint16_t{}), kBFloat16Exponent);
    case DDL_TYPE_INT32:
      return at(std::int32_t{});
    case DDL_TYPE_INT64:
      return static_cast<double>(at(std::int64_t{}));
  }
  return NAN;
}

/// Writes a value, rounded to the type.
inline void write(void* buffer, std::size_t i, DDL_Type type, double value) {
  const auto put = [&](auto typed) {
    std::memcpy(static_cast<char*>(buffer) + i * sizeof typed, &typed, sizeof typed);
  };
  switch (type) {
    case DDL_TYPE_FLOAT:
      return put(static_cast<float>(value));
    case DDL_TYPE_DOUBLE:
      return put(value);
    case DDL_TYPE_HALF:
      return put(encode16(value, kHalfExponent));
    case DDL_TYPE_BFLOAT16:
      return put(encode16(value, kBFloat16Exponent));
    case DDL_TYPE_INT32:
      return put(static_cast<std::int32_t>(value));
    case DDL_TYPE_INT64:
      return put(static_cast<std::int64_t>(value));
  }
}

/// Largest relative error of one rounding.
inline double unit_roundoff(DDL_Type type) {
  switch (type) {
    case DDL_TYPE_FLOAT:
      return std::ldexp(1, -24);
    case DDL_TYPE_DOUBLE:
      return std::ldexp(1, -53);
    case DDL_TYPE_HALF:
      return std::ldexp(1, -11);
    case DDL_TYPE_BFLOAT16:
      return std::ldexp(1, -8);
    default:
      return 0;
  }
}

}  // namespace reference
