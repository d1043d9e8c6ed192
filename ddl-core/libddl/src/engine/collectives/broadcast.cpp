// Broadcast: by NCCL, or from host to host in a chain or a tree.
#include <functional>

#include "engine/communicator.hpp"

namespace ddl {

void Communicator::broadcast(const BufferList& buffers, const CallSignature& signature, DDL_Type type,
                             int root) {
  const std::size_t bytes = buffers.count() * size_of(type);
  CallHeader header = header_of(CallKind::kBroadcast, type, 0, root, buffers.count(), signature);
  const auto by_nccl = [&](cuda::NcclRanks& ranks, cuda::Stream stream) {
    nccl::broadcast(ranks, stream, buffers, size_of(type), root);
  };
  const auto by_relays = [&] {
    const Chunking cut = plain_chunking(buffers.count(), size_of(type));
    const bool chain = use_chain(bytes);
    const RelayNode& node = plans_->relays(root, chain);
    const auto chunk = [&](std::size_t i) {
      const Interval part = cut.interval(i, buffers.count());
      return ChunkSpec{part, part.begin, nullptr, &node, root};
    };
    const BroadcastCall call{.input = buffers,
                             .output = buffers,
                             .in_place = true,
                             .type = type,
                             .chunking = cut,
                             .chunks = std::ref(chunk)};
    carry_out(header, *broadcast_, call, {}, {.eager = bytes <= kEagerBytes});
    return chain ? "chain of hosts" : "binomial tree of hosts";
  };
  make_call(header, {buffers.executor(), bytes}, "broadcast", {}, by_nccl, by_relays);
}

}  // namespace ddl
