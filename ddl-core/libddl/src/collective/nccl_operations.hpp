#pragma once

#include <cstddef>
#include <string>

#include "collective/buffer_list.hpp"
#include "cuda/cuda_executor.hpp"
#include "cuda/nccl_ranks.hpp"
#include "ddl.h"

namespace ddl {

/**
 * A call that NCCL makes by itself among all ranks of a communicator: one operation, or several that begin
 * together.
 *
 * It begins when the ranks are known to make the same call, since NCCL takes nothing back, and is done when
 * the GPU is.
 */
class NcclCollective {
 public:
  /// Calls put(what is called, the stream) when it is time.
  using Put = std::function<void(cuda::NcclRanks& ranks, cuda::Stream stream)>;

  /// @param what  "an all-reduce", for texts
  void start(cuda::NcclRanks& ranks, cuda::CudaExecutor& executor, std::string what, Put put);
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return stage_ == Stage::kDone; }

 private:
  enum class Stage { kBegin, kPut, kRun, kDone };

  cuda::NcclRanks* ranks_ = nullptr;
  cuda::CudaExecutor* executor_ = nullptr;
  std::string what_;
  Put put_;
  cuda::Mark end_;
  unsigned looks_ = 0;
  Stage stage_ = Stage::kDone;
};

/// The operations of the collectives. Buffers are the device's; arguments as in ddl.h. @throws Error
namespace nccl {

void all_reduce(cuda::NcclRanks& ranks, cuda::Stream stream, const BufferList& buffers, DDL_Type type,
                DDL_Op op);
void broadcast(cuda::NcclRanks& ranks, cuda::Stream stream, const BufferList& buffers, std::size_t width,
               int root);
void reduce(cuda::NcclRanks& ranks, cuda::Stream stream, const BufferList& buffers, DDL_Type type, DDL_Op op,
            int root);
void reduce_scatter(cuda::NcclRanks& ranks, cuda::Stream stream, const void* in, void* out, std::size_t count,
                    DDL_Type type, DDL_Op op);
void all_gather(cuda::NcclRanks& ranks, cuda::Stream stream, const void* in, void* out, std::size_t bytes);
void all_to_all(cuda::NcclRanks& ranks, cuda::Stream stream, const void* in, void* out, std::size_t bytes);

}  // namespace nccl
}  // namespace ddl
