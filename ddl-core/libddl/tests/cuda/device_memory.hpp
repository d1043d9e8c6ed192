#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/driver_functions.hpp"

namespace stand_in {

using ddl::cuda::DeviceAddress;
using ddl::cuda::IpcHandle;
using ddl::cuda::Status;

inline constexpr Status kInvalidValue = 1;
inline constexpr Status kOutOfMemory = 2;

/// Where bytes of a device lie: for callers at an address that nobody can read, for the stand-in at `shown`,
/// for other processes in a file.
struct Place {
  int device = 0;
  DeviceAddress base = 0;  ///< of the allocation
  std::size_t bytes = 0;   ///< of the allocation
  char* shown = nullptr;   ///< the address that was asked for
  int file = -1;
  std::uint64_t offset = 0;  ///< in the file, of the address that was asked for
  bool opened = false;       ///< another process's
};

/**
 * The memory of all devices of this process, and what it has opened of other processes'. Every device has one
 * file without a name, mapped twice: without access, where callers see it, and readable. Freed addresses are
 * given out again at once, as by the real driver. Callers hold the driver's lock.
 */
class DeviceMemory {
 public:
  /// @param visible  numbers of the machine's devices that this process sees
  explicit DeviceMemory(std::vector<int> visible) : visible_(std::move(visible)), arenas_(visible_.size()) {}

  Status allocate(int device, std::size_t bytes, DeviceAddress* address);
  Status free(DeviceAddress address);
  /// Frees all of a device; the number of allocations and opened handles.
  std::size_t free_all(int device);
  /// Nothing if not all of the bytes lie in one allocation.
  std::optional<Place> find(DeviceAddress address, std::size_t bytes) const;
  /// Whether any of the bytes belongs to a device, allocated or not.
  bool touches(const void* address, std::size_t bytes) const;

  Status handle(DeviceAddress address, IpcHandle* handle);
  Status open(int device, const IpcHandle& handle, DeviceAddress* address);
  Status close(DeviceAddress address);

  /// Lets this process touch what is allocated and opened, at the addresses that callers have, or not any
  /// more: for kernels, whose pointers those are.
  void allow(bool access);

 private:
  struct Allocation {
    std::size_t bytes;
    std::size_t room;
    bool exported = false;
  };
  struct Arena {
    int file = -1;
    std::uint64_t name = 0;
    std::size_t size = 0;
    std::size_t used = 0;
    char* hidden = nullptr;
    char* shown = nullptr;
    std::map<std::size_t, Allocation> allocations;  ///< by offset
  };
  struct Opened {
    IpcHandle handle;
    int device;
    int file;
    std::size_t bytes;
    std::uint64_t offset;
    char* hidden;
    char* shown;
    unsigned times;
  };
  using OpenedAt = std::map<DeviceAddress, Opened>;

  Arena& arena(int device);
  void release(Arena& arena, std::map<std::size_t, Allocation>::iterator one);
  OpenedAt::iterator unmap(OpenedAt::iterator one);

  std::vector<int> visible_;
  std::vector<Arena> arenas_;
  OpenedAt opened_;
};

}  // namespace stand_in
