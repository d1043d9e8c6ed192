#include "device_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>

#include "settings.hpp"

namespace stand_in {
namespace {

constexpr std::size_t kGrain = 64 << 10;  // the largest page of any machine
/// New memory is no zeros: bytes that are NaN as any floating type.
constexpr int kUnset = 0xff;
constexpr Status kMapFailed = 205;
constexpr Status kNoPeerAccess = 217;
constexpr std::size_t kUnsetAtStart = 4 << 20;
constexpr std::size_t kUnsetAtEnd = 1 << 20;

/// What the handle of another process's memory holds.
struct HandleContent {
  char magic[8];
  std::uint64_t name;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::int64_t process;
  std::int32_t file;
  std::int32_t device;  ///< of the machine
};
static_assert(sizeof(HandleContent) <= sizeof(IpcHandle));
constexpr char kMagic[8] = {'s', 't', 'a', 'n', 'd', '-', 'i', 'n'};

char* map(int file, std::size_t bytes, std::uint64_t offset, int access) {
  void* const at = mmap(nullptr, bytes, access, MAP_SHARED | MAP_NORESERVE, file, static_cast<off_t>(offset));
  if (at == MAP_FAILED) die("%zu bytes cannot be mapped: %s", bytes, std::strerror(errno));
  return static_cast<char*>(at);
}

DeviceAddress address_of(const char* hidden) { return reinterpret_cast<DeviceAddress>(hidden); }

std::string file_name(std::uint64_t name) {
  char text[40];
  std::snprintf(text, sizeof text, "stand-in-device-%016llx", static_cast<unsigned long long>(name));
  return text;
}

void unset(char* at, std::size_t bytes) {
  std::memset(at, kUnset, std::min(bytes, kUnsetAtStart));
  if (bytes > kUnsetAtStart) {
    const std::size_t end = std::min(bytes - kUnsetAtStart, kUnsetAtEnd);
    std::memset(at + bytes - end, kUnset, end);
  }
}

}  // namespace

DeviceMemory::Arena& DeviceMemory::arena(int device) {
  Arena& arena = arenas_[static_cast<std::size_t>(device)];
  if (arena.file >= 0) return arena;
  std::random_device random;
  arena.name = std::uint64_t{random()} << 32 | random();
  arena.file = memfd_create(file_name(arena.name).c_str(), MFD_CLOEXEC);
  // Room for gaps: addresses are plenty, memory is only what is written.
  arena.size = 4 * static_cast<std::size_t>(setting(Setting::kCapacity)) / kGrain * kGrain;
  if (arena.file < 0 || ftruncate(arena.file, static_cast<off_t>(arena.size)) != 0) {
    die("no file of %zu bytes for a device's memory: %s", arena.size, std::strerror(errno));
  }
  arena.hidden = map(arena.file, arena.size, 0, PROT_NONE);
  arena.shown = map(arena.file, arena.size, 0, PROT_READ | PROT_WRITE);
  return arena;
}

Status DeviceMemory::allocate(int device, std::size_t bytes, DeviceAddress* address) {
  const auto capacity = static_cast<std::size_t>(setting(Setting::kCapacity));
  Arena& arena = this->arena(device);
  if (bytes > capacity - arena.used) return kOutOfMemory;
  // a gap behind every allocation, so that nothing beyond it is anybody's
  const std::size_t room = (bytes + kGrain - 1) / kGrain * kGrain + kGrain;
  std::size_t at = 0;
  for (const auto& [offset, one] : arena.allocations) {
    if (offset - at >= room) break;
    at = offset + one.room;
  }
  if (arena.size - at < room) return kOutOfMemory;
  arena.allocations[at] = {bytes, room};
  arena.used += bytes;
  unset(arena.shown + at, bytes);
  *address = address_of(arena.hidden + at);
  count(Count::kAllocations);
  count(Count::kHeldMemory);
  count(Count::kHeldBytes, bytes);
  return ddl::cuda::kSuccess;
}

void DeviceMemory::release(Arena& arena, std::map<std::size_t, Allocation>::iterator one) {
  const auto& [offset, allocation] = *one;
  if (allocation.exported) {
    // Whoever has it open still sees what is not theirs any more.
    unset(arena.shown + offset, allocation.bytes);
  } else if (fallocate(arena.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                       static_cast<off_t>(allocation.room)) != 0) {
    die("memory cannot be given back: %s", std::strerror(errno));
  }
  arena.used -= allocation.bytes;
  count_back(Count::kHeldMemory);
  count_back(Count::kHeldBytes, allocation.bytes);
  arena.allocations.erase(one);
}

Status DeviceMemory::free(DeviceAddress address) {
  for (Arena& arena : arenas_) {
    if (arena.file < 0 || address < address_of(arena.hidden)) continue;
    const auto found = arena.allocations.find(address - address_of(arena.hidden));
    if (found == arena.allocations.end()) continue;
    release(arena, found);
    return ddl::cuda::kSuccess;
  }
  return kInvalidValue;
}

std::size_t DeviceMemory::free_all(int device) {
  std::size_t freed = 0;
  Arena& arena = arenas_[static_cast<std::size_t>(device)];
  while (!arena.allocations.empty()) {
    release(arena, arena.allocations.begin());
    ++freed;
  }
  for (auto one = opened_.begin(); one != opened_.end();) {
    if (one->second.device != device) {
      ++one;
      continue;
    }
    one = unmap(one);
    ++freed;
  }
  return freed;
}

std::optional<Place> DeviceMemory::find(DeviceAddress address, std::size_t bytes) const {
  for (std::size_t device = 0; device < arenas_.size(); ++device) {
    const Arena& arena = arenas_[device];
    if (arena.file < 0 || address < address_of(arena.hidden)) continue;
    const std::size_t at = address - address_of(arena.hidden);
    auto next = arena.allocations.upper_bound(at);
    if (at >= arena.size || next == arena.allocations.begin()) continue;
    const auto& [offset, one] = *--next;
    if (at - offset >= one.bytes || bytes > one.bytes - (at - offset)) continue;
    return Place{static_cast<int>(device),
                 address_of(arena.hidden + offset),
                 one.bytes,
                 arena.shown + at,
                 arena.file,
                 at,
                 false};
  }
  auto next = opened_.upper_bound(address);
  if (next == opened_.begin()) return std::nullopt;
  const auto& [base, one] = *--next;
  const std::size_t at = address - base;
  if (at >= one.bytes || bytes > one.bytes - at) return std::nullopt;
  return Place{one.device, base, one.bytes, one.shown + at, one.file, one.offset + at, true};
}

bool DeviceMemory::touches(const void* address, std::size_t bytes) const {
  const auto* const from = static_cast<const char*>(address);
  const auto overlaps = [&](const char* hidden, std::size_t size) {
    return from < hidden + size && hidden < from + bytes;
  };
  for (const Arena& arena : arenas_) {
    if (arena.file >= 0 && overlaps(arena.hidden, arena.size)) return true;
  }
  return std::any_of(opened_.begin(), opened_.end(),
                     [&](const auto& one) { return overlaps(one.second.hidden, one.second.bytes); });
}

Status DeviceMemory::handle(DeviceAddress address, IpcHandle* handle) {
  const std::optional<Place> place = find(address, 1);
  if (!place || place->opened) return kInvalidValue;
  // As with the real driver, the handle is the whole allocation's, wherever in it the address lies.
  Arena& arena = arenas_[static_cast<std::size_t>(place->device)];
  const std::uint64_t offset = place->base - address_of(arena.hidden);
  arena.allocations[offset].exported = true;
  HandleContent content{{},
                        arena.name,
                        offset,
                        place->bytes,
                        getpid(),
                        arena.file,
                        visible_[static_cast<std::size_t>(place->device)]};
  std::memcpy(content.magic, kMagic, sizeof kMagic);
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &content, sizeof content);
  return ddl::cuda::kSuccess;
}

