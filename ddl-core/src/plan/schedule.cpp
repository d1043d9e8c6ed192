#include "plan/schedule.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

namespace ddl {
namespace {

constexpr std::size_t kInPlace = Transfer::kInPlace;
using Form = Reduction::Form;

/// The rounds of one segment while they are made.
class SegmentSchedule {
 public:
  SegmentSchedule(const Segment& segment, std::size_t grain, bool rounds_each_step, TierSchedule& out)
      : segment_(segment),
        grain_(grain),
        owners_(segment.owners.size()),
        mine_(segment.mine),
        // Two are added up in one step.
        wide_(rounds_each_step && segment.owners.size() > 2),
        out_(out) {}

  void direct() {
    Round& up = round(out_.up, 0);
    const Interval own = part(mine_);
    Reduction reduction{own, kInPlace, {}, 1, Form::kSame};
    for (std::size_t i = 0; i < owners_; ++i) {
      if (i == mine_ || own.empty()) {
        reduction.operands.push_back(kInPlace);
        continue;
      }
      reduction.operands.push_back(receive(up, i, own, scratch(own)));
    }
    // Everybody starts with another receiver, lest all send to the same one at once.
    for (std::size_t k = 1; k < owners_; ++k) send(up, (mine_ + k) % owners_, part((mine_ + k) % owners_));
    if (!own.empty()) up.reductions.push_back(std::move(reduction));
    Round& down = round(out_.down, 0);
    for (std::size_t k = 1; k < owners_; ++k) {
      receive(down, (mine_ + owners_ - k) % owners_, part((mine_ + owners_ - k) % owners_), kInPlace);
      send(down, (mine_ + k) % owners_, own);
    }
  }

  void one_shot(const Nesting* nesting) {
    Round& up = round(out_.up, 0);
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < owners_; ++i) {
      places.push_back(i == mine_ ? kInPlace : receive(up, i, segment_.range, scratch(segment_.range)));
    }
    for (std::size_t k = 1; k < owners_; ++k) send(up, (mine_ + k) % owners_, segment_.range);
    if (nesting == nullptr || nesting->inner.empty()) {
      up.reductions.push_back({segment_.range, kInPlace, std::move(places), 1, Form::kSame});
    } else {
      std::size_t at = 0;
      nest(*nesting, places, at, up, true);
    }
  }

  void doubling() {
    const Steps steps(*this);
    std::size_t at = 0;
    if (steps.folds()) fold(steps, at++);
    for (std::size_t distance = steps.power / 2; distance > 0; distance /= 2) {
      Round& step = round(out_.up, at++);
      if (!steps.takes_part) continue;
      exchange(step, steps, distance, segment_.range, segment_.range);
      if (distance == 1 && wide_) narrow(step, segment_.range);
    }
    if (steps.folds()) unfold(round(out_.up, at), steps);
  }

  void recursive() {
    const Steps steps(*this);
    std::size_t at = 0;
    if (steps.folds()) fold(steps, at++);
    // Of the owners that are left this one keeps the parts of [begin, begin + distance).
    std::size_t begin = 0;
    for (std::size_t distance = steps.power / 2; distance > 0; distance /= 2) {
      Round& step = round(out_.up, at++);
      if (!steps.takes_part) continue;
      const bool upper = (steps.number & distance) != 0;
      const Interval low = steps.parts(begin, begin + distance);
      const Interval high = steps.parts(begin + distance, begin + 2 * distance);
      exchange(step, steps, distance, upper ? high : low, upper ? low : high);
      begin += upper ? distance : 0;
      if (distance == 1 && wide_) narrow(step, steps.parts(begin, begin + 1));
    }
    if (steps.folds()) {
      // The parts of those that were folded are theirs in the tiers above.
      Round& hand_over = round(out_.up, at);
      if (steps.folded) send(hand_over, mine_ + 1, part(mine_ + 1));
      if (!steps.takes_part) receive(hand_over, mine_ - 1, part(mine_), kInPlace);
    }
    at = 0;
    if (steps.folds()) {
      Round& give_back = round(out_.down, at++);
      if (!steps.takes_part) send(give_back, mine_ - 1, part(mine_));
      if (steps.folded) receive(give_back, mine_ + 1, part(mine_ + 1), kInPlace);
    }
    for (std::size_t distance = 1; distance < steps.power; distance *= 2) {
      Round& step = round(out_.down, at++);
      if (!steps.takes_part) continue;
      const std::size_t first = steps.number & ~(distance - 1);
      const std::size_t partner = steps.owner(steps.number ^ distance);
      receive(step, partner, steps.parts(first ^ distance, (first ^ distance) + distance), kInPlace);
      send(step, partner, steps.parts(first, first + distance));
    }
    if (steps.folds()) unfold(round(out_.down, at), steps);
  }

