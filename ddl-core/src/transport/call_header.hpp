#pragma once

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
  kRefused = 11
};

/// What a rank says about the collective call it makes. Trivially copyable: it also travels by MPI. What the
/// ranks of a host look at in every call lies in its first cache line.
struct CallHeader {
  std::uint64_t sequence = 0;   ///< number of the call, from 1
  std::uint64_t digest = 0;     ///< digest_of() the header: equal for equal calls
  std::uint64_t submitted = 0;  ///< calls that this rank has submitted; differs between ranks
  double last_s = 0;            ///< what the call before took this rank; differs between ranks
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
  char name[128] = {};            ///< the name's beginning, for the error text
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

/// Bytes of a header with this name that travel between hosts: of the name no more than there is.
inline std::size_t travelling_bytes(const char* name) {
  const std::size_t bytes = offsetof(CallHeader, name) + strnlen(name, sizeof CallHeader::name - 1) + 1;
  return (bytes + 7) / 8 * 8;
}

}  // namespace ddl
