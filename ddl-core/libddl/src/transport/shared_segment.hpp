#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "transport/call_header.hpp"
#include "transport/failure_record.hpp"

namespace ddl {

inline constexpr std::size_t kCacheLine = 64;
/// Of a call and the one before: a rank begins a call when it has seen all others arrive in the last one,
/// which they do when they are done with the one before.
inline constexpr std::size_t kHeaderSlots = 2;
/// Chunks whose ranks are counted at a time, more than there are under way.
inline constexpr std::size_t kCountedChunks = 32;

/// Staging memory of a rank, at most and at least. A call divides it into slots, one for each chunk under
/// way (plan/chunking.hpp).
inline constexpr std::size_t kStageBytes = std::size_t{8} << 20;
inline constexpr std::size_t kLeastStageBytes = std::size_t{2} << 20;

/// What the ranks of a host look at in every call.
struct CallSummary {
  std::uint64_t digest;
  std::uint64_t submitted;
  double last_s;
};

/// One rank's part of the control area. Every counter only grows, and only its rank writes it; each has a
/// cache line to itself, as others poll it.
struct alignas(kCacheLine) RankCell {
  alignas(kCacheLine) std::atomic<std::uint64_t> arrived;  ///< number of the call whose header is published
  CallSummary summaries[kHeaderSlots];  ///< of the headers below, in the line that is looked at for `arrived`
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
  std::atomic<std::uint64_t> finalizing;                     ///< 1: it makes no further call but ddl_finalize
  std::atomic<std::uint64_t> blocked;  ///< call in which the only thread that makes calls has waited; 0: none
  std::atomic<std::uint64_t> forming;  ///< its threads that wait for the ranks of a group, beside the calls
  std::uint64_t agreed_submitted;      ///< belongs to `validated`
  double agreed_last_s;                ///< belongs to `validated`
  std::uint64_t pid_namespace;
  std::int64_t pid;
  alignas(kCacheLine)
      CallHeader headers[kHeaderSlots];  ///< by sequence % kHeaderSlots; read where digests differ
};

/// What several ranks say of the call that they make: the least that they have submitted, the longest time.
struct CombinedSummary : CallSummary {
  std::uint64_t same;  ///< 1: their digests are equal
};

/// How ranks that share memory are divided: the domain of each, from 0. Empty: they are not.
using Division = std::vector<std::size_t>;

/// What ranks come to chunk by chunk, as the members of RankCell.
inline constexpr std::size_t kGates = 3;  ///< posted, reduced, gathered

/// Counts who has come to each of these points. The last one sets the count back: nobody comes to the same
/// place of it again before all have gone on.
struct alignas(kCacheLine) Tally {
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> chunks[kGates][kCountedChunks];  ///< by number % kCountedChunks
};

/**
 * Of a domain, ranks that are near each other. Where a host has many ranks they count up in two tiers, as in
 * the combining trees of Yew, Tzeng and Lawrie (1987): in their domain, of which the last one counts up among
 * the domains, of which the last one tells all. So nobody looks at all others, and whoever comes last does
 * what is to be done for all: none waits for a certain one.
 */
struct DomainCell {
  // What all ranks have come to, for those of this domain, who look at it again and again.
  alignas(kCacheLine) std::atomic<std::uint64_t> arrived;  ///< number of a call
  CombinedSummary agreed;                                  ///< belongs to `arrived`: of all ranks
  /// Chunks, likewise.
  struct alignas(kCacheLine) Passed {
    std::atomic<std::uint64_t> chunks;
  } passed[kGates];
  Tally tally;                                  ///< of the domain's ranks
  alignas(kCacheLine) CombinedSummary summary;  ///< of the domain's ranks
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
                              std::size_t stage_bytes = kStageBytes, Division division = {});
  /// Maps the file that another rank created with the same arguments.
  static SharedSegment open(const std::string& name, std::size_t ranks, std::size_t stage_bytes = kStageBytes,
                            Division division = {});

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
  /// Removes the name of a file that another rank may have created, and did not live to unlink.
  static void remove(const std::string& name);

