#pragma once

// What a kernel of CUDA needs to be compiled by the host's compiler: the stand-in for NVRTC puts this before
// the source, and an entry for each kernel behind it.
#include <cstddef>
#include <cstring>
#include <utility>

#include "kernel_image.hpp"

#define __device__
#define __global__
#define __forceinline__ inline

namespace stand_in {

struct Index {
  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
};

inline unsigned bits_of(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float float_of(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace stand_in

#define __float_as_uint stand_in::bits_of
#define __uint_as_float stand_in::float_of

// One thread runs after the other.
static stand_in::Index blockIdx;
static stand_in::Index threadIdx;
static stand_in::Index blockDim;
static stand_in::Index gridDim;

namespace stand_in {

template <auto kKernel, class... Parameters>
struct Launched {
  static constexpr std::size_t kSizes[] = {sizeof(Parameters)..., 0};

  static void run(const Grid& grid, const void* const* values) {
    run(grid, values, std::index_sequence_for<Parameters...>());
  }
  template <std::size_t... kNumbers>
  static void run(const Grid& grid, const void* const* values, std::index_sequence<kNumbers...>) {
    gridDim.x = grid.blocks;
    blockDim.x = grid.threads;
    for (blockIdx.x = 0; blockIdx.x < grid.blocks; ++blockIdx.x) {
      for (threadIdx.x = 0; threadIdx.x < grid.threads; ++threadIdx.x) {
        kKernel(*static_cast<const Parameters*>(values[kNumbers])...);
      }
    }
  }
};

template <auto kKernel, class... Parameters>
constexpr Entry entry_of(void (*)(Parameters...)) {
  using Kernel = Launched<kKernel, Parameters...>;
  return {sizeof...(Parameters), Kernel::kSizes, &Kernel::run};
}

}  // namespace stand_in

#define STAND_IN_ENTRY(kernel) \
  extern "C" const stand_in::Entry stand_in_entry_##kernel = stand_in::entry_of<&kernel>(&kernel);
