#include "engine/inquiry.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "support/stopwatch.hpp"

namespace ddl {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;

enum Tag {
  kTagFailure = 1,
  kTagQuestion = 2,
  kTagQuery = 3,
  kTagStatuses = 4,
  kTagVerdict = 5,
  kTagRoll = 6,   ///< who may be waited for in vain?
  kTagAbsent = 7  ///< these
};

/// Eager messages leave from within MPI calls: they get the chance for so long before the caller perhaps
/// exits.
constexpr milliseconds kLeaving{20};

/// How long the failure of another host is waited for, when an arbiter has been told of this one's.
constexpr milliseconds kArbiterLimit{2000};
/// Hosts, the first ones, whose first ranks decide which of several failures all ranks are told: the next one
/// where those before it do not answer.
constexpr std::size_t kArbiters = 3;

/// What comes before the text of a failure, which ends with a 0.
struct FailureHead {
  std::int32_t code;
  std::int32_t all_alive;
  std::uint64_t sequence;
  std::int64_t
      root;  ///< host from which it spreads; kToAll: everybody is told, and kToArbiter: an arbiter is
};
constexpr std::int64_t kToAll = -1;
constexpr std::int64_t kToArbiter = -2;

/// Branches of the tree along which failures spread: among few hosts it is none.
constexpr std::size_t kBranches = 4;
/// Ranks of a host that are told: the first one may be what has failed.
constexpr std::size_t kToldOfHost = 2;

/// Before the absent ranks of a verdict.
struct VerdictHead {
  std::uint64_t missing;
  std::uint64_t late;
  std::uint64_t speaks;
};

FailureHead head_of(const std::vector<char>& failure) {
  FailureHead head{};
  std::memcpy(&head, failure.data(), sizeof head);
  return head;
}

template <class T>
std::vector<char> bytes_of(const T& value) {
  std::vector<char> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

void append(std::vector<char>& bytes, const std::vector<AbsentRank>& ranks) {
  const auto* const first = reinterpret_cast<const char*>(ranks.data());
  bytes.insert(bytes.end(), first, first + ranks.size() * sizeof(AbsentRank));
}

std::vector<AbsentRank> ranks_in(const std::vector<char>& bytes, std::size_t from) {
  std::vector<AbsentRank> ranks((bytes.size() - from) / sizeof(AbsentRank));
  std::memcpy(ranks.data(), bytes.data() + from, ranks.size() * sizeof(AbsentRank));
  return ranks;
}

}  // namespace

std::vector<std::size_t> hosts_told_by(std::size_t host, std::size_t root, std::size_t hosts) {
  const std::size_t place = (host + hosts - root) % hosts;
  std::vector<std::size_t> places;
  for (std::size_t child = kBranches * place + 1; child <= kBranches * (place + 1); ++child) {
    places.push_back(child);
    for (std::size_t k = 1; k <= kBranches; ++k) places.push_back(kBranches * child + k);
  }
  std::vector<std::size_t> told;
  for (const std::size_t other : places) {
    if (other < hosts) told.push_back((root + other) % hosts);
  }
  return told;
}

Inquiry::Inquiry(const std::vector<std::vector<int>>& hosts, std::size_t host, int rank,
                 SharedSegment& segment, MpiTransport* transport, double grace_s, bool served)
    : hosts_(hosts),
      host_(host),
      rank_(rank),
      self_(static_cast<std::size_t>(std::find(hosts[host].begin(), hosts[host].end(), rank) -
                                     hosts[host].begin())),
      segment_(segment),
      transport_(transport),
      grace_s_(grace_s),
      served_(served),
      heartbeats_(hosts[host].size(), 0),
      seen_alive_(hosts[host].size()) {}

void Inquiry::serve() {
  segment_.cell(self_).heartbeat.fetch_add(1, std::memory_order_relaxed);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;  // Somebody is at it.
  const auto now = Clock::now();
  if (now - last_look_ > milliseconds(50)) note_signs_of_life(now);
  if (transport_ == nullptr || now - last_read_ < milliseconds(1)) return;
  last_read_ = now;
  read_messages();
  send_out();
  if (round_) go_on_with_round();
}

void Inquiry::note_signs_of_life(Clock::time_point now) {
  // Nobody has looked for long: what was seen then says nothing about now.
  const bool anew = duration<double>(now - last_look_).count() > grace_s_ / 2;
  last_look_ = now;
  for (std::size_t i = 0; i < heartbeats_.size(); ++i) {
    const std::uint64_t beats = segment_.cell(i).heartbeat.load(std::memory_order_relaxed);
    if (anew || beats != heartbeats_[i]) seen_alive_[i] = now;
    heartbeats_[i] = beats;
  }
}

bool Inquiry::alive(std::size_t index) const {
  return index == self_ || duration<double>(last_look_ - seen_alive_[index]).count() < grace_s_;
}

bool Inquiry::first_of_waiting(std::uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  return waits_first(sequence);
}

bool Inquiry::waits_first(std::uint64_t sequence) const {
  for (std::size_t i = 0; i < self_; ++i) {
    if (alive(i) && segment_.cell(i).arrived.load(std::memory_order_acquire) == sequence) return false;
  }
  return true;
}

std::vector<AbsentRank> Inquiry::local_statuses() const {
  std::vector<AbsentRank> statuses;
  for (std::size_t i = 0; i < heartbeats_.size(); ++i) {
    const RankCell& cell = segment_.cell(i);
    const std::uint64_t arrived = cell.arrived.load(std::memory_order_acquire);
    const bool held_up = arrived > 0 && cell.held_up.load(std::memory_order_relaxed) == arrived;
    const bool ends = cell.finalizing.load(std::memory_order_acquire) != 0;
    const bool forms = cell.forming.load(std::memory_order_relaxed) != 0;
    const bool blocked = arrived > 0 && cell.blocked.load(std::memory_order_relaxed) == arrived;
    statuses.push_back({hosts_[host_][i],
                        !alive(i) ? AbsentRank::kNoAnswer
                        : ends    ? AbsentRank::kEnds
                        : held_up ? AbsentRank::kHeldUp
                        : forms   ? AbsentRank::kForms
                        : blocked ? AbsentRank::kBlocked
                                  : AbsentRank::kAnswers,
                        arrived, cell.headers[arrived % kHeaderSlots].kind});
  }
  return statuses;
}

Verdict Inquiry::judge(const std::map<int, AbsentRank>& ranks, std::uint64_t sequence) {
  Verdict verdict;
  for (const auto& [rank, status] : ranks) {
    const bool here =
        status.arrived > sequence || (status.arrived == sequence && status.alive != AbsentRank::kHeldUp);
    if (status.alive != 0 && here) continue;
    ++(status.alive != 0 ? verdict.late : verdict.missing);
    verdict.absent.push_back(status);
  }
  // Who does not answer matters more than who is late.
  std::stable_sort(verdict.absent.begin(), verdict.absent.end(),
                   [](const AbsentRank& a, const AbsentRank& b) { return a.alive < b.alive; });
  if (verdict.absent.size() > kMostNamed) verdict.absent.resize(kMostNamed);
  return verdict;
}

Verdict Inquiry::rank_0_missing() const {
  Verdict verdict;
  verdict.absent.push_back({hosts_.front().front(), 0, 0});
  verdict.missing = 1;
  return verdict;
}

void Inquiry::ask(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  verdict_.reset();
  if (hosts_.size() == 1) {
    std::map<int, AbsentRank> ranks;
    for (const AbsentRank& status : local_statuses()) ranks.emplace(status.rank, status);
    verdict_ = judge(ranks, sequence);
    verdict_->speaks = waits_first(sequence);
  } else if (leads()) {
    take_question(rank_, sequence);
  } else {
    send(hosts_.front().front(), kTagQuestion, bytes_of(sequence));
  }
}

std::optional<Verdict> Inquiry::take_verdict() {
  const std::lock_guard lock(mutex_);
  return std::exchange(verdict_, std::nullopt);
}

std::optional<std::vector<AbsentRank>> Inquiry::call_roll(Clock::time_point since) {
  const std::lock_guard lock(mutex_);
  if (roll_ && roll_->asked >= since) return roll_->absent;
  const auto now = Clock::now();
  if (roll_asked_ && duration<double>(now - *roll_asked_).count() > limit_s()) {
    // It has not answered until now.
    roll_asked_ = now;
    take_roll({{hosts_.front().front(), AbsentRank::kNoAnswer, 0}});
  } else if (!roll_asked_) {
    roll_asked_ = now;
    if (hosts_.size() == 1) {
      std::map<int, AbsentRank> ranks;
      for (const AbsentRank& status : local_statuses()) ranks.emplace(status.rank, status);
      take_roll(absent_of(ranks));
    } else if (leads()) {
      round().rolls.insert(rank_);
    } else {
      send(hosts_.front().front(), kTagRoll, {});
    }
  }
  if (!roll_ || roll_->asked < since) return std::nullopt;
  return roll_->absent;
}

void Inquiry::take_roll(std::vector<AbsentRank> absent) {
  if (!roll_asked_) return;
  roll_ = Roll{*roll_asked_, std::move(absent)};
  roll_asked_.reset();
}

std::vector<AbsentRank> Inquiry::absent_of(const std::map<int, AbsentRank>& ranks) {
  std::vector<AbsentRank> absent;
  for (const auto& [rank, status] : ranks) {
    if (status.alive == AbsentRank::kNoAnswer || status.alive == AbsentRank::kEnds ||
        status.alive == AbsentRank::kBlocked)
      absent.push_back(status);
  }
  return absent;
}

void Inquiry::answer_roll(int from, const std::vector<AbsentRank>& absent) {
  if (from == rank_) {
    take_roll(absent);
    return;
  }
  std::vector<char> message;
  append(message, absent);
  send(from, kTagAbsent, std::move(message));
}

Inquiry::Round& Inquiry::round() {
  if (round_) return *round_;
  round_.emplace();
  round_->started = Clock::now();
  round_->answered.assign(hosts_.size(), 0);
  take_statuses(local_statuses());
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (i != host_) send(hosts_[i].front(), kTagQuery, {});
  }
  return *round_;
}

