#include "backend.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <exception>
#include <utility>

#include "elements.hpp"
#include "status.hpp"
#include "torch_release.hpp"

namespace ddl_torch {
namespace {

using c10d::OpType;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

void CheckAll(const Tensors& tensors, const char* call) {
  for (const at::Tensor& tensor : tensors) CheckTensor(tensor, call);
}

// Told to the caller at once rather than to the one who waits.
void CheckReduction(const Tensors& tensors, const c10d::ReduceOp& op, const char* call) {
  ToDdlOp(op, call);
  for (const at::Tensor& tensor : tensors) CheckReducible(tensor.scalar_type(), op, call);
}

Tensors Flat(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// The rows of `tensor`, cut to pieces of these lengths; equal ones where none are given.
Tensors Pieces(const at::Tensor& tensor, const std::vector<int64_t>& rows, int size, const char* which) {
  if (rows.empty()) {
    TORCH_CHECK_VALUE(tensor.dim() > 0 && tensor.size(0) % size == 0, "the ", which, " of all_to_all has ",
                      tensor.dim() > 0 ? tensor.size(0) : 0, " rows, which cannot be shared out to ", size,
                      " ranks equally; give split sizes");
    return tensor.chunk(size);
  }
  int64_t total = 0;
  for (const int64_t count : rows) total += count;
  TORCH_CHECK_VALUE(static_cast<int>(rows.size()) == size && tensor.dim() > 0 && total == tensor.size(0),
                    "the split sizes of the ", which, " of all_to_all are ", rows.size(), " that add up to ",
                    total, "; give one for each of ", size, " ranks, which add up to its ",
                    tensor.dim() > 0 ? tensor.size(0) : 0, " rows");
  return tensor.split_with_sizes(rows);
}

}  // namespace

DdlBackend::DdlBackend(int rank, int size, const std::vector<int>& ranks, std::chrono::milliseconds timeout)
    : c10d::Backend(rank, size), members_{0, rank, size}, timeout_(timeout) {
  const double seconds = std::chrono::duration<double>(timeout).count();
  Check(ddl_group_create(ranks.data(), ranks.size(), seconds, &members_.group));
  group_ = std::make_shared<OwnGroup>(members_.group);
  worker_ = std::make_unique<Worker>();
  messages_ = std::make_unique<MessageWatch>(group_);
  init();
}

DdlBackend::~DdlBackend() = default;

void DdlBackend::shutdown() {
  if (!worker_) return;
  // A callback may make one more call.
  do {
    worker_->Drain();
  } while (completers_->Drain());
  worker_.reset();
  messages_->Close();
  messages_.reset();
  completers_->Drain();
  streams_.reset();
  group_.reset();
}

// Null where the tensors are in the memory of the host.
std::shared_ptr<DeviceStreams> DdlBackend::Streams(const Tensors& tensors, const char* call) {
  if (tensors.empty()) return nullptr;
  const c10::Device device = tensors.front().device();
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.device() == device, "one tensor is on ", device, " and another on ",
                      tensor.device(), "; in ", call, "; move them to one device");
  }
  if (device.is_cpu()) return nullptr;
  if (streams_ == nullptr) streams_ = std::make_shared<DeviceStreams>(device);
  TORCH_CHECK_VALUE(streams_->device() == device, "the tensors are on ", device,
                    ", but those of earlier calls of the group were on ", streams_->device(), "; in ", call,
                    "; DDL takes one GPU a rank: call torch.cuda.set_device before tensors are made");
  return streams_;
}

std::shared_ptr<DeviceOrder> DdlBackend::Order(const Tensors& tensors, const char* call) {
  std::shared_ptr<DeviceStreams> streams = Streams(tensors, call);
  return streams == nullptr ? nullptr : std::make_shared<DeviceOrder>(std::move(streams));
}

