#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/backoff.hpp"
#include "engine/failure_detector.hpp"
#include "plan/exchange.hpp"
#include "plan/plan.hpp"
#include "topology/topology.hpp"
#include "transport/mpi_transport.hpp"
#include "transport/shared_segment.hpp"

namespace ddl {

/// "allreduce", "all_to_all_v"
const char* name_of(CallKind kind);

/// "allreduce of 12 float32 elements (op sum, name 'grads')".
std::string describe_call(const CallHeader& header);

/// What differs between two calls, for example "element count, op"; "" when nothing does.
std::string difference(const CallHeader& a, const CallHeader& b);

/**
 * Makes sure that all ranks make the same call before anything depends on it: the ranks of a group compare
 * their headers in shared memory, where they are many by domains (SharedSegment::arrive), then the groups'
 * first ranks ("leaders") compare across groups and tell their group. Few leaders send to all others; more
 * follow the dissemination pattern of D. Hensgen et al. (1988), three messages a round in log4 rounds, and
 * many one message in log2 rounds. A small call carries the headers with its own messages instead, see
 * SmallAllreduce.
 *
 * Between groups only the beginning of a header travels (kTravellingBytes). A leader that finds that a call
 * differs sends its whole header to the other one, which answers with its own: both are in this call, as
 * neither can have heard that all agree. What they write is the error's text.
 *
 * Different calls may exchange in different ways, each side waiting for the other's next message. A leader
 * whose messages are late therefore asks those it waits for by sending its whole header, too.
 *
 * On the way it finds how many calls every rank has submitted, and how long the call before took the slowest.
 */
class CallValidation {
 public:
  CallValidation(const Topology& topology, int rank, const std::vector<const Group*>& groups,
                 std::size_t group, SharedSegment& segment, MpiTransport* transport,
                 FailureDetector& detector);

  /// Data messages use the tags above.
  static constexpr int kTag = 0;
  static constexpr std::size_t kEagerPacketBytes = kTravellingBytes + kSmallBytes;
  /// Whole headers: above the data messages' tags, and below those of a rendezvous.
  static constexpr int kTextTag = MpiTransport::kTags - 1;

  /// The next call, which is this rank's only until arrive(). All earlier ones must be complete.
  /// @param carried  the leaders' headers go with other messages: merged(), merge_packets(), conclude()
  void begin(const CallHeader& header, bool carried = false);
  /// Publishes this rank's header.
  void arrive();

  /// Goes on without blocking; true when something moved. @throws Error (DDL_ERR_MISMATCH) by way of the
  /// failure detector
  bool step();

  /// The ranks of this group make the same call: their stages may be read.
  bool locally() const { return locally_; }
  /// All ranks make the same call: messages may be sent.
  bool globally() const { return globally_; }
  /// Known once globally() is true: calls that all ranks have submitted, and the slowest rank's last time.
  std::uint64_t submitted_by_all() const { return submitted_ & ~kStartedCalls; }
  /// Then, too: whether any rank has started calls.
  bool any_started() const { return (submitted_ & kStartedCalls) != 0; }
  double slowest_last_s() const { return last_s_; }
  /// Nothing of this call is under way any more.
  bool complete() const { return globally_ && requests_.empty(); }

  /// Messages of the agreement are under way.
  bool messages_pending() const { return !requests_.empty() || !text_requests_.empty(); }
  void abandon() {
    requests_.abandon();
    text_requests_.abandon();
  }

  /// Writes what this leader has to tell the others, kTravellingBytes, once locally() is true.
  void write_merged(char* to) const;
  /// Starts to receive a group's eager packet, its header and what goes with it. There is room for whatever
  /// another call sends instead: the headers then tell what is wrong.
  void receive_packet(std::size_t group, Requests& requests);
  char* contents_of(std::size_t group) { return packets_[group].get() + kTravellingBytes; }
  /// What the eager packets of these groups tell. @throws Error (DDL_ERR_MISMATCH) by way of the failure
  /// detector
  void merge_packets(std::span<const std::size_t> groups);
  /// This leader knows of all others.
  void conclude() { publish_result(); }

 private:
  bool compare_locally();
  void start_round();
  void finish_round();
  /// Of the dissemination.
  std::size_t radix() const { return groups_.size() <= kLeadersHosts ? 4 : 2; }
  bool last_round() const;
  void merge(std::uint64_t submitted, double last_s);
  void publish_result();
  bool told_the_same(std::size_t group) const;
  /// Gets the whole headers of those of these groups that make another call. @throws Error
  [[noreturn]] void compare_texts(std::span<const std::size_t> groups);
  /// Once for each call.
  void send_text(std::size_t group);
  /// Takes a whole header of another leader, and answers it; false when there is none.
  bool receive_text();
  void look_for_text();
  /// Messages are late: does somebody make another call? @throws Error
  void ask_awaited();
  [[noreturn]] void mismatch(const std::vector<const CallHeader*>& headers,
                             const std::vector<std::vector<int>>& ranks);

  const Topology& topology_;
  const std::vector<const Group*>& groups_;
  const std::size_t group_;
  const std::size_t self_;
  SharedSegment& segment_;
  MpiTransport* transport_;
  FailureDetector& detector_;
  std::size_t arrived_ = 0;  ///< ranks of the group, from the first, whose headers were compared
  bool same_ = true;         ///< and which make the same call
  CallHeader header_;
  std::array<char, kTravellingBytes> sent_;
  std::vector<std::unique_ptr<char[]>> packets_;  ///< by group, of leaders that have sent one
  std::vector<std::size_t> awaited_;              ///< groups whose eager packets the round brings
  std::size_t distance_ = 1;
  std::uint64_t submitted_ = 0;
  double last_s_ = 0;
  Requests requests_;
  // Of what is late, or a failure:
  CallHeader text_;
  Requests text_requests_;
  std::vector<std::optional<CallHeader>>
      texts_;                        ///< by group, the newest; empty until one is sent or received
  std::vector<std::uint64_t> told_;  ///< by group: number of the call whose text it was sent last
  std::vector<char> asked_;          ///< by group: has not answered yet
  unsigned idle_steps_ = 0;
  std::optional<Clock::time_point> waiting_since_;
  bool carried_ = false;
  bool exchanging_ = false;
  bool locally_ = false;
  bool globally_ = false;
};

}  // namespace ddl
