// Input of tests of collectives whose result is the same bits in every type and order of reduction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ddl.h"

/// Small whole numbers, which all types hold and add up without rounding.
template <class T>
T value(int rank, std::size_t i) {
  return static_cast<T>((static_cast<std::size_t>(rank) * 3 + i * 5) % 7 + 1);
}

/// Stands for 16-bit types: their bits.
inline std::uint16_t bits(DDL_Type type, float number) {
  std::uint32_t word = 0;
  std::memcpy(&word, &number, sizeof word);
  if (type == DDL_TYPE_BFLOAT16) return static_cast<std::uint16_t>(word >> 16);
  if (word == 0) return 0;
  // Whole numbers up to 2048 are normal numbers of binary16.
  const std::uint32_t exponent = (word >> 23) - 127 + 15;
  return static_cast<std::uint16_t>((exponent << 10) | ((word >> 13) & 0x3ff));
}

inline double reduced(DDL_Op op, int size, std::size_t i) {
  double result = op == DDL_OP_MIN ? 100 : op == DDL_OP_PRODUCT ? 1 : 0;
  for (int rank = 0; rank < size; ++rank) {
    const auto one = value<double>(rank, i);
    if (op == DDL_OP_MIN) {
      result = std::min(result, one);
    } else if (op == DDL_OP_MAX) {
      result = std::max(result, one);
    } else if (op == DDL_OP_PRODUCT) {
      result *= one;
    } else {
      result += one;
    }
  }
  return result;
}

template <class T>
T as(DDL_Type type, double number) {
  if constexpr (sizeof(T) == 2) return bits(type, static_cast<float>(number));
  return static_cast<T>(number);
}

/// All numbers up to 256 are whole in bfloat16, the smallest; the product of 5 ranks is not.
inline bool exact(DDL_Type type, DDL_Op op) {
  return op != DDL_OP_AVG && (op != DDL_OP_PRODUCT || type == DDL_TYPE_INT64 || type == DDL_TYPE_DOUBLE ||
                              type == DDL_TYPE_INT32 || type == DDL_TYPE_FLOAT);
}
