#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/collective_calls.hpp"
#include "api/guard.hpp"
#include "ddl.h"
#include "engine/runtime.hpp"
#include "memory/device_memory.hpp"
#include "support/hash.hpp"

using namespace ddl;
using namespace ddl::api;

namespace {

/// What a call is made from, checked, and independent of the caller's structure.
struct Prepared {
  int collective = 0;
  std::vector<void*> buffers;
  std::vector<std::size_t> counts;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  int type = 0;
  int op = 0;
  int root = 0;
  int priority = 0;
  std::string name;
  std::optional<DDL_Group> group;
  std::shared_ptr<Executor> executor;  ///< null: the host's

  Executor& memory() const { return executor ? *executor : host_executor(); }
};

/// The caller's structure as far as its release knows it; the rest is 0.
DDL_Call read(const char* function, const DDL_Call* call) {
  check_pointer(function, call, "call");
  if (call->size < offsetof(DDL_Call, bufs) || call->size > sizeof(DDL_Call)) {
    throw Error(DDL_ERR_ARGUMENT,
                "size " + std::to_string(call->size) + " instead of " + std::to_string(sizeof(DDL_Call)) +
                    "; in " + function +
                    "; set it to sizeof(DDL_Call), and run with the release of DDL that the program was "
                    "compiled for, or a later one");
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

Prepared prepare(const char* function, const DDL_Call* call) {
  const DDL_Call asked = read(function, call);
  Prepared made;
  made.collective = number_of(asked.collective);
  made.type = number_of(asked.type);
  made.op = number_of(asked.op);
  made.root = asked.root;
  made.priority = asked.priority;
  made.name = asked.name == nullptr ? "" : asked.name;
  if (asked.group != 0) made.group = asked.group;
  const Caller caller(made.group);
  const bool reduces = made.collective == DDL_ALLREDUCE || made.collective == DDL_REDUCE ||
                       made.collective == DDL_REDUCE_SCATTER;
  if (reduces) check_op(function, made.op);
  switch (made.collective) {
    case DDL_ALLREDUCE:
    case DDL_BROADCAST:
    case DDL_REDUCE:
      // For its checks.
      static_cast<void>(buffer_list(function, asked.bufs, asked.counts, asked.n, made.type));
      made.buffers.assign(asked.bufs, asked.bufs + asked.n);
      made.counts.assign(asked.counts, asked.counts + asked.n);
      if (made.collective != DDL_ALLREDUCE) caller.check_root(function, made.root);
      break;
    case DDL_REDUCE_SCATTER:
    case DDL_ALL_GATHER:
    case DDL_ALL_TO_ALL:
      check_blocks(function, asked.in, asked.out, asked.count, made.type, caller.size());
      made.in = asked.in;
      made.out = asked.out;
      made.count = asked.count;
      break;
    default:
      throw Error(DDL_ERR_ARGUMENT, "unknown collective " + std::to_string(made.collective) + "; in " +
                                        function + "; use one of the values of DDL_Collective in ddl.h");
  }
  if (const std::int32_t kind = number_of(asked.memory); kind != DDL_MEMORY_HOST) {
    made.executor = std::make_shared<DeviceExecutor>(registered_memory(kind), asked.stream,
                                                     caller.view().limits().timeout_s);
  }
  return made;
}

void make(Communicator& ranks, const Prepared& call) {
  const auto type = static_cast<DDL_Type>(call.type);
  const auto op = static_cast<DDL_Op>(call.op);
  const char* const name = call.name.c_str();
  Executor& memory = call.memory();
  const Communicator::CallSignature signature{
      call.counts.size(), hash_bytes(call.counts.data(), call.counts.size() * sizeof(std::size_t)), name,
      memory.kind()};
  const auto buffers = [&] {
    return BufferList(call.buffers.data(), call.counts.data(), call.counts.size(), type, memory);
  };
  switch (call.collective) {
    case DDL_ALLREDUCE:
      ranks.allreduce(buffers(), signature, type, op);
      break;
    case DDL_BROADCAST:
      ranks.broadcast(buffers(), signature, type, call.root);
      break;
    case DDL_REDUCE:
      ranks.reduce(buffers(), signature, type, op, call.root);
      break;
    case DDL_REDUCE_SCATTER:
      ranks.reduce_scatter(call.in, call.out, call.count, type, op, name, memory);
      break;
    case DDL_ALL_GATHER:
      ranks.all_gather(call.in, call.out, call.count, type, name, memory);
      break;
    default:
      ranks.all_to_all(call.in, call.out, call.count, type, name, memory);
  }
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
  return guard([=] {
    const Prepared made = prepare("ddl_call", call);
    Caller(made.group).call([&](Communicator& ranks) { make(ranks, made); });
  });
}

int ddl_call_start(const DDL_Call* call, DDL_Handle* completion) {
  return guard([=] {
    check_pointer("ddl_call_start", completion, "completion");
    const auto made = std::make_shared<Prepared>(prepare("ddl_call_start", call));
    if (made->group) {
      throw Error(DDL_ERR_ARGUMENT,
                  "a call in a group; in ddl_call_start; make it by ddl_call, from a thread of your own");
    }
    ProgressEngine& engine = Runtime::instance().engine();
    if (made->collective == DDL_ALLREDUCE && !made->executor) {
      // These may be made together with others.
      *completion =
          engine.submit(PendingAllreduce{made->buffers, made->counts, static_cast<DDL_Type>(made->type),
                                         static_cast<DDL_Op>(made->op), made->name, made->priority});
      return;
    }
    *completion = engine.submit([made](Communicator& world) { make(world, *made); }, made->priority);
  });
}

}  // extern "C"
