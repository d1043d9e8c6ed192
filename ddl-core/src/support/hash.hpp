#pragma once

#include <cstddef>
#include <cstdint>

namespace ddl {

/// FNV-1a, 64 bits: to notice that ranks disagree, not to withstand an attacker.
inline std::uint64_t hash_bytes(const void* data, std::size_t bytes,
                                std::uint64_t seed = 0xcbf29ce484222325ULL) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t hash = seed;
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3ULL;
  return hash;
}

}  // namespace ddl
