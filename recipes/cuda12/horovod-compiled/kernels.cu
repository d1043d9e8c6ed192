// Horovod's work on buffers of a GPU: copies of many tensors at once, and products with a factor. NVRTC
// compiles this where it runs, so it includes nothing. `Word` and the names of the kernels are known to
// cuda_kernels.cc.

typedef signed char Int8;
typedef unsigned char UInt8;
typedef int Int32;
typedef long long Int64;

// The same layout as Horovod's BatchedD2DParams.
struct Copies {
  void* out[160];
  const void* in[160];
  unsigned long long bytes[160];
};

struct Half {
  unsigned short bits;
};

// Halves are multiplied as floats and rounded once, as Horovod does it on processors.
__device__ inline Half scaled(Half value, float factor) {
  return Half{half_bits(half_value(value.bits) * factor)};
}
__device__ inline float scaled(float value, float factor) { return value * factor; }
__device__ inline double scaled(double value, double factor) { return value * factor; }
__device__ inline Int8 scaled(Int8 value, double factor) { return static_cast<Int8>(value * factor); }
__device__ inline UInt8 scaled(UInt8 value, double factor) { return static_cast<UInt8>(value * factor); }
__device__ inline Int32 scaled(Int32 value, double factor) { return static_cast<Int32>(value * factor); }
__device__ inline Int64 scaled(Int64 value, double factor) { return static_cast<Int64>(value * factor); }

// Of each tensor every eighth block copies a part: gridDim.x is eight times the number of tensors.
constexpr unsigned kBlocksPerCopy = 8;

__device__ inline unsigned which_copy() { return blockIdx.x / kBlocksPerCopy; }
__device__ inline unsigned long long first() {
  return static_cast<unsigned long long>(blockDim.x) * (blockIdx.x % kBlocksPerCopy) + threadIdx.x;
}
__device__ inline unsigned long long step() {
  return static_cast<unsigned long long>(blockDim.x) * kBlocksPerCopy;
}

struct alignas(16) Word16 {
  unsigned long long low, high;
};

// Whole words first, then the bytes that are left.
template <typename Word>
__device__ void copy_words(const void* in, void* out, unsigned long long bytes) {
  const unsigned long long words = bytes / sizeof(Word);
  for (unsigned long long i = first(); i < words; i += step()) {
    static_cast<Word*>(out)[i] = static_cast<const Word*>(in)[i];
  }
  const unsigned long long rest = words * sizeof(Word) + first();
  if (rest < bytes) static_cast<UInt8*>(out)[rest] = static_cast<const UInt8*>(in)[rest];
}

extern "C" __global__ void copy_tensors(Copies copies) {
  const void* in = copies.in[which_copy()];
  void* out = copies.out[which_copy()];
  const unsigned long long bytes = copies.bytes[which_copy()];
  const unsigned long long both =
      reinterpret_cast<unsigned long long>(in) | reinterpret_cast<unsigned long long>(out);
  if (both % 16 == 0) {
    copy_words<Word16>(in, out, bytes);
  } else if (both % 8 == 0) {
    copy_words<unsigned long long>(in, out, bytes);
  } else if (both % 4 == 0) {
    copy_words<unsigned int>(in, out, bytes);
  } else if (both % 2 == 0) {
    copy_words<unsigned short>(in, out, bytes);
  } else {
    copy_words<UInt8>(in, out, bytes);
  }
}

template <typename T, typename Factor>
__device__ void copy_scaled(const Copies& copies, Factor factor) {
  const T* in = static_cast<const T*>(copies.in[which_copy()]);
  T* out = static_cast<T*>(copies.out[which_copy()]);
  const unsigned long long elements = copies.bytes[which_copy()] / sizeof(T);
  for (unsigned long long i = first(); i < elements; i += step()) out[i] = scaled(in[i], factor);
}

template <typename T, typename Factor>
__device__ void scale(const T* in, T* out, Int64 elements, Factor factor) {
  const Int64 threads = static_cast<Int64>(gridDim.x) * blockDim.x;
  for (Int64 i = static_cast<Int64>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += threads) {
    out[i] = scaled(in[i], factor);
  }
}

#define KERNELS_FOR(name, T, Factor)                                                            \
  extern "C" __global__ void copy_scaled_##name(Copies copies, Factor factor) {                 \
    copy_scaled<T>(copies, factor);                                                             \
  }                                                                                             \
  extern "C" __global__ void scale_##name(const T* in, T* out, Int64 elements, Factor factor) { \
    scale(in, out, elements, factor);                                                           \
  }

KERNELS_FOR(uint8, UInt8, double)
KERNELS_FOR(int8, Int8, double)
KERNELS_FOR(int32, Int32, double)
KERNELS_FOR(int64, Int64, double)
KERNELS_FOR(float16, Half, float)
KERNELS_FOR(float32, float, float)
KERNELS_FOR(float64, double, double)
