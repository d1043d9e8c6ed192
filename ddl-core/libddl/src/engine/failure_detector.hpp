#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/inquiry.hpp"
#include "engine/ticking_thread.hpp"
#include "engine/wait_limits.hpp"
#include "support/error.hpp"
#include "support/process_handle.hpp"
#include "topology/topology.hpp"
#include "transport/mpi_transport.hpp"
#include "transport/shared_segment.hpp"

namespace ddl {

/**
 * Watches over waiting: finds out that a rank is gone, late or disagrees, and tells every other rank.
 *
 * The first failure is written to the shared memory of every host, so that all ranks report the same text, in
 * the same call: a rank that is still in an earlier one, for which all others have done their part, may
 * finish it first. When nothing has moved for a while an Inquiry tells which ranks are missing and which are
 * late. (Whom one waits for is not enough to know: that rank may itself be waiting for the missing one.) The
 * process of a rank of the same host is watched directly.
 */
class FailureDetector {
 public:
  /// hosts: the groups of ranks that share a segment each, `host` this rank's. transport may be null when
  /// there is one only.
  /// @param threads  MPI may be called by several threads at a time: one answers for this rank at any time
  FailureDetector(const Topology& topology, int rank, const std::vector<std::vector<int>>& hosts,
                  std::size_t host, SharedSegment& segment, MpiTransport* transport, const WaitLimits& limits,
                  bool threads);
  ~FailureDetector();
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  /// @param description  of the call under way, for error texts: made only when there is one
  /// @param scale        how many times the limits ranks that answer are waited for, and all where none could
  /// @param patience_s   instead of the limits' own; at most so long is waited for ranks that do not answer,
  /// too
  void begin_call(std::uint64_t sequence, std::function<std::string()> description, double scale = 1.0,
                  std::optional<double> patience_s = {});

  /// What the call waits for beyond other ranks, for error texts: ", for NCCL's all-reduce".
  void set_awaited(std::string awaited) { awaited_ = std::move(awaited); }

  /// @throws Error a failure that another rank has made known, in this call or an earlier one
  void adopt_known_failure();

  /// To be called again and again while waiting; `since` is when something last moved.
  /// @throws Error once a failure is known
  void watch(Clock::time_point since);

  /// Makes this failure known everywhere and throws it, or the one that was known before.
  /// @param all_alive  no rank is missing, so that MPI can still be finalised
  [[noreturn]] void fail(const Error& error, bool all_alive);
  /// Makes known everywhere that this rank takes part in no further call; from any thread.
  /// @param in_call  it is in one
  void announce(const Error& error, bool all_alive, bool in_call);

  // Of waits beside the calls, from any thread.

  /// Of a rank whose end is known.
  std::optional<Error> known_end() const;
  /// Null where it cannot be seen from here.
  std::shared_ptr<const ProcessHandle> process_of(int rank) const;
  /// Number of the last call that this rank came to.
  std::uint64_t arrived() const;
  /// A thread of this rank begins, or ends, to wait for the ranks of a group.
  void note_forming(bool begins);
  /// Whether ranks answer at any time.
  bool asks() const { return liveness_.has_value(); }
  Inquiry& inquiry() { return inquiry_; }

  const std::optional<Error>& failure() const { return failure_; }
  bool all_alive() const { return all_alive_; }
  /// All ranks have been seen since.
  void note_all_alive() { all_alive_ = true; }

 private:
  struct Peer {
    int rank;
    std::shared_ptr<const ProcessHandle> process{};
    bool ended = false;
  };

  [[noreturn]] void adopt(const FailureRecord& record);
  void note_blocked(std::uint64_t sequence);
  void look_for_ended_peers();
  void investigate(Clock::time_point since);
  void judge(const Verdict& verdict, double waited);
  void warn(const Verdict& verdict, double waited);
  std::string names_of(const Verdict& verdict, bool alive) const;
  std::string last_call_of(const AbsentRank& absent) const;
  std::string where() const;

  const Topology& topology_;
  SharedSegment& segment_;
  const WaitLimits limits_;
  Inquiry inquiry_;
  std::vector<Peer> peers_;
  std::optional<TickingThread::Handle> liveness_;
  std::optional<TickingThread::Handle> record_;  ///< of the FlightRecorder's thread
  std::uint64_t sequence_ = 0;
  std::function<std::string()> call_;
  std::string awaited_;
  double timeout_s_ = 0;  ///< of the call under way
  double late_s_ = 0;
  double patience_s_ = 0;
  double next_question_s_ = 0;  ///< so long must nothing have moved
  double next_warning_s_ = 0;
  std::optional<double>
      all_here_s_;  ///< nothing had moved for so long when all ranks were first found in the call
  std::optional<Clock::time_point> asked_;
  Clock::time_point last_peer_check_{};
  std::optional<Clock::time_point> told_early_;  ///< of the failure of a later call
  std::optional<Error> failure_;
  bool all_alive_ = true;
  bool blocked_ = false;  ///< as this rank's cell says
};

}  // namespace ddl
