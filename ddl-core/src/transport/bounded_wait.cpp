#include "transport/bounded_wait.hpp"

#include <sched.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "support/error.hpp"

namespace ddl {

void wait_for(std::span<MPI_Request> requests, double limit_s, const Awaited& awaited) {
  wait_for(requests, limit_s, limit_s, awaited);
}

void wait_for(std::span<MPI_Request> requests, double limit_s, double said_s, const Awaited& awaited) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int done = 0;;) {
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    if (done != 0) return;
    const double waited = std::chrono::duration<double>(Clock::now() - start).count();
    if (waited > limit_s) {
      std::array<char, 32> limit{};
      std::snprintf(limit.data(), limit.size(), "%g s", said_s);
      throw Error(DDL_ERR_TIMEOUT, awaited.whom + " did not answer within " + limit.data() + "; " +
                                       awaited.where + "; " + awaited.remedy);
    }
    if (waited < 0.01) {
      sched_yield();
    } else {
      // Others work on the same cores meanwhile.
      const timespec pause{0, waited < 0.1 ? 100'000 : 1'000'000};
      nanosleep(&pause, nullptr);
    }
  }
}

}  // namespace ddl
