#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ddl {

/// Of 64-bit words, several times faster than byte by byte. Every bit of a word reaches every bit of the
/// result within two words: multiplication carries upwards, the rotation brings the high half down.
inline std::uint64_t hash_words(const std::uint64_t* words, std::size_t count, std::uint64_t seed) {
  std::uint64_t hash = seed ^ 0xcbf29ce484222325ULL;
  for (std::size_t i = 0; i < count; ++i) hash = std::rotl((hash ^ words[i]) * 0x9e3779b97f4a7c15ULL, 32);
  return hash * 0x9e3779b97f4a7c15ULL;
}

/// Of bytes, by words: to notice that ranks disagree, not to withstand an attacker.
inline std::uint64_t hash_bytes(const void* data, std::size_t bytes) {
  const auto* const from = static_cast<const char*>(data);
  std::uint64_t hash = bytes;
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + at, std::min(sizeof word, bytes - at));
    hash = hash_words(&word, 1, hash);
  }
  return hash_words(nullptr, 0, hash);
}

}  // namespace ddl
