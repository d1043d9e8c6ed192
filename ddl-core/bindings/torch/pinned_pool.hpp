// Pinned memory of the host, in which messages and exchanges of a GPU's tensors are staged.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "ddl.h"

namespace ddl_torch {

// Pinned memory of this process, which is kept for the next tensors. Taking more of it may wait for all
// streams of the device, and a stream may be waiting for the very call that needs it. So it grows only while
// no stream waits for one of DDL's calls; otherwise a tensor gets ordinary memory, to and from which copies
// are slower.
class PinnedPool {
 public:
  static PinnedPool& Instance();

  // A tensor of the host like this one of a GPU, contiguous.
  at::Tensor Take(const at::Tensor& like);
  // So many tensors will be staged together soon: takes what is missing for them, where that may be.
  void Reserve(const std::vector<at::Tensor>& tensors);

  // Latches on which streams wait. None is made while memory is being taken.
  DDL_Latch MakeLatch(int device);
  void ReleaseLatch(DDL_Latch latch);

 private:
  // Pieces of one size, a power of two.
  struct Pieces {
    std::vector<void*> free;
    std::size_t made = 0;
    std::size_t wanted = 0;  // at a time
  };

  static std::size_t SizeFor(std::size_t bytes);
  void Grow(const at::TensorOptions& options);
  void Give(std::size_t size, void* piece);

  std::mutex mutex_;
  std::map<std::size_t, Pieces> pieces_;
  std::vector<at::Tensor> blocks_;
  std::size_t latches_ = 0;
};

}  // namespace ddl_torch
