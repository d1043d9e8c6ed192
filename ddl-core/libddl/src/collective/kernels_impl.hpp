// The reduction kernels, compiled once per instruction set: the including file defines DDL_KERNEL_NAMESPACE
// and is compiled with the flags of that instruction set. Nothing here may be an inline function or template
// of another header: the linker would be free to keep the copy with the newer instructions for everybody.
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "collective/kernels.hpp"

#if defined(__clang__)
#define DDL_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#else
#define DDL_VECTOR_LOOP _Pragma("GCC ivdep")
#endif

namespace ddl::DDL_KERNEL_NAMESPACE {
namespace {

/// Elements reduced at a time where an accumulator is needed; accumulator and sources stay in the first-level
/// cache.
constexpr size_t kBlock = 512;

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    return a + b;
  }
};
struct Product {
  template <class T>
  static T apply(T a, T b) {
    return a * b;
  }
};
// a != a: a NaN on either side wins.
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return (a < b || a != a) ? a : b;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return (a > b || a != a) ? a : b;
  }
};

uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

struct Half {
  // Subtracting a float power of two renormalises subnormal halves without ever making a subnormal float,
  // which a caller's flush-to-zero mode would lose.
  static float decode(uint16_t half) {
    const uint32_t exponent = half & 0x7c00u;
    const uint32_t magnitude = (half & 0x7fffu) << 13;
    const uint32_t normal = magnitude + (112u << 23);
    const uint32_t special = magnitude + (224u << 23);
    const uint32_t subnormal = bits_of(float_of(magnitude + (113u << 23)) - float_of(113u << 23));
    const uint32_t finite = exponent == 0 ? subnormal : normal;
    return float_of((exponent == 0x7c00u ? special : finite) | ((half & 0x8000u) << 16));
  }
  static uint16_t encode(float value) {
    const uint32_t all = bits_of(value);
    const uint32_t sign = (all & 0x80000000u) >> 16;
    const uint32_t magnitude = all & 0x7fffffffu;
    const uint32_t magic = 126u << 23;
    const uint32_t subnormal = bits_of(float_of(magnitude) + float_of(magic)) - magic;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
    return static_cast<uint16_t>(sign | (magnitude >= (143u << 23) ? special : finite));
  }
  static void load(float* to, const uint16_t* from, size_t count) {
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8) {
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    }
#endif
    DDL_VECTOR_LOOP
    for (size_t k = i; k < count; ++k) to[k] = decode(from[k]);
  }
  static void store(uint16_t* to, const float* from, size_t count) {
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    DDL_VECTOR_LOOP
    for (size_t k = i; k < count; ++k) to[k] = encode(from[k]);
  }
};

struct BFloat16 {
  static void load(float* to, const uint16_t* from, size_t count) {
    DDL_VECTOR_LOOP
    for (size_t i = 0; i < count; ++i) to[i] = float_of(static_cast<uint32_t>(from[i]) << 16);
  }
  static void store(uint16_t* to, const float* from, size_t count) {
    DDL_VECTOR_LOOP
    for (size_t i = 0; i < count; ++i) {
      const uint32_t bits = bits_of(from[i]);
      const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
      const uint32_t nan = (bits >> 16) | 0x40u;
      to[i] = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
    }
  }
};

template <class T, class Op>
void fold(T* acc, const T* a, const T* b, size_t count) {
  DDL_VECTOR_LOOP
  for (size_t i = 0; i < count; ++i) acc[i] = Op::apply(a[i], b[i]);
}

/// Enough for 2^40 sources.
constexpr int kMaxDepth = 41;

/// The sums of ReduceKernel's order, depth first: block buffers are needed for the depth of the tree only.
template <class T, class Op, class Leaf>
struct Tree {
  const void* const* src;
  size_t n;
  size_t power;  ///< largest power of two up to n
  size_t at;
  size_t size;

  /// Source i (of those that are left when pairs are joined) with all that it takes in at distances of
  /// `distance` and more; in `buffer`, or where it lies.
  const T* sum(size_t i, size_t distance, T (*buffer)[kBlock]) const {
    if (distance == power) {
      const size_t extra = n - power;
      const size_t own = i + i * extra / power;
      const size_t next = i + 1 + (i + 1) * extra / power;
      const T* const first = Leaf::load(src[own], at, size, buffer[0]);
      if (next == own + 1) return first;
      const T* const second = Leaf::load(src[own + 1], at, size, buffer[1]);
      fold<T, Op>(buffer[0], first, second, size);
      return buffer[0];
    }
    const T* const left = sum(i, distance * 2, buffer);
    const T* const right = sum(i + distance, distance * 2, buffer + 1);
    fold<T, Op>(buffer[0], left, right, size);
    return buffer[0];
  }
};

size_t largest_power(size_t n) {
  size_t power = 1;
  while (power <= n / 2) power *= 2;
  return power;
}

template <class T>
struct Native {
  static const T* load(const void* from, size_t at, size_t, T*) { return static_cast<const T*>(from) + at; }
};