WorkPtr DdlBackend::Issue(Call call, std::function<void(const Members&)> make) {
  TORCH_CHECK(worker_ != nullptr, "the process group was destroyed; in ", call.name);
  untold_->Throw();
  Tensors outputs = Flat(call.outputs);
  Tensors all = call.inputs;
  all.insert(all.end(), outputs.begin(), outputs.end());
  std::shared_ptr<DeviceOrder> order;
  if (call.kind != OpType::_ALLREDUCE_SPARSE) {
    CheckAll(all, call.name);
    order = Order(all, call.name);
  }
  ++calls_;
  const std::string title = std::string("ddl:") + call.name;
  auto work = c10::make_intrusive<DdlWork>(rank_, call.kind, title.c_str(), call.inputs,
                                           std::move(call.outputs), completers_, order, untold_);
  const std::chrono::duration<double> limit = Limit(call.timeout);
  // The tensors must live until the call is made.
  worker_->Submit([work, order, make = std::move(make), members = members_, group = group_,
                   inputs = std::move(call.inputs), outputs = std::move(outputs), limit]() mutable {
    std::exception_ptr error;
    try {
      Check(ddl_group_set_timeout(members.group, limit.count()));
      if (order == nullptr) {
        make(members);
      } else {
        members.limit = limit;
        const auto on_stream = [&](void* stream) {
          members.stream = stream;
          make(members);
        };
        order->Make(on_stream, limit);
      }
    } catch (...) {
      error = std::current_exception();
    }
    work->Complete(error, -1);
  });
  return work;
}

std::chrono::milliseconds DdlBackend::Limit(std::chrono::milliseconds of_call) const {
  if (of_call == c10d::kUnsetTimeout) return timeout_;
  return std::max(of_call, std::chrono::milliseconds(1));
}

const at::Tensor& DdlBackend::Single(const Tensors& tensors, const char* call) const {
  TORCH_CHECK_VALUE(tensors.size() == 1, call, " takes one tensor, but there are ", tensors.size());
  return tensors.front();
}

int DdlBackend::Root(int64_t root, const char* call) const {
  TORCH_CHECK_VALUE(root >= 0 && root < size_, "root ", root, " is no rank of the group; in ", call,
                    "; pass 0 to ", size_ - 1);
  return static_cast<int>(root);
}

WorkPtr DdlBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const at::Tensor& tensor = Single(tensors, "all_reduce");
  if (tensor.layout() == at::kSparse) return allreduce_sparse(tensors, opts);
  CheckReduction(tensors, opts.reduceOp, "all_reduce");
  return Issue({OpType::ALLREDUCE, "all_reduce", tensors, {tensors}, opts.timeout},
               [tensors, op = opts.reduceOp](const Members& m) { AllReduce(m, tensors, op); });
}

WorkPtr DdlBackend::NamedMaximum(const at::Tensor& tensor, std::string name) {
  Tensors tensors{tensor};
  const c10d::ReduceOp op(c10d::ReduceOp::MAX);
  CheckReduction(tensors, op, "all_reduce");
  return Issue({OpType::ALLREDUCE, "all_reduce", tensors, {tensors}, c10d::kUnsetTimeout},
               [tensors, op, name = std::move(name)](const Members& m) {
                 Members named = m;
                 named.call_name = name.c_str();
                 AllReduce(named, tensors, op);
               });
}

WorkPtr DdlBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const at::Tensor tensor = Single(tensors, "all_reduce");
  TORCH_CHECK_VALUE(tensor.layout() == at::kSparse && tensor.device().is_cpu(),
                    "a sparse all_reduce takes a sparse COO tensor of the processor's memory");
  return Issue({OpType::_ALLREDUCE_SPARSE, "all_reduce", {}, {tensors}, opts.timeout},
               [tensor, op = opts.reduceOp](const Members& m) { AllReduceSparse(m, tensor, op); });
}

WorkPtr DdlBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  CheckReduction(tensors, opts.reduceOp, "all_reduce_coalesced");
  return Issue({OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", tensors, {tensors}, opts.timeout},
               [tensors, op = opts.reduceOp](const Members& m) { AllReduce(m, tensors, op); });
}

WorkPtr DdlBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const int root = Root(opts.rootRank, "broadcast");
  return Issue({OpType::BROADCAST, "broadcast", tensors, {tensors}, opts.timeout},
               [tensors, root](const Members& m) {
                 for (const at::Tensor& tensor : tensors) Broadcast(m, tensor, root);
               });
}

WorkPtr DdlBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const int root = Root(opts.rootRank, "reduce");
  CheckReduction(tensors, opts.reduceOp, "reduce");
  return Issue({OpType::REDUCE, "reduce", tensors, {tensors}, opts.timeout},
               [tensor = Single(tensors, "reduce"), op = opts.reduceOp, root](const Members& m) {
                 Reduce(m, tensor, op, root);
               });
}

