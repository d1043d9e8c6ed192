#include "engine/rendezvous.hpp"

#include <chrono>
#include <ctime>
#include <string>

#include "support/error.hpp"
#include "support/hash.hpp"

namespace ddl {
namespace {

using Clock = std::chrono::steady_clock;

/// Above the tags of data messages, of which MPI has at least 32768.
constexpr int kFirstTag = 16384;
constexpr int kTags = 16384;

/// Different groups mostly get different tags, so that rendezvous of two threads do not mix.
int tag_of(const std::vector<int>& ranks) {
  return kFirstTag + static_cast<int>(hash_bytes(ranks.data(), ranks.size() * sizeof ranks[0]) % kTags);
}

/// True when all have arrived; what has not is given up then.
bool await(std::vector<MPI_Request>& requests, Clock::time_point end) {
  while (true) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    if (done != 0) return true;
    if (Clock::now() > end) return false;
    const timespec pause{0, 100'000};
    nanosleep(&pause, nullptr);
  }
}

void give_up(std::vector<MPI_Request>& requests) {
  for (MPI_Request& request : requests) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
}

}  // namespace

void rendezvous(MPI_Comm comm, const std::vector<int>& ranks, double timeout_s) {
  int self = 0;
  check_mpi(MPI_Comm_rank(comm, &self), "MPI_Comm_rank");
  const int tag = tag_of(ranks);
  const int first = ranks.front();
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  std::vector<MPI_Request> come;
  std::vector<MPI_Request> go;
  std::string missing;
  if (self == first) {
    for (const int rank : ranks) {
      if (rank == self) continue;
      check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, rank, tag, comm, &come.emplace_back(MPI_REQUEST_NULL)),
                "MPI_Irecv");
    }
    if (!await(come, end)) {
      for (std::size_t i = 0; i < come.size(); ++i) {
        if (come[i] != MPI_REQUEST_NULL) {
          missing += (missing.empty() ? "" : ", ") + std::to_string(ranks[i + 1]);
        }
      }
      give_up(come);
    } else {
      for (const int rank : ranks) {
        if (rank == self) continue;
        check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, rank, tag, comm, &go.emplace_back(MPI_REQUEST_NULL)),
                  "MPI_Isend");
      }
    }
  } else {
    check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, first, tag, comm, &come.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Isend");
    check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, first, tag, comm, &go.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Irecv");
    if (!await(come, end)) missing = std::to_string(first);
    give_up(come);
  }
  if (missing.empty() && !await(go, end)) {
    give_up(go);
    missing = self == first ? "another" : std::to_string(first) + " or one that it waits for";
  }
  if (missing.empty()) return;
  throw Error(DDL_ERR_TIMEOUT, "rank " + missing + " did not come within " + std::to_string(timeout_s) +
                                   " s; in the making of a group of " + std::to_string(ranks.size()) +
                                   " ranks on rank " + std::to_string(self) +
                                   "; all its ranks must make it: look at their output, or allow more time");
}

MPI_Comm communicator_of(MPI_Comm base, const std::vector<int>& ranks) {
  return communicator_of(base, ranks, tag_of(ranks));
}

}  // namespace ddl
