// The reductions of CUDA IPC: what collective/kernels_impl.hpp is for the processor, for a GPU. NVRTC compiles
// this at run time, without any header, for the GPU at hand; the stand-in of the tests compiles it as C++.
//
// out[i] = (in_0[i] op in_1[i] op … op in_{n-1}[i]) / divisor, in the order that collective/kernels.hpp
// describes, with the same roundings.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

namespace {

/// Levels of the tree of sums: k of them are enough for 2^(k+1) - 1 sources (kMostReduced in reduce_kernels.hpp).
constexpr int kLevels = 8;

struct Sum {
  template <class T>
  static __device__ __forceinline__ T apply(T a, T b) {
    return a + b;
  }
};
struct Product {
  template <class T>
  static __device__ __forceinline__ T apply(T a, T b) {
    return a * b;
  }
};
// a != a: a NaN on either side wins.
struct Min {
  template <class T>
  static __device__ __forceinline__ T apply(T a, T b) {
    return (a < b || a != a) ? a : b;
  }
};
struct Max {
  template <class T>
  static __device__ __forceinline__ T apply(T a, T b) {
    return (a > b || a != a) ? a : b;
  }
};

/// Stored is what lies in memory, T what is computed with, Divided what an average is divided as: integers
/// compute unsigned, where overflow is defined, and divide signed.
template <class TheStored, class TheT, class TheDivided>
struct Native {
  typedef TheStored Stored;
  typedef TheT T;
  static __device__ __forceinline__ T load(Stored value) { return static_cast<T>(value); }
  static __device__ __forceinline__ Stored store(T value) { return static_cast<Stored>(value); }
  static __device__ __forceinline__ T divide(T value, i64 divisor) {
    return static_cast<T>(static_cast<TheDivided>(value) / static_cast<TheDivided>(divisor));
  }
};

struct SixteenBits {
  typedef u16 Stored;
  typedef float T;
  static __device__ __forceinline__ T divide(T value, i64 divisor) {
    return value / static_cast<float>(divisor);
  }
};

struct Half : SixteenBits {
  static __device__ __forceinline__ float load(u16 half) {
    const u32 exponent = half & 0x7c00u;
    const u32 magnitude = (half & 0x7fffu) << 13;
    const u32 normal = magnitude + (112u << 23);
    const u32 special = magnitude + (224u << 23);
    const u32 subnormal =
        __float_as_uint(__uint_as_float(magnitude + (113u << 23)) - __uint_as_float(113u << 23));
    const u32 finite = exponent == 0 ? subnormal : normal;
    return __uint_as_float((exponent == 0x7c00u ? special : finite) | ((half & 0x8000u) << 16));
  }
  static __device__ __forceinline__ u16 store(float value) {
    const u32 all = __float_as_uint(value);
    const u32 sign = (all & 0x80000000u) >> 16;
    const u32 magnitude = all & 0x7fffffffu;
    const u32 magic = 126u << 23;
    const u32 subnormal = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(magic)) - magic;
    const u32 normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const u32 special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const u32 finite = magnitude < (113u << 23) ? subnormal : normal;
    return static_cast<u16>(sign | (magnitude >= (143u << 23) ? special : finite));
  }
};

struct BFloat16 : SixteenBits {
  static __device__ __forceinline__ float load(u16 value) {
    return __uint_as_float(static_cast<u32>(value) << 16);
  }
  static __device__ __forceinline__ u16 store(float value) {
    const u32 bits = __float_as_uint(value);
    const u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const u32 nan = (bits >> 16) | 0x40u;
    return static_cast<u16>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
};

/// Elements that one thread reads and writes at a time.
template <class Stored>
struct Elements {
  static constexpr int kMany = sizeof(Stored) == 2 ? 4 : 16 / sizeof(Stored);
};

template <class Stored, int kCount>
struct alignas(sizeof(Stored) * kCount) Pack {
  Stored at[kCount];
};

/// What the sources of one launch are.
struct Sources {
  const u64* bases;  ///< each rank's stage
  u64 offset;        ///< in bytes, of what is reduced, in every stage
  const char* mine;  ///< this rank's source, which need not be staged
  int self;
  int n;

  __device__ __forceinline__ const char* source(int i) const {
    return i == self ? mine : reinterpret_cast<const char*>(bases[i] + offset);
  }
};

template <class Format, class Op, int kCount>
__device__ __forceinline__ void take_in(typename Format::T* sum, const char* from, u64 at, bool first) {
  typedef Pack<typename Format::Stored, kCount> Loaded;
  const Loaded loaded = reinterpret_cast<const Loaded*>(from)[at];
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    const typename Format::T value = Format::load(loaded.at[e]);
    sum[e] = first ? value : Op::template apply<typename Format::T>(sum[e], value);
  }
}

