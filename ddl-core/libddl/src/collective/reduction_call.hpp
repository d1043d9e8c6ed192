#pragma once

#include <cstdint>
#include <optional>

#include "collective/buffer_list.hpp"
#include "collective/chunk_spec.hpp"
#include "collective/kernels.hpp"
#include "collective/wire/wire_format.hpp"

namespace ddl {

class LocalExchange;
struct IpcHost;
struct NcclHost;

/// What a chunk is to bring about.
enum class Goal {
  kAll,      ///< everybody (or the root) has the sum of everything
  kScatter,  ///< each rank has the sum of its block
  kGather,   ///< everybody has everybody's block; nothing is added up
};

/// What all chunks of one call have in common. It must outlive the call.
struct ReductionCall {
  const BufferList& input;
  const BufferList& output;  ///< may be the same as the input
  DDL_Type type = DDL_TYPE_FLOAT;
  DDL_Op op = DDL_OP_SUM;
  ReduceKernel kernel = nullptr;
  std::int64_t divisor = 1;  ///< of an average: applied in the sums of one level, see divided_in
  /// Every rank of the only group reduces the whole chunk in place: more work, but one wait for the others
  /// instead of two.
  bool redundant = false;
  WireFormat wire = WireFormat::kFull;
  const BufferList* residual =
      nullptr;  ///< error feedback of the wire format: an element for each of the input, or null
  Chunking chunking{};
  Chunks chunks{};
  Goal goal = Goal::kAll;
  Blocks blocks{};  ///< of kScatter and kGather
  /// The part of the result, in elements of the input, that this rank's output is; none: all of it.
  std::optional<Interval> kept{};
  /// Buffers of GPUs, which NCCL reduces within a host; null: the host's memory is where they are reduced.
  NcclHost* nccl = nullptr;
  /// Buffers of GPUs, whose stages all ranks of the host have open; null: they are staged in the host's
  /// memory.
  IpcHost* ipc = nullptr;
  /// Level of the sums that are divided: see divided_in() of the plans.
  std::size_t divided_in = 0;
};

/// One chunk of a call, as its local exchange and the engines of its tiers see it.
struct ReductionWork {
  const ReductionCall* call = nullptr;
  LocalExchange* local = nullptr;  ///< of this chunk
  ChunkSpec spec;
  std::size_t slot = 0;        ///< of the staging buffers
  std::uint64_t number = 0;    ///< running number of the chunk, over all calls
  std::uint64_t reusable = 0;  ///< chunks that everybody must have read before this one is staged
  std::size_t width = 0;       ///< bytes of an element
  bool timed = false;          ///< large enough for its steps to be timed

  std::size_t elements() const {
    return spec.from.size() * (call->goal == Goal::kAll ? 1 : call->blocks.order->size());
  }
  bool encoded() const { return call->wire != WireFormat::kFull; }
  std::size_t bytes_of(Interval range) const {
    return encoded() ? wire_bytes(call->wire, range.size()) : range.size() * width;
  }
  std::size_t bytes_of(const Transfer& transfer) const {
    return transfer.wide ? transfer.range.size() * sizeof(float) : bytes_of(transfer.range);
  }
  /// What the sums of a level are divided by: 0 the innermost groups, t the t-th tier above.
  std::int64_t divisor_of(std::size_t level) const { return level == call->divided_in ? call->divisor : 1; }
};

}  // namespace ddl