  void ring() {
    for (std::size_t k = 1; k < owners_; ++k) {
      Round& up = round(out_.up, k - 1);
      send(up, after(1), part(before(k)));
      const Interval block = part(before(k + 1));
      if (!block.empty()) {
        const std::size_t space = receive(up, before(1), block, scratch(block));
        up.reductions.push_back(
            {block, kInPlace, {space, kInPlace}, k + 1 == owners_ ? 1U : 0U, Form::kSame});
      }
      Round& down = round(out_.down, k - 1);
      send(down, after(1), part(before(k - 1)));
      receive(down, before(1), part(before(k)), kInPlace);
    }
  }

 private:
  /// Who adds up with whom: in the order of ReduceKernel, `power` owners are left when owners - power of them
  /// are folded into their neighbours; these are spread evenly, so that halves are alike.
  struct Steps {
    explicit Steps(const SegmentSchedule& of)
        : schedule(of),
          power(std::bit_floor(of.owners_)),
          number(number_of(of.mine_)),
          takes_part(owner(number) == of.mine_),
          folded(takes_part && owner(number + 1) > of.mine_ + 1) {}
    bool folds() const { return power < schedule.owners_; }
    std::size_t owner(std::size_t i) const { return i + i * (schedule.owners_ - power) / power; }
    std::size_t number_of(std::size_t owner_or_folded) const {
      std::size_t i = owner_or_folded * power / schedule.owners_;
      while (owner(i) > owner_or_folded) --i;
      while (owner(i + 1) <= owner_or_folded) ++i;
      return i;
    }
    /// The parts of those numbered [begin, end), with the parts of those that are folded into them.
    Interval parts(std::size_t begin, std::size_t end) const {
      return {schedule.part(owner(begin)).begin, schedule.part(owner(end) - 1).end};
    }

    const SegmentSchedule& schedule;
    const std::size_t power;
    const std::size_t number;
    const bool takes_part;
    const bool folded;  ///< another one is folded into this one
  };

  void fold(const Steps& steps, std::size_t at) {
    Round& step = round(out_.up, at);
    const Interval all = segment_.range;
    if (!steps.takes_part) {
      send(step, mine_ - 1, all);
      return;
    }
    if (wide_) widen(step, kInPlace, sum_at(), all);
    if (!steps.folded) return;
    const std::size_t space = receive(step, mine_ + 1, all, space_for_received());
    if (wide_) {
      widen(step, space, other_at(), all);
      step.reductions.push_back({all, sum_at(), {sum_at(), other_at()}, 0, Form::kWide});
    } else {
      step.reductions.push_back({all, kInPlace, {kInPlace, space}, 0, Form::kSame});
    }
  }

  void unfold(Round& step, const Steps& steps) {
    // The whole in one message, although a part of it came from there.
    if (steps.folded) send(step, mine_ + 1, segment_.range);
    if (!steps.takes_part) receive(step, mine_ - 1, segment_.range, kInPlace);
  }