template <class Format>
struct Converted {
  static const float* load(const void* from, size_t at, size_t size, float* to) {
    Format::load(to, static_cast<const uint16_t*>(from) + at, size);
    return to;
  }
};

/// T computes and stores; U stores the same bits (integers compute unsigned, where overflow is defined, and
/// divide signed).
template <class T, class Op, class U, bool kDivide>
void reduce_native(void* dst, const void* const* src, int n, size_t count, int64_t divisor) {
  T* out = static_cast<T*>(dst);
  const bool divide = kDivide && divisor != 1;
  if (n == 1 && !divide) {
    if (dst != src[0]) memcpy(dst, src[0], count * sizeof(T));
    return;
  }
  if (n == 2 && !divide) {
    fold<T, Op>(out, static_cast<const T*>(src[0]), static_cast<const T*>(src[1]), count);
    return;
  }
  T buffers[kMaxDepth][kBlock];
  const size_t sources = static_cast<size_t>(n);
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t size = count - at < kBlock ? count - at : kBlock;
    const Tree<T, Op, Native<T>> tree{src, sources, largest_power(sources), at, size};
    const T* const acc = tree.sum(0, 1, buffers);
    if (divide) {
      DDL_VECTOR_LOOP
      for (size_t i = 0; i < size; ++i)
        out[at + i] = static_cast<T>(static_cast<U>(acc[i]) / static_cast<U>(divisor));
    } else {
      memcpy(out + at, acc, size * sizeof(T));
    }
  }
}

template <class Format, class Op, bool kDivide>
void reduce_16bit(void* dst, const void* const* src, int n, size_t count, int64_t divisor) {
  uint16_t* out = static_cast<uint16_t*>(dst);
  const bool divide = kDivide && divisor != 1;
  if (n == 1 && !divide) {
    if (dst != src[0]) memcpy(dst, src[0], count * sizeof(uint16_t));
    return;
  }
  const float by = static_cast<float>(divisor);
  float buffers[kMaxDepth][kBlock];
  const size_t sources = static_cast<size_t>(n);
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t size = count - at < kBlock ? count - at : kBlock;
    const Tree<float, Op, Converted<Format>> tree{src, sources, largest_power(sources), at, size};
    const float* acc = tree.sum(0, 1, buffers);
    if (divide) {
      DDL_VECTOR_LOOP
      for (size_t i = 0; i < size; ++i) buffers[0][i] = acc[i] / by;
      acc = buffers[0];
    }
    Format::store(out + at, acc, size);
  }
}

template <class Format>
void widen(float* dst, const void* src, size_t count) {
  Format::load(dst, static_cast<const uint16_t*>(src), count);
}

template <class Format>
void narrow(void* dst, const float* src, size_t count, int64_t divisor) {
  uint16_t* out = static_cast<uint16_t*>(dst);
  if (divisor == 1) {
    Format::store(out, src, count);
    return;
  }
  const float by = static_cast<float>(divisor);
  float quotients[kBlock];
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t size = count - at < kBlock ? count - at : kBlock;
    DDL_VECTOR_LOOP
    for (size_t i = 0; i < size; ++i) quotients[i] = src[at + i] / by;
    Format::store(out + at, quotients, size);
  }
}

template <class Op, bool kDivide, bool kOrdered>
ReduceKernel of_type(DDL_Type type) {
  switch (type) {
    case DDL_TYPE_FLOAT:
      return reduce_native<float, Op, float, kDivide>;
    case DDL_TYPE_DOUBLE:
      return reduce_native<double, Op, double, kDivide>;
    case DDL_TYPE_HALF:
      return reduce_16bit<Half, Op, kDivide>;
    case DDL_TYPE_BFLOAT16:
      return reduce_16bit<BFloat16, Op, kDivide>;
    case DDL_TYPE_INT32:
      if constexpr (kOrdered) return reduce_native<int32_t, Op, int32_t, false>;
      return reduce_native<uint32_t, Op, int32_t, kDivide>;
    case DDL_TYPE_INT64:
      if constexpr (kOrdered) return reduce_native<int64_t, Op, int64_t, false>;
      return reduce_native<uint64_t, Op, int64_t, kDivide>;
  }
  return nullptr;
}

}  // namespace

WideKernels select_wide(DDL_Type type) {
  if (type == DDL_TYPE_HALF) return {widen<Half>, narrow<Half>};
  if (type == DDL_TYPE_BFLOAT16) return {widen<BFloat16>, narrow<BFloat16>};
  return {nullptr, nullptr};
}

ReduceKernel select(DDL_Type type, DDL_Op op) {
  switch (op) {
    case DDL_OP_SUM:
      return of_type<Sum, false, false>(type);
    case DDL_OP_MIN:
      return of_type<Min, false, true>(type);
    case DDL_OP_MAX:
      return of_type<Max, false, true>(type);
    case DDL_OP_PRODUCT:
      return of_type<Product, false, false>(type);
    case DDL_OP_AVG:
      return of_type<Sum, true, false>(type);
  }
  return nullptr;
}

}  // namespace ddl::DDL_KERNEL_NAMESPACE
