#pragma once

#include <map>
#include <vector>

#include "collective/buffer_list.hpp"
#include "collective/fabric.hpp"
#include "collective/kernels.hpp"
#include "plan/exchange.hpp"

namespace ddl {

/// What all chunks of one all-reduce have in common.
struct AllreduceCall {
  const BufferList& buffers;
  DDL_Type type;
  ReduceKernel kernel;
  std::int64_t divisor;  ///< applied in the last reduction, so that an average is rounded once
  const Exchange& whole_chunk;
  const Exchange& last_chunk;
};

/**
 * One chunk on its way: reduce-scatter up the tiers, all-gather down.
 *
 *   post      copy the input to this rank's stage, where its group can read it
 *   reduce    reduce the interval this rank owns in its group, from the members' stages
 *   tier up   for each outer tier, exchange the owned interval with its owners in the sibling groups: send
 * them their parts, receive one's own part from each, reduce tier down the same messages backwards: send the
 * finished part, receive the others' parts gather    copy everybody's finished interval from their stages to
 * the caller's buffers
 *
 * Several chunks are under way, each at another stage, so that all tiers and the memory are busy at the same
 * time.
 */
class AllreduceChunk {
 public:
  AllreduceChunk(Fabric& fabric, std::size_t slot) : fabric_(fabric), slot_(slot) {}

  void start(const AllreduceCall& call, Interval range, std::uint64_t number, bool last);
  /// Goes on without blocking; true when something moved.
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return stage_ == Stage::kDone; }
  void abandon() { requests_.abandon(); }

 private:
  enum class Stage { kPost, kReduce, kUp, kUpWait, kDown, kDownWait, kPublish, kGather, kDone };

  void post();
  void reduce_group();
  void send_up();
  void reduce_tier();
  void send_down();
  void gather(std::size_t owner);
  char* at(std::size_t owner, std::size_t element) const {
    return fabric_.segment.stage(owner, slot_) + element * width_;
  }
  std::int64_t divisor_at(std::size_t tier) const;

  Fabric& fabric_;
  const std::size_t slot_;
  const AllreduceCall* call_ = nullptr;
  const Exchange* exchange_ = nullptr;
  std::size_t width_ = 0;
  Interval range_;
  std::uint64_t number_ = 0;
  Stage stage_ = Stage::kDone;
  std::size_t tier_ = 0;
  Requests requests_;
  std::vector<char> scratch_;
  std::vector<const void*> sources_;
  std::vector<char> gathered_;
  std::size_t gathered_count_ = 0;
};

/// All chunks of a call in order, kSlots at a time.
class Allreduce {
 public:
  explicit Allreduce(Fabric& fabric);
  void start(const AllreduceCall& call, const Chunking& chunking);
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return finished_ == chunking_.chunks; }
  void abandon();

 private:
  Fabric& fabric_;
  std::vector<AllreduceChunk> slots_;
  const AllreduceCall* call_ = nullptr;
  Chunking chunking_;
  std::size_t started_ = 0;
  std::size_t finished_ = 0;
};

}  // namespace ddl
