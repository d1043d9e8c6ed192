#include "elements.hpp"

#include <string>

#include "torch_release.hpp"

namespace ddl_torch {
namespace {

std::string NameOf(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::BAND:
      return "BAND";
    case c10d::ReduceOp::BOR:
      return "BOR";
    case c10d::ReduceOp::BXOR:
      return "BXOR";
    default:
      return "number " + std::to_string(static_cast<int>(op.op_));
  }
}

}  // namespace

std::optional<DDL_Type> NativeType(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DDL_TYPE_FLOAT;
    case at::kHalf:
      return DDL_TYPE_HALF;
    case at::kDouble:
      return DDL_TYPE_DOUBLE;
    case at::kBFloat16:
      return DDL_TYPE_BFLOAT16;
    case at::kInt:
      return DDL_TYPE_INT32;
    case at::kLong:
      return DDL_TYPE_INT64;
    default:
      return std::nullopt;
  }
}

std::optional<DDL_Type> MovingType(size_t bytes) {
  if (bytes % 8 == 0) return DDL_TYPE_INT64;
  if (bytes % 4 == 0) return DDL_TYPE_INT32;
  if (bytes % 2 == 0) return DDL_TYPE_HALF;
  return std::nullopt;
}

DDL_Op ToDdlOp(const c10d::ReduceOp& op, const char* call) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
      return DDL_OP_SUM;
    case c10d::ReduceOp::AVG:
      return DDL_OP_AVG;
    case c10d::ReduceOp::PRODUCT:
      return DDL_OP_PRODUCT;
    case c10d::ReduceOp::MIN:
      return DDL_OP_MIN;
    case c10d::ReduceOp::MAX:
      return DDL_OP_MAX;
    default:
      break;
  }
  TORCH_CHECK_VALUE(
      false, "DDL has no reduction ", NameOf(op), "; in ", call,
      "; use SUM, AVG, PRODUCT, MIN, MAX or PREMUL_SUM, or a process group of gloo for this call");
}

at::Tensor Factored(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return tensor;
  const auto* const factor = static_cast<const PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(factor != nullptr, "PREMUL_SUM without its factor; make it by _make_nccl_premul_sum");
  return factor->tensor_factor.defined() ? tensor * factor->tensor_factor : tensor * factor->double_factor;
}

void CheckTensor(const at::Tensor& tensor, const char* call) {
  const c10::Device device = tensor.device();
  // A device of another make passes where its memory is CUDA's.
  TORCH_CHECK_VALUE(device.is_cpu() || device.is_cuda() || device.is_privateuseone(),
                    "DDL takes tensors of processors and of CUDA devices, but this one is on ", device,
                    "; in ", call,
                    "; move it by .cpu(), or use a backend of that device in init_process_group");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "DDL cannot take a tensor of layout ", tensor.layout(),
                    "; in ", call, "; make it dense by .to_dense()");
}

void CheckReducible(at::ScalarType type, const c10d::ReduceOp& op, const char* call) {
  if (NativeType(type)) return;
  if (at::isComplexType(type)) {
    TORCH_CHECK_VALUE(op.op_ == c10d::ReduceOp::SUM || op.op_ == c10d::ReduceOp::AVG ||
                          op.op_ == c10d::ReduceOp::PREMUL_SUM,
                      "complex numbers can be summed and averaged only; in ", call);
    if (NativeType(at::toRealValueType(type))) return;
  }
  const bool truth = type == at::kBool;
  TORCH_CHECK_VALUE(truth || type == at::kByte || type == at::kChar || type == at::kShort,
                    "DDL cannot reduce elements of type ", type, "; in ", call,
                    "; cast to float, double, half, bfloat16, int, long, short, int8, uint8 or bool first");
  TORCH_CHECK_VALUE(!truth || op.op_ != c10d::ReduceOp::AVG, "an average of bool; in ", call,
                    "; cast to float first");
}

at::Tensor Reducible(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* call) {
  const at::Tensor given = Factored(tensor, op);
  CheckReducible(given.scalar_type(), op, call);
  if (NativeType(given.scalar_type())) return given.contiguous();
  if (given.is_complex()) return at::view_as_real(given.resolve_conj().contiguous());
  return given.to(at::kInt).contiguous();
}

void Deliver(const at::Tensor& result, const at::Tensor& wanted) {
  if (result.data_ptr() == wanted.data_ptr() && result.storage().is_alias_of(wanted.storage())) return;
  if (wanted.is_complex()) {
    wanted.copy_(at::view_as_complex(result));
  } else {
    wanted.copy_(result);
  }
}

bool Overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto* const a_begin = static_cast<const char*>(a.const_data_ptr());
  const auto* const b_begin = static_cast<const char*>(b.const_data_ptr());
  return a_begin < b_begin + b.nbytes() && b_begin < a_begin + a.nbytes();
}

}  // namespace ddl_torch
