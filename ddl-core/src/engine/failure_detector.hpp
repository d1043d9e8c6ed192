#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/error.hpp"
#include "topology/topology.hpp"
#include "transport/mpi_transport.hpp"
#include "transport/shared_segment.hpp"

namespace ddl {

using Clock = std::chrono::steady_clock;

/**
 * Watches over waiting: finds out that a rank is gone, late or disagrees, and tells every other rank.
 *
 * The first failure of a host is written to its shared memory and sent to every rank of the other hosts, so
 * that all ranks report the same text, in the same call: a rank that is still in an earlier one, for which
 * all others have done their part, may finish it first. When nothing has moved for the time limit, every rank
 * is asked whether it is waiting too; those that do not answer are the missing ones. (Whom one waits for is
 * not enough to know: that rank may itself be waiting for the missing one.)
 */
class FailureDetector {
 public:
  /// group: the ranks that share `segment`, in its order. link may be null when there is one group only.
  FailureDetector(const Topology& topology, int rank, const std::vector<int>& group, SharedSegment& segment,
                  MpiTransport* transport, double timeout_s);
  ~FailureDetector();
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  /// @param description  of the call under way, for error texts: made only when there is one
  /// @param timeout_scale     how many times the time limit it may wait
  void begin_call(std::uint64_t sequence, std::function<std::string()> description,
                  double timeout_scale = 1.0);

  /// To be called again and again while waiting; `since` is when something last moved.
  /// @throws Error once a failure is known
  void watch(Clock::time_point since);

  /// Makes this failure known everywhere and throws it, or the one that was known before.
  /// @param all_alive  no rank is missing, so that MPI can still be finalised
  [[noreturn]] void fail(const Error& error, bool all_alive);

  const std::optional<Error>& failure() const { return failure_; }
  bool all_alive() const { return all_alive_; }

 private:
  struct Peer {
    int rank;
    std::size_t index;
    int pidfd = -1;
    bool ended = false;
    std::uint64_t heartbeat_at_ping = 0;
  };

  void adopt_local_failure();
  [[noreturn]] void adopt(const FailureRecord& record);
  void read_messages();
  void look_for_ended_peers();
  void investigate(Clock::time_point since);
  void start_investigation();
  void conclude();
  void broadcast(const Error& error, bool all_alive, std::uint64_t sequence);
  void record_locally(const Error& error, bool all_alive, std::uint64_t sequence);
  std::string where() const;

  const Topology& topology_;
  SharedSegment& segment_;
  MpiTransport* transport_;
  const double timeout_s_;
  std::size_t self_ = 0;
  std::vector<Peer> peers_;
  std::vector<int> remote_;
  std::uint64_t sequence_ = 0;
  std::function<std::string()> call_;
  double timeout_scale_ = 1.0;
  std::optional<Clock::time_point> asked_;
  std::vector<char> answered_;
  Clock::time_point last_message_check_{};
  Clock::time_point last_peer_check_{};
  std::optional<Clock::time_point> told_early_;  ///< of the failure of a later call
  std::optional<Error> failure_;
  bool all_alive_ = true;
};

}  // namespace ddl
