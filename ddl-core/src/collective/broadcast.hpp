#pragma once

#include <vector>

#include "collective/buffer_list.hpp"
#include "collective/fabric.hpp"
#include "plan/exchange.hpp"

namespace ddl {

/**
 * Broadcast, chunk by chunk: along a binomial tree from group to group, one relay a group (the root itself in
 * its own group, the first rank in the others), and from the relay's stage to the ranks of its group. Several
 * chunks are under way, so that all links of the tree are busy at the same time.
 */
class Broadcast {
 public:
  explicit Broadcast(Fabric& fabric) : fabric_(fabric), slots_(kSlots) {}
  void start(const BufferList& buffers, DDL_Type type, int root, const Chunking& chunking);
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return finished_ == chunking_.chunks; }
  void abandon();

 private:
  enum class Stage { kFree, kReceive, kReceiveWait, kForward, kPublish, kRead, kForwardWait, kDone };
  struct Chunk {
    Stage stage = Stage::kDone;
    Interval range;
    std::uint64_t number = 0;
    Requests requests;
  };

  bool step_chunk(Chunk& chunk, bool locally_agreed, bool globally_agreed);
  int relay_of(std::size_t group) const;
  Chunk& slot(std::size_t chunk) { return slots_[(fabric_.chunks_done + chunk) % kSlots]; }

  Fabric& fabric_;
  std::vector<Chunk> slots_;
  const BufferList* buffers_ = nullptr;
  std::size_t width_ = 0;
  int root_ = 0;
  std::size_t root_group_ = 0;
  std::size_t relay_ = 0;  ///< index of this group's relay in the group
  BinomialNode node_;
  Chunking chunking_;
  std::size_t started_ = 0;
  std::size_t finished_ = 0;
};

}  // namespace ddl
