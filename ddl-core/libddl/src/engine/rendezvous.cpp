#include "engine/rendezvous.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "support/error.hpp"
#include "support/hash.hpp"
#include "support/number.hpp"
#include "transport/bounded_wait.hpp"

namespace ddl {
namespace {

using Clock = std::chrono::steady_clock;

/// Above the tags of data messages, of which MPI has at least 32768.
constexpr int kFirstTag = 16384;
constexpr int kTags = 16384;

/// Different groups mostly get different tags, so that rendezvous of two threads do not mix.
int tag_of(const std::vector<int>& ranks, std::uint64_t kind) {
  const std::uint64_t words[] = {kind, hash_bytes(ranks.data(), ranks.size() * sizeof ranks[0])};
  return kFirstTag + static_cast<int>(hash_bytes(words, sizeof words) % kTags);
}

enum class Step : std::int32_t {
  kCome,   ///< member to first: I am here
  kReady,  ///< first to member: all are here; do you still wait?
  kYes,    ///< member to first: I do, and go on when you say so
  kStart,  ///< first to member: all do
  kNo,     ///< first to member: some do not
  kWho,    ///< member to first: are you here?
  kHere    ///< first to member: I am
};

struct Message {
  Step step;
  std::int32_t attempt;       ///< of the member, which counts them: what was said in an earlier one is void
  std::int32_t missing = -1;  ///< with kNo: the first rank that does not come
};

/// A member that has said yes waits so much longer for the answer, at most: the first rank gives one when its
/// own time is over, which began while the member's was not.
constexpr double kAnswer_s = 30;

/// So long a message may take to leave, though MPI keeps it: its rank may be stopped.
constexpr std::chrono::seconds kSending{1};

/// Messages of one rendezvous. Those that are sent are so small that MPI keeps them.
class Exchange {
 public:
  Exchange(MPI_Comm comm, int tag) : comm_(comm), tag_(tag) {}

  void send(int rank, Message message) {
    auto kept = std::make_unique<Message>(message);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(kept.get(), sizeof message, MPI_BYTE, rank, tag_, comm_, &request), "MPI_Isend");
    const auto end = Clock::now() + kSending;
    for (int done = 0; done == 0;) {
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done != 0 || Clock::now() < end) continue;
      // It goes on, if at all, without us.
      static_cast<void>(kept.release());
      MPI_Request_free(&request);
      return;
    }
  }

