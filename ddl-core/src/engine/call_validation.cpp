#include "engine/call_validation.hpp"

#include <algorithm>
#include <cstring>

#include "memory/executor.hpp"
#include "support/types.hpp"

namespace ddl {
namespace {

/// Up to this many groups one round with everybody is faster than several with one.
constexpr std::size_t kFewGroups = 8;

bool same(const CallHeader& a, const CallHeader& b) {
  return a.kind == b.kind && a.sequence == b.sequence && a.type == b.type && a.op == b.op &&
         a.root == b.root && a.memory == b.memory && a.count == b.count && a.buffers == b.buffers &&
         a.counts_hash == b.counts_hash && a.name_hash == b.name_hash && a.plan_hash == b.plan_hash;
}

std::size_t index_in(const std::vector<int>& ranks, int rank) {
  return static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

}  // namespace

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
    case CallKind::kRefused:
      return "a function of DDL that refused the call (" + std::string(header.name) + ")";
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
      detector_(detector),
      checked_(segment.ranks(), 0) {}

void CallValidation::begin(const CallHeader& header, Backoff& backoff, bool carried) {
  header_ = header;
  header_.digest = digest_of(header);
  arrived_ = 0;
  same_ = true;
  carried_ = carried;
  submitted_ = header.submitted;
  last_s_ = header.last_s;
  locally_ = globally_ = exchanging_ = false;
  // The slot still holds an older header, which a slow rank may not have compared yet.
  const std::size_t ranks = segment_.ranks();
  for (std::size_t i = 0; i < ranks; ++i) {
    // What was seen before mostly suffices: the counter's cache line is the other rank's.
    while (checked_[i] + kHeaderSlots < header.sequence) {
      checked_[i] = segment_.cell(i).checked.load(std::memory_order_acquire);
      if (checked_[i] + kHeaderSlots < header.sequence) backoff.idle();
    }
    backoff.reset();
  }
  RankCell& cell = segment_.cell(self_);
  cell.headers[header.sequence % kHeaderSlots].header = header_;
  cell.arrived.store(header.sequence, std::memory_order_release);
}

bool CallValidation::step() {
  if (!locally_) {
    if (!compare_locally()) return false;
    locally_ = true;
    segment_.cell(self_).checked.store(header_.sequence, std::memory_order_release);
    if (groups_.size() == 1) {
      globally_ = true;
    } else if (self_ == 0 && !carried_) {
      distance_ = 1;
      start_round();
    }
    return true;
  }
  if (exchanging_) {
    if (!requests_.test()) return false;
    finish_round();
    if (last_round()) {
      publish_result();
    } else {
      distance_ *= 2;
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
  return false;
}

bool CallValidation::compare_locally() {
  const std::size_t ranks = segment_.ranks();
  const auto slot = header_.sequence % kHeaderSlots;
  // Among many ranks on few cores most looks are in vain: who has arrived is not looked at again.
  for (; arrived_ < ranks; ++arrived_) {
    const RankCell& cell = segment_.cell(arrived_);
    if (cell.arrived.load(std::memory_order_acquire) < header_.sequence) return false;
    const CallHeader& other = cell.headers[slot].header;
    same_ = same_ && other.digest == header_.digest;
    merge(other);
  }
  if (same_) return true;
  std::vector<const CallHeader*> headers;
  std::vector<std::vector<int>> members;
  for (std::size_t i = 0; i < ranks; ++i) {
    headers.push_back(&segment_.cell(i).headers[slot].header);
    members.push_back({groups_[group_]->ranks[i]});
  }
  mismatch(headers, members);
}

void CallValidation::merge(const CallHeader& other) {
  submitted_ = std::min(submitted_, other.submitted);
  last_s_ = std::max(last_s_, other.last_s);
}

CallHeader CallValidation::merged() const {
  CallHeader header = header_;
  header.submitted = submitted_;
  header.last_s = last_s_;
  return header;
}

void CallValidation::start_round() {
  sent_ = merged();
  senders_.clear();
  std::vector<std::size_t> receivers;
  const std::size_t groups = groups_.size();
  if (groups <= kFewGroups) {
    for (std::size_t i = 0; i < groups; ++i) {
      if (i == group_) continue;
      senders_.push_back(i);
      receivers.push_back(i);
    }
  } else {
    senders_.push_back((group_ + groups - distance_) % groups);
    receivers.push_back((group_ + distance_) % groups);
  }
  for (const std::size_t from : senders_) receive_packet(from, requests_);
  for (const std::size_t to : receivers) {
    transport_->send(&sent_, travelling_bytes(sent_.name), groups_[to]->ranks.front(), kTag, requests_);
  }
  exchanging_ = true;
}

void CallValidation::finish_round() {
  exchanging_ = false;
  merge_packets(senders_);
}

void CallValidation::receive_packet(std::size_t group, Requests& requests) {
  if (packets_.empty()) {
    // Among more hosts no call sends more than a header.
    const std::size_t bytes = groups_.size() <= kFewHosts ? kEagerPacketBytes : sizeof(CallHeader);
    packets_.assign(groups_.size(), std::vector<char>(bytes));
  }
  std::vector<char>& packet = packets_[group];
  transport_->receive(packet.data(), packet.size(), groups_[group]->ranks.front(), kTag, requests);
}

void CallValidation::merge_packets(const std::vector<std::size_t>& groups) {
  std::vector<CallHeader> received(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::memcpy(&received[i], packets_[groups[i]].data(), sizeof(CallHeader));
  }
  const bool all_same = std::all_of(received.begin(), received.end(),
                                    [&](const CallHeader& other) { return same(header_, other); });
  for (const CallHeader& other : received) merge(other);
  if (all_same) return;
  std::vector<const CallHeader*> headers{&header_};
  std::vector<std::vector<int>> members{groups_[group_]->ranks};
  for (std::size_t i = 0; i < received.size(); ++i) {
    headers.push_back(&received[i]);
    members.push_back(groups_[groups[i]]->ranks);
  }
  mismatch(headers, members);
}

bool CallValidation::last_round() const {
  return groups_.size() <= kFewGroups || distance_ * 2 >= groups_.size();
}

void CallValidation::publish_result() {
  globally_ = true;
  RankCell& cell = segment_.cell(0);
  cell.agreed_submitted = submitted_;
  cell.agreed_last_s = last_s_;
  cell.validated.store(header_.sequence, std::memory_order_release);
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
  text += "while " + name(sides[0]) + "; in collective call " + std::to_string(header_.sequence) +
          "; every rank must make the same calls in the same order with the same arguments";
  detector_.fail(Error(DDL_ERR_MISMATCH, text), true);
}

}  // namespace ddl
