// What DDL knows of PyTorch's types, reductions and memory.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "ddl.h"

namespace ddl_torch {

// DDL's type for a tensor's elements, if it has one.
std::optional<DDL_Type> NativeType(at::ScalarType type);

// The type as which `bytes` bytes are moved, where what they mean does not matter; its width divides `bytes`.
std::optional<DDL_Type> MovingType(size_t bytes);

// DDL's op for PyTorch's; throws for those that DDL has not. PREMUL_SUM is a sum of what Factored gives.
DDL_Op ToDdlOp(const c10d::ReduceOp& op, const char* call);
at::Tensor Factored(const at::Tensor& tensor, const c10d::ReduceOp& op);

// Throws unless DDL can take the tensor: dense, and in the memory of a processor or a CUDA device.
void CheckTensor(const at::Tensor& tensor, const char* call);

// Throws unless Reducible takes tensors of this type.
void CheckReducible(at::ScalarType type, const c10d::ReduceOp& op, const char* call);

// The tensor itself where DDL can reduce it in place, else a copy in a type and layout that it can. Elements
// of 8 and 16 bits travel as 32, complex ones as pairs.
at::Tensor Reducible(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* call);

// Copies a result to where the caller wants it, unless it lies there.
void Deliver(const at::Tensor& result, const at::Tensor& wanted);

bool Overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace ddl_torch
