// What a caller holds of a call that is under way.
#pragma once

#include <exception>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace ddl_torch {

// Is completed by the thread that made the call. What has a future completes it as well.
class DdlWork : public c10d::Work {
 public:
  // `outputs` are the lists of tensors that the call fills: one for most, several for coalesced ones.
  DdlWork(int rank, c10d::OpType kind, const char* title, const std::vector<at::Tensor>& inputs,
          std::vector<std::vector<at::Tensor>> outputs);

  // Once, from any thread. `error` null: a success.
  void Complete(std::exception_ptr error, int source_rank);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::vector<at::Tensor> result() override;
  int sourceRank() const override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const std::vector<std::vector<at::Tensor>> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  int source_rank_ = -1;
};

}  // namespace ddl_torch
