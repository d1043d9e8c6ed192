#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "plan/cost_model.hpp"
#include "plan/link_model.hpp"

namespace ddl {

/// Where errors of the files for a simulation send their reader.
inline constexpr const char* kSimulatePage = "docs/cluster/simulate.md describes the file";

inline constexpr std::size_t kMaxClusterFileBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMaxDescribedTiers = 16;
inline constexpr std::size_t kMaxDescribedRanks = 100'000;

/// Whose bandwidth a tier's figure is.
enum class Sharing {
  kMemory,  ///< a vector's that all ranks of a host reduce together in its memory; innermost tier only
  kRank,    ///< of each rank below, such as a rail for each GPU
  kHost,    ///< of each host below, such as an uplink that is as wide as the links below it
  kMember,  ///< of each member: a link that all ranks below it share
  kPair,    ///< between each two members
  kTier,    ///< of a bus that all members share
};

/// A tier of a described cluster: what joins its members.
struct DescribedTier {
  std::string name;
  std::vector<std::size_t> members;  ///< of each group, or one number for all
  Sharing sharing = Sharing::kMember;
  double bytes_per_s = 0;  ///< in each direction
  double latency_s = 0;
  double efficiency = 1;  ///< part of bytes_per_s that all-reduces reach
};

/// The part of a described cluster that a job uses, as the cost model sees it.
struct JobShape {
  ClusterShape cluster;
  LinkModel model;
  std::vector<std::size_t> tiers;  ///< of the description, for each tier of the model
  std::size_t hosts = 1;
};

/**
 * A cluster that is not here: tiers from the innermost outwards, and what a step costs.
 * docs/cluster/simulate.md describes the file.
 */
class DescribedCluster {
 public:
  /// @throws Error (DDL_ERR_ARGUMENT) that names the place
  static DescribedCluster parse(const std::string& text);

  /// A job on the first ranks, hosts being filled one after the other.
  JobShape job(std::size_t ranks) const;
  std::size_t ranks() const { return ranks_; }
  /// Ranks of each host, in their order.
  std::vector<std::size_t> host_ranks() const;

  std::string name;
  std::string description;
  std::vector<DescribedTier> tiers;
  std::size_t host_tier = 0;     ///< index of the tier that ends a host
  LinkFigures device;            ///< where no tier is memory: what a rank reduces at, and its latency
  LinkModel overheads;           ///< only chunk_s, message_s and overlap
  std::optional<double> step_s;  ///< a step's computation on one rank
  double fixed_s = 0;            ///< more for every step of several ranks
  std::optional<std::size_t> bytes;

 private:
  friend class ClusterReader;
  LinkFigures figures(std::size_t tier, std::size_t groups, std::size_t ranks_below,
                      std::size_t hosts_below) const;
  bool in_memory() const { return tiers.front().sharing == Sharing::kMemory; }

  std::size_t ranks_ = 1;
};

}  // namespace ddl
