// Runs the kernels of recipes/cuda12/horovod-compiled on an emulation of a GPU, one thread after the other,
// and compares them with what they are to compute. test_cuda_headers.py compiles and starts it.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>
#define __device__
#define __global__
struct {
  unsigned x;
} static threadIdx, blockIdx, blockDim, gridDim;
static float half_value(unsigned short bits) {
  const int exponent = bits >> 10 & 31;
  const float value =
      exponent ? std::ldexp(1024.f + (bits & 1023), exponent - 25) : std::ldexp(bits & 1023, -24);
  return bits >> 15 ? -value : value;
}
static unsigned short half_bits(float value) {  // the nearest of all
  unsigned short best = 0;
  for (unsigned bits = 0; bits < 0x7c00; ++bits) {
    if (std::fabs(half_value(bits) - std::fabs(value)) < std::fabs(half_value(best) - std::fabs(value)))
      best = bits;
  }
  return best | (value < 0 ? 0x8000 : 0);
}
#include "kernels.cu"
template <typename Kernel, typename... Arguments>
void launch(unsigned blocks, unsigned threads, Kernel kernel, Arguments... arguments) {
  gridDim.x = blocks, blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel(arguments...);
}
static int failed = 0;
static void check(bool right, const char* what) {
  if (!right) {
    std::printf("wrong: %s\n", what);
    ++failed;
  }
}

template <typename T, typename Factor, typename Expected>
void scaling(const char* what, void (*copy)(Copies, Factor), void (*scale)(const T*, T*, Int64, Factor),
             Factor factor, std::vector<T> in, Expected expected) {
  std::vector<T> once(in.size()), twice(in.size()), out(in.size());
  launch(3, 5, scale, in.data(), once.data(), Int64(in.size()), factor);
  Copies copies{};
  const size_t part = in.size() / 3;
  copies.in[0] = in.data(), copies.out[0] = twice.data(), copies.bytes[0] = part * sizeof(T);
  copies.in[1] = in.data() + part, copies.out[1] = twice.data() + part;
  copies.bytes[1] = (in.size() - part) * sizeof(T);
  launch(2 * kBlocksPerCopy, 7, copy, copies, factor);
  for (size_t i = 0; i < in.size(); ++i) out[i] = expected(in[i]);
  check(!std::memcmp(out.data(), once.data(), out.size() * sizeof(T)), what);
  check(!std::memcmp(out.data(), twice.data(), out.size() * sizeof(T)), what);
}

int main() {
  for (size_t bytes : {0, 1, 15, 16, 17, 4099}) {
    for (int shift : {0, 1, 2, 4, 8}) {
      alignas(16) unsigned char from[5000], to[5000];
      for (int i = 0; i < 5000; ++i) from[i] = i * 31 + shift, to[i] = 0xee;
      Copies copies{};
      for (int i = 0; i < 3; ++i) copies.in[i] = copies.out[i] = nullptr;
      copies.in[1] = from + shift, copies.out[1] = to + 16, copies.bytes[1] = bytes;
      launch(3 * kBlocksPerCopy, 9, copy_tensors, copies);
      check(!std::memcmp(from + shift, to + 16, bytes), "a copy");
      check(to[15] == 0xee && to[16 + bytes] == 0xee, "what is beside a copy");
    }
  }
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<Half> halves;
  std::vector<Int32> ints;
  std::vector<Int64> longs;
  std::vector<Int8> bytes;
  std::vector<UInt8> positive;
  for (int i = 0; i < 331; ++i) {
    floats.push_back(i * 0.37f - 50), doubles.push_back(i * 0.37 - 50), ints.push_back(i * 1001 - 99999);
    longs.push_back(i * 30000000007LL), bytes.push_back(i % 256 - 128), positive.push_back(i);
    halves.push_back(Half{static_cast<unsigned short>(i * 97 % 0x7000)});
  }
  scaling("float32", copy_scaled_float32, scale_float32, 0.3f, floats, [](float x) { return x * 0.3f; });
  scaling("float64", copy_scaled_float64, scale_float64, 0.3, doubles, [](double x) { return x * 0.3; });
  scaling("int32", copy_scaled_int32, scale_int32, 0.3, ints, [](Int32 x) { return Int32(x * 0.3); });
  scaling("int64", copy_scaled_int64, scale_int64, 0.3, longs, [](Int64 x) { return Int64(x * 0.3); });
  scaling("int8", copy_scaled_int8, scale_int8, 0.3, bytes, [](Int8 x) { return Int8(x * 0.3); });
  scaling("uint8", copy_scaled_uint8, scale_uint8, 0.3, positive, [](UInt8 x) { return UInt8(x * 0.3); });
  scaling("float16", copy_scaled_float16, scale_float16, 0.5f, halves,
          [](Half x) { return Half{half_bits(half_value(x.bits) * 0.5f)}; });
  if (!failed) std::puts("right");
  return failed != 0;
}
