#include "engine/failure_detector.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace ddl {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;

enum Tag { kTagFailure = 1, kTagPing = 2, kTagPong = 3 };

/// To finish an earlier call than the one that failed: it lacks nothing but this rank's attention, unless
/// what it waits for was lost with a rank.
constexpr milliseconds kEarlierCallGrace{1000};

struct FailureMessage {
  std::int32_t code;
  std::int32_t all_alive;
  std::uint64_t sequence;
  char text[kFailureTextBytes];
};

double seconds_since(Clock::time_point from) { return duration<double>(Clock::now() - from).count(); }

std::string format_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

int open_pidfd(std::int64_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
#else
  (void)pid;
  return -1;
#endif
}

}  // namespace

FailureDetector::FailureDetector(const Topology& topology, int rank, const std::vector<int>& group,
                                 SharedSegment& segment, MpiTransport* transport, double timeout_s)
    : topology_(topology), segment_(segment), transport_(transport), timeout_s_(timeout_s) {
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (group[i] == rank) {
      self_ = i;
    } else {
      peers_.push_back({group[i], i});
    }
  }
  for (Peer& peer : peers_) {
    const RankCell& cell = segment.cell(peer.index);
    // A process id means something only to processes of the same pid namespace.
    if (cell.pid_namespace == segment.cell(self_).pid_namespace) peer.pidfd = open_pidfd(cell.pid);
  }
  for (int other = 0; other < topology.size(); ++other) {
    if (std::find(group.begin(), group.end(), other) == group.end()) remote_.push_back(other);
  }
}

FailureDetector::~FailureDetector() {
  for (const Peer& peer : peers_) {
    if (peer.pidfd >= 0) close(peer.pidfd);
  }
}

void FailureDetector::begin_call(std::uint64_t sequence, std::function<std::string()> description,
                                 double timeout_scale) {
  sequence_ = sequence;
  call_ = std::move(description);
  timeout_scale_ = timeout_scale;
  asked_.reset();
}

std::string FailureDetector::where() const {
  return "in " + call_() + " (call " + std::to_string(sequence_) + ")";
}

void FailureDetector::watch(Clock::time_point since) {
  adopt_local_failure();
  segment_.cell(self_).heartbeat.fetch_add(1, std::memory_order_relaxed);
  const auto now = Clock::now();
  if (transport_ != nullptr && !remote_.empty() && now - last_message_check_ > milliseconds(1)) {
    last_message_check_ = now;
    read_messages();
  }
  if (now - last_peer_check_ > milliseconds(50)) {
    last_peer_check_ = now;
    look_for_ended_peers();
  }
  investigate(since);
}

void FailureDetector::adopt_local_failure() {
  const FailureRecord& record = segment_.failure();
  if (record.state.load(std::memory_order_acquire) != FailureRecord::kReady) return;
  if (record.sequence > sequence_) {
    const auto now = Clock::now();
    if (!told_early_) told_early_ = now;
    if (now - *told_early_ < kEarlierCallGrace) return;
  }
  adopt(record);
}

void FailureDetector::adopt(const FailureRecord& record) {
  failure_ = Error::verbatim(static_cast<DDL_Status>(record.code & 0xff), record.text);
  all_alive_ = (record.code & 0x100) == 0;
  throw *failure_;
}

void FailureDetector::record_locally(const Error& error, bool all_alive, std::uint64_t sequence) {
  FailureRecord& record = segment_.failure();
  std::uint32_t none = FailureRecord::kNone;
  if (record.state.compare_exchange_strong(none, FailureRecord::kWriting)) {
    record.code = static_cast<std::int32_t>(error.code()) | (all_alive ? 0 : 0x100);
    record.sequence = sequence;
    std::snprintf(record.text, sizeof record.text, "%s", error.what());
    record.state.store(FailureRecord::kReady, std::memory_order_release);
  }
}

void FailureDetector::broadcast(const Error& error, bool all_alive, std::uint64_t sequence) {
  if (transport_ == nullptr || remote_.empty()) return;
  // Left to MPI for good: a receiver may be dead, and nothing may wait for it.
  auto* message = new FailureMessage{};
  message->code = static_cast<std::int32_t>(error.code());
  message->all_alive = all_alive ? 1 : 0;
  message->sequence = sequence;
  std::snprintf(message->text, sizeof message->text, "%s", error.what());
  for (const int rank : remote_) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(message, sizeof *message, MPI_BYTE, rank, kTagFailure, transport_->control(), &request) ==
        MPI_SUCCESS) {
      MPI_Request_free(&request);
    }
  }
  // Eager messages leave from within MPI calls; give them the chance before the caller perhaps exits.
  for (int i = 0; i < 20; ++i) {
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, kTagFailure, transport_->control(), &flag, MPI_STATUS_IGNORE);
    sched_yield();
  }
}

