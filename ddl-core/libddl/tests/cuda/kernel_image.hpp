#pragma once

#include <cstddef>
#include <cstdint>

namespace stand_in {

/// What the stand-in for NVRTC gives as a program's code: this, and behind it a shared object.
struct ImageHead {
  char magic[8];
  std::int32_t capability;  ///< what it is for, as 90 for 9.0
  std::int32_t exact;       ///< machine code, for this capability only; 0: PTX, for newer ones as well
  std::uint64_t bytes;      ///< of the shared object
};
inline constexpr char kImageMagic[8] = {'s', 't', 'a', 'n', 'd', '-', 'i', 'n'};

struct Grid {
  unsigned blocks;
  unsigned threads;
};
/// A kernel in that shared object, by the name stand_in_entry_KERNEL.
struct Entry {
  std::size_t parameters;
  const std::size_t* sizes;
  void (*run)(const Grid& grid, const void* const* values);
};

}  // namespace stand_in