WorkPtr DdlBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) {
  TORCH_CHECK_VALUE(outputs.size() == 1, "all_gather takes one list of outputs, but there are ",
                    outputs.size());
  return Issue({OpType::ALLGATHER, "all_gather", inputs, outputs, opts.timeout},
               [input = Single(inputs, "all_gather"), list = outputs.front()](const Members& m) {
                 AllGatherList(m, input, list);
               });
}

WorkPtr DdlBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                    const c10d::AllgatherOptions& opts) {
  return Issue({OpType::_ALLGATHER_BASE, "all_gather_into_tensor", {input}, {{output}}, opts.timeout},
               [output, input](const Members& m) { AllGather(m, input, output); });
}

WorkPtr DdlBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& opts) {
  // outputs[r][i] is what rank r has in inputs[i].
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_),
                    "all_gather_coalesced needs a list of outputs for each of ", size_,
                    " ranks, but there are ", outputs.size());
  for (const Tensors& of_rank : outputs) {
    TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "all_gather_coalesced needs an output for each of ",
                      inputs.size(), " inputs, but there are ", of_rank.size());
  }
  return Issue({OpType::ALLGATHER_COALESCED, "all_gather_coalesced", inputs, outputs, opts.timeout},
               [outputs, inputs](const Members& m) {
                 for (size_t i = 0; i < inputs.size(); ++i) {
                   Tensors from_all;
                   for (const Tensors& of_rank : outputs) from_all.push_back(of_rank[i]);
                   AllGatherList(m, inputs[i], from_all);
                 }
               });
}

WorkPtr DdlBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& opts) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "as many outputs as inputs are needed, not ",
                    outputs.size(), " and ", inputs.size());
  return Issue({OpType::COALESCED, "all_gather_into_tensor_coalesced", inputs, {outputs}, opts.timeout},
               [outputs, inputs](const Members& m) {
                 for (size_t i = 0; i < inputs.size(); ++i) AllGather(m, inputs[i], outputs[i]);
               });
}

WorkPtr DdlBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  const int root = Root(opts.rootRank, "gather");
  const at::Tensor& input = Single(inputs, "gather");
  Tensors from(static_cast<size_t>(size_));
  from[static_cast<size_t>(root)] = input;
  Tensors to(static_cast<size_t>(size_));
  if (rank_ == root) {
    TORCH_CHECK_VALUE(outputs.size() == 1 && static_cast<int>(outputs.front().size()) == size_,
                      "gather needs one output for each of ", size_, " ranks on its root");
    to = outputs.front();
  }
  return Issue({OpType::GATHER, "gather", inputs, outputs, opts.timeout},
               [from, to](const Members& m) { Exchange(m, from, to, "gather"); });
}

WorkPtr DdlBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                            const c10d::ScatterOptions& opts) {
  const int root = Root(opts.rootRank, "scatter");
  Tensors to(static_cast<size_t>(size_));
  to[static_cast<size_t>(root)] = Single(outputs, "scatter");
  Tensors from(static_cast<size_t>(size_));
  if (rank_ == root) {
    TORCH_CHECK_VALUE(inputs.size() == 1 && static_cast<int>(inputs.front().size()) == size_,
                      "scatter needs one input for each of ", size_, " ranks on its root");
    from = inputs.front();
  }
  return Issue({OpType::SCATTER, "scatter", Flat(inputs), {outputs}, opts.timeout},
               [from, to](const Members& m) { Exchange(m, from, to, "scatter"); });
}

WorkPtr DdlBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK_VALUE(inputs.size() == 1, "reduce_scatter takes one list of inputs, but there are ",
                    inputs.size());
  CheckReduction(inputs.front(), opts.reduceOp, "reduce_scatter");
  return Issue({OpType::REDUCE_SCATTER, "reduce_scatter", inputs.front(), {outputs}, opts.timeout},
               [output = Single(outputs, "reduce_scatter"), list = inputs.front(),
                op = opts.reduceOp](const Members& m) { ReduceScatterList(m, list, output, op); });
}

