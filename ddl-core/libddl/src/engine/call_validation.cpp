#include "engine/call_validation.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>

#include "memory/executor.hpp"
#include "support/types.hpp"

namespace ddl {
namespace {

/// Up to this many groups one round with everybody is faster than several with one.
constexpr std::size_t kFewGroups = 8;

/// While nothing moves, leaders look for a text once in so many steps.
constexpr unsigned kTextLooks = 32;

/// Who waits longer than this asks. Mostly the others are just late.
constexpr std::chrono::seconds kAskAfter{2};

bool same(const CallHeader& a, const CallHeader& b) {
  return a.kind == b.kind && a.sequence == b.sequence && a.type == b.type && a.op == b.op &&
         a.root == b.root && a.memory == b.memory && a.count == b.count && a.buffers == b.buffers &&
         a.counts_hash == b.counts_hash && a.name_hash == b.name_hash && a.plan_hash == b.plan_hash;
}

std::size_t index_in(const std::vector<int>& ranks, int rank) {
  return static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

}  // namespace

const char* name_of(CallKind kind) {
  switch (kind) {
    case CallKind::kAllreduce:
      return "allreduce";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kPlainAllreduce:
      return "allreduce_plain";
    case CallKind::kFinalize:
      return "finalize";
    case CallKind::kReduce:
      return "reduce";
    case CallKind::kReduceScatter:
      return "reduce_scatter";
    case CallKind::kAllGather:
      return "all_gather";
    case CallKind::kAllToAll:
      return "all_to_all";
    case CallKind::kSchedule:
      return "schedule";
    case CallKind::kAllToAllv:
      return "all_to_all_v";
    case CallKind::kRefused:
      return "refused";
    case CallKind::kForm:
      return "form";
    case CallKind::kInit:
      return "init";
  }
  return "unknown";
}

std::string describe_call(const CallHeader& header) {
  const std::string name = header.name_hash != 0 ? "name '" + std::string(header.name) + "'" : "";
  const auto type = static_cast<DDL_Type>(header.type);
  const std::string elements =
      std::to_string(header.count) + " " + (valid_type(header.type) ? name_of(type) : "?") +
      (header.count == 1 ? " element" : " elements") +
      (header.buffers == 1 ? "" : " in " + std::to_string(header.buffers) + " buffers") +
      (header.memory == DDL_MEMORY_HOST ? "" : " in " + name_of_memory(header.memory) + " memory");
  switch (header.kind) {
    case CallKind::kAllreduce:
    case CallKind::kPlainAllreduce: {
      const std::string op = valid_op(header.op) ? name_of(static_cast<DDL_Op>(header.op)) : "?";
      return (header.kind == CallKind::kAllreduce ? "allreduce of " : "allreduce_plain of ") + elements +
             " (op " + op + (name.empty() ? "" : ", " + name) + ")";
    }
    case CallKind::kBroadcast:
      return "broadcast of " + elements + " (root " + std::to_string(header.root) +
             (name.empty() ? "" : ", " + name) + ")";
    case CallKind::kReduce:
    case CallKind::kReduceScatter: {
      const std::string op = valid_op(header.op) ? name_of(static_cast<DDL_Op>(header.op)) : "?";
      const std::string root =
          header.kind == CallKind::kReduce ? ", root " + std::to_string(header.root) : std::string();
      return (header.kind == CallKind::kReduce ? "reduce of " : "reduce_scatter of ") + elements + " (op " +
             op + root + (name.empty() ? "" : ", " + name) + ")";
    }
    case CallKind::kAllGather:
      return "all_gather of " + elements + (name.empty() ? "" : " (" + name + ")");
    case CallKind::kAllToAll:
      return "all_to_all of " + elements + (name.empty() ? "" : " (" + name + ")");
    case CallKind::kAllToAllv:
      return "exchange" + (name.empty() ? "" : " (" + name + ")");
    case CallKind::kSchedule:
      return "scheduling after a large allreduce";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kFinalize:
      return "finalize";
    case CallKind::kInit:
      return "ddl_init with other options";
    case CallKind::kRefused:
      return "a function of DDL that refused the call (" + std::string(header.name) + ")";
    case CallKind::kForm:
      return "the making of a group";
  }
  return "an unknown call";
}

std::string difference(const CallHeader& a, const CallHeader& b) {
  std::string out;
  const auto add = [&](const char* what) { out += (out.empty() ? "" : ", ") + std::string(what); };
  if (a.kind != b.kind) return "kind of call";
  if (a.sequence != b.sequence) add("number of the call");
  if (a.type != b.type) add("element type");
  if (a.op != b.op) add("op");
  if (a.root != b.root) add("root");
  if (a.memory != b.memory) add("kind of memory");
  if (a.count != b.count) add("element count");
  if (a.buffers != b.buffers) add("number of buffers");
  if (a.count == b.count && a.buffers == b.buffers && a.counts_hash != b.counts_hash)
    add("sizes of the buffers");
  if (a.name_hash != b.name_hash) add("name");
  // Different calls are planned differently.
  if (out.empty() && a.plan_hash != b.plan_hash) add("plan, which is a defect of DDL: please report it");
  return out;
}

CallValidation::CallValidation(const Topology& topology, int rank, const std::vector<const Group*>& groups,
                               std::size_t group, SharedSegment& segment, MpiTransport* transport,
                               FailureDetector& detector)
    : topology_(topology),
      groups_(groups),
      group_(group),
      self_(index_in(groups[group]->ranks, rank)),
      segment_(segment),
      transport_(transport),
      detector_(detector) {}

void CallValidation::begin(const CallHeader& header, bool carried) {
  header_ = header;
  header_.digest = digest_of(header);
  arrived_ = 0;
  same_ = true;
  carried_ = carried;
  submitted_ = header.submitted;
  last_s_ = header.last_s;
  locally_ = globally_ = exchanging_ = false;
}

void CallValidation::arrive() { segment_.arrive(self_, header_); }

bool CallValidation::step() {
  if (!locally_) {
    if (!compare_locally()) return false;
    locally_ = true;
    if (groups_.size() == 1) {
      globally_ = true;
    } else if (self_ == 0 && !carried_) {
      distance_ = 1;
      start_round();
    }
    return true;
  }
  if (exchanging_) {
    if (!requests_.test()) {
      look_for_text();
      return false;
    }
    finish_round();
    if (last_round()) {
      publish_result();
    } else {
      distance_ *= radix();
      start_round();
    }
    return true;
  }
  if (!globally_ && self_ != 0) {
    const RankCell& leader = segment_.cell(0);
    globally_ = leader.validated.load(std::memory_order_acquire) >= header_.sequence;
    if (globally_) {
      submitted_ = leader.agreed_submitted;
      last_s_ = leader.agreed_last_s;
    }
    return globally_;
  }
  if (!globally_) look_for_text();
  return false;
}

bool CallValidation::compare_locally() {
  const std::size_t ranks = segment_.ranks();
  const auto slot = header_.sequence % kHeaderSlots;
  if (segment_.divided()) {
    const CombinedSummary* const all = segment_.said_by_all(self_, header_.sequence);
    if (all == nullptr) return false;
    submitted_ = all->submitted;
    last_s_ = all->last_s;
    same_ = all->same != 0;
  } else {
    // Among many ranks on few cores most looks are in vain: who has arrived is not looked at again.
    for (; arrived_ < ranks; ++arrived_) {
      const RankCell& cell = segment_.cell(arrived_);
      if (cell.arrived.load(std::memory_order_acquire) < header_.sequence) return false;
      const CallSummary& other = cell.summaries[slot];
      same_ = same_ && other.digest == header_.digest;
      merge(other.submitted, other.last_s);
    }
  }
  if (same_) return true;
  std::vector<const CallHeader*> headers;
  std::vector<std::vector<int>> members;
  for (std::size_t i = 0; i < ranks; ++i) {
    headers.push_back(&segment_.cell(i).headers[slot]);
    members.push_back({groups_[group_]->ranks[i]});
  }
  mismatch(headers, members);
}

void CallValidation::merge(std::uint64_t submitted, double last_s) {
  submitted_ = least_submitted(submitted_, submitted);
  last_s_ = std::max(last_s_, last_s);
}

void CallValidation::write_merged(char* to) const {
  CallHeader header;
  header.sequence = header_.sequence;
  header.digest = header_.digest;
  header.submitted = submitted_;
  header.last_s = last_s_;
  std::memcpy(to, &header, kTravellingBytes);
}

void CallValidation::start_round() {
  write_merged(sent_.data());
  const std::size_t groups = groups_.size();
  const auto send = [&](std::size_t to) {
    transport_->send(sent_.data(), sent_.size(), groups_[to]->ranks.front(), kTag, requests_);
  };
  if (groups <= kFewGroups) {
    for (std::size_t i = 0; i < groups; ++i) {
      if (i != group_) receive_packet(i, requests_);
    }
    for (const std::size_t to : awaited_) send(to);
  } else {
    const auto until = std::min(groups, radix() * distance_);
    for (std::size_t by = distance_; by < until; by += distance_) {
      receive_packet((group_ + groups - by) % groups, requests_);
    }
    for (std::size_t by = distance_; by < until; by += distance_) send((group_ + by) % groups);
  }
  exchanging_ = true;
}

void CallValidation::finish_round() {
  exchanging_ = false;
  merge_packets(awaited_);
}

void CallValidation::receive_packet(std::size_t group, Requests& requests) {
  // Among more hosts no call sends more than a header.
  const std::size_t bytes = groups_.size() <= kLeadersHosts ? kEagerPacketBytes : kTravellingBytes;
  packets_.resize(groups_.size());
  if (packets_[group] == nullptr) packets_[group].reset(new char[bytes]);
  transport_->receive(packets_[group].get(), bytes, groups_[group]->ranks.front(), kTag, requests);
  awaited_.push_back(group);
  waiting_since_.reset();
}

bool CallValidation::told_the_same(std::size_t group) const {
  CallHeader told;
  std::memcpy(static_cast<void*>(&told), packets_[group].get(), kTravellingBytes);
  return told.sequence == header_.sequence && told.digest == header_.digest;
}

void CallValidation::merge_packets(std::span<const std::size_t> groups) {
  bool all_same = true;
  for (const std::size_t group : groups) {
    CallHeader told;
    std::memcpy(static_cast<void*>(&told), packets_[group].get(), kTravellingBytes);
    merge(told.submitted, told.last_s);
    all_same = all_same && told_the_same(group);
  }
  if (!all_same) compare_texts(groups);
  awaited_.clear();
}

void CallValidation::compare_texts(std::span<const std::size_t> groups) {
  std::vector<std::size_t> others;
  std::copy_if(groups.begin(), groups.end(), std::back_inserter(others),
               [this](std::size_t group) { return !told_the_same(group); });
  for (const std::size_t group : others) send_text(group);
  const auto lacking = [this](std::size_t group) {
    return !texts_[group] || texts_[group]->sequence != header_.sequence;
  };
  Backoff backoff(detector_, segment_, true);
  wait_while(
      backoff, [&] { return std::any_of(others.begin(), others.end(), lacking); },
      [this] { return receive_text(); });
  std::vector<const CallHeader*> headers{&header_};
  std::vector<std::vector<int>> members{groups_[group_]->ranks};
  for (const std::size_t group : groups) {
    headers.push_back(told_the_same(group) ? &header_ : &*texts_[group]);
    members.push_back(groups_[group]->ranks);
  }
  mismatch(headers, members);
}

void CallValidation::send_text(std::size_t group) {
  texts_.resize(groups_.size());
  told_.resize(groups_.size(), 0);
  if (told_[group] == header_.sequence) return;
  told_[group] = header_.sequence;
  if (text_.sequence != header_.sequence) {
    // That of an earlier call was an answer, or asked for one.
    Backoff backoff(detector_, segment_, true);
    wait_while(
        backoff, [this] { return !text_requests_.empty(); }, [this] { return text_requests_.test(); });
    text_ = header_;
  }
  transport_->send(&text_, whole_bytes(text_), groups_[group]->ranks.front(), kTextTag, text_requests_);
}

bool CallValidation::receive_text() {
  int found = 0;
  MPI_Status status{};
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kTextTag, transport_->data(), &found, &status), "MPI_Iprobe");
  if (found == 0) return false;
  CallHeader text;
  check_mpi(MPI_Recv(&text, sizeof text, MPI_BYTE, status.MPI_SOURCE, kTextTag, transport_->data(),
                     MPI_STATUS_IGNORE),
            "MPI_Recv");
  text.name[sizeof text.name - 1] = 0;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    if (groups_[group]->ranks.front() != status.MPI_SOURCE) continue;
    send_text(group);
    texts_[group] = text;
    if (!asked_.empty()) asked_[group] = 0;
  }
  return true;
}

