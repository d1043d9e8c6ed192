#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddl {

inline constexpr std::size_t kMaxPredictedCounts = 10'000;

/**
 * What ddl_predict returns: the JSON object that docs/cluster/simulate.md describes.
 *
 * @param cluster  text of a cluster description
 * @param steps    text of step times to calibrate with, or ""
 * @param bytes    of an all-reduce; 0: those of the step times, or of the description
 * @param ranks    sizes of jobs; empty: powers of two within a host, then of hosts, and those of `steps`
 * @throws Error (DDL_ERR_ARGUMENT)
 */
std::string predict_json(const std::string& cluster, const std::string& steps, std::size_t bytes,
                         std::vector<std::size_t> ranks);

}  // namespace ddl
