#include "memory_ahead.hpp"

#include <c10/core/StreamGuard.h>

#include <algorithm>

#include "elements.hpp"
#include "pinned_pool.hpp"
#include "torch_release.hpp"

namespace ddl_torch {
namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;

bool Reduces(OpType kind) {
  switch (kind) {
    case OpType::ALLREDUCE:
    case OpType::ALLREDUCE_COALESCED:
    case OpType::REDUCE:
    case OpType::REDUCE_SCATTER:
    case OpType::_REDUCE_SCATTER_BASE:
      return true;
    default:
      return kind == kReduceScatterTensorCoalesced;
  }
}

// Whether such calls stage their tensors, or may do so.
bool Stages(OpType kind) {
  switch (kind) {
    case OpType::GATHER:
    case OpType::SCATTER:
    case OpType::ALLTOALL:
    case OpType::ALLTOALL_BASE:
    case OpType::ALLGATHER:
    case OpType::ALLGATHER_COALESCED:
      return true;
    default:
      return false;
  }
}

// Whether there are lists that are moved as one block.
bool Joins(OpType kind) {
  return kind == OpType::ALLGATHER || kind == OpType::ALLGATHER_COALESCED || kind == OpType::REDUCE_SCATTER;
}

bool Direct(OpType kind, const Tensors& inputs, const Tensors& outputs) {
  if (Joins(kind)) return false;
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.is_contiguous() && (Reduces(kind) ? NativeType(tensor.scalar_type()).has_value()
                                                    : MovingType(tensor.nbytes()).has_value());
  };
  if (!std::all_of(inputs.begin(), inputs.end(), fits)) return false;
  if (!std::all_of(outputs.begin(), outputs.end(), fits)) return false;
  return std::none_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) {
    return std::any_of(outputs.begin(), outputs.end(), [&](const at::Tensor& output) {
      // In place is no overlap.
      return input.data_ptr() != output.data_ptr() && Overlap(input, output);
    });
  });
}

}  // namespace

void TakeAhead(OpType kind, const Tensors& inputs, const std::vector<Tensors>& outputs,
               const c10::Stream& stream) {
  Tensors all = inputs;
  Tensors into;
  for (const Tensors& list : outputs) into.insert(into.end(), list.begin(), list.end());
  all.insert(all.end(), into.begin(), into.end());
  if (Stages(kind)) PinnedPool::Instance().Reserve(all);
  if (Direct(kind, inputs, into)) return;
  const c10::StreamGuard guard(stream);
  // All at once, so that as much is there when they have been given back.
  Tensors taken;
  const auto take = [&](const at::Tensor& like, int64_t elements) {
    const bool widened = Reduces(kind) && !NativeType(like.scalar_type()) && !like.is_complex();
    const auto options = like.options();
    taken.push_back(at::empty({elements}, widened ? options.dtype(at::kInt) : options));
  };
  for (const at::Tensor& tensor : all) take(tensor, tensor.numel());
  take(all.front(), 1);
  if (!Joins(kind)) return;
  const auto take_joined = [&](const Tensors& list) {
    int64_t elements = 0;
    for (const at::Tensor& tensor : list) elements += tensor.numel();
    if (elements > 0) take(list.front(), elements);
  };
  if (Reduces(kind)) take_joined(inputs);
  for (const Tensors& list : outputs) take_joined(list);
}

}  // namespace ddl_torch
