#include "work.hpp"

#include <utility>

namespace ddl_torch {
namespace {

c10::TypePtr TypeOf(const std::vector<std::vector<at::Tensor>>& outputs) {
  const auto tensors = c10::ListType::create(c10::TensorType::get());
  return outputs.size() > 1 ? c10::TypePtr(c10::ListType::create(tensors)) : c10::TypePtr(tensors);
}

}  // namespace

DdlWork::DdlWork(int rank, c10d::OpType kind, const char* title, const std::vector<at::Tensor>& inputs,
                 std::vector<std::vector<at::Tensor>> outputs, std::shared_ptr<Completers> completers)
    : c10d::Work(rank, kind, title, inputs),
      outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(TypeOf(outputs_))),
      completers_(std::move(completers)) {}

void DdlWork::Complete(std::exception_ptr error, int source_rank) {
  source_rank_ = source_rank;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!future_given_) {
      // Nobody can have added a callback.
      CompleteHere(error);
      return;
    }
  }
  auto self = c10::intrusive_ptr<DdlWork>::unsafe_reclaim_from_nonowning(this);
  completers_->Run([self, error] { self->CompleteHere(error); });
}

void DdlWork::CompleteHere(std::exception_ptr error) {
  // The future first: torch's Join reads it as soon as wait() has returned. Who waited for the future instead
  // is told by isCompleted that the call is complete.
  if (error) {
    future_->setError(error);
  } else if (outputs_.size() > 1) {
    future_->markCompleted(c10::IValue(outputs_));
  } else {
    future_->markCompleted(c10::IValue(outputs_.empty() ? std::vector<at::Tensor>() : outputs_.front()));
  }
  finish(error);
}

bool DdlWork::isCompleted() { return future_->completed(); }

bool DdlWork::isSuccess() const { return future_->completed() && !future_->hasError(); }

std::vector<at::Tensor> DdlWork::result() {
  TORCH_CHECK(isCompleted(), "the call is not complete; in Work.result(); call wait() first");
  std::vector<at::Tensor> all;
  for (const auto& list : outputs_) all.insert(all.end(), list.begin(), list.end());
  return all;
}

int DdlWork::sourceRank() const { return source_rank_; }

c10::intrusive_ptr<c10::ivalue::Future> DdlWork::getFuture() {
  const std::lock_guard<std::mutex> lock(mutex_);
  future_given_ = true;
  return future_;
}

}  // namespace ddl_torch
