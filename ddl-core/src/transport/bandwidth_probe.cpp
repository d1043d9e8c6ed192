#include "transport/bandwidth_probe.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "support/error.hpp"

namespace ddl {
namespace {

using Clock = std::chrono::steady_clock;

/// One message each way at a time, of this size, fills a link and does not flood its queue.
constexpr std::size_t kMessageBytes = std::size_t{128} << 10;
/// The best of two: whatever disturbs a pair makes it slower, never faster.
constexpr int kSweeps = 2;
/// The first part of a pair's time is not counted: connections are made, and shapers let a burst pass.
constexpr double kWarmUp = 1.0 / 3;
constexpr double kAnswerSeconds = 30;
constexpr int kTag = 7;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string seconds_text(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g s", seconds);
  return text.data();
}

/// Returns when all are complete. Ranks may outnumber cores, so waiting yields.
template <std::size_t n>
void wait_for(std::array<MPI_Request, n>& requests, double limit_s, const std::string& whom) {
  const auto start = Clock::now();
  for (int done = 0;;) {
    check_mpi(MPI_Testall(static_cast<int>(n), requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (done != 0) return;
    const double waited = since(start);
    if (waited > limit_s) {
      throw Error(DDL_ERR_TIMEOUT, whom + " did not answer within " + seconds_text(limit_s) +
                                       "; in the measurement of the topology; look at the output of the "
                                       "others, or describe the topology in a file");
    }
    if (waited < 0.01) {
      sched_yield();
    } else {
      const timespec pause{0, 100'000};
      nanosleep(&pause, nullptr);
    }
  }
}

struct Buffers {
  std::array<std::byte, kMessageBytes> out{};
  std::array<std::byte, kMessageBytes> in{};
};

/// Exchanges messages with a partner for about `seconds`; Mbit/s in each direction. The first byte of a
/// message of `deciding` says whether it is the last.
double exchange(MPI_Comm comm, int partner, bool deciding, double seconds,
                std::unique_ptr<Buffers>& buffers) {
  const auto start = Clock::now();
  std::size_t steps = 0;
  std::size_t counted_from = 0;
  double counted_since = 0;
  for (bool last = false; !last; ++steps) {
    const double now = since(start);
    if (steps > 0 && counted_from == 0 && now >= kWarmUp * seconds) {
      counted_from = steps;
      counted_since = now;
    }
    // One counted step at least, whatever the link.
    last = deciding && now >= seconds && counted_from > 0 && steps > counted_from;
    buffers->out[0] = std::byte{last};
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    check_mpi(MPI_Irecv(buffers->in.data(), kMessageBytes, MPI_BYTE, partner, kTag, comm, &requests[0]),
              "MPI_Irecv");
    check_mpi(MPI_Isend(buffers->out.data(), kMessageBytes, MPI_BYTE, partner, kTag, comm, &requests[1]),
              "MPI_Isend");
    try {
      wait_for(requests, seconds + kAnswerSeconds, "rank " + std::to_string(partner));
    } catch (const Error&) {
      // MPI may still write to the memory.
      static_cast<void>(buffers.release());
      throw;
    }
    if (!deciding) last = buffers->in[0] == std::byte{1};
  }
  const double bits = 8.0 * kMessageBytes * static_cast<double>(steps - counted_from);
  return bits / std::max(since(start) - counted_since, 1e-9) * 1e-6;
}

/// Partner of `self` in a round of the circle method: number m-1 stays, the others go round. m is even.
std::size_t partner_of(std::size_t self, std::size_t round, std::size_t m) {
  const std::size_t circle = m - 1;
  if (self == circle) return round * (m / 2) % circle;
  const std::size_t other = (round + circle - self) % circle;
  return other == self ? circle : other;
}

}  // namespace

std::vector<std::vector<double>> measure_bandwidth(MPI_Comm comm, const std::vector<int>& leaders,
                                                   double budget_s) {
  const std::size_t n = leaders.size();
  std::vector<std::vector<double>> mbit(n, std::vector<double>(n, 0.0));
  if (n < 2) return mbit;
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  const std::size_t m = n + n % 2;
  const std::size_t rounds = m - 1;
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
  const auto self =
      static_cast<std::size_t>(std::find(leaders.begin(), leaders.end(), rank) - leaders.begin());
  auto buffers = std::make_unique<Buffers>();
  const double all_limit = 3 * slice + kAnswerSeconds;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    for (std::size_t round = 0; round < rounds; ++round) {
      std::array<MPI_Request, 1> request{MPI_REQUEST_NULL};
      check_mpi(MPI_Ibarrier(comm, &request[0]), "MPI_Ibarrier");
      wait_for(request, all_limit, "a rank");
      if (self == n) continue;
      const std::size_t partner = partner_of(self, round, m);
      if (partner >= n) continue;
      const double rate = exchange(comm, leaders[partner], self < partner, slice, buffers);
      double& known = flat[self * n + partner];
      known = std::max(known, rate);
    }
  }
  std::array<MPI_Request, 1> request{MPI_REQUEST_NULL};
  // Each pair has two entries, one from either side.
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, flat.data(), static_cast<int>(flat.size()), MPI_DOUBLE, MPI_MAX,
                           comm, &request[0]),
            "MPI_Iallreduce");
  wait_for(request, all_limit, "a rank");
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      if (i != j) mbit[i][j] = (flat[i * n + j] + flat[j * n + i]) / 2;
    }
  }
  return mbit;
}

}  // namespace ddl
