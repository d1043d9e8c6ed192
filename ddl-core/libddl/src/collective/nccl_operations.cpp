#include "collective/nccl_operations.hpp"

#include <utility>

namespace ddl {

void NcclCollective::start(cuda::NcclRanks& ranks, cuda::CudaExecutor& executor, std::string what, Put put) {
  ranks_ = &ranks;
  executor_ = &executor;
  what_ = std::move(what);
  put_ = std::move(put);
  end_ = {};
  looks_ = 0;
  stage_ = Stage::kBegin;
}

bool NcclCollective::step(bool, bool globally_agreed) {
  switch (stage_) {
    case Stage::kBegin:
      if (!globally_agreed || !ranks_->idle()) return false;
      ranks_->put(what_, [this] { put_(*ranks_, executor_->collective()); });
      stage_ = Stage::kPut;
      return true;
    case Stage::kPut:
      if (!ranks_->idle()) return false;
      executor_->record(end_, executor_->collective());
      stage_ = Stage::kRun;
      return true;
    case Stage::kRun:
      if (++looks_ % cuda::NcclRanks::kLooks == 0) ranks_->look();
      if (!executor_->reached(end_, ("NCCL's " + what_).c_str())) return false;
      stage_ = Stage::kDone;
      return true;
    case Stage::kDone:
      return false;
  }
  return false;
}

namespace nccl {

void all_reduce(cuda::NcclRanks& ranks, cuda::Stream stream, const BufferList& buffers, DDL_Type type,
                DDL_Op op) {
  buffers.for_each_piece({0, buffers.count()}, [&](char* piece, std::size_t count, std::size_t) {
    ranks.nccl().check(ranks.nccl().all_reduce(piece, piece, count, cuda::nccl_type(type), cuda::nccl_op(op),
                                               ranks.comm(), stream),
                       ranks.comm(), "an all-reduce");
  });
}

void broadcast(cuda::NcclRanks& ranks, cuda::Stream stream, const BufferList& buffers, std::size_t width,
               int root) {
  buffers.for_each_piece({0, buffers.count()}, [&](char* piece, std::size_t count, std::size_t) {
    ranks.nccl().check(ranks.nccl().broadcast(piece, piece, count * width, cuda::NcclType::kBytes, root,
                                              ranks.comm(), stream),
                       ranks.comm(), "a broadcast");
  });
}

void reduce(cuda::NcclRanks& ranks, cuda::Stream stream, const BufferList& buffers, DDL_Type type, DDL_Op op,
            int root) {
  buffers.for_each_piece({0, buffers.count()}, [&](char* piece, std::size_t count, std::size_t) {
    ranks.nccl().check(ranks.nccl().reduce(piece, piece, count, cuda::nccl_type(type), cuda::nccl_op(op),
                                           root, ranks.comm(), stream),
                       ranks.comm(), "a reduce");
  });
}

void reduce_scatter(cuda::NcclRanks& ranks, cuda::Stream stream, const void* in, void* out, std::size_t count,
                    DDL_Type type, DDL_Op op) {
  if (count == 0) return;
  ranks.nccl().check(ranks.nccl().reduce_scatter(in, out, count, cuda::nccl_type(type), cuda::nccl_op(op),
                                                 ranks.comm(), stream),
                     ranks.comm(), "a reduce-scatter");
}

void all_gather(cuda::NcclRanks& ranks, cuda::Stream stream, const void* in, void* out, std::size_t bytes) {
  if (bytes == 0) return;
  ranks.nccl().check(ranks.nccl().all_gather(in, out, bytes, cuda::NcclType::kBytes, ranks.comm(), stream),
                     ranks.comm(), "an all-gather");
}

void all_to_all(cuda::NcclRanks& ranks, cuda::Stream stream, const void* in, void* out, std::size_t bytes) {
  if (bytes == 0) return;
  const cuda::Nccl& nccl = ranks.nccl();
  for (int peer = 0; peer < ranks.size(); ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * bytes;
    nccl.check(nccl.send(static_cast<const char*>(in) + at, bytes, cuda::NcclType::kBytes, peer, ranks.comm(),
                         stream),
               ranks.comm(), "an all-to-all");
    nccl.check(
        nccl.receive(static_cast<char*>(out) + at, bytes, cuda::NcclType::kBytes, peer, ranks.comm(), stream),
        ranks.comm(), "an all-to-all");
  }
}

}  // namespace nccl
}  // namespace ddl
