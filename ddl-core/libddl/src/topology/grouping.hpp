#pragma once

#include <vector>

namespace ddl {

/// Inside a group hosts must reach each other at least this much faster than across groups. Below it a tier
/// wins nothing that is larger than what such a measurement errs by.
inline constexpr double kMinBandwidthRatio = 1.5;

/**
 * Groups hosts that reach each other clearly faster than the rest: racks, found from outside.
 *
 * The tree of average linkage (UPGMA, Sokal and Michener 1958) over the logarithms of the bandwidths is cut
 * where two successive joins differ most; the idea of logical clusters by measured links is that of ECO
 * (Lowekamp and Beguelin 1996) and of Barchet-Estefanel and Mounié (arXiv cs/0408033). The cut stands only
 * when those joins differ by kMinBandwidthRatio, and so do the lower tenth of the bandwidths inside and the
 * upper tenth of those across, so that single odd figures neither make nor break a group. Otherwise there is
 * one group of all.
 *
 * @param mbit  mbit[i][j]: bandwidth between hosts i and j; symmetric; the diagonal is not looked at. What is
 *        not a positive finite number counts as not measured.
 * @return groups of indices, ascending, in the order of their first members. Hosts that are alone are groups
 *         of one.
 */
std::vector<std::vector<int>> group_hosts_by_bandwidth(const std::vector<std::vector<double>>& mbit);

}  // namespace ddl
