#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "simulate/described_cluster.hpp"

namespace ddl {

/// Ways of an all-reduce that are compared, whether or not DDL would take them.
enum class Method {
  kPlanned,          ///< what DDL's planner chooses
  kRing,             ///< one ring over all ranks in the order of their numbers
  kRecursive,        ///< recursive halving and doubling over all ranks, nearest first
  kTree,             ///< to one rank and back, along a binomial tree in every tier
  kRingByTier,       ///< -mode r
  kRecursiveByTier,  ///< -mode c
  kMpi,              ///< MPI_Allreduce
};

inline constexpr Method kMethods[] = {Method::kPlanned, Method::kRing,       Method::kRecursive,
                                      Method::kTree,    Method::kRingByTier, Method::kRecursiveByTier,
                                      Method::kMpi};

const char* name_of(Method method);
/// One sentence for people.
const char* meaning_of(Method method);

/// What a job on a described cluster is predicted to take.
struct Forecast {
  Method method = Method::kPlanned;
  std::size_t ranks = 1;
  std::size_t hosts = 1;
  Cost cost;  ///< its tiers_s are those of `tiers`
  std::vector<std::string> tiers;
  std::string bound;  ///< what takes longest: a tier, "reduction", "processor", "latency"; "" at one rank
  std::string plan;   ///< of kPlanned
};

/// float32 gradients in several pieces.
Forecast forecast(const DescribedCluster& cluster, std::size_t bytes, std::size_t ranks, Method method);

/// Seconds of a step of `ranks` ranks: computation, the fixed part, and the all-reduce after it.
double step_seconds(const DescribedCluster& cluster, const Forecast& forecast);

}  // namespace ddl
