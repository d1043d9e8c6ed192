#include "pinned_pool.hpp"

#include <algorithm>

#include "status.hpp"

namespace ddl_torch {
namespace {

constexpr std::size_t kSmallest = 4096;
// Pieces are taken in blocks of this size at least.
constexpr std::size_t kBlock = std::size_t{1} << 20;

}  // namespace

PinnedPool& PinnedPool::Instance() {
  // Never destroyed: tensors may be in it while the process exits.
  static auto* const made = new PinnedPool;
  return *made;
}

std::size_t PinnedPool::SizeFor(std::size_t bytes) {
  std::size_t size = kSmallest;
  while (size < bytes) size *= 2;
  return size;
}

// Under the lock.
void PinnedPool::Grow(const at::TensorOptions& options) {
  if (latches_ > 0) return;
  for (auto& [size, pieces] : pieces_) {
    if (pieces.made >= pieces.wanted) continue;
    // Twice as many, so that this is rare.
    const std::size_t more = std::max({pieces.wanted - pieces.made, pieces.made, kBlock / size});
    const at::Tensor block = at::empty({static_cast<int64_t>(more * size)},
                                       options.dtype(at::kByte).device(at::kCPU).pinned_memory(true));
    for (std::size_t i = 0; i < more; ++i) pieces.free.push_back(block.data_ptr<std::uint8_t>() + i * size);
    pieces.made += more;
    blocks_.push_back(block);
  }
}

void PinnedPool::Reserve(const std::vector<at::Tensor>& tensors) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::map<std::size_t, std::size_t> needed;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.nbytes() > 0) ++needed[SizeFor(tensor.nbytes())];
  }
  for (const auto& [size, n] : needed) {
    Pieces& pieces = pieces_[size];
    pieces.wanted = std::max(pieces.wanted, pieces.made - pieces.free.size() + n);
  }
  if (!tensors.empty()) Grow(tensors.front().options());
}

at::Tensor PinnedPool::Take(const at::Tensor& like) {
  const std::size_t bytes = like.nbytes();
  const at::TensorOptions options = at::TensorOptions().dtype(like.scalar_type()).device(at::kCPU);
  if (bytes == 0) return at::empty(like.sizes(), options);
  const std::size_t size = SizeFor(bytes);
  void* piece = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Pieces& pieces = pieces_[size];
    if (pieces.free.empty()) {
      pieces.wanted = std::max(pieces.wanted, pieces.made + 1);
      Grow(like.options());
    }
    if (!pieces.free.empty()) {
      piece = pieces.free.back();
      pieces.free.pop_back();
    }
  }
  if (piece == nullptr) return at::empty(like.sizes(), options);
  return at::from_blob(
      piece, like.sizes(), [this, size, piece](void*) { Give(size, piece); }, options);
}

void PinnedPool::Give(std::size_t size, void* piece) {
  const std::lock_guard<std::mutex> lock(mutex_);
  pieces_[size].free.push_back(piece);
}

DDL_Latch PinnedPool::MakeLatch(int device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  DDL_Latch latch = 0;
  Check(ddl_latch_create(device, &latch));
  ++latches_;
  return latch;
}

void PinnedPool::ReleaseLatch(DDL_Latch latch) {
  static_cast<void>(ddl_latch_release(latch));
  const std::lock_guard<std::mutex> lock(mutex_);
  --latches_;
}

}  // namespace ddl_torch
