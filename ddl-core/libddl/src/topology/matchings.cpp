#include "topology/matchings.hpp"

#include <algorithm>

namespace ddl {
namespace {

void meet(Matching& matching, std::size_t a, std::size_t b) {
  matching[a] = b;
  matching[b] = a;
}

}  // namespace

std::size_t circle_rounds(std::size_t n) { return n < 2 ? 0 : n + n % 2 - 1; }

Matching circle_matching(std::size_t n, std::size_t round) {
  // Number m - 1 stays, the others go round. m is even; the odd one out meets nobody.
  const std::size_t m = n + n % 2;
  const std::size_t circle = m - 1;
  Matching matching(n, kAlone);
  for (std::size_t self = 0; self < n; ++self) {
    const std::size_t mirrored = (round + circle - self % circle) % circle;
    const std::size_t other =
        self == circle ? round * (m / 2) % circle : (mirrored == self ? circle : mirrored);
    if (other < n) matching[self] = other;
  }
  return matching;
}

std::vector<Matching> doubling_matchings(std::size_t n) {
  std::vector<Matching> rounds;
  for (std::size_t distance = 1; distance < n; distance *= 2) {
    for (const std::size_t offset : {std::size_t{0}, distance}) {
      Matching matching(n, kAlone);
      bool any = false;
      for (std::size_t i = offset; i + distance < n; ++i) {
        if ((i - offset) / distance % 2 != 0) continue;
        meet(matching, i, i + distance);
        any = true;
      }
      if (any) rounds.push_back(std::move(matching));
    }
  }
  return rounds;
}

Matching matching_inside(const std::vector<std::vector<int>>& groups, std::size_t n) {
  Matching matching(n, kAlone);
  for (const std::vector<int>& group : groups) {
    for (std::size_t i = 0; i + 1 < group.size(); i += 2) {
      meet(matching, static_cast<std::size_t>(group[i]), static_cast<std::size_t>(group[i + 1]));
    }
  }
  return matching;
}

Matching matching_across(const std::vector<std::vector<int>>& groups, std::size_t n) {
  Matching matching(n, kAlone);
  for (std::size_t g = 0; g + 1 < groups.size(); g += 2) {
    const std::size_t pairs = std::min(groups[g].size(), groups[g + 1].size());
    for (std::size_t i = 0; i < pairs; ++i) {
      meet(matching, static_cast<std::size_t>(groups[g][i]), static_cast<std::size_t>(groups[g + 1][i]));
    }
  }
  return matching;
}

}  // namespace ddl
