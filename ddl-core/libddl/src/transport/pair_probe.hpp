#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "topology/matchings.hpp"
#include "transport/tree_exchange.hpp"

namespace ddl {

/// Shortest time in which a pair of hosts says anything of its link.
inline constexpr double kMinProbeSeconds = 0.02;

/**
 * Measures links between pairs of hosts, all pairs of a round at the same time and in both directions: links
 * that several pairs share show as slower ones.
 *
 * Collective over the leaders, between which nothing else may be under way. What a rank waits for has a limit
 * of 30 s beyond the time of a round.
 */
class PairProbe {
 public:
  struct Sample {
    std::size_t partner;
    double mbit;  ///< 10^6 bit/s in each direction
  };

  /// @param leaders  one rank of comm for each host, the same on all of them; this rank is one
  PairProbe(MPI_Comm comm, std::vector<int> leaders);

  /// @param partners  the same on all ranks
  /// @param seconds   for which each pair exchanges messages, longer only where a single one of 128 KiB takes
  ///                  longer
  /// @return this host's figure; none for one without a partner
  /// @throws Error (DDL_ERR_TIMEOUT) when a rank does not answer: comm is of no use then; DDL_ERR_MPI
  std::optional<Sample> round(const Matching& partners, double seconds);

  /// What else the leaders tell each other.
  const TreeExchange& all() const { return all_; }
  /// Index in leaders of this rank.
  std::size_t self() const { return self_; }

 private:
  /// One message each way at a time, of this size, fills a link and does not flood its queue.
  static constexpr std::size_t kMessageBytes = std::size_t{128} << 10;
  struct Buffers {
    std::array<std::byte, kMessageBytes> out{};
    std::array<std::byte, kMessageBytes> in{};
  };

  double exchange(int partner, bool deciding, double seconds);

  const MPI_Comm comm_;
  const std::vector<int> leaders_;
  const TreeExchange all_;
  std::size_t self_ = 0;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace ddl