void CallValidation::look_for_text() {
  if (++idle_steps_ % kTextLooks != 0) return;
  receive_text();
  text_requests_.test();
  ask_awaited();
}

void CallValidation::ask_awaited() {
  if (awaited_.empty()) return;
  const Clock::time_point now = Clock::now();
  if (!waiting_since_) waiting_since_ = now;
  if (now - *waiting_since_ < kAskAfter) return;
  for (std::size_t group = 0; group < texts_.size(); ++group) {
    const std::optional<CallHeader>& text = texts_[group];
    if (!text || text->sequence != header_.sequence || same(*text, header_)) continue;
    mismatch({&header_, &*text}, {groups_[group_]->ranks, groups_[group]->ranks});
  }
  asked_.resize(groups_.size(), 0);
  for (const std::size_t group : awaited_) {
    // Who is late does not look for questions: one is enough for it.
    if (asked_[group] != 0) continue;
    asked_[group] = 1;
    send_text(group);
  }
}

bool CallValidation::last_round() const {
  return groups_.size() <= kFewGroups || distance_ * radix() >= groups_.size();
}

void CallValidation::publish_result() {
  globally_ = true;
  RankCell& cell = segment_.cell(0);
  cell.agreed_submitted = submitted_;
  cell.agreed_last_s = last_s_;
  segment_.publish_alone(0, &RankCell::validated, header_.sequence);
}

