#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "support/hash.hpp"

namespace ddl {

enum class CallKind : std::int32_t {
  kAllreduce = 0,
  kBroadcast = 1,
  kBarrier = 2,
  kPlainAllreduce = 3,
  kFinalize = 4,
  kReduce = 5,
  kReduceScatter = 6,
  kAllGather = 7,
  kAllToAll = 8,
  kSchedule = 9,
  kAllToAllv = 10,
  kRefused = 11,
  kForm = 12,  ///< the making of a group: only in records, as not all ranks of the world make it
  kInit = 13   ///< ddl_init with other options than those in force
};

/// What a rank says about the collective call it makes. What others look at in every call comes first. A copy
/// takes no more of the name than there is.
struct CallHeader {
  CallHeader() { name[0] = 0; }
  CallHeader(const CallHeader& other) { *this = other; }
  CallHeader& operator=(const CallHeader& other) {
    if (this == &other) return *this;
    std::memcpy(static_cast<void*>(this), &other, offsetof(CallHeader, name));
    name[0] = 0;
    if (other.name_hash != 0) std::memcpy(name, other.name, strnlen(other.name, sizeof name - 1) + 1);
    name[sizeof name - 1] = 0;
    return *this;
  }
  ~CallHeader() = default;

  std::uint64_t sequence = 0;  ///< number of the call, from 1
  std::uint64_t digest = 0;    ///< digest_of() the header: equal for equal calls
  std::uint64_t submitted =
      0;              ///< calls that this rank has submitted, and kStartedCalls; differs between ranks
  double last_s = 0;  ///< what the call before took this rank; differs between ranks
  CallKind kind = CallKind::kBarrier;
  std::int32_t type = 0;
  std::int32_t op = 0;
  std::int32_t root = 0;
  std::int32_t memory = 0;  ///< kind of the buffers' memory, as DDL_MemoryKind
  std::int32_t reserved = 0;
  std::uint64_t count = 0;        ///< elements of all buffers
  std::uint64_t buffers = 0;      ///< number of buffers
  std::uint64_t counts_hash = 0;  ///< of the buffers' counts
  std::uint64_t name_hash = 0;    ///< of the whole name, 0 without one
  std::uint64_t plan_hash = 0;    ///< of how an all-reduce is done, which all ranks find out for themselves
  char name[128];                 ///< the name's beginning, for the error text
};

/// Of everything that has to be the same on all ranks.
inline std::uint64_t digest_of(const CallHeader& header) {
  constexpr std::size_t begin = offsetof(CallHeader, kind);
  constexpr std::size_t bytes = offsetof(CallHeader, name) - begin;
  static_assert(bytes == 6 * sizeof(std::int32_t) + 5 * sizeof(std::uint64_t), "padding has no value");
  std::uint64_t words[bytes / sizeof(std::uint64_t)];
  std::memcpy(words, reinterpret_cast<const char*>(&header) + begin, bytes);
  return hash_words(words, std::size(words), header.sequence);
}

/// So much of a header, from its beginning, travels between hosts in every call; the rest only where digests
/// differ, for the error text.
inline constexpr std::size_t kTravellingBytes = offsetof(CallHeader, kind);
static_assert(kTravellingBytes == 32);

/// Bytes of a header with its name, as far as there is one.
inline std::size_t whole_bytes(const CallHeader& header) {
  return offsetof(CallHeader, name) + strnlen(header.name, sizeof header.name - 1) + 1;
}

/// In `submitted`: the rank has started calls that others overtake, or may.
inline constexpr std::uint64_t kStartedCalls = std::uint64_t{1} << 63;

/// The least that several ranks have submitted, and whether any has started calls.
inline std::uint64_t least_submitted(std::uint64_t a, std::uint64_t b) {
  return std::min(a & ~kStartedCalls, b & ~kStartedCalls) | ((a | b) & kStartedCalls);
}

}  // namespace ddl
