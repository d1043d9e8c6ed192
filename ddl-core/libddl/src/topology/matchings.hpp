#pragma once

#include <cstddef>
#include <vector>

namespace ddl {

/// Which host each host meets, by index; kAlone for one that meets none. Symmetric.
using Matching = std::vector<std::size_t>;
inline constexpr std::size_t kAlone = static_cast<std::size_t>(-1);

/// Rounds of the circle method, after which each of n hosts has met every other: n - 1, or n where n is odd.
std::size_t circle_rounds(std::size_t n);
Matching circle_matching(std::size_t n, std::size_t round);

/**
 * Rounds in which every host meets those 1, 2, 4, 8, … places away on either side: 2 log2(n) of them. Racks
 * are mostly numbered through, so these tell soon whether there are any. As hosts at distances 1 and 2 form
 * triangles, no division into two groups makes all of these pairs cross.
 */
std::vector<Matching> doubling_matchings(std::size_t n);

/// Pairs within groups: neighbours in each, as many as there are. @param groups  of indices of n hosts
Matching matching_inside(const std::vector<std::vector<int>>& groups, std::size_t n);
/// Pairs of hosts of different groups: each group's with those of the next.
Matching matching_across(const std::vector<std::vector<int>>& groups, std::size_t n);

}  // namespace ddl
