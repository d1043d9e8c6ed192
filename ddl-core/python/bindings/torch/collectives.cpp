#include "collectives.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <map>

#include "elements.hpp"
#include "status.hpp"

namespace ddl_torch {
namespace {

size_t Count(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

DDL_Type TypeOf(const at::Tensor& reducible) { return *NativeType(reducible.scalar_type()); }

// Bytes of a block when it is padded to a width that DDL moves.
int64_t Padded(size_t bytes) { return static_cast<int64_t>((bytes + 3) / 4 * 4); }

// A contiguous tensor of elements of one byte.
at::Tensor Bytes(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

// A call on memory like that of `tensor`.
DDL_Call CallOf(const Members& members, DDL_Collective collective, const at::Tensor& tensor, DDL_Type type) {
  DDL_Call call{};
  call.size = sizeof call;
  call.collective = collective;
  call.memory = tensor.device().is_cpu() ? DDL_MEMORY_HOST : DDL_MEMORY_CUDA;
  call.stream = members.stream;
  call.type = type;
  call.group = members.group;
  call.name = members.call_name;
  return call;
}

// A call that gives every rank a block of `count` elements, or takes one from it.
void CallOnBlocks(const Members& members, DDL_Collective collective, const at::Tensor& from,
                  const at::Tensor& to, size_t count, DDL_Type type, DDL_Op op = DDL_OP_SUM) {
  DDL_Call call = CallOf(members, collective, to, type);
  call.in = from.const_data_ptr();
  call.out = to.data_ptr();
  call.count = count;
  call.op = op;
  Check(ddl_call(&call));
}

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
    DDL_Call call = CallOf(members, DDL_ALLREDUCE, work[indices.front()], type);
    call.bufs = buffers.data();
    call.counts = counts.data();
    call.n = counts.size();
    call.op = ddl_op;
    Check(ddl_call(&call));
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
  const at::Tensor tail = rest == 0 ? at::Tensor() : at::zeros({8}, work.options().dtype(at::kByte));
  const auto copy_rest = [&](bool out) {
    if (rest == 0) return;
    const at::Tensor here =
        Bytes(work).narrow(0, static_cast<int64_t>(bytes - rest), static_cast<int64_t>(rest));
    const at::Tensor there = tail.narrow(0, 0, static_cast<int64_t>(rest));
    out ? there.copy_(here) : here.copy_(there);
  };
  copy_rest(true);
  void* const buffers[] = {work.data_ptr(), rest == 0 ? nullptr : tail.data_ptr()};
  const size_t counts[] = {whole, 1};
  DDL_Call call = CallOf(members, DDL_BROADCAST, work, type);
  call.bufs = buffers;
  call.counts = counts;
  call.n = rest == 0 ? 1 : 2;
  call.root = root;
  Check(ddl_call(&call));
  copy_rest(false);
  Deliver(work, tensor);
}

void Barrier(const Members& members) {
  DDL_Call call{};
  call.size = sizeof call;
  call.collective = DDL_BARRIER;
  call.group = members.group;
  Check(ddl_call(&call));
}

void Reduce(const Members& members, const at::Tensor& tensor, const c10d::ReduceOp& op, int root) {
  const at::Tensor work = Reducible(tensor, op, "reduce");
  void* const buffer = work.data_ptr();
  const size_t count = Count(work);
  DDL_Call call = CallOf(members, DDL_REDUCE, work, TypeOf(work));
  call.bufs = &buffer;
  call.counts = &count;
  call.n = 1;
  call.op = ToDdlOp(op, "reduce");
  call.root = root;
  Check(ddl_call(&call));
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
    CallOnBlocks(members, DDL_ALL_GATHER, from, to, bytes / ddl_type_size(*type), *type);
  } else {
    const int64_t padded = Padded(bytes);
    const auto length = static_cast<int64_t>(bytes);
    const at::Tensor in = at::zeros({padded}, from.options().dtype(at::kByte));
    const at::Tensor out = at::empty({members.size, padded}, in.options());
    in.narrow(0, 0, length).copy_(Bytes(from));
    CallOnBlocks(members, DDL_ALL_GATHER, in, out, static_cast<size_t>(padded) / 4, DDL_TYPE_INT32);
    Bytes(to).view({members.size, length}).copy_(out.narrow(1, 0, length));
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
  CallOnBlocks(members, DDL_REDUCE_SCATTER, from, to, Count(from) / static_cast<size_t>(members.size),
               TypeOf(from), ToDdlOp(op, "reduce_scatter"));
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
    CallOnBlocks(members, DDL_ALL_TO_ALL, from, to, block / ddl_type_size(*type), *type);
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
  Tensors given(size);
  Tensors from(size);
  Tensors to(size);
  std::vector<const void*> in(size);
  std::vector<void*> out(size);
  std::vector<size_t> in_bytes(size);
  std::vector<size_t> out_bytes(size);
  // Messages are of the host's memory.
  std::optional<c10::Device> device;
  for (size_t r = 0; r < size; ++r) {
    if (inputs[r].defined()) {
      given[r] = inputs[r].contiguous();
      const bool on_host = given[r].device().is_cpu();
      if (!on_host) device = given[r].device();
      from[r] = on_host ? given[r] : PinnedLike(given[r]);
      in[r] = from[r].const_data_ptr();
      in_bytes[r] = from[r].nbytes();
    }
    if (outputs[r].defined()) {
      const bool on_host = outputs[r].device().is_cpu();
      if (!on_host) device = outputs[r].device();
      to[r] = on_host ? outputs[r].contiguous() : PinnedLike(outputs[r]);
      out[r] = to[r].data_ptr();
      out_bytes[r] = to[r].nbytes();
    }
  }
  const auto finish = [&] {
    if (device) Finish(c10::impl::VirtualGuardImpl(device->type()).getStream(*device), members.limit);
  };
  // A copy from or to memory that is not pinned keeps the host until its turn: until then there is a limit.
  finish();
  for (size_t r = 0; r < size; ++r) {
    if (device && given[r].defined()) from[r].copy_(given[r], true);
  }
  finish();
  Check(ddl_group_exchange(members.group, in.data(), in_bytes.data(), out.data(), out_bytes.data(), name));
  for (size_t r = 0; r < size; ++r) {
    if (!to[r].defined()) continue;
    if (outputs[r].device().is_cpu()) {
      Deliver(to[r], outputs[r]);
    } else {
      outputs[r].copy_(to[r], true);
    }
  }
  // What was staged is given to others from here on.
  finish();
}

}  // namespace ddl_torch
