#include "collectives.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "elements.hpp"
#include "status.hpp"

namespace ddl_torch {
namespace {

size_t Count(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

DDL_Type TypeOf(const at::Tensor& reducible) { return *NativeType(reducible.scalar_type()); }

// Bytes of a block when it is padded to a width that DDL moves.
int64_t Padded(size_t bytes) { return static_cast<int64_t>((bytes + 3) / 4 * 4); }

}  // namespace

void AllReduce(const Members& members, const Tensors& tensors, const c10d::ReduceOp& op) {
  // One grouped call for each type among them, in an order that does not depend on the rank.
  std::map<DDL_Type, std::vector<size_t>> by_type;
  Tensors work;
  for (const at::Tensor& tensor : tensors) {
    by_type[*NativeType(work.emplace_back(Reducible(tensor, op, "all_reduce")).scalar_type())].push_back(
        work.size() - 1);
  }
  const DDL_Op ddl_op = ToDdlOp(op, "all_reduce");
  for (const auto& [type, indices] : by_type) {
    std::vector<void*> buffers;
    std::vector<size_t> counts;
    for (const size_t i : indices) {
      buffers.push_back(work[i].data_ptr());
      counts.push_back(Count(work[i]));
    }
    Check(ddl_group_allreduce_n(members.group, buffers.data(), counts.data(), counts.size(), type, ddl_op,
                                nullptr));
  }
  for (size_t i = 0; i < tensors.size(); ++i) Deliver(work[i], tensors[i]);
}

void AllReduceSparse(const Members& members, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  TORCH_CHECK_VALUE(op.op_ == c10d::ReduceOp::SUM || op.op_ == c10d::ReduceOp::AVG,
                    "sparse tensors can be summed and averaged only; in all_reduce");
  const at::Tensor mine = tensor.coalesce();
  const at::Tensor indices = mine.indices().contiguous();
  const at::Tensor values = mine.values().contiguous();
  const auto integers = indices.options();
  const at::Tensor lengths = at::empty({members.size}, integers);
  AllGather(members, at::full({1}, values.size(0), integers), lengths);
  const int64_t longest = lengths.max().item<int64_t>();
  const at::Tensor my_indices = at::zeros({indices.size(0), longest}, integers);
  my_indices.narrow(1, 0, indices.size(1)).copy_(indices);
  std::vector<int64_t> shape = values.sizes().vec();
  shape[0] = longest;
  const at::Tensor my_values = at::zeros(shape, values.options());
  my_values.narrow(0, 0, values.size(0)).copy_(values);
  const at::Tensor all_indices = at::empty({members.size, indices.size(0), longest}, integers);
  shape.insert(shape.begin(), members.size);
  const at::Tensor all_values = at::empty(shape, values.options());
  AllGather(members, my_indices, all_indices);
  AllGather(members, my_values, all_values);
  Tensors kept_indices;
  Tensors kept_values;
  for (int r = 0; r < members.size; ++r) {
    const int64_t length = lengths[r].item<int64_t>();
    kept_indices.push_back(all_indices[r].narrow(1, 0, length));
    kept_values.push_back(all_values[r].narrow(0, 0, length));
  }
  at::Tensor sum = at::sparse_coo_tensor(at::cat(kept_indices, 1), at::cat(kept_values, 0), tensor.sizes(),
                                         tensor.options())
                       .coalesce();
  if (op.op_ == c10d::ReduceOp::AVG) sum = sum / members.size;
  tensor.copy_(sum);
}

void Broadcast(const Members& members, const at::Tensor& tensor, int root) {
  const at::Tensor work = tensor.contiguous();
  const size_t bytes = work.nbytes();
  const DDL_Type type = NativeType(work.scalar_type()).value_or(MovingType(bytes).value_or(DDL_TYPE_INT32));
  // What is left over travels in an element of its own.
  const size_t whole = bytes / ddl_type_size(type);
  const size_t rest = bytes % ddl_type_size(type);
  char* const data = static_cast<char*>(work.data_ptr());
  char tail[8] = {};
  std::memcpy(tail, data + bytes - rest, rest);
  void* const buffers[] = {data, tail};
  const size_t counts[] = {whole, 1};
  Check(ddl_group_broadcast_n(members.group, buffers, counts, rest == 0 ? 1 : 2, type, root, nullptr));
  std::memcpy(data + bytes - rest, tail, rest);
  Deliver(work, tensor);
}

void Reduce(const Members& members, const at::Tensor& tensor, const c10d::ReduceOp& op, int root) {
  const at::Tensor work = Reducible(tensor, op, "reduce");
  Check(ddl_group_reduce(members.group, work.data_ptr(), Count(work), TypeOf(work), ToDdlOp(op, "reduce"),
                         root, nullptr));
  if (members.rank == root) Deliver(work, tensor);
}

void AllGather(const Members& members, const at::Tensor& input, const at::Tensor& output) {
  TORCH_CHECK_VALUE(
      input.scalar_type() == output.scalar_type() && output.numel() == input.numel() * members.size,
      "the output of an all-gather must be of the input's type and ", members.size,
      " times as large, but they have ", output.numel(), " and ", input.numel(), " elements of type ",
      output.scalar_type(), " and ", input.scalar_type());
  at::Tensor from = input.contiguous();
  const at::Tensor to = output.contiguous();
  if (Overlap(from, to)) from = from.clone();
  const size_t bytes = from.nbytes();
  std::optional<DDL_Type> type = NativeType(from.scalar_type());
  if (!type) type = MovingType(bytes);
  if (type) {
    Check(ddl_group_all_gather(members.group, from.const_data_ptr(), to.data_ptr(),
                               bytes / ddl_type_size(*type), *type, nullptr));
  } else {
    const int64_t padded = Padded(bytes);
    const at::Tensor in = at::zeros({padded}, at::kByte);
    const at::Tensor out = at::empty({members.size * padded}, at::kByte);
    std::memcpy(in.data_ptr(), from.const_data_ptr(), bytes);
    Check(ddl_group_all_gather(members.group, in.const_data_ptr(), out.data_ptr(),
                               static_cast<size_t>(padded) / 4, DDL_TYPE_INT32, nullptr));
    for (int r = 0; r < members.size; ++r) {
      std::memcpy(static_cast<char*>(to.data_ptr()) + static_cast<size_t>(r) * bytes,
                  static_cast<const char*>(out.const_data_ptr()) + r * padded, bytes);
    }
  }
  Deliver(to, output);
}

void AllGatherList(const Members& members, const at::Tensor& input, const Tensors& outputs) {
  TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == members.size,
                    "all_gather needs one output for each of ", members.size, " ranks, but there are ",
                    outputs.size());
  const bool equal = std::all_of(outputs.begin(), outputs.end(), [&](const at::Tensor& output) {
    return output.numel() == input.numel() && output.scalar_type() == input.scalar_type();
  });
  if (!equal) {
    Exchange(members, Tensors(outputs.size(), input), outputs, "all_gather");
    return;
  }
  const at::Tensor all = at::empty({members.size, input.numel()}, input.options());
  AllGather(members, input, all);
  for (size_t r = 0; r < outputs.size(); ++r) {
    outputs[r].copy_(all[static_cast<int64_t>(r)].view(outputs[r].sizes()));
  }
}

void ReduceScatter(const Members& members, const at::Tensor& input, const at::Tensor& output,
                   const c10d::ReduceOp& op) {
  TORCH_CHECK_VALUE(
      input.scalar_type() == output.scalar_type() && input.numel() == output.numel() * members.size,
      "the input of a reduce-scatter must be of the output's type and ", members.size,
      " times as large, but they have ", input.numel(), " and ", output.numel(), " elements of type ",
      input.scalar_type(), " and ", output.scalar_type());
  const at::Tensor from = Reducible(input, op, "reduce_scatter");
  const bool direct = NativeType(output.scalar_type()) && output.is_contiguous() && !Overlap(from, output);
  const at::Tensor to = direct ? output : at::empty({from.numel() / members.size}, from.options());
  Check(ddl_group_reduce_scatter(members.group, from.const_data_ptr(), to.data_ptr(),
                                 Count(from) / static_cast<size_t>(members.size), TypeOf(from),
                                 ToDdlOp(op, "reduce_scatter"), nullptr));
  if (direct) return;
  if (output.is_complex()) {
    output.copy_(at::view_as_complex(to.view({-1, 2})).view(output.sizes()));
  } else {
    output.copy_(to.view(output.sizes()));
  }
}

void ReduceScatterList(const Members& members, const Tensors& inputs, const at::Tensor& output,
                       const c10d::ReduceOp& op) {
  TORCH_CHECK_VALUE(static_cast<int>(inputs.size()) == members.size,
                    "reduce_scatter needs one input for each of ", members.size, " ranks, but there are ",
                    inputs.size());
  const bool equal = std::all_of(inputs.begin(), inputs.end(),
                                 [&](const at::Tensor& input) { return input.numel() == inputs[0].numel(); });
  if (equal) {
    Tensors flat;
    for (const at::Tensor& input : inputs) flat.push_back(input.reshape({-1}));
    ReduceScatter(members, at::cat(flat), output, op);
    return;
  }
  for (int root = 0; root < members.size; ++root) {
    const at::Tensor block = inputs[static_cast<size_t>(root)].clone();
    Reduce(members, block, op, root);
    if (root == members.rank) output.copy_(block.view(output.sizes()));
  }
}

void AllToAll(const Members& members, const at::Tensor& input, const at::Tensor& output) {
  TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type() && input.numel() == output.numel() &&
                        input.numel() % members.size == 0,
                    "an all-to-all without sizes needs input and output of one type and size, a multiple of ",
                    members.size, "; they have ", input.numel(), " and ", output.numel(),
                    " elements of type ", input.scalar_type(), " and ", output.scalar_type());
  at::Tensor from = input.contiguous();
  const at::Tensor to = output.contiguous();
  if (Overlap(from, to)) from = from.clone();
  const size_t block = from.nbytes() / static_cast<size_t>(members.size);
  std::optional<DDL_Type> type = NativeType(from.scalar_type());
  if (!type) type = MovingType(block);
  if (type) {
    Check(ddl_group_all_to_all(members.group, from.const_data_ptr(), to.data_ptr(),
                               block / ddl_type_size(*type), *type, nullptr));
  } else {
    Exchange(members, from.view({-1}).chunk(members.size), to.view({-1}).chunk(members.size), "all_to_all");
  }
  Deliver(to, output);
}