void FailureDetector::fail(const Error& error, bool all_alive) {
  record_locally(error, all_alive, sequence_);
  const FailureRecord& record = segment_.failure();
  for (int i = 0; i < 1000 && record.state.load(std::memory_order_acquire) == FailureRecord::kWriting; ++i) {
    sched_yield();
  }
  if (record.state.load(std::memory_order_acquire) == FailureRecord::kReady) {
    broadcast(Error::verbatim(static_cast<DDL_Status>(record.code & 0xff), record.text),
              (record.code & 0x100) == 0, record.sequence);
    adopt(record);
  }
  failure_ = error;
  all_alive_ = all_alive;
  broadcast(error, all_alive, sequence_);
  throw *failure_;
}

void FailureDetector::read_messages() {
  const MPI_Comm comm = transport_->control();
  while (true) {
    int flag = 0;
    MPI_Status status{};
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status), "MPI_Iprobe");
    if (flag == 0) return;
    if (status.MPI_TAG == kTagFailure) {
      FailureMessage message{};
      check_mpi(MPI_Recv(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE, kTagFailure, comm,
                         MPI_STATUS_IGNORE),
                "MPI_Recv");
      message.text[sizeof message.text - 1] = 0;
      record_locally(Error::verbatim(static_cast<DDL_Status>(message.code), message.text),
                     message.all_alive != 0, message.sequence);
      adopt_local_failure();
      continue;
    }
    if (status.MPI_TAG != kTagPing && status.MPI_TAG != kTagPong) return;
    MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm, MPI_STATUS_IGNORE);
    if (status.MPI_TAG == kTagPong) {
      if (asked_) answered_[static_cast<std::size_t>(status.MPI_SOURCE)] = 1;
    } else {
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, kTagPong, comm, &request), "MPI_Isend");
      MPI_Request_free(&request);
    }
  }
}

void FailureDetector::look_for_ended_peers() {
  for (Peer& peer : peers_) {
    if (peer.pidfd < 0) continue;
    pollfd ready{peer.pidfd, POLLIN, 0};
    if (poll(&ready, 1, 0) != 1) continue;
    // A peer may end right after its last contribution, so a waiting rank looks once more at what it waits
    // for before it believes that the contribution is missing.
    if (!peer.ended) {
      peer.ended = true;
      continue;
    }
    fail(Error(DDL_ERR_PEER_LOST, "the process of " + topology_.describe_rank(peer.rank) + " has ended; " +
                                      where() + "; look at its output for the reason"),
         false);
  }
}

void FailureDetector::investigate(Clock::time_point since) {
  const double waited = seconds_since(since);
  const double limit = timeout_s_ * timeout_scale_;
  const double grace = std::clamp(std::min(limit, timeout_s_) / 4, 0.5, 5.0);
  if (waited < limit) {
    asked_.reset();
    return;
  }
  if (!asked_) {
    std::int32_t nobody = 0;
    const auto me = static_cast<std::int32_t>(self_) + 1;
    auto& investigator = segment_.failure().investigator;
    const bool mine = investigator.compare_exchange_strong(nobody, me) || nobody == me;
    // One a host asks; should it come to grief, the others ask as well.
    if (mine || waited > limit + 3 * grace) start_investigation();
    return;
  }
  if (seconds_since(*asked_) > grace) conclude();
}

void FailureDetector::start_investigation() {
  asked_ = Clock::now();
  answered_.assign(static_cast<std::size_t>(topology_.size()), 0);
  for (Peer& peer : peers_) {
    peer.heartbeat_at_ping = segment_.cell(peer.index).heartbeat.load(std::memory_order_relaxed);
  }
  if (transport_ == nullptr) return;
  for (const int rank : remote_) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, rank, kTagPing, transport_->control(), &request), "MPI_Isend");
    MPI_Request_free(&request);
  }
}

void FailureDetector::conclude() {
  std::vector<int> missing;
  std::string progress;
  for (const Peer& peer : peers_) {
    const RankCell& cell = segment_.cell(peer.index);
    if (cell.heartbeat.load(std::memory_order_relaxed) != peer.heartbeat_at_ping) continue;
    missing.push_back(peer.rank);
    progress += " (its last call was number " + std::to_string(cell.arrived.load()) + ")";
  }
  for (const int rank : remote_) {
    if (answered_[static_cast<std::size_t>(rank)] == 0) missing.push_back(rank);
  }
  if (missing.size() != 1) progress.clear();
  const std::string limit = format_seconds(timeout_s_ * timeout_scale_);
  if (missing.empty()) {
    fail(Error(DDL_ERR_TIMEOUT, "nothing has moved for " + limit + " although every rank waits; " + where() +
                                    "; the network between the hosts may drop messages; or raise -timeout in "
                                    "DDL_OPTIONS"),
         false);
  }
  std::sort(missing.begin(), missing.end());
  std::string names;
  for (std::size_t i = 0; i < missing.size(); ++i) {
    if (i == 16) {
      names += " and " + std::to_string(missing.size() - i) + " more";
      break;
    }
    names += (i > 0 ? ", " : "") + topology_.describe_rank(missing[i]);
  }
  fail(Error(DDL_ERR_TIMEOUT, names + " did not arrive within " + limit + progress + "; " + where() +
                                  "; stopped, dead or busy with something else: look at its output, or raise "
                                  "-timeout in DDL_OPTIONS"),
       false);
}

}  // namespace ddl
