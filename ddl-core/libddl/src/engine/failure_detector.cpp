#include "engine/failure_detector.hpp"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <new>

#include "engine/call_validation.hpp"
#include "engine/callers.hpp"
#include "engine/flight_recorder.hpp"
#include "support/stopwatch.hpp"

namespace ddl {
namespace {

using std::chrono::milliseconds;

/// To finish an earlier call than the one that failed: it lacks nothing but this rank's attention, unless
/// what it waits for was lost with a rank.
constexpr milliseconds kEarlierCallGrace{1000};

/// A caller that waits for longer is seen as blocked.
constexpr double kBlocked_s = 1;

/// Named in a text; the others are counted.
constexpr std::size_t kNamed = 16;

std::string format_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

double grace_of(const WaitLimits& limits) { return std::clamp(limits.timeout_s / 4, 0.5, 5.0); }

}  // namespace

FailureDetector::FailureDetector(const Topology& topology, int rank,
                                 const std::vector<std::vector<int>>& hosts, std::size_t host,
                                 SharedSegment& segment, MpiTransport* transport, const WaitLimits& limits,
                                 bool threads)
    : topology_(topology),
      segment_(segment),
      limits_(limits),
      inquiry_(hosts, host, rank, segment, transport, grace_of(limits), threads) {
  for (std::size_t i = 0; i < hosts[host].size(); ++i) {
    if (hosts[host][i] == rank) continue;
    Peer& peer = peers_.emplace_back(Peer{hosts[host][i]});
    const RankCell& cell = segment.cell(i);
    // A process id means something only to processes of the same pid namespace.
    if (cell.pid_namespace == segment.cell(inquiry_.self()).pid_namespace)
      peer.process = ProcessHandle::of(cell.pid);
  }
  // Signs of life in shared memory need no MPI.
  if (threads || transport == nullptr) {
    liveness_ = liveness_thread().add([this] {
      try {
        inquiry_.serve();
      } catch (const std::bad_alloc&) {
        // A later round may have memory again.
      }
    });
  }
  TickingThread* const recording = FlightRecorder::instance().thread();
  if (recording == nullptr) return;
  record_ = recording->add([this] {
    const FailureRecord& record = segment_.failure();
    if (record.state.load(std::memory_order_acquire) != FailureRecord::kReady) return;
    // A rank that is in no call learns of the failure only later.
    FlightRecorder::instance().note_failure(record.text, false);
  });
}

FailureDetector::~FailureDetector() {
  if (liveness_) liveness_thread().remove(*liveness_);
  if (record_) FlightRecorder::instance().thread()->remove(*record_);
}

void FailureDetector::begin_call(std::uint64_t sequence, std::function<std::string()> description,
                                 double scale, std::optional<double> patience_s) {
  if (blocked_) note_blocked(0);
  sequence_ = sequence;
  call_ = std::move(description);
  awaited_.clear();
  patience_s_ = patience_s.value_or(limits_.patience_s) * scale;
  timeout_s_ = std::min(limits_.timeout_s * (asks() ? 1 : scale), patience_s_);
  late_s_ = std::min(limits_.late_s, patience_s_);
  next_question_s_ = std::min(timeout_s_, late_s_);
  next_warning_s_ = late_s_;
  asked_.reset();
  all_here_s_.reset();
}

std::string FailureDetector::where() const {
  return "in " + call_() + " (call " + std::to_string(sequence_) + ")";
}

void FailureDetector::watch(Clock::time_point since) {
  adopt_known_failure();
  inquiry_.serve();
  const auto now = Clock::now();
  if (now - last_peer_check_ > milliseconds(50)) {
    last_peer_check_ = now;
    look_for_ended_peers();
    if (!blocked_ && seconds_since(since) > kBlocked_s && Callers::only_this()) note_blocked(sequence_);
  }
  investigate(since);
}

void FailureDetector::adopt_known_failure() {
  const FailureRecord& record = segment_.failure();
  if (record.state.load(std::memory_order_acquire) != FailureRecord::kReady) return;
  if (record.sequence > sequence_) {
    const auto now = Clock::now();
    if (!told_early_) told_early_ = now;
    if (now - *told_early_ < kEarlierCallGrace) return;
  }
  adopt(record);
}

std::optional<Error> FailureDetector::known_end() const {
  const FailureRecord& record = segment_.failure();
  if (record.state.load(std::memory_order_acquire) != FailureRecord::kReady) return {};
  const auto code = static_cast<DDL_Status>(record.code & 0xff);
  // After other failures ranks may still make groups.
  if (code != DDL_ERR_PEER_LOST) return {};
  return Error::received(code, record.text);
}

std::shared_ptr<const ProcessHandle> FailureDetector::process_of(int rank) const {
  for (const Peer& peer : peers_) {
    if (peer.rank == rank) return peer.process;
  }
  return nullptr;
}

std::uint64_t FailureDetector::arrived() const {
  return segment_.cell(inquiry_.self()).arrived.load(std::memory_order_acquire);
}

void FailureDetector::note_forming(bool begins) {
  std::atomic<std::uint64_t>& forming = segment_.cell(inquiry_.self()).forming;
  if (begins) {
    forming.fetch_add(1, std::memory_order_relaxed);
  } else {
    forming.fetch_sub(1, std::memory_order_relaxed);
  }
}

void FailureDetector::note_blocked(std::uint64_t sequence) {
  blocked_ = sequence != 0;
  segment_.cell(inquiry_.self()).blocked.store(sequence, std::memory_order_relaxed);
}

void FailureDetector::adopt(const FailureRecord& record) {
  note_blocked(0);
  failure_ = Error::received(static_cast<DDL_Status>(record.code & 0xff), record.text);
  all_alive_ = (record.code & 0x100) == 0;
  inquiry_.flush();
  throw *failure_;
}

void FailureDetector::fail(const Error& error, bool all_alive) {
  inquiry_.spread(error, all_alive, sequence_);
  const FailureRecord& record = segment_.failure();
  if (record.state.load(std::memory_order_acquire) == FailureRecord::kReady) adopt(record);
  note_blocked(0);
  failure_ = error;
  all_alive_ = all_alive;
  throw *failure_;
}

void FailureDetector::announce(const Error& error, bool all_alive, bool in_call) {
  // A call that this rank has done its part of may be finished by the others.
  inquiry_.spread(error, all_alive, in_call ? arrived() : arrived() + 1);
}

void FailureDetector::look_for_ended_peers() {
  for (Peer& peer : peers_) {
    if (!peer.process || !peer.process->ended()) continue;
    // A peer may end right after its last contribution, so a waiting rank looks once more at what it waits
    // for before it believes that the contribution is missing.
    if (!peer.ended) {
      peer.ended = true;
      continue;
    }
    fail(Error(DDL_ERR_PEER_LOST, "the process of " + topology_.describe_rank(peer.rank) + " has ended",
               where(), "look at its output for the reason"),
         false);
  }
}

void FailureDetector::investigate(Clock::time_point since) {
  const double waited = seconds_since(since);
  if (waited < std::min(timeout_s_, late_s_)) {
    next_question_s_ = std::min(timeout_s_, late_s_);
    next_warning_s_ = late_s_;
    asked_.reset();
    all_here_s_.reset();
    return;
  }
  if (!asked_) {
    if (waited < next_question_s_) return;
    // One a host asks; should it come to grief, the others ask as well.
    if (!inquiry_.first_of_waiting(sequence_) && waited < next_question_s_ + inquiry_.limit_s()) return;
    asked_ = Clock::now();
    inquiry_.ask(sequence_);
    return;
  }
  std::optional<Verdict> verdict = inquiry_.take_verdict();
  if (!verdict) {
    if (seconds_since(*asked_) < inquiry_.limit_s()) return;
    verdict = inquiry_.rank_0_missing();
  }
  asked_.reset();
  judge(*verdict, waited);
}

void FailureDetector::judge(const Verdict& verdict, double waited) {
  const auto timed_out = [this](double limit_s, const std::string& what, const char* remedy) {
    return Error(DDL_ERR_TIMEOUT, "Timed out after " + format_seconds(limit_s) + ": " + what, where(),
                 remedy);
  };
  const auto ends = std::find_if(verdict.absent.begin(), verdict.absent.end(),
                                 [](const AbsentRank& absent) { return absent.alive == AbsentRank::kEnds; });
  if (ends != verdict.absent.end()) {
    fail(Error(DDL_ERR_MISMATCH,
               topology_.describe_rank(ends->rank) + last_call_of(*ends) +
                   " makes no further call: it is in ddl_finalize, or at the end of its program",
               where(), "every rank must make the same calls: it had fewer batches, or ended early"),
         true);
  }
  if (waited >= timeout_s_ && verdict.missing > 0) {
    fail(timed_out(timeout_s_, names_of(verdict, false) + " did not arrive and does not answer",
                   "stopped, dead or unreachable: look at its output, or raise -timeout in DDL_OPTIONS"),
         false);
  }
  if (waited >= patience_s_ && verdict.late > 0) {
    fail(
        timed_out(patience_s_, names_of(verdict, true) + " did not arrive, although its process is alive",
                  "busy with something else, or it makes other calls: look at its output, or raise -patience "
                  "in DDL_OPTIONS"),
        false);
  }
  if (verdict.missing + verdict.late > 0) {
    all_here_s_.reset();
  } else if (!all_here_s_) {
    all_here_s_ = waited;
  }
  // Who was late may have come just now, and its messages are under way.
  if (waited >= timeout_s_ && all_here_s_ && waited - *all_here_s_ >= timeout_s_ / 2) {
    fail(timed_out(timeout_s_, "nothing has moved although every rank waits" + awaited_,
                   "the network between the hosts may drop messages; or raise -timeout in DDL_OPTIONS"),
         false);
  }
  if (waited >= next_warning_s_ && verdict.late > 0) {
    warn(verdict, waited);
    next_warning_s_ = 2 * waited;
  }
  // Whoever is late may end or stop meanwhile.
  next_question_s_ =
      waited + std::clamp(next_question_s_ / 2, inquiry_.grace_s(), std::max(timeout_s_ / 2, 1.0));
  for (const double limit : {timeout_s_, patience_s_}) {
    if (waited < limit) next_question_s_ = std::min(next_question_s_, limit);
  }
}

void FailureDetector::warn(const Verdict& verdict, double waited) {
  if (!verdict.speaks) return;
  std::fprintf(
      stderr,
      "[WARN DDL-1-8] waited %s for %s, whose process is alive; %s; busy with something else? It is an "
      "error after %s (-patience in DDL_OPTIONS)\n",
      format_seconds(std::round(waited * 10) / 10).c_str(), names_of(verdict, true).c_str(), where().c_str(),
      format_seconds(patience_s_).c_str());
}

std::string FailureDetector::last_call_of(const AbsentRank& absent) const {
  if (absent.alive == AbsentRank::kHeldUp) return " (its GPU's stream has not come to the call)";
  if (absent.alive == AbsentRank::kForms) return " (it makes a group)";
  if (absent.arrived == 0) return absent.alive != 0 ? " (it has made no call yet)" : "";
  const CallHeader& own = segment_.cell(inquiry_.self()).headers[absent.arrived % kHeaderSlots];
  // Ranks make the same calls, and this one's header of the call may still be there.
  const std::string text = own.sequence == absent.arrived ? ", " + describe_call(own) : "";
  return " (its last call was number " + std::to_string(absent.arrived) + text + ")";
}

std::string FailureDetector::names_of(const Verdict& verdict, bool alive) const {
  const std::size_t all = alive ? verdict.late : verdict.missing;
  std::string names;
  std::size_t named = 0;
  for (const AbsentRank& absent : verdict.absent) {
    if ((absent.alive != 0) != alive || named == kNamed) continue;
    names += (named > 0 ? ", " : "") + topology_.describe_rank(absent.rank);
    if (all == 1 || alive) names += last_call_of(absent);
    ++named;
  }
  if (all > named) names += " and " + std::to_string(all - named) + " more";
  return names;
}

}  // namespace ddl
