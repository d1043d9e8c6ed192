#include "plan/exchange.hpp"

#include <algorithm>
#include <bit>

namespace ddl {
namespace {

struct Owned {
  Interval range;
  int rank;
};

std::size_t collect_levels(const Group& group, std::vector<LevelSizes>& levels) {
  std::size_t level = 0;
  std::size_t members = group.ranks.size();
  if (!group.innermost()) {
    for (const Group& child : group.children) level = collect_levels(child, levels) + 1;
    members = group.children.size();
  }
  if (levels.size() <= level) levels.push_back({members, members});
  levels[level] = {std::min(levels[level].least, members), std::max(levels[level].most, members)};
  return level;
}

class ExchangePlanner {
 public:
  ExchangePlanner(const Group& tree, int rank, std::size_t count, std::size_t grain)
      : rank_(rank), count_(count), owners_(level_sizes(tree).front().least) {
    exchange_.grain = grain;
  }

  Exchange take() && { return std::move(exchange_); }

  /// Who owns what of the chunk within `group` after its reduce-scatter: a partition of [0, count).
  std::vector<Owned> own(const Group& group) {
    if (group.innermost()) return own_innermost(group);
    std::vector<std::vector<Owned>> below;
    for (const Group& child : group.children) below.push_back(own(child));

    std::vector<Segment> mine;
    std::vector<Owned> owned;
    std::vector<std::size_t> at(below.size(), 0);
    const std::vector<std::size_t> order = near_first(below.size());
    for (std::size_t begin = 0; begin < count_;) {
      Segment segment{{begin, count_}, {}, 0};
      bool member = false;
      for (const std::size_t i : order) {
        while (below[i][at[i]].range.end <= begin) ++at[i];
        const Owned& owner = below[i][at[i]];
        segment.range.end = std::min(segment.range.end, owner.range.end);
        if (owner.rank == rank_) {
          segment.mine = segment.owners.size();
          member = true;
        }
        segment.owners.push_back(owner.rank);
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
    const std::size_t ranks = group.ranks.size();
    std::size_t parts = 0;
    for (std::size_t i = 0; i < ranks; ++i) {
      // Owners are spread evenly, and the last rank is the last of them: it adds up what is not divided.
      const bool owner = (i + 1) * owners_ / ranks > parts;
      const Interval part = owner ? part_of({0, count_}, owners_, parts, exchange_.grain) : Interval{};
      parts += owner ? 1 : 0;
      if (!part.empty()) owned.push_back({part, group.ranks[i]});
      if (!mine) continue;
      exchange_.local.push_back(part);
      if (owners_ < ranks) exchange_.added.push_back(part_of({0, count_}, ranks, i, exchange_.grain));
    }
    return owned;
  }

  int rank_;
  std::size_t count_;
  std::size_t owners_;  ///< in every innermost group
  Exchange exchange_;
};

void collect_innermost(const Group& group, std::vector<const Group*>& out) {
  if (group.innermost()) {
    out.push_back(&group);
    return;
  }
  for (const Group& child : group.children) collect_innermost(child, out);
}

Nesting nesting_below(const Group& group, std::size_t& leaves) {
  Nesting nesting;
  if (group.innermost()) {
    nesting.leaf = leaves++;
    return nesting;
  }
  std::vector<Nesting> inner;
  for (const Group& child : group.children) inner.push_back(nesting_below(child, leaves));
  for (const std::size_t i : near_first(inner.size())) nesting.inner.push_back(std::move(inner[i]));
  return nesting;
}

}  // namespace

std::vector<std::size_t> near_first(std::size_t count) {
  const std::size_t power = std::bit_floor(count);
  const std::size_t extra = count - power;
  // Of the numbers that are left some are pairs; those which the kernel joins.
  const auto size = [&](std::size_t k) { return 1 + (k + 1) * extra / power - k * extra / power; };
  const auto reversed = [&](std::size_t k) {
    std::size_t bits = 0;
    for (std::size_t bit = 1; bit < power; bit *= 2) bits = 2 * bits + ((k & bit) == 0 ? 0 : 1);
    return bits;
  };
  std::vector<std::size_t> first(power);
  std::size_t child = 0;
  for (std::size_t i = 0; i < power; ++i) {
    first[reversed(i)] = child;
    child += size(reversed(i));
  }
  std::vector<std::size_t> order;
  for (std::size_t k = 0; k < power; ++k) {
    for (std::size_t i = 0; i < size(k); ++i) order.push_back(first[k] + i);
  }
  return order;
}

std::vector<std::size_t> places_near_first(std::size_t count) {
  const std::vector<std::size_t> order = near_first(count);
  std::vector<std::size_t> places(count);
  for (std::size_t place = 0; place < count; ++place) places[order[place]] = place;
  return places;
}

const char* name_of(Shape shape) {
  switch (shape) {
    case Shape::kTiers:
      return "tiers";
    case Shape::kHosts:
      return "hosts";
    case Shape::kRanks:
      return "ranks";
    case Shape::kLeaders:
      return "leaders";
  }
  return "unknown";
}

Group shaped_tree(const Topology& topology, Shape shape) {
  if (shape == Shape::kTiers) return topology.root();
  Group tree;
  tree.ranks = topology.root().ranks;
  if (shape == Shape::kHosts) {
    const auto hosts = innermost_groups(topology.root());
    if (hosts.size() == 1) return *hosts.front();
    for (const Group* host : hosts) tree.children.push_back(*host);
    return tree;
  }
  for (const int rank : tree.ranks) tree.children.push_back(Group{{rank}, {Group{{rank}, {}}}});
  return tree;
}

Nesting nesting_of(const Topology& topology) {
  std::size_t leaves = 0;
  return nesting_below(topology.root(), leaves);
}

std::vector<LevelSizes> level_sizes(const Group& tree) {
  std::vector<LevelSizes> levels;
  collect_levels(tree, levels);
  return levels;
}

std::optional<std::vector<std::size_t>> pairwise_distances(const Nesting& nesting) {
  std::vector<std::size_t> distances;
  if (nesting.inner.empty()) return distances;
  const auto first = pairwise_distances(nesting.inner.front());
  const std::size_t members = nesting.inner.size();
  if (!first || !std::has_single_bit(members)) return std::nullopt;
  for (const Nesting& other : nesting.inner) {
    if (pairwise_distances(other) != first) return std::nullopt;
  }
  distances = *first;
  const std::size_t leaves = std::size_t{1} << first->size();
  for (std::size_t distance = 1; distance < members; distance *= 2) distances.push_back(distance * leaves);
  return distances;
}

Exchange plan_exchange(const Group& tree, int rank, std::size_t count, std::size_t grain) {
  ExchangePlanner planner(tree, rank, count, grain);
  planner.own(tree);
  return std::move(planner).take();
}

std::optional<std::vector<int>> order_of_owners(const Group& tree) {
  // With fewer elements rounded cuts could look like even ones.
  const std::size_t each = tree.ranks.size();
  std::vector<int> order;
  for (const Owned& owned :
       ExchangePlanner(tree, tree.ranks.front(), tree.ranks.size() * each, 1).own(tree)) {
    if (owned.range.size() != each) return std::nullopt;
    order.push_back(owned.rank);
  }
  std::vector<int> all = order;
  std::sort(all.begin(), all.end());
  if (std::adjacent_find(all.begin(), all.end()) != all.end()) return std::nullopt;
  return order;
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

std::vector<const Group*> innermost_groups(const Group& tree) {
  std::vector<const Group*> groups;
  collect_innermost(tree, groups);
  return groups;
}

}  // namespace ddl
