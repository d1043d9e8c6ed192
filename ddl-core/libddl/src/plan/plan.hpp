#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/chunking.hpp"
#include "plan/exchange.hpp"
#include "plan/schedule.hpp"

namespace ddl {

/// Shape::kLeaders is for up to so many bytes and hosts.
inline constexpr std::size_t kSmallBytes = std::size_t{128} << 10;
inline constexpr std::size_t kLeadersHosts = 64;
/// Up to so many hosts each leader may send something to all others in one round.
inline constexpr std::size_t kFewHosts = 8;

/// How an all-reduce of a GPU's memory gets to where it is reduced.
enum class DevicePath : std::uint8_t {
  kStaged,     ///< it is copied to staging buffers of the host; all else is as for the host's memory
  kNccl,       ///< NCCL reduces it among all ranks
  kNcclTiers,  ///< NCCL reduces it in every tier
  kIpc,        ///< ranks of a host reduce it in each other's memory, and each part is staged for the tiers
  kNcclHosts,  ///< NCCL reduces it within the hosts, and each rank's part is then staged for the tiers
};

/// What of an all-reduce decides how it is done. The same on all ranks. Calls share what the planner knows of
/// them only where all of this is equal, but for the elements.
struct AllreduceShape {
  std::size_t elements = 0;
  std::size_t width = 4;          ///< bytes of an element
  bool order_free = false;        ///< every order of reduction gives the same bits
  bool rounds_each_step = false;  ///< 16-bit types: every reduction rounds
  bool narrow_range = false;      ///< float16: sums may leave its range where averages do not
  bool one_buffer = true;         ///< the elements lie in one piece
  bool encoded = false;           ///< with a reduced wire format
  std::int32_t memory = 0;        ///< kind of the buffers' memory, as DDL_MemoryKind
  bool nccl = false;              ///< NCCL can reduce it among all ranks
  bool nccl_tiers = false;        ///< and in every tier
  bool nccl_hosts = false;        ///< and within hosts
  bool ipc = false;               ///< ranks of a host have each other's memory open
  bool operator==(const AllreduceShape&) const = default;
  std::size_t bytes() const { return elements * width; }
  bool small(std::size_t hosts) const {
    // A message is read and written where the buffers are.
    return elements > 0 && bytes() <= kSmallBytes && hosts <= kLeadersHosts && !encoded && memory == 0;
  }
};

/// How an all-reduce is done.
struct Plan {
  std::size_t elements = 0;                 ///< of the calls that it is for
  std::int32_t memory = 0;                  ///< kind of memory, too
  DevicePath device = DevicePath::kStaged;  ///< of memory of GPUs
  bool plain_mpi = false;                   ///< MPI_Allreduce; the rest is then unused
  Shape shape = Shape::kTiers;
  std::vector<Algorithm> algorithms;  ///< by tier above the innermost
  Chunking chunking;
  std::vector<std::size_t> windows;  ///< bytes under way, by tier above the innermost
  double predicted_s = 0;
  std::size_t candidate = 0;  ///< number of the candidate, for Planner::learn
  std::uint64_t id = 0;       ///< the same for calls that do the same; 0: not chosen by choose()

  /// For example "tiers: direct, recursive doubling; 256 KiB chunks".
  std::string to_text() const;
};

}  // namespace ddl
