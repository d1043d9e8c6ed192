#include "plan/schedule.hpp"

#include <algorithm>
#include <bit>
#include <map>

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
        rounds_each_step_(rounds_each_step),
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
      std::vector<std::size_t> by_leaf;
      for (const std::size_t place : places_near_first(owners_)) by_leaf.push_back(places[place]);
      nest(*nesting, by_leaf, up, true);
    }
  }

  /// kDoubling and kMultiplying
  void multiply(const Nesting* nesting, Algorithm algorithm) {
    if (nesting == nullptr || nesting->inner.empty()) {
      std::vector<Holders> each;
      for (std::size_t i = 0; i < owners_; ++i) each.push_back({i});
      add_up(each, 0, algorithm, 1);
      return;
    }
    const Sum sum = multiply_within(*nesting, algorithm, places_near_first(owners_));
    // A group of one at the top has nothing to add up, but an average may be divided there.
    if (nesting->inner.size() == 1) {
      round(out_.up, std::max<std::size_t>(sum.rounds, 1) - 1)
          .reductions.push_back({segment_.range, kInPlace, {kInPlace}, nesting->levels(), Form::kSame});
    }
  }

  void recursive() {
    const Steps steps(owners_, mine_);
    std::size_t at = 0;
    if (steps.folds()) fold(steps, at++);
    // Of the owners that are left this one keeps the parts of [begin, begin + distance).
    std::size_t begin = 0;
    for (std::size_t distance = steps.power / 2; distance > 0; distance /= 2) {
      Round& step = round(out_.up, at++);
      if (!steps.takes_part) continue;
      const bool upper = (steps.number & distance) != 0;
      const Interval low = parts(steps, begin, begin + distance);
      const Interval high = parts(steps, begin + distance, begin + 2 * distance);
      exchange(step, steps, distance, upper ? high : low, upper ? low : high);
      begin += upper ? distance : 0;
      if (distance == 1 && wide_) narrow(step, parts(steps, begin, begin + 1));
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
      const std::size_t partner = steps.first(steps.number ^ distance);
      receive(step, partner, parts(steps, first ^ distance, (first ^ distance) + distance), kInPlace);
      send(step, partner, parts(steps, first, first + distance));
    }
    if (steps.folds()) unfold(round(out_.down, at), steps);
  }

  void ring() {
    // Of the children in their own order.
    const std::vector<std::size_t> order = near_first(owners_);
    const std::vector<std::size_t> place = places_near_first(owners_);
    const auto after = [&](std::size_t i) { return place[(order[mine_] + i) % owners_]; };
    const auto before = [&](std::size_t i) { return place[(order[mine_] + 2 * owners_ - i) % owners_]; };
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
  /// Who adds up with whom: in the order of ReduceKernel, `power` of `count` are left when count - power of
  /// them are folded into their neighbours; these are spread evenly, so that halves are alike.
  struct Steps {
    Steps(std::size_t of, std::size_t self)
        : count(of),
          power(std::bit_floor(of)),
          number(number_of(self)),
          takes_part(first(number) == self),
          folded(takes_part && first(number + 1) > self + 1) {}
    bool folds() const { return power < count; }
    std::size_t first(std::size_t i) const { return i + i * (count - power) / power; }
    std::size_t number_of(std::size_t one) const {
      std::size_t i = one * power / count;
      while (first(i) > one) --i;
      while (first(i + 1) <= one) ++i;
      return i;
    }

    const std::size_t count;
    const std::size_t power;
    const std::size_t number;
    const bool takes_part;
    const bool folded;  ///< another one is folded into this one
  };

  /// The parts of those numbered [begin, end), with the parts of those that are folded into them.
  Interval parts(const Steps& steps, std::size_t begin, std::size_t end) const {
    return {part(steps.first(begin)).begin, part(steps.first(end) - 1).end};
  }

  /// Owners that have the same sum.
  using Holders = std::vector<std::size_t>;
  struct Sum {
    Holders holders;
    std::size_t rounds = 0;  ///< after which they have it
  };

  Sum multiply_within(const Nesting& nesting, Algorithm algorithm, const std::vector<std::size_t>& by_leaf) {
    if (nesting.inner.empty()) return {{by_leaf[nesting.leaf]}, 0};
    Sum sum;
    std::vector<Holders> sums;
    for (const Nesting& inner : nesting.inner) {
      Sum one = multiply_within(inner, algorithm, by_leaf);
      sum.rounds = std::max(sum.rounds, one.rounds);
      sum.holders.insert(sum.holders.end(), one.holders.begin(), one.holders.end());
      sums.push_back(std::move(one.holders));
    }
    sum.rounds += add_up(sums, sum.rounds, algorithm, nesting.levels());
    return sum;
  }

  /// All holders of these sums get the sum of them, in rounds from `at` on. Returns how many that takes.
  std::size_t add_up(const std::vector<Holders>& sums, std::size_t at, Algorithm algorithm,
                     std::size_t completes) {
    const auto is_mine = [this](const Holders& one) {
      return std::find(one.begin(), one.end(), mine_) != one.end();
    };
    const auto self =
        static_cast<std::size_t>(std::find_if(sums.begin(), sums.end(), is_mine) - sums.begin());
    const std::size_t power = std::bit_floor(sums.size());
    const std::vector<std::size_t> radix = radices(algorithm, sums.size());
    if (self == sums.size()) return radix.size();
    const Steps steps(sums.size(), self);
    // One reduction of all rounds once.
    const bool wide = rounds_each_step_ && radix.size() > 1;
    std::size_t before = power;
    for (std::size_t s = 0; s < radix.size(); ++s) {
      const std::size_t after = before / radix[s];
      const bool first = s == 0;
      const bool last = after == 1;
      Round& step = round(out_.up, at + s);
      // Sums of the numbers that leave the same remainder divided by `before` are complete; those of
      // remainders that are equal divided by `after` are added up now, in the order of ReduceKernel.
      std::vector<Holders> met;
      std::vector<std::size_t> number_of;
      for (std::size_t k = steps.number % after; k < before; k += after) {
        if (first) {
          for (std::size_t i = steps.first(k); i < steps.first(k + 1); ++i) {
            met.push_back(sums[i]);
            number_of.push_back(k);
          }
          continue;
        }
        Holders& holders = met.emplace_back();
        for (std::size_t same = k; same < power; same += before) {
          for (std::size_t i = steps.first(same); i < steps.first(same + 1); ++i) {
            holders.insert(holders.end(), sums[i].begin(), sums[i].end());
          }
        }
        number_of.push_back(k);
      }
      const std::vector<std::size_t> places = swap(step, met, is_mine, wide && !first);
      if (wide) {
        add_up_wide(step, places, number_of, first);
        if (last)
          step.reductions.push_back({segment_.range, kInPlace, {wide_slot(0)}, completes, Form::kNarrow});
      } else if (radix.size() == 1) {
        step.reductions.push_back({segment_.range, kInPlace, places, completes, Form::kSame});
      } else {
        const auto operands = add_up_neighbours(step, places, number_of, kInPlace, Form::kSame);
        step.reductions.push_back({segment_.range, kInPlace, operands, last ? completes : 0, Form::kSame});
      }
      before = after;
    }
    return radix.size();
  }

  /// Gets the sums of the others, of one of their holders each, and gives this one's to those who get it from
  /// here. @return where they are
  template <class IsMine>
  std::vector<std::size_t> swap(Round& step, const std::vector<Holders>& sums, const IsMine& is_mine,
                                bool wide) {
    const auto self =
        static_cast<std::size_t>(std::find_if(sums.begin(), sums.end(), is_mine) - sums.begin());
    const Holders& same = sums[self];
    const auto own = static_cast<std::size_t>(std::find(same.begin(), same.end(), mine_) - same.begin());
    std::vector<std::size_t> places(sums.size(), wide ? wide_slot(0) : kInPlace);
    const auto at = [&](std::size_t slot) { return wide ? wide_slot(slot + 1) : this->slot(slot); };
    for (std::size_t i = 0, free = 0; i < sums.size(); ++i) {
      if (i == self) continue;
      const Holders& from = sums[i];
      places[i] = at(free++);
      step.receives.push_back(
          {segment_.owners[from[own * from.size() / same.size()]], segment_.range, places[i], wide});
    }
    // Everybody starts with another receiver, lest all send to the same one at once.
    for (std::size_t k = 1; k < sums.size(); ++k) {
      const Holders& to = sums[(self + k) % sums.size()];
      for (std::size_t i = 0; i < to.size(); ++i) {
        if (i * same.size() / to.size() != own) continue;
        step.sends.push_back({segment_.owners[to[i]], segment_.range, wide ? wide_slot(0) : kInPlace, wide});
      }
    }
    return places;
  }

  /// Adds up those that have the same number, two at most. @return the operands that are left
  std::vector<std::size_t> add_up_neighbours(Round& step, const std::vector<std::size_t>& places,
                                             const std::vector<std::size_t>& number_of, std::size_t own,
                                             Form form) const {
    std::vector<std::size_t> operands;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (i == 0 || number_of[i] != number_of[i - 1]) {
        operands.push_back(places[i]);
        continue;
      }
      const std::size_t into = places[i] == own ? own : operands.back();
      step.reductions.push_back({segment_.range, into, {operands.back(), places[i]}, 0, form});
      operands.back() = into;
    }
    return operands;
  }

  void add_up_wide(Round& step, std::vector<std::size_t> places, const std::vector<std::size_t>& number_of,
                   bool first) {
    for (std::size_t i = 0, free = 0; first && i < places.size(); ++i) {
      const std::size_t into = places[i] == kInPlace ? wide_slot(0) : wide_slot(++free);
      step.reductions.push_back({segment_.range, into, {places[i]}, 0, Form::kWiden});
      places[i] = into;
    }
    const auto operands = add_up_neighbours(step, places, number_of, wide_slot(0), Form::kWide);
    step.reductions.push_back({segment_.range, wide_slot(0), operands, 0, Form::kWide});
  }

  /// Rounds follow each other, so all use the same memory: the i-th place for what is received.
  std::size_t slot(std::size_t i) {
    while (slots_.size() <= i) slots_.push_back(scratch(segment_.range));
    return slots_[i];
  }
  /// Likewise, of wide elements; the first is for the own sum.
  std::size_t wide_slot(std::size_t i) {
    while (wide_slots_.size() <= i) {
      wide_slots_.push_back(out_.wide);
      out_.wide += segment_.range.size();
    }
    return wide_slots_[i];
  }

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
    const std::size_t partner = steps.first(steps.number ^ distance);
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

  std::size_t space_for_received() { return slot(0); }
  std::size_t sum_at() {
    other_at();
    return wide_slot(0);
  }
  std::size_t other_at() { return wide_slot(1); }

  /// Adds up the contributions of the groups within `nesting`, innermost first; where the sum is then.
  std::size_t nest(const Nesting& nesting, const std::vector<std::size_t>& places, Round& up,
                   bool last) const {
    if (nesting.inner.empty()) return places[nesting.leaf];
    std::vector<std::size_t> operands;
    for (const Nesting& inner : nesting.inner) operands.push_back(nest(inner, places, up, false));
    const std::size_t into = last ? kInPlace : operands.front();
    if (operands.size() > 1 || last)
      up.reductions.push_back({segment_.range, into, std::move(operands), nesting.levels(), Form::kSame});
    return into;
  }
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
  const bool rounds_each_step_;
  const bool wide_;
  TierSchedule& out_;
  std::vector<std::size_t> slots_;
  std::vector<std::size_t> wide_slots_;
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
    case Algorithm::kMultiplying:
      return "recursive multiplying";
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

