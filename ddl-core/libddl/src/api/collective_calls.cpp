#include "api/collective_calls.hpp"

#include <utility>

#include "api/guard.hpp"
#include "cuda/cuda_executor.hpp"
#include "support/hash.hpp"

namespace ddl::api {
namespace {

std::vector<void*> pointers(const CollectiveCall& call) {
  return call.n == 0 ? std::vector<void*>{} : std::vector<void*>(call.bufs, call.bufs + call.n);
}

std::string memory_text(int device) {
  return device < 0 ? "the host's" : "that of GPU " + std::to_string(device);
}

std::vector<std::size_t> numbers(const CollectiveCall& call) {
  return call.n == 0 ? std::vector<std::size_t>{}
                     : std::vector<std::size_t>(call.counts, call.counts + call.n);
}

}  // namespace

Caller::Caller(std::optional<DDL_Group> group) {
  if (group) group_ = Runtime::instance().group(*group);
}

void Caller::call(const std::function<void(Communicator&)>& action) const {
  if (group_) {
    group_->call(action);
  } else {
    Runtime::instance().engine().call(action);
  }
}

void Caller::refuse_call() const {
  if (size() == 1) throw;
  try {
    throw;
  } catch (const Error& error) {
    if (error.code() == DDL_ERR_ARGUMENT || error.code() == DDL_ERR_STATE) {
      // All ranks of a program may be wrong alike.
      call([&](Communicator& ranks) { ranks.refuse_alike(error); });
      throw;
    }
  } catch (...) {
    // Of memory, mostly.
  }
  Communicator& ranks = group_ ? group_->ranks() : Runtime::instance().engine().world();
  const Error error = ranks.error_here();
  ranks.announce(error, true);
  // What was submitted before ends with it, and this rank's later calls do.
  call([&](Communicator& failed) { failed.refuse(error); });
  throw error;
}

void check(const CollectiveCall& call, const Caller& caller) {
  const char* const function = call.function;
  switch (call.collective) {
    case DDL_ALLREDUCE:
      check_buffers(function, call.bufs, call.counts, call.n, call.type);
      check_op(function, call.op);
      return;
    case DDL_REDUCE:
      check_op(function, call.op);
      [[fallthrough]];
    case DDL_BROADCAST:
      check_buffers(function, call.bufs, call.counts, call.n, call.type);
      if (call.root >= 0 && call.root < caller.size()) return;
      throw Error(
          DDL_ERR_ARGUMENT,
          "root " + std::to_string(call.root) + " is no rank" + (caller.group() ? " of the group" : ""),
          std::string("in ") + function, "pass 0 to " + std::to_string(caller.size() - 1));
    case DDL_REDUCE_SCATTER:
      check_op(function, call.op);
      [[fallthrough]];
    case DDL_ALL_GATHER:
    case DDL_ALL_TO_ALL:
      check_blocks(function, call.in, call.out, call.count, call.type, caller.size());
      return;
    case DDL_BARRIER:
      return;
    default:
      throw Error(DDL_ERR_ARGUMENT, "unknown collective " + std::to_string(call.collective),
                  std::string("in ") + function, "use one of the values of DDL_Collective in ddl.h");
  }
}

void make(Communicator& ranks, const CollectiveCall& call) {
  const auto type = static_cast<DDL_Type>(call.type);
  // Only where it was checked.
  const auto op = [&] { return static_cast<DDL_Op>(call.op); };
  Executor& memory = call.executor ? *call.executor : host_executor();
  const auto scope = memory.scope();
  const auto buffers = [&]() -> const BufferList& {
    return ranks.list(call.bufs, call.counts, call.n, type, memory);
  };
  const auto signature = [&] {
    return Communicator::CallSignature{call.n, hash_bytes(call.counts, call.n * sizeof *call.counts),
                                       call.name, memory.kind()};
  };
  switch (call.collective) {
    case DDL_ALLREDUCE:
      ranks.allreduce(buffers(), signature(), type, op());
      break;
    case DDL_BROADCAST:
      ranks.broadcast(buffers(), signature(), type, call.root);
      break;
    case DDL_REDUCE:
      ranks.reduce(buffers(), signature(), type, op(), call.root);
      break;
    case DDL_REDUCE_SCATTER:
      ranks.reduce_scatter(call.in, call.out, call.count, type, op(), call.name, memory);
      break;
    case DDL_ALL_GATHER:
      ranks.all_gather(call.in, call.out, call.count, type, call.name, memory);
      break;
    case DDL_ALL_TO_ALL:
      ranks.all_to_all(call.in, call.out, call.count, type, call.name, memory);
      break;
    default:
      ranks.barrier();
  }
}

int make_call(CollectiveCall call) {
  return guard([&] {
    const Caller caller(call.group);
    check(call, caller);
    caller.prepare([&] { find_memory(call, caller); });
    caller.call([&](Communicator& ranks) { make(ranks, call); });
  });
}

void find_memory(CollectiveCall& call, const Caller& caller) {
  if (call.executor) return;
  // Only where the program uses CUDA may memory be a device's.
  const cuda::Driver* const driver = cuda::Driver::if_loaded();
  if (driver == nullptr) return;
  std::optional<int> found;
  const auto look = [&](const void* buffer, std::size_t count) {
    if (count == 0) return;
    const int device = cuda::device_of(*driver, buffer);
    if (found && *found != device) {
      throw Error(
          DDL_ERR_ARGUMENT,
          "the buffers lie in different memory: " + memory_text(*found) + ", and " + memory_text(device),
          std::string("in ") + call.function, "make one call for each, the same on all ranks");
    }
    found = device;
  };
  switch (call.collective) {
    case DDL_ALLREDUCE:
    case DDL_BROADCAST:
    case DDL_REDUCE:
      for (std::size_t i = 0; i < call.n; ++i) look(call.bufs[i], call.counts[i]);
      break;
    default:
      look(call.in, call.count);
      look(call.out, call.count);
  }
  if (found.value_or(-1) >= 0) call.executor = cuda_executor(*found, call.stream, caller);
}

std::shared_ptr<Executor> cuda_executor(int device, void* stream, const Caller& caller) {
  cuda::Device& gpu = cuda::Device::at(device);
  const WaitLimits& limits = caller.view().limits();
  try {
    const cuda::Device::Current current(gpu);
    return std::make_shared<cuda::CudaExecutor>(gpu, static_cast<cuda::Stream>(stream), limits.timeout_s,
                                                limits.patience_s);
  } catch (const Error& error) {
    // A device that fails here keeps the others waiting for this rank.
    if (error.code() == DDL_ERR_DEVICE) caller.call([&](Communicator& ranks) { ranks.refuse(error); });
    throw;
  }
}

StartedCall::StartedCall(const CollectiveCall& call)
    : bufs_(pointers(call)),
      counts_(numbers(call)),
      name_(call.name == nullptr ? "" : call.name),
      call_(call) {
  call_.bufs = bufs_.data();
  call_.counts = counts_.data();
  call_.name = name_.c_str();
}

int start_call(CollectiveCall call, int priority, DDL_Handle* handle) {
  return guard([&] {
    check_pointer(call.function, handle, "handle");
    const Caller caller(std::nullopt);
    check(call, caller);
    ProgressEngine& engine = Runtime::instance().engine();
    caller.prepare([&] {
      find_memory(call, caller);
      if (call.collective == DDL_ALLREDUCE && !call.executor) {
        // These may be made together with others.
        *handle = engine.submit(
            PendingAllreduce{pointers(call), numbers(call), static_cast<DDL_Type>(call.type),
                             static_cast<DDL_Op>(call.op), call.name == nullptr ? "" : call.name, priority});
        return;
      }
      const auto started = std::make_shared<StartedCall>(call);
      *handle = engine.submit([started](Communicator& world) { make(world, started->call()); }, priority,
                              call.executor);
    });
  });
}

}  // namespace ddl::api
