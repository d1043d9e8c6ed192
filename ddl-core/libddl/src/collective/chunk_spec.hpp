#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "plan/chunk_plan.hpp"
#include "plan/chunking.hpp"
#include "support/types.hpp"

namespace ddl {

/// The blocks of a reduce-scatter or an all-gather: as many elements for, or from, each rank.
struct Blocks {
  std::size_t elements = 0;                 ///< of a block
  const std::vector<int>* order = nullptr;  ///< ranks in the order in which they own the parts of a chunk
  std::size_t mine = 0;                     ///< this rank's place in it
};

/// One chunk of a call.
struct ChunkSpec {
  Interval from;                      ///< elements of the call's input; with Blocks: of every block
  std::size_t to = 0;                 ///< where they begin in the call's output
  const ChunkPlan* plan = nullptr;    ///< reductions only
  const RelayNode* relays = nullptr;  ///< broadcasts only
  int root = -1;                      ///< the only rank that wants the result, or that has the input; -1: all
};

/// The chunk of a number, from 0.
using Chunks = std::function<ChunkSpec(std::size_t)>;

}  // namespace ddl
