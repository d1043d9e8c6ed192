#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "support/error.hpp"
#include "topology/topology.hpp"
#include "transport/mpi_transport.hpp"
#include "transport/shared_segment.hpp"

namespace ddl {

using Clock = std::chrono::steady_clock;

/// A rank that others wait for.
struct AbsentRank {
  static constexpr std::int32_t kNoAnswer = 0;
  static constexpr std::int32_t kEnds = 1;     ///< it answers, but makes no further call: it finalizes
  static constexpr std::int32_t kAnswers = 2;  ///< its process lives: it is late
  static constexpr std::int32_t kHeldUp = 3;   ///< it is in the call, but its GPU has not come to it
  static constexpr std::int32_t kForms = 4;    ///< it waits for the ranks of a group, beside the calls
  static constexpr std::int32_t kBlocked = 5;  ///< it makes no other call until the one it came to is over
  std::int32_t rank;
  std::int32_t alive;                  ///< in the order in which they matter: kNoAnswer, kEnds, …
  std::uint64_t arrived;               ///< number of the last call that it came to
  CallKind kind = CallKind::kBarrier;  ///< of that call
  std::int32_t reserved = 0;
};

/// What was found out about the ranks of a call.
struct Verdict {
  std::vector<AbsentRank> absent;  ///< by rank; the first kMostNamed
  std::size_t missing = 0;         ///< ranks that do not answer
  std::size_t late = 0;            ///< ranks that answer, but are not in the call, or are held up in it
  bool speaks = true;              ///< of all that asked about this call, this rank warns
};

/// The hosts that a host passes a failure on to, which `root` has found. A tree of a few branches; each host
/// also tells the next one's, so that one that is gone keeps nothing from others.
std::vector<std::size_t> hosts_told_by(std::size_t host, std::size_t root, std::size_t hosts);

/**
 * Finds out who is missing and who is merely late, and spreads failures, whether or not the ranks that it
 * needs are inside DDL: it is served by whichever thread waits in a call, and by the liveness thread besides.
 *
 * The ranks of a host see each other's signs of life in shared memory. Between hosts rank 0 of the group
 * is asked; it asks the first rank of every host, which answers for all of its host, and gives the verdict:
 * four messages a host, however many ranks there are. Where that first rank does not answer the others are
 * asked. Rank 0 that does not answer is missing itself.
 *
 * The failure that reaches rank 0's host first counts, so that all ranks report the same one. Where that
 * host does not answer the next one decides. It spreads along a tree of the hosts; whoever it has not reached
 * hears of it in answer to a question.
 */
class Inquiry {
 public:
  /// Longer lists of ranks are cut.
  static constexpr std::size_t kMostNamed = 64;

  /// @param hosts      the groups that share a segment each; `host` is this rank's
  /// @param transport  null when there is one host only
  /// @param grace_s    within this time a living rank shows it
  /// @param served     every rank answers at any time, by a thread
  Inquiry(const std::vector<std::vector<int>>& hosts, std::size_t host, int rank, SharedSegment& segment,
          MpiTransport* transport, double grace_s, bool served);

  /// Shows that this rank lives, answers the others, passes failures on. From any thread.
  void serve();

  /// Asks who is absent from a call. The verdict comes by serve(), if rank 0 lives.
  void ask(std::uint64_t sequence);
  std::optional<Verdict> take_verdict();
  /// The ranks that may be waited for in vain, as found out after `since`: kNoAnswer, kEnds or kBlocked. Asks
  /// for them where nobody has. To be called again until it says something. Beside calls, from any thread.
  std::optional<std::vector<AbsentRank>> call_roll(Clock::time_point since);
  double grace_s() const { return grace_s_; }
  /// How long a verdict may take.
  double limit_s() const { return 4 * grace_s_; }
  /// Rank 0 does not answer.
  Verdict rank_0_missing() const;
  /// Among the waiting ranks of a host the first one asks.
  bool first_of_waiting(std::uint64_t sequence) const;

  /// Makes a failure known to all hosts. Returns when it, or an earlier one, stands in this host's record.
  void spread(const Error& error, bool all_alive, std::uint64_t sequence);

  /// Lets what is to be passed on leave, before the caller perhaps exits; but not for long.
  void flush();

  /// Ranks of this host that answer; known after a moment of serve().
  bool alive(std::size_t index) const;
  std::size_t self() const { return self_; }

 private:
  struct Outgoing {
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<char> bytes;
  };
  /// What rank 0 finds out for others.
  struct Round {
    Clock::time_point started;
    bool asked_all = false;
    std::vector<char> answered;            ///< by host
    std::map<int, AbsentRank> ranks;       ///< by rank: what the hosts have told of each
    std::map<int, std::uint64_t> waiting;  ///< who wants a verdict of which call
    std::set<int> rolls;                   ///< who has called the roll
  };
  struct Roll {
    Clock::time_point asked;
    std::vector<AbsentRank> absent;
  };

  bool leads() const { return rank_ == hosts_.front().front(); }
  bool waits_first(std::uint64_t sequence) const;
  void note_signs_of_life(Clock::time_point now);
  void read_messages();
  void read(int source, int tag, std::vector<char> message);
  void send(int rank, int tag, std::vector<char> message);
  void send_out();
  Round& round();
  void take_question(int from, std::uint64_t sequence);
  void take_statuses(const std::vector<AbsentRank>& statuses);
  std::vector<AbsentRank> local_statuses() const;
  void go_on_with_round();
  void finish_round();
  void answer_roll(int from, const std::vector<AbsentRank>& absent);
  void take_roll(std::vector<AbsentRank> absent);
  static std::vector<AbsentRank> absent_of(const std::map<int, AbsentRank>& ranks);
  static Verdict judge(const std::map<int, AbsentRank>& ranks, std::uint64_t sequence);
  bool record(const std::vector<char>& failure);
  /// Passes a failure on that this host knows first of.
  void tell_all_hosts(std::vector<char> failure);
  /// Passes on what has been recorded here.
  void pass_on(const std::vector<char>& failure);
  std::vector<char> known_failure() const;

  const std::vector<std::vector<int>> hosts_;
  const std::size_t host_;
  const int rank_;
  std::size_t self_ = 0;
  SharedSegment& segment_;
  MpiTransport* const transport_;
  const double grace_s_;
  const bool served_;

  mutable std::mutex mutex_;
  std::vector<std::uint64_t> heartbeats_;      ///< by rank of the host, as seen last
  std::vector<Clock::time_point> seen_alive_;  ///< when they last grew
  Clock::time_point last_look_{};
  Clock::time_point last_read_{};
  std::list<Outgoing> outgoing_;
  std::optional<Round> round_;
  std::optional<Verdict> verdict_;
  std::optional<Clock::time_point> roll_asked_;  ///< none: nobody waits for one
  std::optional<Roll> roll_;                     ///< the last one
  std::uint64_t spoken_of_ = 0;                  ///< call of which rank `speaker_` warns
  int speaker_ = -1;
};

}  // namespace ddl
