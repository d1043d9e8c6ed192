#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/fabric.hpp"

namespace ddl {

/**
 * All-to-all: rank r's block b becomes rank b's block r.
 *
 * In step k a rank sends to the rank k places after it and receives from the one k places before, so that no
 * two ranks send to the same one; a few steps are under way at a time. MPI carries the blocks, within a host
 * too: there is nothing to reduce, and each byte has one reader.
 */
class AllToAll {
 public:
  explicit AllToAll(Fabric& fabric) : fabric_(fabric) {}

  /// @param bytes  of a block; in and out hold one for each rank and do not overlap
  void start(const char* in, char* out, std::size_t bytes);
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return steps_done_ == steps_; }

 private:
  static constexpr std::size_t kUnderWay = 4;
  static constexpr std::size_t kMessageBytes = std::size_t{1} << 20;

  Fabric& fabric_;
  const char* in_ = nullptr;
  char* out_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t steps_ = 0;
  std::size_t steps_started_ = 0;
  std::size_t steps_done_ = 0;
  bool copied_ = false;
  std::vector<int> pending_;
};

}  // namespace ddl