void Inquiry::take_question(int from, std::uint64_t sequence) { round().waiting[from] = sequence; }

void Inquiry::take_statuses(const std::vector<AbsentRank>& statuses) {
  if (!round_ || statuses.empty()) return;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].front() == statuses.front().rank) round_->answered[i] = 1;
  }
  for (const AbsentRank& status : statuses) {
    // Another rank of the same host may have answered as well.
    round_->ranks.emplace(status.rank, status);
  }
}

void Inquiry::go_on_with_round() {
  const bool all =
      std::all_of(round_->answered.begin(), round_->answered.end(), [](char c) { return c != 0; });
  const double waited = seconds_since(round_->started);
  if (all || waited > 2 * grace_s_) {
    finish_round();
    return;
  }
  if (round_->asked_all || waited < grace_s_) return;
  round_->asked_all = true;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (round_->answered[i] != 0) continue;
    for (std::size_t k = 1; k < hosts_[i].size(); ++k) send(hosts_[i][k], kTagQuery, {});
  }
}

void Inquiry::finish_round() {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (round_->answered[i] != 0) continue;
    for (const int rank : hosts_[i]) round_->ranks.emplace(rank, AbsentRank{rank, 0, 0});
  }
  for (const auto& [rank, sequence] : round_->waiting) {
    Verdict verdict = judge(round_->ranks, sequence);
    if (sequence > spoken_of_) {
      spoken_of_ = sequence;
      speaker_ = rank;
    }
    verdict.speaks = sequence == spoken_of_ && rank == speaker_;
    if (rank == rank_) {
      verdict_ = std::move(verdict);
      continue;
    }
    std::vector<char> message =
        bytes_of(VerdictHead{verdict.missing, verdict.late, verdict.speaks ? 1U : 0U});
    append(message, verdict.absent);
    send(rank, kTagVerdict, std::move(message));
  }
  const std::vector<AbsentRank> absent = absent_of(round_->ranks);
  for (const int rank : round_->rolls) answer_roll(rank, absent);
  round_.reset();
}

