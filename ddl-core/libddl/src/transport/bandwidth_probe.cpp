#include "transport/bandwidth_probe.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "support/error.hpp"
#include "topology/matchings.hpp"
#include "transport/pair_probe.hpp"

namespace ddl {
namespace {

/// The best of two: whatever disturbs a pair makes it slower, never faster.
constexpr int kSweeps = 2;

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
                    seconds_text(budget_s),
                "in the measurement of the topology", "allow more time, or describe the topology in a file");
  }

  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  if (std::find(leaders.begin(), leaders.end(), rank) == leaders.end()) return {};

  // Each pair has two entries, one from either side.
  std::vector<double> row(n, 0.0);
  PairProbe probe(comm, leaders);
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    for (std::size_t round = 0; round < rounds; ++round) {
      const auto sample = probe.round(circle_matching(n, round), slice);
      if (!sample) continue;
      double& known = row[sample->partner];
      known = std::max(known, sample->mbit);
    }
  }
  const std::string text =
      probe.all().reduce(std::string(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(double)),
                         [](std::string a, const std::string& b) { return std::move(a.append(b)); });
  if (text.empty()) return {};
  std::vector<double> flat(n * n);
  std::memcpy(flat.data(), text.data(), text.size());
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      if (i != j) mbit[i][j] = (flat[i * n + j] + flat[j * n + i]) / 2;
    }
  }
  return mbit;
}

}  // namespace ddl
