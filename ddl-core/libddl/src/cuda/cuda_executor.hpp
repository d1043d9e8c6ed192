#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/device.hpp"
#include "cuda/stream_order.hpp"
#include "memory/executor.hpp"

namespace ddl::cuda {

/// Something put on a stream of a call, whose end is asked for.
class Mark {
 public:
  Mark() = default;
  bool set() const { return event_ != nullptr; }

 private:
  friend class CudaExecutor;
  Event event_ = nullptr;
};

/**
 * One call on buffers of a GPU: copies and NCCL's operations on streams of its own, after what the caller's
 * stream had been given, and ended before what waits for the call.
 *
 * Made by the thread that asks for the call; then used by the one that makes it, within a Scope.
 */
class CudaExecutor : public Executor {
 public:
  /// @param stream      the caller's
  /// @param timeout_s   a copy may not take longer, once it is its turn
  /// @param patience_s  the caller's stream may not take longer to come to the call, nor NCCL: that limit is
  /// for a rank
  ///                    that is alone, as the others are told of one that is held up, and of nothing that
  ///                    moves
  /// @throws Error as StreamOrder
  CudaExecutor(Device& device, Stream stream, double timeout_s, double patience_s);
  /// Waits until nothing is under way, or for 10 s: the buffers may then be freed.
  ~CudaExecutor() override;
  CudaExecutor(const CudaExecutor&) = delete;
  CudaExecutor& operator=(const CudaExecutor&) = delete;

  std::int32_t kind() const override;
  Ticket post(void* to, const void* from, std::size_t bytes, CopyDirection direction) override;
  bool test(Ticket ticket) override;
  std::unique_ptr<Scope> scope() override;
  void completed() override { order_.complete(); }
  void hold(void* stream) override;

  Device& device() const { return device_; }
  /// Of NCCL's operations. Its work begins after what the caller's stream had been given.
  Stream collective();
  /// A stream for each tier: the first is collective().
  Stream tier_stream(std::size_t tier);
  /// On a stream of this call's.
  void copy_within(void* to, const void* from, std::size_t bytes, Stream stream);
  /// What is put on `later` from now on waits for what is on `earlier`.
  void order(Stream earlier, Stream later);
  Stream to_host();
  Stream to_device();

  /// The end of what is on a stream by now.
  void record(Mark& mark, Stream stream);
  /// Whether it has come. Never blocks. @throws Error when something failed, or nothing has ended for longer
  /// than DDL waits for late ranks. @param what  is waited for, for texts
  /// @param local  it needs no other rank
  bool reached(Mark& mark, const char* what, bool local = false);
  /// Whether the caller's stream has come to the call.
  bool input_ready() override;
  /// What is put on `later` from now on waits for a mark that was recorded.
  void after(const Mark& mark, Stream later);
  void drop(Mark& mark) { forget(mark); }

 private:
  using Clock = std::chrono::steady_clock;
  /// Copies of one direction: they end in the order in which they were posted.
  struct Lane {
    Stream stream = nullptr;
    std::uint64_t posted = 0;
    std::uint64_t ended = 0;
    std::uint64_t marked = 0;  ///< copies that the mark stands for
    Mark mark;
  };

  const Device::Streams& streams();
  Device::Streams taken();
  Lane& lane(CopyDirection direction);
  void forget(Mark& mark);
  [[noreturn]] void too_late(const char* what, double limit_s);

  Device& device_;
  const double timeout_s_;
  const double patience_s_;
  StreamOrder order_;
  std::optional<Device::Streams> streams_;
  std::vector<Device::Streams> more_streams_;  ///< of the tiers from the second on
  Lane lanes_[3];
  bool ready_ = false;
  std::optional<Clock::time_point> waiting_since_;
};

}  // namespace ddl::cuda
