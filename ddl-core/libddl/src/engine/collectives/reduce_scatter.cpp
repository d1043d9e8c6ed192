// Reduce-scatter: by NCCL, or in one of three ways by the tiers.
#include <functional>
#include <utility>

#include "engine/communicator.hpp"
#include "support/hash.hpp"

namespace ddl {
namespace {

/// Of more ranks a plan for each would take more memory than was promised: each names all hosts.
constexpr std::size_t kMostPlansOfRoots = 512;

}  // namespace

void Communicator::reduce_scatter(const void* in, void* out, std::size_t count, DDL_Type type, DDL_Op op,
                                  const char* name, Executor& executor) {
  const std::size_t total = count * static_cast<std::size_t>(size());
  const std::size_t width = size_of(type);
  CallHeader header = header_of(CallKind::kReduceScatter, type, op, 0, total,
                                CallSignature{1, hash_bytes(&count, sizeof count), name, executor.kind()});
  // The input is only read: what is reduced lies in the stages.
  void* const input = const_cast<void*>(in);
  input_.assign(&input, &total, 1, type, executor);
  output_.assign(&out, &count, 1, type, executor);
  const auto by_nccl = [&](cuda::NcclRanks& ranks, cuda::Stream stream) {
    nccl::reduce_scatter(ranks, stream, in, out, count, type, op);
  };
  const auto by_tiers = [&] {
    ReductionCall call = reduction_of(input_, output_, type, op);
    call.ipc = ipc_of(executor);
    call.divided_in = plans_->divided_in(Plan{}, type == DDL_TYPE_HALF);
    if (cut_blocks(count, call)) {
      scatter_by_tiers(header, call);
      return by_way("tiers: reduce-scatter", call.ipc);
    }
    if (static_cast<std::size_t>(size()) > kMostPlansOfRoots ||
        (context_->groups.size() > 2 && count * width < kWorthAMessage)) {
      keep_own_block(header, call, count);
      return by_way("tiers: all-reduce, each rank keeps its block", call.ipc);
    }
    send_to_each_rank(header, call, count);
    return by_way("tiers: direct, each block to its rank", call.ipc);
  };
  make_call(header, {executor, total * width, in, out, count * width}, "reduce-scatter", std::pair(type, op),
            by_nccl, by_tiers);
}

void Communicator::scatter_by_tiers(const CallHeader& header, ReductionCall& call) {
  call.goal = Goal::kScatter;
  const auto ranks = static_cast<std::size_t>(size());
  const bool rounds = is_16bit(call.type);
  const auto chunk = [&](std::size_t i) {
    const Interval part = call.chunking.interval(i, call.blocks.elements);
    const ChunkPlan& plan = plans_->chunk_plan(blocks_plan_, part.size() * ranks, 1, -1, rounds);
    return ChunkSpec{part, part.begin, &plan, nullptr, -1};
  };
  call.chunks = std::ref(chunk);
  carry_out(header, *reduction_, call, blocks_plan_.windows);
}

void Communicator::keep_own_block(const CallHeader& header, ReductionCall& call, std::size_t count) {
  const std::size_t total = call.input.count();
  const std::size_t width = size_of(call.type);
  call.chunking = plain_chunking(total, width, call.ipc != nullptr);
  choose_rounds(call.chunking.chunk_elements * width);
  const std::size_t block = static_cast<std::size_t>(rank()) * count;
  call.kept = Interval{block, block + count};
  const bool rounds = is_16bit(call.type);
  const auto chunk = [&](std::size_t i) {
    const Interval part = call.chunking.interval(i, total);
    const ChunkPlan& plan = plans_->chunk_plan(blocks_plan_, part.size(), grain_of(width), -1, rounds);
    return ChunkSpec{part, part.begin, &plan, nullptr, -1};
  };
  call.chunks = std::ref(chunk);
  carry_out(header, *reduction_, call, blocks_plan_.windows);
}

void Communicator::send_to_each_rank(const CallHeader& header, ReductionCall& call, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(size());
  const std::size_t width = size_of(call.type);
  call.chunking = plain_chunking(count, width, call.ipc != nullptr);
  call.chunking.chunks *= ranks;
  // Rank by rank within each round of chunks, so that all links are busy throughout.
  const auto chunk = [&](std::size_t i) {
    const auto root = static_cast<int>(i % ranks);
    const Interval part = call.chunking.interval(i / ranks, count);
    const ChunkPlan& plan = plans_->chunk_plan(Plan{}, part.size(), grain_of(width), root);
    const std::size_t block = i % ranks * count;
    return ChunkSpec{{block + part.begin, block + part.end}, part.begin, &plan, nullptr, root};
  };
  call.chunks = std::ref(chunk);
  carry_out(header, *reduction_, call);
}

}  // namespace ddl
