#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/collective_context.hpp"

namespace ddl {

/// What a rank sends to another one, and receives from it. May be empty in either direction.
struct ExchangedBlocks {
  const char* in = nullptr;
  std::size_t in_bytes = 0;
  char* out = nullptr;
  std::size_t out_bytes = 0;
};

/**
 * All-to-all: rank r's block b becomes rank b's block r. Blocks may have any sizes; gathering and scattering
 * are the cases where most are empty.
 *
 * In step k a rank sends to the rank k places after it and receives from the one k places before, so that no
 * two ranks send to the same one; a few steps are under way at a time. MPI carries the blocks, within a host
 * too: there is nothing to reduce, and each byte has one reader.
 */
class AllToAll {
 public:
  explicit AllToAll(CollectiveContext& context) : context_(context) {}

  /// @param bytes  of a block; in and out hold one for each rank and do not overlap
  void start(const char* in, char* out, std::size_t bytes);
  /// @param blocks  one for each rank. Ranks first tell each other the sizes, which only they know.
  void start(std::vector<ExchangedBlocks> blocks);
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return steps_done_ == steps_; }

 private:
  static constexpr std::size_t kUnderWay = 4;
  static constexpr std::size_t kMessageBytes = std::size_t{1} << 20;

  void begin();
  bool exchange_sizes();
  void check_sizes() const;

  CollectiveContext& context_;
  std::vector<ExchangedBlocks> blocks_;
  bool sizes_known_ = true;
  bool sizes_sent_ = false;
  int sizes_pending_ = 0;
  std::vector<std::uint64_t> sizes_here_;
  std::vector<std::uint64_t> sizes_there_;
  std::size_t steps_ = 0;
  std::size_t steps_started_ = 0;
  std::size_t steps_done_ = 0;
  bool copied_ = false;
  std::vector<int> pending_;
};

}  // namespace ddl
