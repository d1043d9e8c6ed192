#include "collective_kernel.hpp"

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "status.hpp"
#include "tensorflow/core/framework/cancellation.h"
#include "worker.hpp"

namespace ddl_tensorflow {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

namespace {

// A kernel's call between its being queued and its completion: either the worker runs it or a cancellation
// withdraws it, never both.
struct PendingCall {
  std::mutex mutex;
  Worker::JobId job = 0;
  bool submitted = false;
  bool cancelled = false;
};

}  // namespace

void CollectiveKernel::ComputeAsync(OpKernelContext* context, DoneCallback done) {
  if (IsLocal()) {
    Started none;
    context->SetStatus(Call(context, &none));
    done();
    return;
  }
  auto pending = std::make_shared<PendingCall>();
  tensorflow::CancellationManager* const manager = context->cancellation_manager();
  const auto token =
      manager == nullptr ? tensorflow::CancellationManager::kInvalidToken : manager->get_cancellation_token();
  const std::string op_name = name();

  if (manager != nullptr) {
    const bool registered = manager->RegisterCallback(token, [context, done, pending, op_name] {
      {
        const std::lock_guard<std::mutex> lock(pending->mutex);
        pending->cancelled = true;
        if (!pending->submitted || !Worker::Get().Withdraw(pending->job)) return;
      }
      context->SetStatus(absl::CancelledError(op_name + " was cancelled before DDL had started it"));
      done();
    });
    if (!registered) {
      context->SetStatus(absl::CancelledError(op_name + " was cancelled before DDL had started it"));
      done();
      return;
    }
  }

  const auto finish = [context, done, manager, token](absl::Status status) {
    // From here on a cancellation cannot call done() any more: its callback is gone or has found no job.
    if (manager != nullptr) manager->DeregisterCallback(token);
    context->SetStatus(std::move(status));
    done();
  };
  auto run = [this, context, finish] {
    Started started;
    absl::Status status = Call(context, &started);
    if (started) {
      WhenComplete(*started, finish);
    } else {
      finish(std::move(status));
    }
  };
  bool cancelled;
  absl::Status refused;
  {
    const std::lock_guard<std::mutex> lock(pending->mutex);
    cancelled = pending->cancelled;
    if (!cancelled) {
      try {
        pending->job = Worker::Get().Submit(std::move(run));
        pending->submitted = true;
      } catch (const std::runtime_error& error) {
        refused = absl::ResourceExhaustedError(error.what());
      }
    }
  }
  if (!refused.ok()) {
    finish(std::move(refused));
  } else if (cancelled) {
    context->SetStatus(absl::CancelledError(op_name + " was cancelled before DDL had started it"));
    done();
  }
}

bool IsOnlyRank() {
  // Remembered, because DDL answers a question only when the collective that is under way has ended, and this
  // one is asked on TensorFlow's threads.
  static std::atomic<bool> has_others{false};
  if (has_others.load(std::memory_order_relaxed)) return false;
  int size = 0;
  if (ddl_size(&size) != DDL_SUCCESS) return false;
  if (size > 1) has_others.store(true, std::memory_order_relaxed);
  return size == 1;
}

absl::Status InputsToOutputs(OpKernelContext* context, TensorGroup* group) {
  const int n = context->num_inputs();
  group->buffers.resize(n);
  group->counts.resize(n);
  group->stream = StreamOf(context);
  for (int i = 0; i < n; ++i) {
    // The shape is copied because the kernel's input is gone once its memory has been taken over.
    const tensorflow::TensorShape shape = context->input(i).shape();
    Tensor* output = nullptr;
    int taken_over = -1;
    const absl::Status status =
        context->forward_input_or_allocate_output({i}, i, shape, &output, &taken_over);
    if (!status.ok()) return status;
    if (taken_over == -1 && output->TotalBytes() != 0) {
      if (group->stream == nullptr) {
        std::memcpy(output->data(), context->input(i).data(), output->TotalBytes());
      } else if (absl::Status copied = CopyWithin(group->stream, output->data(), context->input(i).data(),
                                                  output->TotalBytes());
                 !copied.ok()) {
        return copied;
      }
    }
    group->buffers[i] = output->data();
    group->counts[i] = static_cast<size_t>(output->NumElements());
  }
  return absl::OkStatus();
}

absl::Status CallOn(const TensorGroup& group, DDL_Collective collective, DDL_Type type, DDL_Op op, int root,
                    const std::string& call_name, Started* started) {
  DDL_Call call{};
  call.size = sizeof call;
  call.collective = collective;
  call.bufs = group.buffers.data();
  call.counts = group.counts.data();
  call.n = group.buffers.size();
  call.type = type;
  call.op = op;
  call.root = root;
  call.name = call_name.c_str();
  if (group.stream == nullptr) return ToStatus(ddl_call(&call));
  DDL_Handle handle = 0;
  absl::Status status = StartOnStream(group.stream, call, &handle);
  if (status.ok()) *started = handle;
  return status;
}

absl::Status ToDdlType(DataType type, DDL_Type* result) {
  switch (type) {
    case tensorflow::DT_FLOAT:
      *result = DDL_TYPE_FLOAT;
      return absl::OkStatus();
    case tensorflow::DT_HALF:
      *result = DDL_TYPE_HALF;
      return absl::OkStatus();
    case tensorflow::DT_DOUBLE:
      *result = DDL_TYPE_DOUBLE;
      return absl::OkStatus();
    case tensorflow::DT_BFLOAT16:
      *result = DDL_TYPE_BFLOAT16;
      return absl::OkStatus();
    case tensorflow::DT_INT32:
      *result = DDL_TYPE_INT32;
      return absl::OkStatus();
    case tensorflow::DT_INT64:
      *result = DDL_TYPE_INT64;
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("DDL cannot communicate tensors of type " +
                                        tensorflow::DataTypeString(type) +
                                        "; cast to float, half, bfloat16, double, int32 or int64 first");
  }
}

std::string CallName(OpKernelConstruction* construction) {
  std::string given;
  if (!construction->GetAttr("tensor_name", &given).ok() || given.empty()) {
    // In a graph of TF1 operators run in any order. Those of one type and shape would pass for each other.
    // Scopes may have a name of the rank.
    const std::string name(construction->def().name());
    return name.substr(name.rfind('/') + 1);
  }
  return given;
}

}  // namespace ddl_tensorflow
