#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ddl {

/// As DDL_CopyDirection.
enum class CopyDirection : std::int32_t { kToHost = 0, kFromHost = 1, kWithin = 2 };

/**
 * Moves bytes between host memory, where collectives work, and the kind of memory that a call's buffers lie
 * in. Copies are posted, may complete later and in any order, and are asked for.
 *
 * One for each call, used by the thread that makes it.
 */
class Executor {
 public:
  /// Names a copy under way; never kDone.
  using Ticket = std::uint64_t;
  static constexpr Ticket kDone = 0;

  virtual ~Executor() = default;

  /// As DDL_MemoryKind; the same on all ranks of a call.
  virtual std::int32_t kind() const = 0;
  /// Starts to copy. Both sides stay untouched until it is complete, but for overlapping reads.
  /// @return kDone where it is complete. @throws Error
  virtual Ticket post(void* to, const void* from, std::size_t bytes, CopyDirection direction) = 0;
  /// Whether a copy is complete; its ticket is then void. Never blocks. @throws Error when it failed, or took
  /// longer than DDL waits for anything
  virtual bool test(Ticket ticket) = 0;

  /// While it lives, the calling thread may use the executor.
  class Scope {
   public:
    virtual ~Scope() = default;
  };
  /// Null where no thread needs any.
  virtual std::unique_ptr<Scope> scope() { return nullptr; }
  /// The call is over, done or failed, by any thread: what waits for it goes on.
  virtual void completed() {}
  /// What `stream` is given from now on begins when the call is over. By any thread. @throws Error where the
  /// kind has no streams that can wait
  virtual void hold(void* stream);

  /// Whether the input of the call is there: on a device, what was put on the caller's stream before it is
  /// done.
  virtual bool input_ready() { return true; }

  bool on_host() const { return kind() == 0; }
};

/// The processor itself. Copies are complete when they are posted.
Executor& host_executor();

/// For texts: "host", or what the kind was registered as.
std::string name_of_memory(std::int32_t kind);

}  // namespace ddl