  /// The next message, of whichever rank; none: nothing has come until `end`.
  std::optional<std::pair<int, Message>> receive(Clock::time_point end) {
    while (true) {
      int there = 0;
      MPI_Status status{};
      MPI_Message found = MPI_MESSAGE_NULL;
      // Not MPI_Iprobe: another thread could receive what it has seen.
      check_mpi(MPI_Improbe(MPI_ANY_SOURCE, tag_, comm_, &there, &found, &status), "MPI_Improbe");
      if (there != 0) {
        Message message{};
        check_mpi(MPI_Mrecv(&message, sizeof message, MPI_BYTE, &found, MPI_STATUS_IGNORE), "MPI_Mrecv");
        return std::pair(status.MPI_SOURCE, message);
      }
      if (Clock::now() > end) return std::nullopt;
      WatchedWaits::look();
      const timespec pause{0, 100'000};
      nanosleep(&pause, nullptr);
    }
  }

 private:
  MPI_Comm comm_;
  int tag_;
};

/// Ranks notice within so much time of each other that one is missing, and call the roll.
constexpr double kLater_s = 2;
constexpr double kShortestCall_s = 1;
constexpr double kLongestCall_s = 5;
constexpr std::uint64_t kRollCall = ~std::uint64_t{0};

Clock::time_point later(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// When it is time to speak of those who are late.
class LateTimes {
 public:
  static constexpr auto kNever = Clock::time_point::max();

  explicit LateTimes(const Late& late) : late_(late), next_(late.say ? later(late.after_s) : kNever) {}

  Clock::time_point next() const { return next_; }
  bool due() const { return Clock::now() > next_; }
  /// After as long as it has taken so far.
  void put_off() { next_ = Clock::now() + (Clock::now() - began_); }
  void never() { next_ = kNever; }
  void say(const std::vector<int>& missing) const { late_.say(missing); }

 private:
  const Late& late_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point next_;
};

/// What the first rank knows of a member.
struct Member {
  std::int32_t come = 0;   ///< its last attempt, from 1
  std::int32_t asked = 0;  ///< the attempt in which it was asked whether it still waits
  bool yes = false;
};

/// @return the ranks that are missing
std::vector<int> lead(Exchange& exchange, const std::vector<int>& ranks, Clock::time_point end,
                      const Late& late) {
  std::map<int, Member> members;
  for (const int rank : ranks) {
    if (rank != ranks.front()) members.emplace(rank, Member{});
  }
  const auto all = [&](auto&& holds) {
    return std::all_of(members.begin(), members.end(),
                       [&](const auto& member) { return holds(member.second); });
  };
  const auto came = [](const Member& member) { return member.come > 0; };
  // Nobody was asked whether it still waits before all had come.
  const auto absent = [&] {
    const bool asked = all(came);
    std::vector<int> missing;
    for (const auto& [rank, member] : members) {
      if (!(asked ? member.yes : came(member))) missing.push_back(rank);
    }
    return missing;
  };
  LateTimes times(late);
  while (!all([](const Member& member) { return member.yes; })) {
    const auto next = exchange.receive(std::min(end, times.next()));
    if (times.due()) {
      times.put_off();
      times.say(absent());
    }
    if (!next && Clock::now() > end) break;
    if (!next) continue;
    const auto& [rank, message] = *next;
    const auto found = members.find(rank);
    if (found == members.end()) continue;
    Member& member = found->second;
    if (message.step == Step::kWho) exchange.send(rank, {Step::kHere, message.attempt});
    if (message.step == Step::kCome) member = {message.attempt, member.asked, false};
    if (message.step == Step::kYes && message.attempt == member.come) member.yes = true;
    if (!all(came)) continue;
    for (auto& [other, one] : members) {
      if (one.asked == one.come) continue;
      one.asked = one.come;
      exchange.send(other, {Step::kReady, one.come});
    }
  }
  const std::vector<int> missing = absent();
  for (const auto& [rank, member] : members) {
    if (!came(member)) continue;
    exchange.send(rank, missing.empty() ? Message{Step::kStart, member.come}
                                        : Message{Step::kNo, member.come, missing.front()});
  }
  return missing;
}

/// @return as lead(), as far as the first rank says
std::vector<int> follow(Exchange& exchange, int first, int self, std::int32_t attempt, double limit_s,
                        const Late& late) {
  auto end = later(limit_s);
  exchange.send(first, {Step::kCome, attempt});
  bool asked = false;
  // Where the first rank is here it speaks of the others itself.
  LateTimes times(late);
  auto doubts = LateTimes::kNever;
  while (true) {
    const auto next = exchange.receive(std::min({end, times.next(), doubts}));
    if (!next && Clock::now() > end) break;
    if (times.due()) {
      times.put_off();
      exchange.send(first, {Step::kWho, attempt});
      if (doubts == LateTimes::kNever) doubts = later(kLater_s);
    }
    if (Clock::now() > doubts) {
      doubts = LateTimes::kNever;
      times.say({first});
    }
    if (!next) continue;
    const auto& [rank, message] = *next;
    if (rank != first || message.attempt != attempt) continue;
    if (message.step == Step::kHere) {
      doubts = LateTimes::kNever;
      times.never();
    }
    if (message.step == Step::kStart) return {};
    // The first rank may have been held up until the time was over.
    if (message.step == Step::kNo) return {message.missing == self ? first : message.missing};
    if (message.step != Step::kReady) continue;
    exchange.send(first, {Step::kYes, attempt});
    if (!asked) end = std::max(end, later(std::min(limit_s, kAnswer_s)));
    asked = true;
  }
  return {first};
}

/// Who does not come in time.
std::string missing_of(MPI_Comm comm, const std::vector<int>& ranks, double timeout_s, const Late& late,
                       std::uint64_t kind) {
  int self = 0;
  check_mpi(MPI_Comm_rank(comm, &self), "MPI_Comm_rank");
  static std::atomic<std::int32_t> attempts = 0;
  Exchange exchange(comm, tag_of(ranks, kind));
  // The first rank tells who is missing when its own time is over, which may have begun later.
  const std::vector<int> missing = self == ranks.front()
                                       ? lead(exchange, ranks, later(timeout_s), late)
                                       : follow(exchange, ranks.front(), self, ++attempts,
                                                timeout_s + kLater_s, self == ranks[1] ? late : Late{});
  std::string names;
  for (const int rank : missing) names += (names.empty() ? "" : ", ") + std::to_string(rank);
  return names;
}

}  // namespace

void rendezvous(MPI_Comm comm, const std::vector<int>& ranks, double timeout_s, const Late& late,
                std::uint64_t kind) {
  const std::string missing = missing_of(comm, ranks, timeout_s, late, kind);
  if (missing.empty()) return;
  int self = 0;
  MPI_Comm_rank(comm, &self);
  throw Error(DDL_ERR_TIMEOUT, "rank " + missing + " did not come within " + format_number(timeout_s) + " s",
              "in the making of a group of " + std::to_string(ranks.size()) + " ranks on rank " +
                  std::to_string(self),
              "all its ranks must make it: look at their output, or allow more time");
}

void name_missing(MPI_Comm comm, const std::vector<int>& ranks, const std::string& where, double timeout_s) {
  const double limit_s = std::clamp(timeout_s, kShortestCall_s, kLongestCall_s);
  const std::string missing = missing_of(comm, ranks, limit_s, {}, kRollCall);
  if (missing.empty()) return;
  throw Error(DDL_ERR_TIMEOUT,
              "Timed out after " + format_number(timeout_s) + " s: rank " + missing + " does not answer",
              where, "stopped, dead or unreachable: look at its output, or raise -timeout in DDL_OPTIONS");
}

MPI_Comm communicator_of(MPI_Comm base, const std::vector<int>& ranks, double timeout_s) {
  return communicator_within(base, ranks, tag_of(ranks, 0), timeout_s,
                             {"a rank", "in the making of a group", "look at the output of its ranks"});
}

}  // namespace ddl
