#pragma once

#include <algorithm>
#include <cstddef>

#include "support/types.hpp"

namespace ddl {

/// Chunks of a call that are under way at a time, at most, and bytes of each, at most.
inline constexpr std::size_t kMaxSlots = 32;
inline constexpr std::size_t kMaxChunkBytes = std::size_t{1} << 20;

/// Of buffers of GPUs that NCCL reduces within hosts: bytes of a chunk on the device, at most, and chunks
/// under way.
inline constexpr std::size_t kDeviceChunkBytes = std::size_t{4} << 20;
inline constexpr std::size_t kDeviceSlots = 4;
/// Likewise where NCCL reduces in every tier: bytes of all chunks under way.
inline constexpr std::size_t kTiersScratchBytes = std::size_t{32} << 20;

/// How a call is cut into chunks, and where they are staged; the same on all ranks.
struct Chunking {
  std::size_t chunk_elements = 0;
  std::size_t chunks = 0;
  std::size_t slots = 1;       ///< chunks under way at a time
  std::size_t slot_bytes = 0;  ///< of the stage, at least those of a chunk

  /// Chunk i, from 0, of a buffer or block of so many elements.
  Interval interval(std::size_t i, std::size_t elements) const {
    const std::size_t begin = i * chunk_elements;
    return {begin, std::min(elements, begin + chunk_elements)};
  }
};

}  // namespace ddl
