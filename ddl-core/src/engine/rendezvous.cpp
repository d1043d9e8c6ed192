#include "engine/rendezvous.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "support/error.hpp"
#include "support/hash.hpp"
#include "support/kept_on_error.hpp"
#include "support/number.hpp"

namespace ddl {
namespace {

using Clock = std::chrono::steady_clock;

/// Above the tags of data messages, of which MPI has at least 32768.
constexpr int kFirstTag = 16384;
constexpr int kTags = 16384;

/// Different groups mostly get different tags, so that rendezvous of two threads do not mix.
int tag_of(const std::vector<int>& ranks) {
  return kFirstTag + static_cast<int>(hash_bytes(ranks.data(), ranks.size() * sizeof ranks[0]) % kTags);
}

enum class Step : std::int32_t {
  kCome,   ///< member to first: I am here
  kReady,  ///< first to member: all are here; do you still wait?
  kYes,    ///< member to first: I do, and go on when you say so
  kStart,  ///< first to member: all do
  kNo      ///< first to member: some do not
};

struct Message {
  Step step;
  std::int32_t attempt;  ///< of the member, which counts them: what was said in an earlier one is void
};

/// A member that has said yes waits so much longer for the answer: the first rank gives one when its own time
/// is over.
constexpr std::chrono::seconds kAnswer{30};

/// Messages of one rendezvous. Those that are sent are so small that MPI keeps them.
class Exchange {
 public:
  Exchange(MPI_Comm comm, int tag) : comm_(comm), tag_(tag) {}

  void send(int rank, Message message) {
    const KeptOnError<Message> kept(message);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(&*kept, sizeof message, MPI_BYTE, rank, tag_, comm_, &request), "MPI_Isend");
    for (int done = 0; done == 0;) check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  }

  /// The next message, of whichever rank; none: nothing has come until `end`.
  std::optional<std::pair<int, Message>> receive(Clock::time_point end) {
    while (true) {
      int there = 0;
      MPI_Status status{};
      check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag_, comm_, &there, &status), "MPI_Iprobe");
      if (there != 0) {
        Message message{};
        check_mpi(
            MPI_Recv(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE, tag_, comm_, MPI_STATUS_IGNORE),
            "MPI_Recv");
        return std::pair(status.MPI_SOURCE, message);
      }
      if (Clock::now() > end) return std::nullopt;
      const timespec pause{0, 100'000};
      nanosleep(&pause, nullptr);
    }
  }

 private:
  MPI_Comm comm_;
  int tag_;
};

/// What the first rank knows of a member.
struct Member {
  std::int32_t come = 0;   ///< its last attempt, from 1
  std::int32_t asked = 0;  ///< the attempt in which it was asked whether it still waits
  bool yes = false;
};

/// @return the ranks that are missing
std::string lead(Exchange& exchange, const std::vector<int>& ranks, Clock::time_point end) {
  std::map<int, Member> members;
  for (const int rank : ranks) {
    if (rank != ranks.front()) members.emplace(rank, Member{});
  }
  const auto all = [&](auto&& holds) {
    return std::all_of(members.begin(), members.end(),
                       [&](const auto& member) { return holds(member.second); });
  };
  while (!all([](const Member& member) { return member.yes; })) {
    const auto next = exchange.receive(end);
    if (!next) break;
    const auto& [rank, message] = *next;
    const auto found = members.find(rank);
    if (found == members.end()) continue;
    Member& member = found->second;
    if (message.step == Step::kCome) member = {message.attempt, member.asked, false};
    if (message.step == Step::kYes && message.attempt == member.come) member.yes = true;
    if (!all([](const Member& one) { return one.come > 0; })) continue;
    for (auto& [other, one] : members) {
      if (one.asked == one.come) continue;
      one.asked = one.come;
      exchange.send(other, {Step::kReady, one.come});
    }
  }
  std::string missing;
  for (const auto& [rank, member] : members) {
    if (!member.yes) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  for (const auto& [rank, member] : members) {
    if (member.come > 0) exchange.send(rank, {missing.empty() ? Step::kStart : Step::kNo, member.come});
  }
  return missing;
}

/// @return who is missing
std::string follow(Exchange& exchange, int first, std::int32_t attempt, Clock::time_point end) {
  exchange.send(first, {Step::kCome, attempt});
  bool asked = false;
  while (const auto next = exchange.receive(end)) {
    const auto& [rank, message] = *next;
    if (rank != first || message.attempt != attempt) continue;
    if (message.step == Step::kStart) return "";
    if (message.step == Step::kNo) {
      asked = true;
      break;
    }
    if (message.step != Step::kReady) continue;
    exchange.send(first, {Step::kYes, attempt});
    if (!asked) end += kAnswer;
    asked = true;
  }
  return std::to_string(first) + (asked ? " or one that it waits for" : "");
}

}  // namespace

void rendezvous(MPI_Comm comm, const std::vector<int>& ranks, double timeout_s) {
  int self = 0;
  check_mpi(MPI_Comm_rank(comm, &self), "MPI_Comm_rank");
  static std::atomic<std::int32_t> attempts = 0;
  Exchange exchange(comm, tag_of(ranks));
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  const std::string missing =
      self == ranks.front() ? lead(exchange, ranks, end) : follow(exchange, ranks.front(), ++attempts, end);
  if (missing.empty()) return;
  throw Error(DDL_ERR_TIMEOUT, "rank " + missing + " did not come within " + format_number(timeout_s) +
                                   " s; in the making of a group of " + std::to_string(ranks.size()) +
                                   " ranks on rank " + std::to_string(self) +
                                   "; all its ranks must make it: look at their output, or allow more time");
}

MPI_Comm communicator_of(MPI_Comm base, const std::vector<int>& ranks) {
  return communicator_of(base, ranks, tag_of(ranks));
}

}  // namespace ddl
