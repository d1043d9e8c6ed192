#include "transport/bounded_wait.hpp"

#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "support/error.hpp"
#include "support/kept_on_error.hpp"
#include "support/start_thread.hpp"
#include "support/stopwatch.hpp"

namespace ddl {
namespace {

thread_local const std::function<void()>* g_watch = nullptr;

Error no_answer(double limit_s, const Awaited& awaited) {
  std::array<char, 32> limit{};
  std::snprintf(limit.data(), limit.size(), "%g s", limit_s);
  return Error(DDL_ERR_TIMEOUT, awaited.whom + " did not answer within " + limit.data(), awaited.where,
               awaited.remedy);
}

bool threads_allowed() {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  return provided == MPI_THREAD_MULTIPLE;
}

/// Looks again and again. @return false when the time is over
template <class Done>
bool poll(double limit_s, const Awaited& awaited, Done done) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  while (!done()) {
    const double waited = seconds_since(start);
    if (waited > limit_s) return false;
    WatchedWaits::look();
    if (awaited.look) awaited.look();
    if (waited < 0.01) {
      sched_yield();
    } else {
      // Others work on the same cores meanwhile.
      const timespec pause{0, waited < 0.1 ? 100'000 : 1'000'000};
      nanosleep(&pause, nullptr);
    }
  }
  return true;
}

/// What MPI offers to make communicators takes no time limit, and parts of it that do not block may do so all
/// the same: a thread of its own calls it, and stays there where ranks do not come.
MPI_Comm on_thread(std::function<MPI_Comm()> make, double limit_s, const Awaited& awaited) {
  struct Making {
    MPI_Comm made = MPI_COMM_NULL;
    std::exception_ptr error;
    std::atomic<bool> done = false;
  };
  const auto making = std::make_shared<Making>();
  start_thread([make = std::move(make), making] {
    try {
      making->made = make();
    } catch (...) {
      making->error = std::current_exception();
    }
    making->done.store(true, std::memory_order_release);
  }).detach();
  // Not a std::future: GCC 10's waits by the clock of the day, which may be set.
  if (!poll(limit_s, awaited, [&] { return making->done.load(std::memory_order_acquire); })) {
    throw no_answer(limit_s, awaited);
  }
  if (making->error) std::rethrow_exception(making->error);
  return making->made;
}

}  // namespace

WatchedWaits::WatchedWaits(std::function<void()> look)
    : look_(std::move(look)), before_(std::exchange(g_watch, &look_)) {}

WatchedWaits::~WatchedWaits() { g_watch = before_; }

void WatchedWaits::look() {
  if (g_watch != nullptr) (*g_watch)();
}

void wait_for(std::span<MPI_Request> requests, double limit_s, const Awaited& awaited) {
  wait_for(requests, limit_s, limit_s, awaited);
}

void wait_for(std::span<MPI_Request> requests, double limit_s, double said_s, const Awaited& awaited) {
  const auto complete = [&] {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    return done != 0;
  };
  if (!poll(limit_s, awaited, complete)) throw no_answer(said_s, awaited);
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
