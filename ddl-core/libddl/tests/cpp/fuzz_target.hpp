#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

/// One input; returns 0. Fails by ending the process: a crash, a sanitizer, or abort() for a broken promise.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

/// A promise that any input must keep.
inline void require(bool kept) {
  if (!kept) std::abort();
}

/// Inputs to begin with, and words to put into inputs.
std::vector<std::string> fuzz_seeds();
std::vector<std::string> fuzz_words();