void Exchange(const Members& members, const Tensors& inputs, const Tensors& outputs, const char* name) {
  const auto size = static_cast<size_t>(members.size);
  TORCH_CHECK_VALUE(inputs.size() == size && outputs.size() == size, name, " needs one tensor for each of ",
                    size, " ranks, but there are ", inputs.size(), " inputs and ", outputs.size(),
                    " outputs");
  Tensors from(size);
  Tensors to(size);
  std::vector<const void*> in(size);
  std::vector<void*> out(size);
  std::vector<size_t> in_bytes(size);
  std::vector<size_t> out_bytes(size);
  for (size_t r = 0; r < size; ++r) {
    if (inputs[r].defined()) {
      from[r] = inputs[r].contiguous();
      in[r] = from[r].const_data_ptr();
      in_bytes[r] = from[r].nbytes();
    }
    if (outputs[r].defined()) {
      to[r] = outputs[r].contiguous();
      out[r] = to[r].data_ptr();
      out_bytes[r] = to[r].nbytes();
    }
  }
  Check(ddl_group_exchange(members.group, in.data(), in_bytes.data(), out.data(), out_bytes.data(), name));
  for (size_t r = 0; r < size; ++r) {
    if (to[r].defined()) Deliver(to[r], outputs[r]);
  }
}

}  // namespace ddl_torch