WorkPtr DdlBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                         const c10d::ReduceScatterOptions& opts) {
  CheckReduction({input}, opts.reduceOp, "reduce_scatter_tensor");
  return Issue(
      {OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", {input}, {{output}}, opts.timeout},
      [output, input, op = opts.reduceOp](const Members& m) { ReduceScatter(m, input, output, op); });
}

WorkPtr DdlBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "as many outputs as inputs are needed, not ",
                    outputs.size(), " and ", inputs.size());
  CheckReduction(inputs, opts.reduceOp, "reduce_scatter_tensor_coalesced");
  return Issue(
      {kReduceScatterTensorCoalesced, "reduce_scatter_tensor_coalesced", inputs, {outputs}, opts.timeout},
      [outputs, inputs, op = opts.reduceOp](const Members& m) {
        for (size_t i = 0; i < inputs.size(); ++i) ReduceScatter(m, inputs[i], outputs[i], op);
      });
}

WorkPtr DdlBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                                  std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& opts) {
  // Sizes may be given on some ranks only, or be empty on purpose: all must make the same call, so only none
  // at all means equal parts.
  const Call call{OpType::ALLTOALL_BASE, "all_to_all_single", {input}, {{output}}, opts.timeout};
  if (output_sizes.empty() && input_sizes.empty()) {
    return Issue(call, [output, input](const Members& m) { AllToAll(m, input, output); });
  }
  TORCH_CHECK_VALUE(output.is_contiguous(), "the output of all_to_all_single must be contiguous");
  return Issue(call, [from = Pieces(input, input_sizes, size_, "input"),
                      to = Pieces(output, output_sizes, size_, "output")](const Members& m) {
    Exchange(m, from, to, "all_to_all");
  });
}

WorkPtr DdlBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  return Issue({OpType::ALLTOALL, "all_to_all", inputs, {outputs}, opts.timeout},
               [outputs, inputs](const Members& m) { Exchange(m, inputs, outputs, "all_to_all"); });
}

WorkPtr DdlBackend::Watch(bool sending, Tensors& tensors, int rank, int tag) {
  const char* const call = sending ? "send" : "recv";
  TORCH_CHECK(messages_ != nullptr, "the process group was destroyed; in ", call);
  const at::Tensor& given = Single(tensors, call);
  CheckTensor(given, call);
  TORCH_CHECK_VALUE(sending || given.is_contiguous(), "recv needs a contiguous tensor");
  untold_->Throw();
  const at::Tensor tensor = given.contiguous();
  std::shared_ptr<DeviceOrder> order = Order({tensor}, call);
  const OpType kind = sending ? OpType::SEND : rank < 0 ? OpType::RECVANYSOURCE : OpType::RECV;
  const std::string title = std::string("ddl:") + call;
  auto work = c10::make_intrusive<DdlWork>(rank_, kind, title.c_str(), tensors,
                                           std::vector<Tensors>{{tensor}}, completers_, order, untold_);
  const std::string other = rank < 0 ? "any rank" : "rank " + std::to_string(rank);
  messages_->Add({.tensor = tensor,
                  .sending = sending,
                  .rank = rank,
                  .tag = tag,
                  .end = std::chrono::steady_clock::now() + timeout_,
                  .what = std::string(call) + (sending ? " to " : " from ") + other + " on rank " +
                          std::to_string(rank_) + " of the group (tag " + std::to_string(tag) + ")",
                  .work = work,
                  .order = order});
  return work;
}

WorkPtr DdlBackend::send(Tensors& tensors, int rank, int tag) { return Watch(true, tensors, rank, tag); }

WorkPtr DdlBackend::recv(Tensors& tensors, int rank, int tag) { return Watch(false, tensors, rank, tag); }

WorkPtr DdlBackend::recvAnysource(Tensors& tensors, int tag) { return Watch(false, tensors, -1, tag); }

WorkPtr DdlBackend::barrier(const c10d::BarrierOptions& opts) {
  // What the stream of a group's GPU has been given comes before the barrier, as in NCCL's.
  std::shared_ptr<c10::Event> before;
  if (streams_ != nullptr) {
    const c10::Device device = streams_->device();
    before = std::make_shared<c10::Event>(device.type());
    before->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  const std::chrono::duration<double> limit = Limit(opts.timeout);
  return Issue({OpType::BARRIER, "barrier", {}, {}, opts.timeout}, [before, limit](const Members& m) {
    if (before != nullptr) Finish(*before, limit);
    Barrier(m);
  });
}

void DdlBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool) {
  // DDL names all that are missing in any case.
  barrier(opts)->wait();
}

}  // namespace ddl_torch
