#pragma once

#include <algorithm>
#include <cstddef>

#include "ddl.h"

namespace ddl {

inline constexpr int kTypeCount = 6;
inline constexpr int kOpCount = 5;

inline constexpr bool valid_type(int type) { return type >= 0 && type < kTypeCount; }
inline constexpr bool valid_op(int op) { return op >= 0 && op < kOpCount; }

inline constexpr std::size_t size_of(DDL_Type type) {
  constexpr std::size_t sizes[kTypeCount] = {4, 2, 8, 2, 4, 8};
  return sizes[type];
}

/// Floating-point types whose sums are made in float, and rounded.
inline constexpr bool is_16bit(DDL_Type type) { return type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16; }

inline constexpr const char* name_of(DDL_Type type) {
  constexpr const char* names[kTypeCount] = {"float32", "float16", "float64", "bfloat16", "int32", "int64"};
  return names[type];
}

inline constexpr const char* name_of(DDL_Op op) {
  constexpr const char* names[kOpCount] = {"sum", "min", "max", "product", "avg"};
  return names[op];
}

/// Elements [begin, end) of a logical buffer.
struct Interval {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// What two intervals have in common; an empty one where there is nothing.
inline Interval common_to(Interval a, Interval b) {
  const std::size_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// Part `index` of `parts` of an interval. Inner bounds fall on multiples of `grain` elements, so that
/// neighbouring owners do not write the same cache line; the last part takes what remains.
inline Interval part_of(Interval whole, std::size_t parts, std::size_t index, std::size_t grain) {
  const std::size_t n = whole.size();
  const auto bound = [&](std::size_t i) {
    if (i == parts) return whole.end;
    const std::size_t exact = n / parts * i + n % parts * i / parts;
    return whole.begin + exact / grain * grain;
  };
  return {bound(index), bound(index + 1)};
}

}  // namespace ddl
