#include "plan/schedule.hpp"

#include <algorithm>
#include <bit>

namespace ddl {
namespace {

constexpr std::size_t kInPlace = Transfer::kInPlace;

/// The rounds of one segment while they are made.
class SegmentSchedule {
 public:
  SegmentSchedule(const Segment& segment, std::size_t grain, TierSchedule& out)
      : segment_(segment), grain_(grain), owners_(segment.owners.size()), mine_(segment.mine), out_(out) {}

  void direct() {
    Round& up = round(out_.up, 0);
    const Interval own = part(mine_);
    Reduction reduction{own, kInPlace, {}, true};
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
      up.reductions.push_back({segment_.range, kInPlace, std::move(places), true});
    } else {
      std::size_t at = 0;
      nest(*nesting, places, at, up, true);
    }
  }

  void doubling() {
    // Where the number of owners is no power of two, those beyond it give their data to a partner first and
    // are given the result at the end.
    const std::size_t power = std::bit_floor(owners_);
    const bool folded = mine_ + power < owners_;
    std::size_t at = 0;
    const std::size_t space = scratch(segment_.range);
    if (power < owners_) {
      Round& fold = round(out_.up, at++);
      if (mine_ >= power) send(fold, mine_ - power, segment_.range);
      if (folded) {
        receive(fold, mine_ + power, segment_.range, space);
        fold.reductions.push_back({segment_.range, kInPlace, {kInPlace, space}, false});
      }
    }
    for (std::size_t distance = power / 2; distance > 0; distance /= 2) {
      Round& step = round(out_.up, at++);
      if (mine_ >= power) continue;
      const std::size_t partner = mine_ ^ distance;
      receive(step, partner, segment_.range, space);
      send(step, partner, segment_.range);
      const bool lower = mine_ < partner;
      step.reductions.push_back(
          {segment_.range, kInPlace, {lower ? kInPlace : space, lower ? space : kInPlace}, distance == 1});
    }
    if (power < owners_) {
      Round& unfold = round(out_.up, at);
      if (mine_ >= power) receive(unfold, mine_ - power, segment_.range, kInPlace);
      if (folded) send(unfold, mine_ + power, segment_.range);
    }
  }

  void recursive() {
    // block(i) is the part of the owner i places after this one; after the round of distance s only the first
    // s blocks are still of interest here, the others have gone on.
    std::vector<std::size_t> distances;
    for (std::size_t s = owners_; s > 1;) distances.push_back(s = (s + 1) / 2);
    std::size_t from = owners_;
    for (std::size_t k = 0; k < distances.size(); ++k) {
      const std::size_t s = distances[k];
      Round& up = round(out_.up, k);
      for (std::size_t i = s; i < from; ++i) send(up, after(s), part(after(i)));
      for (std::size_t i = 0; i < from - s; ++i) {
        const Interval block = part(after(i));
        if (block.empty()) continue;
        const std::size_t space = receive(up, before(s), block, scratch(block));
        up.reductions.push_back({block, kInPlace, {kInPlace, space}, k + 1 == distances.size()});
      }
      from = s;
    }
    for (std::size_t k = distances.size(); k-- > 0;) {
      const std::size_t s = distances[k];
      const std::size_t to = k == 0 ? owners_ : distances[k - 1];
      Round& down = round(out_.down, distances.size() - 1 - k);
      for (std::size_t i = 0; i < to - s; ++i) send(down, before(s), part(after(i)));
      for (std::size_t i = s; i < to; ++i) receive(down, after(s), part(after(i)), kInPlace);
    }
  }

  void ring() {
    for (std::size_t k = 1; k < owners_; ++k) {
      Round& up = round(out_.up, k - 1);
      send(up, after(1), part(before(k)));
      const Interval block = part(before(k + 1));
      if (!block.empty()) {
        const std::size_t space = receive(up, before(1), block, scratch(block));
        up.reductions.push_back({block, kInPlace, {space, kInPlace}, k + 1 == owners_});
      }
      Round& down = round(out_.down, k - 1);
      send(down, after(1), part(before(k - 1)));
      receive(down, before(1), part(before(k)), kInPlace);
    }
  }

 private:
  /// Adds up the contributions of the groups within `nesting`, innermost first; where the sum is then.
  std::size_t nest(const Nesting& nesting, const std::vector<std::size_t>& places, std::size_t& at, Round& up,
                   bool last) const {
    if (nesting.inner.empty()) return places[at++];
    std::vector<std::size_t> operands;
    for (const Nesting& inner : nesting.inner) operands.push_back(nest(inner, places, at, up, false));
    const std::size_t into = last ? kInPlace : operands.front();
    if (operands.size() > 1 || last)
      up.reductions.push_back({segment_.range, into, std::move(operands), last});
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
    if (!range.empty()) round.sends.push_back({segment_.owners[owner], range, kInPlace});
  }
  std::size_t receive(Round& round, std::size_t owner, Interval range, std::size_t space) const {
    if (!range.empty()) round.receives.push_back({segment_.owners[owner], range, space});
    return space;
  }

  const Segment& segment_;
  const std::size_t grain_;
  const std::size_t owners_;
  const std::size_t mine_;
  TierSchedule& out_;
};

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

bool keeps_order(Algorithm algorithm, std::size_t owners, bool rounds_each_step) {
  switch (algorithm) {
    case Algorithm::kDirect:
    case Algorithm::kOneShot:
    case Algorithm::kStar:
      return true;
    case Algorithm::kDoubling:
      return owners <= 2 || !rounds_each_step;
    case Algorithm::kRecursive:
      return owners <= 2 || (std::has_single_bit(owners) && !rounds_each_step);
    case Algorithm::kRing:
      return owners <= 2;
    case Algorithm::kMpi:
      return false;
  }
  return false;
}

TierSchedule schedule_tier(const std::vector<Segment>& segments, Algorithm algorithm, std::size_t grain,
                           const Nesting* nesting) {
  TierSchedule out;
  for (const Segment& segment : segments) {
    SegmentSchedule schedule(segment, grain, out);
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
  return out;
}

std::vector<Round> gather_rounds(const std::vector<Segment>& segments, std::size_t target,
                                 std::size_t grain) {
  std::vector<Round> rounds(1);
  for (const Segment& segment : segments) {
    for (std::size_t i = 0; i < segment.owners.size(); ++i) {
      const Interval range = segment.part(i, grain);
      if (range.empty() || i == target) continue;
      if (i == segment.mine) rounds[0].sends.push_back({segment.owners[target], range, kInPlace});
      if (segment.mine == target) rounds[0].receives.push_back({segment.owners[i], range, kInPlace});
    }
  }
  return rounds;
}

std::size_t messages_sent(const std::vector<Round>& rounds) {
  std::size_t messages = 0;
  for (const Round& round : rounds) messages += round.sends.size();
  return messages;
}

}  // namespace ddl