void Inquiry::send(int rank, int tag, std::vector<char> message) {
  Outgoing& out = outgoing_.emplace_back();
  out.bytes = std::move(message);
  // A communicator that fails says so in the call itself; here nobody could be told.
  if (MPI_Isend(out.bytes.data(), static_cast<int>(out.bytes.size()), MPI_BYTE, rank, tag,
                transport_->control(), &out.request) != MPI_SUCCESS) {
    outgoing_.pop_back();
  }
}

void Inquiry::send_out() {
  for (auto out = outgoing_.begin(); out != outgoing_.end();) {
    int done = 0;
    MPI_Test(&out->request, &done, MPI_STATUS_IGNORE);
    out = done != 0 ? outgoing_.erase(out) : std::next(out);
  }
}

void Inquiry::read_messages() {
  const MPI_Comm comm = transport_->control();
  while (true) {
    int flag = 0;
    MPI_Status status{};
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status) != MPI_SUCCESS || flag == 0) return;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::vector<char> message(static_cast<std::size_t>(bytes));
    if (MPI_Recv(message.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      return;
    }
    read(status.MPI_SOURCE, status.MPI_TAG, std::move(message));
  }
}

void Inquiry::read(int source, int tag, std::vector<char> message) {
  switch (tag) {
    case kTagFailure:
      if (message.size() <= sizeof(FailureHead) || message.back() != 0) return;
      // Of what several hosts have found at once an arbiter passes on the first.
      if (!record(message)) return;
      if (leads() || head_of(message).root == kToArbiter) {
        tell_all_hosts(std::move(message));
      } else {
        pass_on(message);
      }
      return;
    case kTagQuestion: {
      std::uint64_t sequence = 0;
      if (message.size() != sizeof sequence) return;
      std::memcpy(&sequence, message.data(), sizeof sequence);
      if (segment_.failure().state.load(std::memory_order_acquire) == FailureRecord::kReady) {
        send(source, kTagFailure, known_failure());
        return;
      }
      take_question(source, sequence);
      return;
    }
    case kTagQuery: {
      std::vector<char> answer;
      append(answer, local_statuses());
      send(source, kTagStatuses, std::move(answer));
      return;
    }
    case kTagStatuses:
      take_statuses(ranks_in(message, 0));
      return;
    case kTagVerdict: {
      VerdictHead head{};
      if (message.size() < sizeof head) return;
      std::memcpy(&head, message.data(), sizeof head);
      verdict_ = Verdict{ranks_in(message, sizeof head), head.missing, head.late, head.speaks != 0};
      return;
    }
    case kTagRoll:
      round().rolls.insert(source);
      return;
    case kTagAbsent:
      take_roll(ranks_in(message, 0));
      return;
    default:
      return;
  }
}

