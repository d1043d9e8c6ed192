#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "api/collective_calls.hpp"
#include "api/guard.hpp"
#include "cuda/device.hpp"
#include "ddl.h"
#include "engine/runtime.hpp"
#include "memory/device_memory.hpp"

using namespace ddl;
using namespace ddl::api;

namespace {

/// The caller's structure as far as its release knows it; the rest is 0.
DDL_Call read(const char* function, const DDL_Call* call) {
  check_pointer(function, call, "call");
  if (call->size < offsetof(DDL_Call, bufs) || call->size > sizeof(DDL_Call)) {
    throw Error(DDL_ERR_ARGUMENT,
                "size " + std::to_string(call->size) + " instead of " + std::to_string(sizeof(DDL_Call)),
                std::string("in ") + function,
                "set it to sizeof(DDL_Call), and run with the release of DDL that the program was compiled "
                "for, or a later one");
  }
  DDL_Call own;
  std::memset(&own, 0, sizeof own);
  std::memcpy(&own, call, call->size);
  return own;
}

/// A C enumeration may hold any number: it must not be looked at as what it is in C++ before it is checked.
template <class Enumeration>
int number_of(const Enumeration& value) {
  std::underlying_type_t<Enumeration> number{};
  std::memcpy(&number, &value, sizeof number);
  return static_cast<int>(number);
}

std::size_t elements_of(const CollectiveCall& call) {
  std::size_t all = call.count;
  for (std::size_t i = 0; i < call.n; ++i) all += call.counts[i];
  return all;
}

/// The thread's, or the first.
int current_device() {
  int device = 0;
  return cuda::Driver::instance().context_device(&device) == cuda::kSuccess ? device : 0;
}

CollectiveCall collective_call(const char* function, const DDL_Call& asked) {
  const std::optional<DDL_Group> group = asked.group == 0 ? std::nullopt : std::optional(asked.group);
  // Nothing else of it is looked at.
  if (number_of(asked.collective) == DDL_BARRIER)
    return {.function = function, .collective = DDL_BARRIER, .group = group};
  CollectiveCall call{.function = function,
                      .collective = number_of(asked.collective),
                      .group = group,
                      .bufs = asked.bufs,
                      .counts = asked.counts,
                      .n = asked.n,
                      .in = asked.in,
                      .out = asked.out,
                      .count = asked.count,
                      .type = number_of(asked.type),
                      .op = number_of(asked.op),
                      .root = asked.root,
                      .name = asked.name,
                      .stream = asked.stream};
  const std::int32_t kind = number_of(asked.memory);
  if (kind == DDL_MEMORY_CUDA) {
    cuda::Driver::instance();
    const Caller caller(call.group);
    check(call, caller);
    caller.prepare([&] {
      find_memory(call, caller);
      // Without elements there is no address to tell the device by.
      if (!call.executor && elements_of(call) > 0) {
        throw Error(DDL_ERR_ARGUMENT, "the buffers lie in the host's memory", std::string("in ") + function,
                    "set memory to DDL_MEMORY_HOST, on all ranks");
      }
      if (!call.executor) call.executor = cuda_executor(current_device(), call.stream, caller);
    });
  } else if (kind != DDL_MEMORY_HOST) {
    call.executor = std::make_shared<DeviceExecutor>(registered_memory(kind), asked.stream,
                                                     Caller(call.group).view().limits().timeout_s);
  }
  return call;
}

}  // namespace

extern "C" {

int ddl_memory_register(DDL_MemoryKind kind, const DDL_MemoryOperations* operations) {
  return guard([=, number = static_cast<std::int32_t>(kind)] {
    check_pointer("ddl_memory_register", operations, "operations");
    register_memory(number, *operations);
  });
}

int ddl_call(const DDL_Call* call) {
  CollectiveCall asked;
  const int read_it = guard([&] { asked = collective_call("ddl_call", read("ddl_call", call)); });
  return read_it == DDL_SUCCESS ? make_call(asked) : read_it;
}

int ddl_call_start(const DDL_Call* call, DDL_Handle* completion) {
  CollectiveCall asked;
  int priority = 0;
  const int read_it = guard([&] {
    check_pointer("ddl_call_start", completion, "completion");
    const DDL_Call own = read("ddl_call_start", call);
    priority = own.priority;
    asked = collective_call("ddl_call_start", own);
    if (asked.group) {
      throw Error(DDL_ERR_ARGUMENT, "a call in a group", "in ddl_call_start",
                  "make it by ddl_call, from a thread of your own");
    }
  });
  return read_it == DDL_SUCCESS ? start_call(asked, priority, completion) : read_it;
}

}  // extern "C"