  /// Swaps what each other keeps with the owner at a distance, and adds it up in the order of their numbers.
  void exchange(Round& step, const Steps& steps, std::size_t distance, Interval kept, Interval given) {
    const std::size_t partner = steps.owner(steps.number ^ distance);
    const bool first = (steps.number & distance) == 0;
    const std::size_t completes = distance == 1 ? 1 : 0;
    if (!wide_) {
      const std::size_t space = receive(step, partner, kept, space_for_received());
      send(step, partner, given);
      if (kept.empty()) return;
      step.reductions.push_back(
          {kept, kInPlace, {first ? kInPlace : space, first ? space : kInPlace}, completes, Form::kSame});
      return;
    }
    const std::size_t sum = sum_at() + kept.begin - segment_.range.begin;
    const std::size_t other = other_at() + kept.begin - segment_.range.begin;
    if (distance == steps.power / 2 && !steps.folds()) {
      // Nothing is added up yet: elements travel as they are.
      const std::size_t space = receive(step, partner, kept, space_for_received());
      send(step, partner, given);
      widen(step, kInPlace, sum, kept);
      widen(step, space, other, kept);
    } else {
      if (!kept.empty()) step.receives.push_back({segment_.owners[partner], kept, other, true});
      if (!given.empty()) {
        const std::size_t from = sum_at() + given.begin - segment_.range.begin;
        step.sends.push_back({segment_.owners[partner], given, from, true});
      }
    }
    if (kept.empty()) return;
    step.reductions.push_back({kept, sum, {first ? sum : other, first ? other : sum}, 0, Form::kWide});
  }

  static void widen(Round& step, std::size_t from, std::size_t into, Interval range) {
    if (!range.empty()) step.reductions.push_back({range, into, {from}, 0, Form::kWiden});
  }
  void narrow(Round& step, Interval range) {
    if (range.empty()) return;
    const std::size_t from = sum_at() + range.begin - segment_.range.begin;
    step.reductions.push_back({range, kInPlace, {from}, 1, Form::kNarrow});
  }

  /// Rounds follow each other, so all use the same memory.
  std::size_t space_for_received() {
    if (!received_at_) received_at_ = scratch(segment_.range);
    return *received_at_;
  }
  std::size_t sum_at() {
    if (!sum_at_) {
      sum_at_ = out_.wide;
      out_.wide += 2 * segment_.range.size();
    }
    return *sum_at_;
  }
  std::size_t other_at() { return sum_at() + segment_.range.size(); }

  /// Adds up the contributions of the groups within `nesting`, innermost first; where the sum is then.
  std::size_t nest(const Nesting& nesting, const std::vector<std::size_t>& places, std::size_t& at, Round& up,
                   bool last) const {
    if (nesting.inner.empty()) return places[at++];
    std::vector<std::size_t> operands;
    for (const Nesting& inner : nesting.inner) operands.push_back(nest(inner, places, at, up, false));
    const std::size_t into = last ? kInPlace : operands.front();
    if (operands.size() > 1 || last)
      up.reductions.push_back({segment_.range, into, std::move(operands), nesting.levels(), Form::kSame});
    return into;
  }
  std::size_t after(std::size_t i) const { return (mine_ + i) % owners_; }
  std::size_t before(std::size_t i) const { return (mine_ + 2 * owners_ - i) % owners_; }
  Interval part(std::size_t i) const { return segment_.part(i, grain_); }
  std::size_t scratch(Interval range) {
    const std::size_t at = out_.scratch;
    out_.scratch += range.size();
    return at;
  }
  static Round& round(std::vector<Round>& rounds, std::size_t at) {
    if (rounds.size() <= at) rounds.resize(at + 1);
    return rounds[at];
  }
  void send(Round& round, std::size_t owner, Interval range) const {
    if (!range.empty()) round.sends.push_back({segment_.owners[owner], range, kInPlace, false});
  }
  std::size_t receive(Round& round, std::size_t owner, Interval range, std::size_t space) const {
    if (!range.empty()) round.receives.push_back({segment_.owners[owner], range, space, false});
    return space;
  }

  const Segment& segment_;
  const std::size_t grain_;
  const std::size_t owners_;
  const std::size_t mine_;
  const bool wide_;
  TierSchedule& out_;
  std::optional<std::size_t> received_at_;
  std::optional<std::size_t> sum_at_;
};

/// Brings the transfers with each peer together, in the order of the segments, which both have in common.
void join(std::vector<Transfer>& transfers) {
  std::map<int, std::size_t> first;
  for (const Transfer& one : transfers) first.emplace(one.peer, first.size());
  if (first.size() == transfers.size()) return;
  std::stable_sort(transfers.begin(), transfers.end(),
                   [&](const Transfer& a, const Transfer& b) { return first.at(a.peer) < first.at(b.peer); });
}

}  // namespace