bool Inquiry::record(const std::vector<char>& failure) {
  const FailureHead head = head_of(failure);
  FailureRecord& record = segment_.failure();
  std::uint32_t none = FailureRecord::kNone;
  if (!record.state.compare_exchange_strong(none, FailureRecord::kWriting)) return false;
  record.code = head.code | (head.all_alive != 0 ? 0 : 0x100);
  record.sequence = head.sequence;
  std::snprintf(record.text, sizeof record.text, "%s", failure.data() + sizeof head);
  record.state.store(FailureRecord::kReady, std::memory_order_release);
  segment_.ring();
  return true;
}

void Inquiry::tell_all_hosts(std::vector<char> failure) {
  FailureHead head = head_of(failure);
  head.root = served_ ? static_cast<std::int64_t>(host_) : kToAll;
  std::memcpy(failure.data(), &head, sizeof head);
  if (served_) {
    pass_on(failure);
    return;
  }
  // Where no thread answers for them each rank has to see it by itself.
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (i == host_) continue;
    for (const int rank : hosts_[i]) send(rank, kTagFailure, failure);
  }
}

void Inquiry::pass_on(const std::vector<char>& failure) {
  const std::int64_t root = head_of(failure).root;
  if (root < 0 || static_cast<std::size_t>(root) >= hosts_.size()) return;
  for (const std::size_t host : hosts_told_by(host_, static_cast<std::size_t>(root), hosts_.size())) {
    const std::size_t ranks = std::min(kToldOfHost, hosts_[host].size());
    for (std::size_t i = 0; i < ranks; ++i) send(hosts_[host][i], kTagFailure, failure);
  }
}

void Inquiry::flush() {
  if (transport_ == nullptr) return;
  const auto until = Clock::now() + kLeaving;
  do {
    {
      const std::lock_guard lock(mutex_);
      send_out();
      if (outgoing_.empty()) return;
    }
    sched_yield();
  } while (Clock::now() < until);
}

std::vector<char> Inquiry::known_failure() const {
  const FailureRecord& record = segment_.failure();
  std::vector<char> bytes =
      bytes_of(FailureHead{record.code & 0xff, (record.code & 0x100) == 0 ? 1 : 0, record.sequence, kToAll});
  bytes.insert(bytes.end(), record.text, record.text + std::strlen(record.text) + 1);
  return bytes;
}

void Inquiry::spread(const Error& error, bool all_alive, std::uint64_t sequence) {
  std::vector<char> bytes =
      bytes_of(FailureHead{static_cast<std::int32_t>(error.code()), all_alive ? 1 : 0, sequence, kToArbiter});
  const std::string text = std::string(error.what()).substr(0, kFailureTextBytes - 1);
  bytes.insert(bytes.end(), text.c_str(), text.c_str() + text.size() + 1);
  const auto known = [&] {
    return segment_.failure().state.load(std::memory_order_acquire) == FailureRecord::kReady;
  };
  for (std::size_t arbiter = 0; arbiter < std::min(host_, kArbiters) && !known(); ++arbiter) {
    const auto asked = Clock::now();
    {
      const std::lock_guard lock(mutex_);
      send(hosts_[arbiter].front(), kTagFailure, bytes);
    }
    while (!known() && Clock::now() - asked < kArbiterLimit) {
      serve();
      sched_yield();
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (record(bytes) && hosts_.size() > 1) tell_all_hosts(bytes);
  }
  // Another rank of this host may be writing.
  const auto from = Clock::now();
  const auto until = from + (hosts_.size() > 1 ? kLeaving : milliseconds(1));
  while (!known() || (hosts_.size() > 1 && Clock::now() < until)) {
    if (Clock::now() - from > kArbiterLimit) return;
    serve();
    sched_yield();
  }
}

}  // namespace ddl
