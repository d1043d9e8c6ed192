#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "ddl.h"
#include "memory/executor.hpp"

namespace ddl {

/// A kind of memory as a program has registered it.
struct DeviceMemory {
  std::int32_t kind;
  std::string name;
  DDL_MemoryOperations operations;
};

/// @throws Error (DDL_ERR_ARGUMENT) when the kind is taken, or something is missing
void register_memory(std::int32_t kind, const DDL_MemoryOperations& operations);

/// The one of a kind. @throws Error (DDL_ERR_ARGUMENT) when there is none
std::shared_ptr<const DeviceMemory> registered_memory(std::int32_t kind);

/// Copies of one call, on the stream that it was given.
class DeviceExecutor : public Executor {
 public:
  /// @param timeout_s  a copy that takes longer is an error
  DeviceExecutor(std::shared_ptr<const DeviceMemory> memory, void* stream, double timeout_s);
  /// After an error copies may be under way: returns when none is, or when they had 10 s, or the time limit,
  /// to end.
  ~DeviceExecutor() override;
  DeviceExecutor(const DeviceExecutor&) = delete;
  DeviceExecutor& operator=(const DeviceExecutor&) = delete;

  std::int32_t kind() const override { return memory_->kind; }
  Ticket post(void* to, const void* from, std::size_t bytes, CopyDirection direction) override;
  bool test(Ticket ticket) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct UnderWay {
    unsigned long long copy;
    std::size_t bytes;
    CopyDirection direction;
    Clock::time_point since;
  };
  [[noreturn]] void fail(const UnderWay& copy, const std::string& how) const;

  const std::shared_ptr<const DeviceMemory> memory_;
  void* const stream_;
  const double timeout_s_;
  Ticket last_ = kDone;
  std::map<Ticket, UnderWay> under_way_;
};

}  // namespace ddl
