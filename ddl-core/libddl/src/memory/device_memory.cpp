#include "memory/device_memory.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

#include "support/error.hpp"
#include "support/stopwatch.hpp"

namespace ddl {
namespace {

/// Time for copies to end after an error. They are local: only a device that hangs takes longer.
constexpr double kDrainSeconds = 10;

class HostExecutor : public Executor {
 public:
  std::int32_t kind() const override { return DDL_MEMORY_HOST; }
  Ticket post(void* to, const void* from, std::size_t bytes, CopyDirection) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return kDone;
  }
  bool test(Ticket) override { return true; }
};

struct Registry {
  std::mutex mutex;
  std::map<std::int32_t, std::shared_ptr<const DeviceMemory>> kinds;
};

Registry& registry() {
  // Never destroyed: threads may still make calls while the process exits.
  static auto* const made = new Registry;
  return *made;
}

const char* in_words(CopyDirection direction) {
  switch (direction) {
    case CopyDirection::kToHost:
      return " bytes from ";
    case CopyDirection::kFromHost:
      return " bytes to ";
    case CopyDirection::kWithin:
      break;
  }
  return " bytes within ";
}

}  // namespace

Executor& host_executor() {
  static HostExecutor executor;
  return executor;
}

void Executor::hold(void*) {
  throw Error(DDL_ERR_STATE, name_of_memory(kind()) + " memory has no streams that can wait",
              "in ddl_stream_wait", "let the thread wait, by ddl_wait");
}

std::string name_of_memory(std::int32_t kind) {
  if (kind == DDL_MEMORY_HOST) return "host";
  if (kind == DDL_MEMORY_CUDA) return "CUDA";
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.kinds.find(kind);
  return found != all.kinds.end() ? found->second->name : "kind " + std::to_string(kind);
}

void register_memory(std::int32_t kind, const DDL_MemoryOperations& operations) {
  const std::string where = "in ddl_memory_register";
  if (kind == DDL_MEMORY_HOST) {
    throw Error(DDL_ERR_ARGUMENT, "host memory is there always", where, "pass another kind");
  }
  if (kind == DDL_MEMORY_CUDA) {
    throw Error(DDL_ERR_ARGUMENT, "CUDA's memory is there always, where CUDA is", where, "pass another kind");
  }
  if (operations.size < sizeof operations || operations.name == nullptr || operations.post_copy == nullptr ||
      operations.test_copy == nullptr) {
    throw Error(DDL_ERR_ARGUMENT, "size, name, post_copy or test_copy is missing", where,
                "set all but context and last_error");
  }
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto made = std::make_shared<const DeviceMemory>(DeviceMemory{kind, operations.name, operations});
  if (all.kinds.emplace(kind, made).second) return;
  throw Error(
      DDL_ERR_ARGUMENT,
      "memory of kind " + std::to_string(kind) + " is registered already, as " + all.kinds.at(kind)->name,
      where, "register each once");
}

std::shared_ptr<const DeviceMemory> registered_memory(std::int32_t kind) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.kinds.find(kind);
  if (found != all.kinds.end()) return found->second;
  throw Error(DDL_ERR_ARGUMENT, "nobody has registered memory of kind " + std::to_string(kind), "in ddl_call",
              "call ddl_memory_register before");
}

DeviceExecutor::DeviceExecutor(std::shared_ptr<const DeviceMemory> memory, void* stream, double timeout_s)
    : memory_(std::move(memory)), stream_(stream), timeout_s_(timeout_s) {}

DeviceExecutor::~DeviceExecutor() {
  const auto start = Clock::now();
  const double most = std::min(kDrainSeconds, timeout_s_);
  for (const auto& [ticket, copy] : under_way_) {
    const DDL_MemoryOperations& operations = memory_->operations;
    for (int done = 0; operations.test_copy(operations.context, copy.copy, &done) == 0 && done == 0;) {
      if (seconds_since(start) > most) return;
      const timespec pause{0, 100'000};
      nanosleep(&pause, nullptr);
    }
  }
}

void DeviceExecutor::fail(const UnderWay& copy, const std::string& how) const {
  const DDL_MemoryOperations& operations = memory_->operations;
  const char* const said =
      operations.last_error == nullptr ? nullptr : operations.last_error(operations.context);
  throw Error(DDL_ERR_MEMORY,
              "a copy of " + std::to_string(copy.bytes) + in_words(copy.direction) + memory_->name +
                  " memory " + how + (said == nullptr || *said == 0 ? "" : std::string(": ") + said),
              Error::kOnThisRank, "look at the state of the device");
}

Executor::Ticket DeviceExecutor::post(void* to, const void* from, std::size_t bytes,
                                      CopyDirection direction) {
  if (bytes == 0) return kDone;
  const DDL_MemoryOperations& operations = memory_->operations;
  UnderWay copy{0, bytes, direction, Clock::now()};
  if (operations.post_copy(operations.context, to, from, bytes, static_cast<DDL_CopyDirection>(direction),
                           stream_, &copy.copy) != 0) {
    fail(copy, "could not be started");
  }
  under_way_.emplace(++last_, copy);
  return last_;
}

bool DeviceExecutor::test(Ticket ticket) {
  const auto found = under_way_.find(ticket);
  if (found == under_way_.end()) return true;
  const DDL_MemoryOperations& operations = memory_->operations;
  int done = 0;
  if (operations.test_copy(operations.context, found->second.copy, &done) != 0) {
    const UnderWay copy = found->second;
    under_way_.erase(found);
    fail(copy, "failed");
  }
  if (done != 0) {
    under_way_.erase(found);
    return true;
  }
  if (seconds_since(found->second.since) > timeout_s_) {
    fail(found->second, "was not complete within the time limit");
  }
  return false;
}

}  // namespace ddl