const char* name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kOneShot:
      return "one-shot";
    case Algorithm::kStar:
      return "star";
    case Algorithm::kDoubling:
      return "recursive doubling";
    case Algorithm::kRecursive:
      return "recursive halving-doubling";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kMpi:
      return "MPI reduce-scatter + all-gather";
  }
  return "unknown";
}

bool keeps_order(Algorithm algorithm, std::size_t owners) {
  return owners <= 2 ? algorithm != Algorithm::kMpi
                     : algorithm != Algorithm::kRing && algorithm != Algorithm::kMpi;
}

HalvingCost halving_cost(Algorithm algorithm, std::size_t owners, double widening) {
  const std::size_t power = std::bit_floor(owners);
  const auto steps = static_cast<double>(std::bit_width(power) - 1);
  const bool folds = power < owners;
  const auto left = static_cast<double>(power);
  // The first step's elements are not wide.
  const double wide = owners > 2 ? widening : 1;
  HalvingCost cost;
  if (algorithm == Algorithm::kDoubling) {
    cost.rounds = steps + (folds ? 2 : 0);
    cost.messages = steps + (folds ? 1 : 0);
    cost.bytes = folds ? 1 + steps * wide : 1 + (steps - 1) * wide;
    cost.added = steps + (folds ? 1 : 0);
    return cost;
  }
  const double up = folds ? 1 + wide * (left - 1) / left : 0.5 + wide * (0.5 - 1 / left);
  const double handed_over = folds ? 2 / static_cast<double>(owners) : 0;
  cost.rounds = 2 * steps + (folds ? 4 : 0);
  cost.messages = 2 * steps + (folds ? 2 : 0);
  // A folded owner's whole goes up to the one before, and comes down from there.
  cost.bytes = up + (left - 1) / left + handed_over;
  cost.added = (left - 1) / left + (folds ? 1 : 0);
  return cost;
}

TierSchedule schedule_tier(const std::vector<Segment>& segments, Algorithm algorithm, std::size_t grain,
                           const Nesting* nesting, bool rounds_each_step) {
  TierSchedule out;
  for (const Segment& segment : segments) {
    SegmentSchedule schedule(segment, grain, rounds_each_step, out);
    switch (algorithm) {
      case Algorithm::kDirect:
        schedule.direct();
        break;
      case Algorithm::kOneShot:
        schedule.one_shot(nesting);
        break;
      case Algorithm::kDoubling:
        schedule.doubling();
        break;
      case Algorithm::kRecursive:
        schedule.recursive();
        break;
      case Algorithm::kRing:
        schedule.ring();
        break;
      case Algorithm::kStar:
      case Algorithm::kMpi:
        break;
    }
  }
  if (segments.size() > 1) {
    for (std::vector<Round>* const rounds : {&out.up, &out.down}) {
      for (Round& round : *rounds) {
        join(round.sends);
        join(round.receives);
      }
    }
  }
  return out;
}

std::vector<Round> gather_rounds(const std::vector<Segment>& segments, std::size_t target,
                                 std::size_t grain) {
  std::vector<Round> rounds(1);
  for (const Segment& segment : segments) {
    for (std::size_t i = 0; i < segment.owners.size(); ++i) {
      const Interval range = segment.part(i, grain);
      if (range.empty() || i == target) continue;
      if (i == segment.mine) rounds[0].sends.push_back({segment.owners[target], range, kInPlace, false});
      if (segment.mine == target) rounds[0].receives.push_back({segment.owners[i], range, kInPlace, false});
    }
  }
  join(rounds[0].sends);
  join(rounds[0].receives);
  return rounds;
}

std::size_t messages_sent(const std::vector<Round>& rounds) {
  std::size_t messages = 0;
  for (const Round& round : rounds) {
    for (std::size_t i = 0; i < round.sends.size(); i = end_of_message(round.sends, i)) ++messages;
  }
  return messages;
}

}  // namespace ddl
