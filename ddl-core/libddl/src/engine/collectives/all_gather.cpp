// All-gather: by NCCL, by all tiers at once, or as a broadcast from each rank.
#include <functional>
#include <string_view>

#include "engine/communicator.hpp"
#include "support/hash.hpp"

namespace ddl {

void Communicator::all_gather(const void* in, void* out, std::size_t count, DDL_Type type, const char* name,
                              Executor& executor) {
  const std::size_t total = count * static_cast<std::size_t>(size());
  const std::size_t width = size_of(type);
  CallHeader header = header_of(CallKind::kAllGather, type, 0, 0, total,
                                CallSignature{1, hash_bytes(&count, sizeof count), name, executor.kind()});
  void* const input = const_cast<void*>(in);
  input_.assign(&input, &count, 1, type, executor);
  output_.assign(&out, &total, 1, type, executor);
  const auto by_nccl = [&](cuda::NcclRanks& ranks, cuda::Stream stream) {
    nccl::all_gather(ranks, stream, in, out, count * width);
  };
  const auto by_tiers_or_relays = [&]() -> std::string_view {
    ReductionCall blocks = reduction_of(input_, output_, type, DDL_OP_SUM);
    blocks.ipc = ipc_of(executor);
    if (cut_blocks(count, blocks)) {
      gather_by_tiers(header, blocks);
      return by_way("tiers: all-gather", blocks.ipc);
    }
    broadcast_from_each_rank(header, count, type);
    return "a broadcast from every rank";
  };
  make_call(header, {executor, total * width, in, out, count * width}, "all-gather", {}, by_nccl,
            by_tiers_or_relays);
}

void Communicator::gather_by_tiers(const CallHeader& header, ReductionCall& call) {
  call.goal = Goal::kGather;
  const auto ranks = static_cast<std::size_t>(size());
  const auto chunk = [&](std::size_t i) {
    const Interval part = call.chunking.interval(i, call.blocks.elements);
    return ChunkSpec{part, part.begin, &plans_->chunk_plan(blocks_plan_, part.size() * ranks, 1), nullptr,
                     -1};
  };
  call.chunks = std::ref(chunk);
  carry_out(header, *reduction_, call, blocks_plan_.windows);
}

void Communicator::broadcast_from_each_rank(const CallHeader& header, std::size_t count, DDL_Type type) {
  const auto ranks = static_cast<std::size_t>(size());
  Chunking cut = plain_chunking(count, size_of(type));
  cut.chunks *= ranks;
  const bool chain = use_chain(count * ranks * size_of(type));
  // A chunk of every rank in turn: all chains are busy, each at another host.
  const auto chunk = [&](std::size_t i) {
    const auto root = static_cast<int>(i % ranks);
    const Interval part = cut.interval(i / ranks, count);
    return ChunkSpec{part, i % ranks * count + part.begin, nullptr, &plans_->relays(root, chain), root};
  };
  const BroadcastCall call{.input = input_,
                           .output = output_,
                           .in_place = false,
                           .type = type,
                           .chunking = cut,
                           .chunks = std::ref(chunk)};
  carry_out(header, *broadcast_, call);
}

}  // namespace ddl
