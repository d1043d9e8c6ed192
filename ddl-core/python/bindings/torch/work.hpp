// What a caller holds of a call that is under way.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "completers.hpp"
#include "device_order.hpp"
#include "untold_errors.hpp"

namespace ddl_torch {

// Is completed by the thread that made the call, unless somebody has its future: callbacks run elsewhere.
//
// Of tensors of a GPU as well, wait() makes the host wait, and what the future's callbacks put on streams
// begins at once.
class DdlWork : public c10d::Work {
 public:
  // `outputs` are the lists of tensors that the call fills: one for most, several for coalesced ones. `order`
  // is null where they are in the memory of the host.
  DdlWork(int rank, c10d::OpType kind, const char* title, const std::vector<at::Tensor>& inputs,
          std::vector<std::vector<at::Tensor>> outputs, std::shared_ptr<Completers> completers,
          std::shared_ptr<DeviceOrder> order, std::shared_ptr<UntoldErrors> untold);

  // Once, from any thread, which runs no callback. `error` null: a success.
  void Complete(std::exception_ptr error, int source_rank);

  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  // torch's would make the stream wait for the host.
  void blockCurrentStream() override { synchronize(); }
  std::vector<at::Tensor> result() override;
  int sourceRank() const override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void CompleteHere(std::exception_ptr error);
  c10::IValue Value() const;

  const std::vector<std::vector<at::Tensor>> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  const std::shared_ptr<Completers> completers_;
  const std::shared_ptr<DeviceOrder> order_;
  const std::shared_ptr<UntoldErrors> untold_;
  int source_rank_ = -1;
  std::mutex mutex_;
  bool future_given_ = false;
};

}  // namespace ddl_torch
