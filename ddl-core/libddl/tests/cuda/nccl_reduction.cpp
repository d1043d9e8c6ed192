#include "nccl_reduction.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace stand_in {
namespace {

constexpr std::size_t kSizes[kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
constexpr const char* kNames[kTypes] = {"int8",   "uint8", "int32", "uint32", "int64",
                                        "uint64", "half",  "float", "double", "bfloat16"};
constexpr const char* kOps[] = {"sum", "product", "max", "min", "average"};

float as_float(std::uint32_t bits) {
  float number = 0;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

std::uint32_t bits_of(float number) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return bits;
}

/// IEEE binary16.
struct Half {
  std::uint16_t bits;

  Half() = default;
  explicit Half(float number) {
    const std::uint32_t word = bits_of(number);
    const std::uint32_t sign = word >> 16 & 0x8000;
    const std::uint32_t magnitude = word & 0x7fffffff;
    std::uint32_t half = 0;
    if (magnitude > 0x7f800000) {
      half = 0x7fff;  // NaN
    } else if (magnitude >= 0x477ff000) {
      half = 0x7c00;  // rounds to more than the largest
    } else if (magnitude >= 0x38800000) {
      const std::uint32_t shifted = magnitude - (112U << 23);
      half = (shifted + 0xfff + (shifted >> 13 & 1)) >> 13;
    } else {
      // Subnormal: the sum's last place is that of half's, and the processor rounds.
      half = bits_of(as_float(magnitude) + 0.5F) - bits_of(0.5F);
    }
    bits = static_cast<std::uint16_t>(sign | half);
  }
  explicit operator float() const {
    const std::uint32_t magnitude = bits & 0x7fff;
    float number = 0;
    if (magnitude >= 0x7c00) {
      number = as_float(0x7f800000 | (magnitude & 0x3ff) << 13);
    } else if (magnitude >= 0x400) {
      number = as_float((magnitude << 13) + (112U << 23));
    } else {
      number = static_cast<float>(magnitude) * 0x1p-24F;
    }
    return (bits & 0x8000) != 0 ? -number : number;
  }
};

struct Bfloat16 {
  std::uint16_t bits;

  Bfloat16() = default;
  explicit Bfloat16(float number) {
    const std::uint32_t word = bits_of(number);
    bits = static_cast<std::uint16_t>(std::isnan(number) ? 0x7fff : (word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
  explicit operator float() const { return as_float(std::uint32_t{bits} << 16); }
};

template <class T>
constexpr bool kNarrow = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>;

template <class T>
T combined(T a, T b, int op) {
  if constexpr (kNarrow<T>) {
    return T(combined(static_cast<float>(a), static_cast<float>(b), op));
  } else if constexpr (std::is_floating_point_v<T>) {
    if (op == 1) return a * b;
    if (op == 2) return std::fmax(a, b);
    if (op == 3) return std::fmin(a, b);
    return a + b;
  } else {
    using Unsigned = std::make_unsigned_t<T>;  // which may overflow
    if (op == 1) return static_cast<T>(std::uint64_t{static_cast<Unsigned>(a)} * static_cast<Unsigned>(b));
    if (op == 2) return std::max(a, b);
    if (op == 3) return std::min(a, b);
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  }
}

template <class T>
T before(T value, int op, int ranks) {
  // Averages of floating types are sums of what has been divided; those of integers are divided sums.
  if constexpr (kNarrow<T>) {
    return op == 4 ? T(static_cast<float>(value) * static_cast<float>(T(1.0F / static_cast<float>(ranks))))
                   : value;
  } else if constexpr (std::is_floating_point_v<T>) {
    return op == 4 ? value * (T{1} / static_cast<T>(ranks)) : value;
  } else {
    return value;
  }
}

template <class T>
void reduce_typed(int op, int ranks, Turn turn, void* result, const void* in, std::size_t count) {
  auto* const to = static_cast<T*>(result);
  const auto* const from = static_cast<const T*>(in);
  for (std::size_t i = 0; i < count; ++i) {
    const T value = before(from[i], op, ranks);
    to[i] = turn.first ? value : combined(to[i], value, op);
    if constexpr (std::is_integral_v<T>) {
      if (turn.last && op == 4) to[i] = static_cast<T>(to[i] / static_cast<T>(ranks));
    }
  }
}

}  // namespace

std::size_t size_of(int type) { return kSizes[type]; }
const char* name_of_type(int type) { return kNames[type]; }
const char* name_of_op(int op) { return kOps[op]; }

void reduce(int type, int op, int ranks, Turn turn, void* result, const void* in, std::size_t count) {
  using Reduce = void (*)(int, int, Turn, void*, const void*, std::size_t);
  static constexpr Reduce kReduce[kTypes] = {reduce_typed<std::int8_t>,  reduce_typed<std::uint8_t>,
                                             reduce_typed<std::int32_t>, reduce_typed<std::uint32_t>,
                                             reduce_typed<std::int64_t>, reduce_typed<std::uint64_t>,
                                             reduce_typed<Half>,         reduce_typed<float>,
                                             reduce_typed<double>,       reduce_typed<Bfloat16>};
  kReduce[type](op, ranks, turn, result, in, count);
}

}  // namespace stand_in
