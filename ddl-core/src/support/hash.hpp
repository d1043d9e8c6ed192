#pragma once

#include <bit>
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

/// Of 64-bit words, several times faster than byte by byte. Every bit of a word reaches every bit of the
/// result within two words: multiplication carries upwards, the rotation brings the high half down.
inline std::uint64_t hash_words(const std::uint64_t* words, std::size_t count, std::uint64_t seed) {
  std::uint64_t hash = seed ^ 0xcbf29ce484222325ULL;
  for (std::size_t i = 0; i < count; ++i) hash = std::rotl((hash ^ words[i]) * 0x9e3779b97f4a7c15ULL, 32);
  return hash * 0x9e3779b97f4a7c15ULL;
}

}  // namespace ddl
