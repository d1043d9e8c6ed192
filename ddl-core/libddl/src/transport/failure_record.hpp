#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddl {

inline constexpr std::size_t kFailureTextBytes = 3072;

/// The first failure of the host; later ones are dropped, so that all its ranks report the same.
struct FailureRecord {
  enum State : std::uint32_t { kNone = 0, kWriting = 1, kReady = 2 };
  std::atomic<std::uint32_t> state;
  std::atomic<std::int32_t> investigator;  ///< local rank + 1 of the one that looks for missing ranks, or 0
  std::int32_t code;
  std::uint64_t sequence;  ///< of the call in which it was found
  char text[kFailureTextBytes];
};

}  // namespace ddl
