// The backend `ddl` of torch.distributed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "collectives.hpp"
#include "completers.hpp"
#include "device_order.hpp"
#include "message_watch.hpp"
#include "own_group.hpp"
#include "untold_errors.hpp"
#include "work.hpp"
#include "worker.hpp"

namespace ddl_torch {

// One process group. Tensors are all in the memory of the host, or all of one GPU, which is the same in all
// calls of the group. Its collective calls are made in the order of their issue, on a thread of its own;
// those of other groups go on meanwhile, and so do messages between two ranks.
class DdlBackend : public c10d::Backend {
 public:
  // Collective over the group's ranks. `ranks` are those of DDL, in the order of the group; none: all.
  // `timeout` is that of each call.
  DdlBackend(int rank, int size, const std::vector<int>& ranks, std::chrono::milliseconds timeout);
  // Waits for nothing: other ranks may come late to what is under way, or never. It goes on, and DDL's group
  // is given up after it.
  ~DdlBackend() override;

  const std::string getBackendName() const override { return "ddl"; }

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  // An all-reduce (MAX) whose name ranks compare, and which errors show.
  c10::intrusive_ptr<c10d::Work> NamedMaximum(const at::Tensor& tensor, std::string name);
  c10::intrusive_ptr<c10d::Work> allreduce_sparse(Tensors& tensors,
                                                  const c10d::AllreduceOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(Tensors& tensors,
                                                     const c10d::AllreduceCoalescedOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                     const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                 const c10d::AllgatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::GatherOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                         const c10d::ScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& output_sizes,
                                               std::vector<int64_t>& input_sizes,
                                               const c10d::AllToAllOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> alltoall(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllToAllOptions& opts) override;
  c10::intrusive_ptr<c10d::Work> send(Tensors& tensors, int rank, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(Tensors& tensors, int rank, int tag) override;
  c10::intrusive_ptr<c10d::Work> recvAnysource(Tensors& tensors, int tag) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_for_all) override;
  void setSequenceNumberForGroup() override {}
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  uint64_t getSequenceNumberForGroup() override { return calls_; }

  // Waits for what is under way, and gives DDL's group up. Nothing can be called afterwards.
  void shutdown() override;

 private:
  struct Call {
    c10d::OpType kind;
    const char* name;
    Tensors inputs;
    std::vector<Tensors> outputs;
    std::chrono::milliseconds timeout;  // kUnsetTimeout: the group's
  };

  c10::intrusive_ptr<c10d::Work> Issue(Call call, std::function<void(const Members&)> make);
  c10::intrusive_ptr<c10d::Work> Watch(bool sending, Tensors& tensors, int rank, int tag);
  std::shared_ptr<DeviceStreams> Streams(const Tensors& tensors, const char* call);
  std::shared_ptr<DeviceOrder> Order(const Tensors& tensors, const char* call);
  const at::Tensor& Single(const Tensors& tensors, const char* call) const;
  std::chrono::milliseconds Limit(std::chrono::milliseconds of_call) const;
  int Root(int64_t root, const char* call) const;

  Members members_;
  std::shared_ptr<const OwnGroup> group_;  // also of the calls that are under way
  std::chrono::milliseconds timeout_;
  std::shared_ptr<Completers> completers_ = std::make_shared<Completers>();
  const std::shared_ptr<UntoldErrors> untold_ = std::make_shared<UntoldErrors>();
  std::shared_ptr<DeviceStreams> streams_;  // from the first call on tensors of a GPU
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<MessageWatch> messages_;
  uint64_t calls_ = 0;
};

}  // namespace ddl_torch
