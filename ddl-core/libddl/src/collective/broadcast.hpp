#pragma once

#include <vector>

#include "collective/buffer_list.hpp"
#include "collective/chunk_spec.hpp"
#include "collective/collective_context.hpp"

namespace ddl {

/// What all chunks of one broadcast (or all-gather: every chunk has a root of its own) have in common.
struct BroadcastCall {
  const BufferList& input;  ///< read by the root of a chunk
  const BufferList& output;
  bool in_place = false;  ///< input and output are the same memory, and a chunk's place in both is the same
  DDL_Type type = DDL_TYPE_FLOAT;
  Chunking chunking{};
  Chunks chunks{};
};

/**
 * Broadcast, chunk by chunk: from relay to relay between the groups, and from the relay's stage to the ranks
 * of its group. Several chunks are under way, so that all links are busy at the same time.
 */
class Broadcast {
 public:
  explicit Broadcast(CollectiveContext& context) : context_(context), slots_(kMaxSlots) {}
  void start(const BroadcastCall& call);
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return finished_ == chunks_; }
  std::size_t chunks() const { return chunks_; }

 private:
  enum class Stage { kFree, kPost, kReceive, kReceiveWait, kForward, kPublish, kRead, kEnd, kDone };
  struct Chunk {
    Stage stage = Stage::kDone;
    ChunkSpec spec;
    std::uint64_t number = 0;
    std::size_t relay = 0;  ///< index of this group's relay in the group
    int pending = 0;
    Copies copies;
  };

  bool step_chunk(Chunk& chunk, std::size_t slot, bool locally_agreed, bool globally_agreed);

  CollectiveContext& context_;
  std::vector<Chunk> slots_;
  const BroadcastCall* call_ = nullptr;
  std::size_t width_ = 0;
  std::size_t chunks_ = 0;
  std::size_t started_ = 0;
  std::size_t finished_ = 0;
  std::uint64_t reusable_ = 0;
};

}  // namespace ddl
