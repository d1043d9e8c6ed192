#include "transport/bounded_wait.hpp"

#include <sched.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "support/error.hpp"
#include "support/kept_on_error.hpp"

namespace ddl {
namespace {

Error no_answer(double limit_s, const Awaited& awaited) {
  std::array<char, 32> limit{};
  std::snprintf(limit.data(), limit.size(), "%g s", limit_s);
  return Error(DDL_ERR_TIMEOUT, awaited.whom + " did not answer within " + limit.data() + "; " +
                                    awaited.where + "; " + awaited.remedy);
}

bool threads_allowed() {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  return provided == MPI_THREAD_MULTIPLE;
}

/// What MPI offers to make communicators takes no time limit, and parts of it that do not block may do so all
/// the same: a thread of its own calls it, and stays there where ranks do not come.
MPI_Comm on_thread(std::function<MPI_Comm()> make, double limit_s, const Awaited& awaited) {
  std::promise<MPI_Comm> promise;
  std::future<MPI_Comm> made = promise.get_future();
  std::thread([make = std::move(make), promise = std::move(promise)]() mutable {
    try {
      promise.set_value(make());
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  if (made.wait_for(std::chrono::duration<double>(limit_s)) != std::future_status::ready) {
    throw no_answer(limit_s, awaited);
  }
  return made.get();
}

}  // namespace

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
    if (waited > limit_s) throw no_answer(said_s, awaited);
    if (waited < 0.01) {
      sched_yield();
    } else {
      // Others work on the same cores meanwhile.
      const timespec pause{0, waited < 0.1 ? 100'000 : 1'000'000};
      nanosleep(&pause, nullptr);
    }
  }
}

MPI_Comm duplicate_within(MPI_Comm comm, double limit_s, const Awaited& awaited) {
  if (threads_allowed()) {
    const auto duplicate = [comm] {
      MPI_Comm made = MPI_COMM_NULL;
      check_mpi(MPI_Comm_dup(comm, &made), "MPI_Comm_dup");
      return made;
    };
    return on_thread(duplicate, limit_s, awaited);
  }
  const KeptOnError<MPI_Comm> made(MPI_COMM_NULL);
  std::array<MPI_Request, 1> request{MPI_REQUEST_NULL};
  check_mpi(MPI_Comm_idup(comm, &*made, request.data()), "MPI_Comm_idup");
  wait_for(request, limit_s, awaited);
  return *made;
}

MPI_Comm communicator_within(MPI_Comm all, const std::vector<int>& ranks, int tag, double limit_s,
                             const Awaited& awaited) {
  if (!threads_allowed()) return communicator_of(all, ranks, tag);
  return on_thread([all, ranks, tag] { return communicator_of(all, ranks, tag); }, limit_s, awaited);
}

}  // namespace ddl
