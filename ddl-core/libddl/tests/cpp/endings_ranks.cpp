// One rank ends, or stops, at the n-th step of what all ranks do; the others tell what they are told.
//
// Arguments: what they do (group, small, large, end), how it ends (stop, kill, exit), the rank, the step
// from 1. A step is a place in libddl.so that calls MPI or looks at the clock, in the order in which they are
// first reached. Prints "error RANK CODE TEXT", "written RANK" where the memory of a failed call is written
// to later, and "over" where there are fewer steps.
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "ddl.hpp"
#include "group_calls.hpp"

namespace {

std::atomic<bool> armed{false};
std::string how;
int steps_left = 0;

/// Serves others besides, and is no part of a call.
bool on_liveness_thread() {
  thread_local int known = -1;
  if (known < 0) {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    known = std::strncmp(name, "ddl-", 4) == 0 ? 1 : 0;
  }
  return known == 1;
}

void step(const void* place) {
  if (!armed.load(std::memory_order_relaxed) || on_liveness_thread()) return;
  static std::mutex mutex;
  static std::vector<const void*> seen;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const void* const known : seen) {
    if (known == place) return;
  }
  seen.push_back(place);
  if (--steps_left > 0) return;
  armed = false;
  if (how == "stop") {
    // The launcher has it continue to end it: it is to end then, not to go on with what the others gave up.
    signal(SIGTERM, SIG_DFL);
    raise(SIGSTOP);
  }
  if (how == "kill") raise(SIGKILL);
  if (how == "exit") _exit(3);
}

}  // namespace

// libddl.so's are these.
std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  step(__builtin_return_address(0));
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

extern "C" {

int MPI_Isend(const void* from, int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
              MPI_Request* request) {
  step(__builtin_return_address(0));
  return PMPI_Isend(from, count, type, rank, tag, comm, request);
}

int MPI_Irecv(void* to, int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
              MPI_Request* request) {
  step(__builtin_return_address(0));
  return PMPI_Irecv(to, count, type, rank, tag, comm, request);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  step(__builtin_return_address(0));
  return PMPI_Comm_dup(comm, made);
}

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made) {
  step(__builtin_return_address(0));
  return PMPI_Comm_create_group(comm, group, tag, made);
}

int MPI_Comm_free(MPI_Comm* comm) {
  step(__builtin_return_address(0));
  return PMPI_Comm_free(comm);
}

}  // extern "C"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string what = argv[1];
  how = argv[2];
  const int victim = std::atoi(argv[3]);
  steps_left = std::atoi(argv[4]);
  if (ddl_init() != DDL_SUCCESS) {
    std::fprintf(stderr, "%s\n", ddl_last_error());
    return 2;
  }
  int rank = -1, size = 0;
  ddl_rank(&rank);
  ddl_size(&size);
  // The launcher ends the others when one has ended: they tell first what they were told.
  signal(SIGTERM, SIG_IGN);
  std::vector<float> data(what == "large" ? 600'000 : 100, 1.0F);
  DDL_Group group = 0;
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.rbegin(), ranks.rend(), 0);
  ddl_barrier();
  armed = rank == victim;
  int code = what == "group" ? ddl_group_create(ranks.data(), ranks.size(), 0, &group)
             : what == "end" ? ddl_finalize()
                             : ddl_allreduce(data.data(), data.size());
  const bool over = rank == victim && armed;
  armed = false;
  if (over) std::printf("over\n");
  std::fflush(stdout);
  // Where it had done its part the next call tells.
  if (code == DDL_SUCCESS && what != "end")
    code = what == "group" ? group_calls::barrier_in(group) : ddl_barrier();
  if (code != DDL_SUCCESS) {
    std::printf("error %d %d %s\n", rank, code, ddl_last_error());
    std::fflush(stdout);
    // The caller's memory is the caller's again, whatever arrives late.
    std::fill(data.begin(), data.end(), 4711.0F);
    sleep(3);
    for (const float& one : data) {
      if (*const_cast<const volatile float*>(&one) == 4711.0F) continue;
      std::printf("written %d\n", rank);
      break;
    }
    std::fflush(stdout);
    _exit(1);
  }
  return ddl_finalize();
}
