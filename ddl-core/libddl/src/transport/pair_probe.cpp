#include "transport/pair_probe.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "support/error.hpp"
#include "support/stopwatch.hpp"

namespace ddl {
namespace {

using Clock = std::chrono::steady_clock;

/// The first part of a pair's time is not counted: connections are made, and shapers let a burst pass.
constexpr double kWarmUp = 1.0 / 3;
constexpr double kAnswerSeconds = 30;
constexpr int kProbeTag = 7;

constexpr const char* kWhere = "in the measurement of the topology";
constexpr const char* kRemedy = "look at the output of the others, or describe the topology in a file";

}  // namespace

PairProbe::PairProbe(MPI_Comm comm, std::vector<int> leaders)
    : comm_(comm),
      leaders_(std::move(leaders)),
      all_(comm, leaders_, kAnswerSeconds, kWhere, kRemedy),
      buffers_(std::make_unique<Buffers>()) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  self_ = static_cast<std::size_t>(std::find(leaders_.begin(), leaders_.end(), rank) - leaders_.begin());
}

std::optional<PairProbe::Sample> PairProbe::round(const Matching& partners, double seconds) {
  all_.barrier();
  if (partners[self_] == kAlone) return {};
  const std::size_t partner = partners[self_];
  return Sample{partner, exchange(leaders_[partner], self_ < partner, seconds)};
}

/// Exchanges messages with a partner for about `seconds`; Mbit/s in each direction. The first byte of a
/// message of `deciding` says whether it is the last.
double PairProbe::exchange(int partner, bool deciding, double seconds) {
  const auto start = Clock::now();
  std::size_t steps = 0;
  std::size_t counted_from = 0;
  double counted_since = 0;
  for (bool last = false; !last; ++steps) {
    const double now = seconds_since(start);
    if (steps > 0 && counted_from == 0 && now >= kWarmUp * seconds) {
      counted_from = steps;
      counted_since = now;
    }
    // One counted step at least, whatever the link.
    last = deciding && now >= seconds && counted_from > 0 && steps > counted_from;
    buffers_->out[0] = std::byte{last};
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    check_mpi(
        MPI_Irecv(buffers_->in.data(), kMessageBytes, MPI_BYTE, partner, kProbeTag, comm_, &requests[0]),
        "MPI_Irecv");
    check_mpi(
        MPI_Isend(buffers_->out.data(), kMessageBytes, MPI_BYTE, partner, kProbeTag, comm_, &requests[1]),
        "MPI_Isend");
    try {
      wait_for(requests, seconds + kAnswerSeconds, {"rank " + std::to_string(partner), kWhere, kRemedy});
    } catch (const Error&) {
      // MPI may still write to the memory.
      static_cast<void>(buffers_.release());
      throw;
    }
    if (!deciding) last = buffers_->in[0] == std::byte{1};
  }
  const double bits = 8.0 * kMessageBytes * static_cast<double>(steps - counted_from);
  return bits / std::max(seconds_since(start) - counted_since, 1e-9) * 1e-6;
}

}  // namespace ddl
