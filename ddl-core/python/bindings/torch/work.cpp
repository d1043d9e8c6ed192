#include "work.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <utility>

namespace ddl_torch {
namespace {

c10::TypePtr TypeOf(const std::vector<std::vector<at::Tensor>>& outputs) {
  const auto tensors = c10::ListType::create(c10::TensorType::get());
  return outputs.size() > 1 ? c10::TypePtr(c10::ListType::create(tensors)) : c10::TypePtr(tensors);
}

std::vector<c10::Device> DevicesOf(const std::shared_ptr<DeviceOrder>& order) {
  if (order == nullptr) return {};
  return {order->streams().device()};
}

}  // namespace

DdlWork::DdlWork(int rank, c10d::OpType kind, const char* title, const std::vector<at::Tensor>& inputs,
                 std::vector<std::vector<at::Tensor>> outputs, std::shared_ptr<Completers> completers,
                 std::shared_ptr<DeviceOrder> order, std::shared_ptr<UntoldErrors> untold)
    : c10d::Work(rank, kind, title, inputs),
      outputs_(std::move(outputs)),
      future_(c10::make_intrusive<c10::ivalue::Future>(TypeOf(outputs_), DevicesOf(order))),
      completers_(std::move(completers)),
      order_(std::move(order)),
      untold_(std::move(untold)) {}

c10::IValue DdlWork::Value() const {
  if (outputs_.size() > 1) return c10::IValue(outputs_);
  return c10::IValue(outputs_.empty() ? std::vector<at::Tensor>() : outputs_.front());
}

void DdlWork::Complete(std::exception_ptr error, int source_rank) {
  source_rank_ = source_rank;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!future_given_) {
      // Nobody can have added a callback.
      if (error && order_ != nullptr) untold_->Add(this, error);
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
  } else {
    // What callbacks and waiters do with the results comes after what the current stream has now: nothing.
    std::optional<c10::StreamGuard> guard;
    if (order_ != nullptr) guard.emplace(order_->streams().idle());
    future_->markCompleted(Value());
  }
  finish(error);
}

bool DdlWork::wait(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(c10d::Work::mutex_);
  const auto done = [this] { return completed_; };
  if (timeout == kNoTimeout) {
    cv_.wait(lock, done);  // the call has a limit
  } else {
    TORCH_CHECK(cv_.wait_for(lock, timeout, done),
                "Operation timed out: the call was not complete within the time limit of wait()");
  }
  if (exception_) {
    untold_->Told(this);
    std::rethrow_exception(exception_);
  }
  return true;
}

void DdlWork::synchronize() {
  // Unlike wait(), torch calls it with Python's lock, which callbacks and other threads need meanwhile.
  std::optional<pybind11::gil_scoped_release> unlocked;
  if (PyGILState_Check() != 0) unlocked.emplace();
  wait(kNoTimeout);
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
