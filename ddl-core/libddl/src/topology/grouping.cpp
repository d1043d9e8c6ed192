#include "topology/grouping.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace ddl {
namespace {

constexpr double kUnknown = -std::numeric_limits<double>::infinity();

/// Sum and number of what was measured between two clusters.
struct Between {
  double sum = 0;
  std::size_t pairs = 0;
  double mean() const { return pairs == 0 ? kUnknown : sum / static_cast<double>(pairs); }
};

struct Join {
  std::size_t kept;
  std::size_t gone;
  double similarity;
};

bool measured(double mbit) { return std::isfinite(mbit) && mbit > 0; }

/// The joins of average linkage, most similar first, until one cluster is left.
std::vector<Join> joins_of(const std::vector<std::vector<double>>& mbit) {
  const std::size_t n = mbit.size();
  std::vector<std::vector<Between>> between(n, std::vector<Between>(n));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      if (i != j && measured(mbit[i][j])) between[i][j] = {std::log(mbit[i][j]), 1};
    }
  }
  std::vector<std::size_t> alive(n);
  std::iota(alive.begin(), alive.end(), std::size_t{0});
  std::vector<Join> joins;
  while (alive.size() > 1) {
    Join best{alive[0], alive[1], between[alive[0]][alive[1]].mean()};
    for (std::size_t a = 0; a < alive.size(); ++a) {
      for (std::size_t b = a + 1; b < alive.size(); ++b) {
        const double similarity = between[alive[a]][alive[b]].mean();
        if (similarity > best.similarity) best = {alive[a], alive[b], similarity};
      }
    }
    joins.push_back(best);
    std::erase(alive, best.gone);
    for (const std::size_t other : alive) {
      if (other == best.kept) continue;
      for (auto [row, column] : {std::pair(best.kept, other), std::pair(other, best.kept)}) {
        const Between& add = row == other ? between[other][best.gone] : between[best.gone][other];
        between[row][column].sum += add.sum;
        between[row][column].pairs += add.pairs;
      }
    }
  }
  return joins;
}

/// cluster[i] of host i after the first `count` joins.
std::vector<std::size_t> clusters_after(const std::vector<Join>& joins, std::size_t count, std::size_t n) {
  std::vector<std::size_t> cluster(n);
  std::iota(cluster.begin(), cluster.end(), std::size_t{0});
  for (std::size_t i = 0; i < count; ++i) {
    std::replace(cluster.begin(), cluster.end(), joins[i].gone, joins[i].kept);
  }
  return cluster;
}

double quantile(std::vector<double>& values, double share) {
  const auto at = static_cast<std::size_t>(std::lround(share * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

bool clearly_faster_inside(const std::vector<std::vector<double>>& mbit,
                           const std::vector<std::size_t>& cluster) {
  std::vector<double> inside;
  std::vector<double> across;
  for (std::size_t i = 0; i < mbit.size(); ++i) {
    for (std::size_t j = i + 1; j < mbit.size(); ++j) {
      if (measured(mbit[i][j])) (cluster[i] == cluster[j] ? inside : across).push_back(mbit[i][j]);
    }
  }
  if (inside.empty() || across.empty()) return false;
  return quantile(inside, 0.1) >= kMinBandwidthRatio * quantile(across, 0.9);
}

}  // namespace

std::vector<std::vector<int>> group_hosts_by_bandwidth(const std::vector<std::vector<double>>& mbit) {
  const std::size_t n = mbit.size();
  const std::vector<Join> joins = joins_of(mbit);
  std::vector<std::size_t> cluster(n, 0);
  double widest = std::log(kMinBandwidthRatio);
  for (std::size_t count = 1; count < joins.size(); ++count) {
    const double gap = joins[count - 1].similarity - joins[count].similarity;
    // Clusters between which nothing was measured are not known to be apart.
    if (!std::isfinite(gap) || gap < widest) continue;
    std::vector<std::size_t> candidate = clusters_after(joins, count, n);
    if (!clearly_faster_inside(mbit, candidate)) continue;
    widest = gap;
    cluster = std::move(candidate);
  }
  std::vector<std::vector<int>> groups;
  std::vector<std::size_t> group_of(n, n);
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t& group = group_of[cluster[i]];
    if (group == n) {
      group = groups.size();
      groups.emplace_back();
    }
    groups[group].push_back(static_cast<int>(i));
  }
  return groups;
}

}  // namespace ddl