void CallValidation::mismatch(const std::vector<const CallHeader*>& headers,
                              const std::vector<std::vector<int>>& ranks) {
  // Ranks that agree form a side; the side with most ranks is taken for the right one.
  struct Side {
    const CallHeader* header;
    std::vector<int> ranks;
  };
  std::vector<Side> sides;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    auto side =
        std::find_if(sides.begin(), sides.end(), [&](const Side& s) { return same(*s.header, *headers[i]); });
    if (side == sides.end()) side = sides.insert(sides.end(), {headers[i], {}});
    side->ranks.insert(side->ranks.end(), ranks[i].begin(), ranks[i].end());
  }
  std::stable_sort(sides.begin(), sides.end(),
                   [](const Side& a, const Side& b) { return a.ranks.size() > b.ranks.size(); });
  const auto name = [&](const Side& side) {
    std::string text = side.ranks.size() == 1 ? topology_.describe_rank(side.ranks[0])
                                              : Topology::describe_ranks(side.ranks);
    return text + " called " + describe_call(*side.header);
  };
  std::string text = "ranks made different calls: ";
  for (std::size_t i = 1; i < sides.size() && i <= 4; ++i) {
    text += name(sides[i]) + " [differs in " + difference(*sides[0].header, *sides[i].header) + "]; ";
  }
  text += "while " + name(sides[0]);
  std::string remedy = "every rank must make the same calls in the same order with the same arguments";
  if (std::any_of(sides.begin(), sides.end(),
                  [](const Side& side) { return side.header->kind == CallKind::kFinalize; })) {
    remedy += ". Who finalizes has made fewer calls: it had fewer batches, or its program ended early";
  }
  detector_.fail(
      Error(DDL_ERR_MISMATCH, text, "in collective call " + std::to_string(header_.sequence), remedy), true);
}

}  // namespace ddl
