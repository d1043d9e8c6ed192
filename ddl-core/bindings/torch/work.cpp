#include "work.hpp"

#include <c10/util/Exception.h>

#include <cstdio>
#include <string>
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

std::string TextOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& known) {
    return known.what_without_backtrace();
  } catch (const std::exception& other) {
    return other.what();
  }
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
      untold_(std::move(untold)) {
  if (order_ != nullptr) order_->AfterEnd([this] { future_->markCompleted(Value()); });
}

c10::IValue DdlWork::Value() const {
  if (outputs_.size() > 1) return c10::IValue(outputs_);
  return c10::IValue(outputs_.empty() ? std::vector<at::Tensor>() : outputs_.front());
}

void DdlWork::Complete(std::exception_ptr error, int source_rank) {
  source_rank_ = source_rank;
  if (order_ != nullptr) {
    CompleteOnDevice(error);
    return;
  }
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
  } else {
    future_->markCompleted(Value());
  }
  finish(error);
}

void DdlWork::CompleteOnDevice(std::exception_ptr error) {
  if (error) {
    untold_->Add(this, error);
    // The program may hear of it late, or never when it makes no further call.
    std::fprintf(stderr, "%s failed on %s: %s\n", c10d::opTypeToString(opType_).c_str(),
                 order_->streams().device().str().c_str(), TextOf(error).c_str());
  }
  // The error first: who waits from now on has it.
  finish(error);
  order_->End();
}

bool DdlWork::wait(std::chrono::milliseconds timeout) {
  if (order_ == nullptr) return c10d::Work::wait(timeout);
  if (opType_ == c10d::OpType::RECVANYSOURCE) {
    // The program asks next whose message it was.
    std::unique_lock<std::mutex> lock(c10d::Work::mutex_);
    const auto done = [this] { return completed_; };
    if (timeout == kNoTimeout) {
      cv_.wait(lock, done);  // the message has a limit
    } else {
      TORCH_CHECK(cv_.wait_for(lock, timeout, done), "no message came within the time limit of wait()");
    }
  }
  synchronize();
  return true;
}

void DdlWork::synchronize() {
  if (order_ == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(c10d::Work::mutex_);
    if (exception_) {
      untold_->Told(this);
      std::rethrow_exception(exception_);
    }
  }
  order_->Hold();
}

bool DdlWork::isCompleted() { return order_ == nullptr ? future_->completed() : c10d::Work::isCompleted(); }

bool DdlWork::isSuccess() const {
  if (order_ == nullptr) return future_->completed() && !future_->hasError();
  const std::lock_guard<std::mutex> lock(c10d::Work::mutex_);
  return completed_ && !exception_;
}

std::vector<at::Tensor> DdlWork::result() {
  TORCH_CHECK(order_ != nullptr || isCompleted(),
              "the call is not complete; in Work.result(); call wait() first");
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
