// Reduce to one rank: by NCCL, or up the tiers to the side where the root is.
#include <functional>
#include <utility>

#include "engine/communicator.hpp"

namespace ddl {

void Communicator::reduce(const BufferList& buffers, const CallSignature& signature, DDL_Type type, DDL_Op op,
                          int root) {
  const std::size_t width = size_of(type);
  CallHeader header = header_of(CallKind::kReduce, type, op, root, buffers.count(), signature);
  const auto by_nccl = [&](cuda::NcclRanks& ranks, cuda::Stream stream) {
    nccl::reduce(ranks, stream, buffers, type, op, root);
  };
  const auto by_tiers = [&] {
    ReductionCall call = reduction_of(buffers, buffers, type, op);
    call.ipc = ipc_of(buffers.executor());
    call.divided_in = plans_->divided_in(Plan{}, type == DDL_TYPE_HALF);
    call.chunking = plain_chunking(buffers.count(), width, call.ipc != nullptr);
    const auto chunk = [&](std::size_t i) {
      const Interval part = call.chunking.interval(i, buffers.count());
      const ChunkPlan& plan = plans_->chunk_plan(Plan{}, part.size(), grain_of(width), root);
      return ChunkSpec{part, part.begin, &plan, nullptr, root};
    };
    call.chunks = std::ref(chunk);
    carry_out(header, *reduction_, call);
    return by_way("tiers: direct, gather to the root", call.ipc);
  };
  make_call(header, {buffers.executor(), buffers.count() * width}, "reduce", std::pair(type, op), by_nccl,
            by_tiers);
}

}  // namespace ddl
