#include "plan/exchange.hpp"

#include <algorithm>

namespace ddl {
namespace {

struct Owned {
  Interval range;
  int rank;
};

bool innermost(const Group& group) { return group.leaf() || group.children.front().leaf(); }

class Planner {
 public:
  Planner(int rank, std::size_t count, std::size_t grain) : rank_(rank), count_(count) {
    exchange_.grain = grain;
  }

  Exchange take() && { return std::move(exchange_); }

  /// Who owns what of the chunk within `group` after its reduce-scatter: a partition of [0, count).
  std::vector<Owned> own(const Group& group) {
    if (innermost(group)) return own_innermost(group);
    std::vector<std::vector<Owned>> below;
    for (const Group& child : group.children) below.push_back(own(child));

    std::vector<Segment> mine;
    std::vector<Owned> owned;
    std::vector<std::size_t> at(below.size(), 0);
    for (std::size_t begin = 0; begin < count_;) {
      Segment segment{{begin, count_}, {}, 0};
      bool member = false;
      for (std::size_t i = 0; i < below.size(); ++i) {
        while (below[i][at[i]].range.end <= begin) ++at[i];
        const Owned& owner = below[i][at[i]];
        segment.range.end = std::min(segment.range.end, owner.range.end);
        segment.owners.push_back(owner.rank);
        if (owner.rank == rank_) {
          segment.mine = i;
          member = true;
        }
      }
      for (std::size_t i = 0; i < segment.owners.size(); ++i) {
        const Interval part = segment.part(i, exchange_.grain);
        if (!part.empty()) owned.push_back({part, segment.owners[i]});
      }
      begin = segment.range.end;
      if (member && segment.owners.size() > 1) mine.push_back(std::move(segment));
    }
    if (std::binary_search(group.ranks.begin(), group.ranks.end(), rank_))
      exchange_.tiers.push_back(std::move(mine));
    return owned;
  }

 private:
  std::vector<Owned> own_innermost(const Group& group) {
    std::vector<Owned> owned;
    const bool mine = std::binary_search(group.ranks.begin(), group.ranks.end(), rank_);
    for (std::size_t i = 0; i < group.ranks.size(); ++i) {
      const Interval part = part_of({0, count_}, group.ranks.size(), i, exchange_.grain);
      if (!part.empty()) owned.push_back({part, group.ranks[i]});
      if (mine) exchange_.local.push_back(part);
    }
    return owned;
  }

  int rank_;
  std::size_t count_;
  Exchange exchange_;
};

void collect_innermost(const Group& group, std::vector<const Group*>& out) {
  if (innermost(group)) {
    out.push_back(&group);
    return;
  }
  for (const Group& child : group.children) collect_innermost(child, out);
}

}  // namespace

std::size_t Exchange::scratch(std::size_t t) const {
  std::size_t elements = 0;
  for (const Segment& segment : tiers[t]) {
    elements += (segment.owners.size() - 1) * segment.part(segment.mine, grain).size();
  }
  return elements;
}

Exchange plan_exchange(const Topology& topology, int rank, std::size_t count, std::size_t grain) {
  Planner planner(rank, count, grain);
  planner.own(topology.root());
  return std::move(planner).take();
}

Chunking plan_chunks(const Topology& topology, std::size_t count, DDL_Type type) {
  if (count == 0) return {};
  const auto groups = innermost_groups(topology);
  std::size_t widest = 1;
  for (const Group* group : groups) widest = std::max(widest, group->ranks.size());
  // Inside a host the chunks under way must stay in the cache that producer and consumer share. Between hosts
  // every rank's share of a chunk should be about 128 KiB: smaller messages cost latency, larger ones only
  // fill queues.
  constexpr std::size_t share = std::size_t{128} << 10;
  const std::size_t bytes = groups.size() > 1 ? std::clamp(share * widest, 2 * share, kMaxChunkBytes)
                                              : std::min(share * 2, kMaxChunkBytes);
  Chunking chunking;
  chunking.chunk_elements = std::min(count, bytes / size_of(type));
  chunking.chunks = (count + chunking.chunk_elements - 1) / chunking.chunk_elements;
  return chunking;
}

BinomialNode binomial_node(int groups, int root, int self) {
  BinomialNode node;
  const int relative = (self - root + groups) % groups;
  int bit = 1;
  for (; bit < groups; bit <<= 1) {
    if (relative & bit) {
      node.parent = (relative - bit + root) % groups;
      break;
    }
  }
  // The largest subtree first: it has the longest way to go.
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (relative + bit < groups) node.children.push_back((relative + bit + root) % groups);
  }
  return node;
}

std::vector<const Group*> innermost_groups(const Topology& topology) {
  std::vector<const Group*> groups;
  collect_innermost(topology.root(), groups);
  return groups;
}

}  // namespace ddl