  std::size_t ranks() const { return ranks_; }
  std::size_t stage_bytes() const { return stage_bytes_; }
  RankCell& cell(std::size_t rank) const { return reinterpret_cast<RankCell*>(base_ + kCells)[rank]; }

  using Counter = std::atomic<std::uint64_t> RankCell::*;
  /// Sets one of a rank's own counters, chunk by chunk. Ranks that sleep wake up when all have come so far.
  /// @param wakes  false: nobody waits for it, or what the rank publishes next wakes them
  void publish(std::size_t rank, Counter counter, std::uint64_t value, bool wakes = true);
  /// As publish() of a call's number, with what the rank says of the call.
  void arrive(std::size_t rank, const CallHeader& header);
  /// As publish(), for what the others wait for from this rank alone: they wake up at once.
  void publish_alone(std::size_t rank, Counter counter, std::uint64_t value);
  /// Whether ranks count up in domains; if not, each has to look at all others' counters.
  bool divided() const { return !domain_of_.empty(); }
  /// Where they do: how far all ranks have come. @param rank  who asks
  std::uint64_t passed_by_all(std::size_t rank, Counter counter) const {
    return domain(domain_of_[rank]).passed[gate_of(counter)].chunks.load(std::memory_order_acquire);
  }
  /// Where they do: what all ranks say of a call, null until they have arrived. @param rank  who asks
  const CombinedSummary* said_by_all(std::size_t rank, std::uint64_t sequence) const {
    const DomainCell& own = domain(domain_of_[rank]);
    return own.arrived.load(std::memory_order_acquire) < sequence ? nullptr : &own.agreed;
  }
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

  FailureRecord& failure() const { return *reinterpret_cast<FailureRecord*>(base_); }
  char* stage(std::size_t rank, std::size_t slot, std::size_t slot_bytes) const {
    return base_ + control_bytes_ + rank * stage_bytes_ + slot * slot_bytes;
  }
  /// All of it, with its size in bytes.
  std::pair<char*, std::size_t> whole() const { return {base_, bytes_}; }

  static std::size_t bytes_for(std::size_t ranks, std::size_t stage_bytes, const Division& division = {});
  /// Bytes of /dev/shm that are free; 0 where there is none.
  static std::uint64_t free_bytes();

 private:
  // Where they are in the control area.
  static constexpr std::size_t kDoorbell = (sizeof(FailureRecord) + kCacheLine - 1) / kCacheLine * kCacheLine;
  static constexpr std::size_t kCells = kDoorbell + sizeof(Doorbell);
  static constexpr std::size_t domains_at(std::size_t ranks) { return kCells + ranks * sizeof(RankCell); }
  static std::size_t control_bytes_for(std::size_t ranks, std::size_t domains);

  SharedSegment() = default;
  void map(int fd);
  Doorbell& doorbell() const { return *reinterpret_cast<Doorbell*>(base_ + kDoorbell); }
  DomainCell& domain(std::size_t index) const {
    return reinterpret_cast<DomainCell*>(base_ + domains_at(ranks_))[index];
  }
  /// Of the domains.
  Tally& tally() const {
    return *reinterpret_cast<Tally*>(base_ + domains_at(ranks_) + domains_.size() * sizeof(DomainCell));
  }
  static std::size_t gate_of(Counter counter) {
    return counter == &RankCell::posted ? 0 : counter == &RankCell::reduced ? 1 : 2;
  }
  /// Counts a rank that has come to the end of a chunk's step; true when all have.
  bool count(std::size_t rank, Counter counter, std::uint64_t value);
  void divide(Division division);
  void allocate(std::size_t offset, std::size_t bytes);
  void close_file();

  std::string name_;
  bool linked_ = false;
  bool reserved_ = false;  ///< this rank's stage; always where nobody shares the memory
  int fd_ = -1;
  char* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t control_bytes_ = 0;
  std::size_t ranks_ = 0;
  std::size_t stage_bytes_ = 0;
  Division domain_of_;
  std::vector<std::vector<std::size_t>> domains_;  ///< ranks of each
};

}  // namespace ddl