Status DeviceMemory::open(int device, const IpcHandle& handle, DeviceAddress* address) {
  HandleContent content;
  std::memcpy(&content, &handle, sizeof content);
  if (std::memcmp(content.magic, kMagic, sizeof kMagic) != 0) return kInvalidValue;
  if (content.process == getpid()) return 201;  // not in the process that made the handle
  if (comes_due(Setting::kFailIpcOpen)) return kMapFailed;
  if (content.device != visible_[static_cast<std::size_t>(device)]) {
    if (setting(Setting::kNoPeers) != 0) return kNoPeerAccess;
    // A device that this process does not see cannot be anybody's peer.
    if (std::find(visible_.begin(), visible_.end(), content.device) == visible_.end()) return kInvalidValue;
  }
  for (auto& [base, one] : opened_) {
    if (one.device == device && std::memcmp(&one.handle, &handle, sizeof handle) == 0) {
      ++one.times;
      *address = base;
      return ddl::cuda::kSuccess;
    }
  }
  const std::string path = "/proc/" + std::to_string(content.process) + "/fd/" + std::to_string(content.file);
  // The number may by now be another process's, or the file another one.
  char target[128] = {};
  const ssize_t length = readlink(path.c_str(), target, sizeof target - 1);
  if (length < 0 || std::strstr(target, file_name(content.name).c_str()) == nullptr) return kInvalidValue;
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return kInvalidValue;
  char* const hidden = map(file, content.bytes, content.offset, PROT_NONE);
  char* const shown = map(file, content.bytes, content.offset, PROT_READ | PROT_WRITE);
  opened_[address_of(hidden)] = {handle, device, file, content.bytes, content.offset, hidden, shown, 1};
  *address = address_of(hidden);
  count(Count::kIpcOpened);
  count(Count::kHeldIpc);
  return ddl::cuda::kSuccess;
}

DeviceMemory::OpenedAt::iterator DeviceMemory::unmap(OpenedAt::iterator one) {
  munmap(one->second.hidden, one->second.bytes);
  munmap(one->second.shown, one->second.bytes);
  ::close(one->second.file);
  count_back(Count::kHeldIpc);
  return opened_.erase(one);
}

void DeviceMemory::allow(bool access) {
  const int protection = access ? PROT_READ | PROT_WRITE : PROT_NONE;
  const auto set = [&](char* at, std::size_t bytes) {
    if (mprotect(at, bytes, protection) != 0) die("memory cannot be protected: %s", std::strerror(errno));
  };
  for (const Arena& arena : arenas_) {
    for (const auto& [offset, one] : arena.allocations) set(arena.hidden + offset, one.bytes);
  }
  for (const auto& [base, one] : opened_) set(one.hidden, one.bytes);
}

Status DeviceMemory::close(DeviceAddress address) {
  const auto found = opened_.find(address);
  if (found == opened_.end()) return kInvalidValue;
  if (--found->second.times == 0) unmap(found);
  return ddl::cuda::kSuccess;
}

}  // namespace stand_in