/// The elements of pack number `at`.
template <class Format, class Op, int kCount>
__device__ __forceinline__ void reduce_pack(char* out, const Sources& sources, int power, int levels, u64 at,
                                            i64 divisor) {
  typedef typename Format::T T;
  // Of level l: the left one of a pair whose right one has not been added up.
  T left[kLevels][kCount];
  T sum[kCount];
  const int extra = sources.n - power;
  for (int leaf = 0; leaf < power; ++leaf) {
    // Leaves come in the order in which the tree is walked depth first: their bits backwards.
    int number = 0;
    for (int bit = 0; bit < levels; ++bit) number |= ((leaf >> bit) & 1) << (levels - 1 - bit);
    const int own = number + static_cast<int>(static_cast<i64>(number) * extra / power);
    const int next = number + 1 + static_cast<int>(static_cast<i64>(number + 1) * extra / power);
    take_in<Format, Op, kCount>(sum, sources.source(own), at, true);
    if (next != own + 1) take_in<Format, Op, kCount>(sum, sources.source(own + 1), at, false);
    bool open = true;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (!open || level >= levels) continue;
      if (((leaf >> level) & 1) == 0) {
#pragma unroll
        for (int e = 0; e < kCount; ++e) left[level][e] = sum[e];
        open = false;
      } else {
#pragma unroll
        for (int e = 0; e < kCount; ++e) sum[e] = Op::template apply<T>(left[level][e], sum[e]);
      }
    }
  }
  Pack<typename Format::Stored, kCount> stored;
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    stored.at[e] = Format::store(divisor == 1 ? sum[e] : Format::divide(sum[e], divisor));
  }
  reinterpret_cast<Pack<typename Format::Stored, kCount>*>(out)[at] = stored;
}

template <class Format, class Op>
__device__ __forceinline__ void reduce(char* out, const Sources& sources, u64 count, i64 divisor) {
  typedef typename Format::Stored Stored;
  constexpr int kMany = Elements<Stored>::kMany;
  const u64 first = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const u64 threads = static_cast<u64>(gridDim.x) * blockDim.x;
  int power = 1;
  int levels = 0;
  while (power * 2 <= sources.n) {
    power *= 2;
    ++levels;
  }
  // Stages begin where memory is aligned for anything.
  const u64 places =
      reinterpret_cast<u64>(out) | reinterpret_cast<u64>(sources.mine) | sources.offset;
  const bool aligned = places % (sizeof(Stored) * kMany) == 0;
  const u64 packs = aligned ? count / kMany : 0;
  for (u64 i = first; i < packs; i += threads) {
    reduce_pack<Format, Op, kMany>(out, sources, power, levels, i, divisor);
  }
  for (u64 i = packs * kMany + first; i < count; i += threads) {
    reduce_pack<Format, Op, 1>(out, sources, power, levels, i, divisor);
  }
}

}  // namespace

#define DDL_REDUCTION(name, Format, Op)                                                                     \
  extern "C" __global__ void name(char* out, const u64* bases, u64 offset, const char* mine, int self,     \
                                  int n, u64 count, i64 divisor) {                                          \
    const Sources sources = {bases, offset, mine, self, n};                                                 \
    reduce<Format, Op>(out, sources, count, divisor);                                                       \
  }

typedef Native<float, float, float> Float;
typedef Native<double, double, double> Double;
typedef Native<int, u32, int> Int32;
typedef Native<i64, u64, i64> Int64;
typedef Native<int, int, int> OrderedInt32;
typedef Native<i64, i64, i64> OrderedInt64;

DDL_REDUCTION(ddl_sum_float, Float, Sum)
DDL_REDUCTION(ddl_min_float, Float, Min)
DDL_REDUCTION(ddl_max_float, Float, Max)
DDL_REDUCTION(ddl_product_float, Float, Product)
DDL_REDUCTION(ddl_sum_double, Double, Sum)
DDL_REDUCTION(ddl_min_double, Double, Min)
DDL_REDUCTION(ddl_max_double, Double, Max)
DDL_REDUCTION(ddl_product_double, Double, Product)
DDL_REDUCTION(ddl_sum_half, Half, Sum)
DDL_REDUCTION(ddl_min_half, Half, Min)
DDL_REDUCTION(ddl_max_half, Half, Max)
DDL_REDUCTION(ddl_product_half, Half, Product)
DDL_REDUCTION(ddl_sum_bfloat16, BFloat16, Sum)
DDL_REDUCTION(ddl_min_bfloat16, BFloat16, Min)
DDL_REDUCTION(ddl_max_bfloat16, BFloat16, Max)
DDL_REDUCTION(ddl_product_bfloat16, BFloat16, Product)
DDL_REDUCTION(ddl_sum_int32, Int32, Sum)
DDL_REDUCTION(ddl_min_int32, OrderedInt32, Min)
DDL_REDUCTION(ddl_max_int32, OrderedInt32, Max)
DDL_REDUCTION(ddl_product_int32, Int32, Product)
DDL_REDUCTION(ddl_sum_int64, Int64, Sum)
DDL_REDUCTION(ddl_min_int64, OrderedInt64, Min)
DDL_REDUCTION(ddl_max_int64, OrderedInt64, Max)
DDL_REDUCTION(ddl_product_int64, Int64, Product)
