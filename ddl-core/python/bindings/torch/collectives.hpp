// The collective calls of a process group in terms of DDL's: blocking, on the group's thread.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "ddl.h"
#include "device_order.hpp"

namespace ddl_torch {

// A group of DDL as one of its ranks sees it.
struct Members {
  DDL_Group group;
  int rank;
  int size;
  // Where the tensors are a GPU's: the current stream of this thread, and the time limit of waits for it.
  void* stream = nullptr;
  std::chrono::duration<double> limit{};
  // Of the call, which ranks compare and errors show; none by default.
  const char* call_name = nullptr;
};

// In place. Contiguous tensors of a type that DDL has are not copied, and neither are they copied together.
void AllReduce(const Members& members, const Tensors& tensors, const c10d::ReduceOp& op);
// In place, a sum or an average of sparse tensors.
void AllReduceSparse(const Members& members, const at::Tensor& tensor, const c10d::ReduceOp& op);
void Broadcast(const Members& members, const at::Tensor& tensor, int root);
void Barrier(const Members& members);
void Reduce(const Members& members, const at::Tensor& tensor, const c10d::ReduceOp& op, int root);

// `output` holds what all ranks have in `input`, rank by rank.
void AllGather(const Members& members, const at::Tensor& input, const at::Tensor& output);
// outputs[r] is rank r's `input`; sizes may differ.
void AllGatherList(const Members& members, const at::Tensor& input, const Tensors& outputs);
// `input` holds a block for each rank.
void ReduceScatter(const Members& members, const at::Tensor& input, const at::Tensor& output,
                   const c10d::ReduceOp& op);
void ReduceScatterList(const Members& members, const Tensors& inputs, const at::Tensor& output,
                       const c10d::ReduceOp& op);
// Equal parts.
void AllToAll(const Members& members, const at::Tensor& input, const at::Tensor& output);
// inputs[r] goes to rank r, outputs[r] comes from it; an undefined tensor is nothing.
void Exchange(const Members& members, const Tensors& inputs, const Tensors& outputs, const char* name);

}  // namespace ddl_torch
