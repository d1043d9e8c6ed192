// All-to-all, of equal blocks and of blocks of any sizes: by NCCL, or in pairs.
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/communicator.hpp"
#include "support/hash.hpp"

namespace ddl {
namespace {

constexpr std::string_view kPairwise = "pairwise exchange";

}  // namespace

void Communicator::all_to_all(const void* in, void* out, std::size_t count, DDL_Type type, const char* name,
                              Executor& executor) {
  const std::size_t total = count * static_cast<std::size_t>(size());
  const std::size_t block = count * size_of(type);
  CallHeader header = header_of(CallKind::kAllToAll, type, 0, 0, total,
                                CallSignature{1, hash_bytes(&count, sizeof count), name, executor.kind()});
  const auto by_nccl = [&](cuda::NcclRanks& ranks, cuda::Stream stream) {
    nccl::all_to_all(ranks, stream, in, out, block);
  };
  const auto by_pairs = [&] {
    scheduler_->set_windows({});
    all_to_all_->start(static_cast<const char*>(in), static_cast<char*>(out), block, executor);
    run(header, CollectiveRef(*all_to_all_));
    return kPairwise;
  };
  make_call(header, {executor, total * size_of(type), in, out, block}, "all-to-all", {}, by_nccl, by_pairs);
}

void Communicator::alltoallv(std::vector<ExchangedBlocks> blocks, const char* name) {
  std::size_t bytes = 0;
  for (const ExchangedBlocks& block : blocks) bytes += block.in_bytes;
  const CallHeader header =
      header_of(CallKind::kAllToAllv, DDL_TYPE_FLOAT, 0, 0, 0, CallSignature{1, 0, name});
  if (distributed_) {
    // Whether all sizes fit is a sum over the ranks; only where they do not everybody asks everybody.
    auto balance = static_cast<std::int64_t>(balance_of(rank_, blocks));
    void* buffer = &balance;
    const std::size_t one = 1;
    const BufferList sum(&buffer, &one, 1, DDL_TYPE_INT64);
    CallHeader sizes = header;
    sizes.type = DDL_TYPE_INT64;
    sizes.count = 1;
    run_allreduce(sizes, sum, DDL_TYPE_INT64, DDL_OP_SUM, nullptr);
    timed_.reset();
    scheduler_->set_windows({});
    CallHeader data = header;
    data.sequence = ++sequence_;
    if (balance != 0) {
      block_sizes_->start(blocks);
      run(data, CollectiveRef(*block_sizes_));
      data.sequence = ++sequence_;
    }
    all_to_all_->start(std::move(blocks), host_executor());
    run(data, CollectiveRef(*all_to_all_));
  } else if (bytes > 0) {
    std::memcpy(blocks[0].out, blocks[0].in, bytes);
  }
  account(header, bytes, distributed_ ? kPairwise : kCopy);
}

}  // namespace ddl