bool nests(Algorithm algorithm) {
  return algorithm == Algorithm::kOneShot || algorithm == Algorithm::kDoubling ||
         algorithm == Algorithm::kMultiplying;
}

std::vector<std::size_t> radices(Algorithm algorithm, std::size_t count) {
  auto bits = static_cast<std::size_t>(std::bit_width(count) - 1);
  if (algorithm == Algorithm::kDoubling) return std::vector<std::size_t>(bits, 2);
  std::vector<std::size_t> all;
  for (; bits == 2 || bits > 3; bits -= 2) all.push_back(4);
  // All eight at once would be the one-shot exchange, and more than a power of two are more messages.
  if (bits == 3 && (count == 8 || !std::has_single_bit(count))) {
    all.push_back(4);
    bits = 1;
  }
  if (bits > 0) all.push_back(std::size_t{1} << bits);
  return all;
}

RecursiveCost recursive_cost(Algorithm algorithm, std::size_t owners, double widening) {
  const std::size_t power = std::bit_floor(owners);
  const bool folds = power < owners;
  const auto left = static_cast<double>(power);
  RecursiveCost cost;
  if (algorithm != Algorithm::kRecursive) {
    const std::vector<std::size_t> radix = radices(algorithm, owners);
    cost.rounds = static_cast<double>(radix.size());
    for (std::size_t s = 0; s < radix.size(); ++s) {
      // Owners that are more than the power of two make twice as many of some sums, and are twice as many
      // for some others.
      const std::size_t met = s == 0 ? std::min(owners, 2 * radix[s]) : 2 * radix[s] - 1;
      const auto messages = static_cast<double>((folds ? met : radix[s]) - 1);
      cost.messages += messages;
      cost.added += messages;
      // The first round's elements are not wide.
      cost.bytes += messages * (s == 0 ? 1 : widening);
    }
    return cost;
  }
  const auto steps = static_cast<double>(std::bit_width(power) - 1);
  const double wide = owners > 2 ? widening : 1;
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
      case Algorithm::kMultiplying:
        schedule.multiply(nesting, algorithm);
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
