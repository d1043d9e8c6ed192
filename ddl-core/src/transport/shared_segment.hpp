#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "transport/call_header.hpp"
#include "transport/failure_record.hpp"

namespace ddl {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kHeaderSlots = 16;

/// Staging memory of a rank, at most and at least. A call divides it into slots, one for each chunk under
/// way (plan/chunking.hpp).
inline constexpr std::size_t kStageBytes = std::size_t{8} << 20;
inline constexpr std::size_t kLeastStageBytes = std::size_t{2} << 20;

/// Ranks read each other's headers in every call, so each begins a cache line.
struct alignas(kCacheLine) PublishedHeader {
  CallHeader header;
};

/// One rank's part of the control area. Every counter only grows, and only its rank writes it; each has a
/// cache line to itself, as others poll it.
struct alignas(kCacheLine) RankCell {
  alignas(kCacheLine) std::atomic<std::uint64_t> arrived;  ///< number of the call whose header is published
  alignas(kCacheLine) std::atomic<std::uint64_t> checked;  ///< number of the call whose headers were compared
  alignas(
      kCacheLine) std::atomic<std::uint64_t> validated;   ///< call that all hosts agree on; the leader's only
  alignas(kCacheLine) std::atomic<std::uint64_t> posted;  ///< chunks whose input lies in this rank's stage
  alignas(kCacheLine)
      std::atomic<std::uint64_t> summed;  ///< chunks whose sums of this rank lie with their owners
  alignas(kCacheLine) std::atomic<std::uint64_t> reduced;   ///< chunks whose result lies in this rank's stage
  alignas(kCacheLine) std::atomic<std::uint64_t> gathered;  ///< chunks this rank has read from all stages
  alignas(kCacheLine) std::atomic<std::uint64_t> heartbeat;  ///< grows while the rank waits inside DDL
  alignas(kCacheLine) std::atomic<std::uint64_t> held_up;    ///< call whose input this rank's GPU has not got
  std::atomic<std::uint64_t> devices_closed;                 ///< 1: it uses the others' GPUs' memory no more
  std::uint64_t agreed_submitted;                            ///< belongs to `validated`
  double agreed_last_s;                                      ///< belongs to `validated`
  std::uint64_t pid_namespace;
  std::int64_t pid;
  PublishedHeader headers[kHeaderSlots];  ///< by sequence % kHeaderSlots
};

/// For ranks that sleep until others have published something. Ranks that publish look at `sleepers` only,
/// which stays in their caches while nobody sleeps.
struct Doorbell {
  alignas(kCacheLine) std::atomic<std::uint32_t> sleepers;  ///< ranks that sleep, or look once more before
  alignas(kCacheLine) std::atomic<std::uint32_t> rings;     ///< the futex; grows with each ring
};

/**
 * Memory that the ranks of an innermost group share: control cells, the failure record, and every rank's
 * stage.
 *
 * It is a file in /dev/shm only from create() to unlink(); the ranks unlink as soon as all have mapped it, so
 * that nothing is left however they end.
 */
class SharedSegment {
 public:
  /// Memory for a group of one, which nobody else maps. @param stage_bytes  of each rank, as below
  static SharedSegment create_private(std::size_t stage_bytes = kStageBytes);
  /// The name for the group of a rank, its first, of those who share a random number.
  static std::string name_for(std::uint64_t nonce, int first_rank);
  /// Creates the file, which must not exist. @throws Error (DDL_ERR_MEMORY) with the file and the reason
  static SharedSegment create(const std::string& name, std::size_t ranks,
                              std::size_t stage_bytes = kStageBytes);
  /// Maps the file that another rank created.
  static SharedSegment open(const std::string& name, std::size_t ranks,
                            std::size_t stage_bytes = kStageBytes);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  const std::string& name() const { return name_; }
  /// Reserves the pages of the control area, which is to be done before it is used.
  void reserve_control();
  /// Reserves the pages of one rank's stage, by that rank, so that a full /dev/shm is an error here rather
  /// than a SIGBUS later, and so that the pages come from the memory next to the rank's processor. Once.
  void reserve_stage(std::size_t rank);
  bool reserved() const { return reserved_; }
  /// Removes the file's name; harmless when done twice.
  void unlink();

  std::size_t ranks() const { return ranks_; }
  std::size_t stage_bytes() const { return stage_bytes_; }
  RankCell& cell(std::size_t rank) const;

  using Counter = std::atomic<std::uint64_t> RankCell::*;
  /// Sets one of a rank's own counters. Ranks that sleep wake up when all have come so far.
  void publish(std::size_t rank, Counter counter, std::uint64_t value);
  /// As publish(), for what the others wait for from this rank alone: they wake up at once.
  void publish_alone(std::size_t rank, Counter counter, std::uint64_t value);
  /// Wakes all ranks that sleep.
  void ring();
  /// Before a rank sleeps: what it has not seen by its next look will wake it. @return  for sleep()
  std::uint32_t prepare_sleep();
  /// Sleeps until somebody rings, at most so long. A ring may be missed where the processor reorders a store
  /// and a later load of another address, so the limit must be one that is no harm.
  /// @return false when the time is over
  bool sleep(std::uint32_t rings_seen, double limit_s);
  /// Ends what prepare_sleep() began.
  void end_sleep();

  FailureRecord& failure() const;
  char* stage(std::size_t rank, std::size_t slot, std::size_t slot_bytes) const;
  /// All of it, with its size in bytes.
  std::pair<char*, std::size_t> whole() const { return {base_, bytes_}; }

  static std::size_t bytes_for(std::size_t ranks, std::size_t stage_bytes);
  /// Bytes of /dev/shm that are free; 0 where there is none.
  static std::uint64_t free_bytes();

 private:
  SharedSegment() = default;
  void map(int fd);
  Doorbell& doorbell() const;
  void allocate(std::size_t offset, std::size_t bytes);
  void close_file();

  std::string name_;
  bool linked_ = false;
  bool reserved_ = false;  ///< this rank's stage; always where nobody shares the memory
  int fd_ = -1;
  char* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t ranks_ = 0;
  std::size_t stage_bytes_ = 0;
};

}  // namespace ddl
