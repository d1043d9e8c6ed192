#include "transport/bandwidth_probe.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>

#include "support/error.hpp"
#include "topology/matchings.hpp"
#include "transport/pair_probe.hpp"

namespace ddl {
namespace {

/// The best of two: whatever disturbs a pair makes it slower, never faster.
constexpr int kSweeps = 2;
constexpr double kAnswerSeconds = 30;

std::string seconds_text(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g s", seconds);
  return text.data();
}

}  // namespace

std::vector<std::vector<double>> measure_bandwidth(MPI_Comm comm, const std::vector<int>& leaders,
                                                   double budget_s) {
  const std::size_t n = leaders.size();
  std::vector<std::vector<double>> mbit(n, std::vector<double>(n, 0.0));
  if (n < 2) return mbit;
  const std::size_t rounds = circle_rounds(n);
  const int sweeps = budget_s >= kSweeps * kMinProbeSeconds * static_cast<double>(rounds) ? kSweeps : 1;
  const double slice = budget_s / sweeps / static_cast<double>(rounds);
  if (!(slice >= kMinProbeSeconds) || !std::isfinite(slice)) {
    throw Error(DDL_ERR_OPTION,
                "measuring the links of " + std::to_string(n) + " hosts takes " + std::to_string(rounds) +
                    " rounds of at least " + seconds_text(kMinProbeSeconds) + ", but may take " +
                    seconds_text(budget_s) +
                    "; in the measurement of the topology; allow more time, or describe the topology in a "
                    "file");
  }

  std::vector<double> flat(n * n, 0.0);
  PairProbe probe(comm, leaders);
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    for (std::size_t round = 0; round < rounds; ++round) {
      const auto sample = probe.round(circle_matching(n, round), slice);
      if (!sample) continue;
      double& known = flat[probe.self() * n + sample->partner];
      known = std::max(known, sample->mbit);
    }
  }
  MPI_Request request = MPI_REQUEST_NULL;
  // Each pair has two entries, one from either side.
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, flat.data(), static_cast<int>(flat.size()), MPI_DOUBLE, MPI_MAX,
                           comm, &request),
            "MPI_Iallreduce");
  wait_for(request, kAnswerSeconds);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      if (i != j) mbit[i][j] = (flat[i * n + j] + flat[j * n + i]) / 2;
    }
  }
  return mbit;
}

}  // namespace ddl
