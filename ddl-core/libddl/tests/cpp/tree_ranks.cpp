// TreeExchange and the waits with limits among real ranks. Exit code 0: all as expected on this rank.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "support/error.hpp"
#include "transport/tree_exchange.hpp"

namespace {

int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "rank %d: %s\n", rank, what.c_str());
  ++failures;
}

std::string text_of(int rank, std::size_t bytes) {
  std::string text(bytes, 0);
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 7 + static_cast<std::size_t>(rank));
  return text;
}

/// Texts below, at and above what goes into a first message.
void check_exchanges(MPI_Comm comm, const std::vector<int>& members) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  if (std::find(members.begin(), members.end(), rank) == members.end()) return;
  const ddl::TreeExchange tree(comm, members, 30, "in a test", "mend it");
  for (const std::size_t bytes : {0, 1, 4087, 4088, 4089, 100'000, 3'000'000}) {
    const std::string size = std::to_string(bytes) + " bytes among " + std::to_string(members.size());
    const std::string told = tree.broadcast(rank == members[0] ? text_of(rank, bytes) : "not this");
    expect(told == text_of(members[0], bytes), "broadcast of " + size);
    // Of different lengths, too.
    const auto all = tree.all_gather(text_of(rank, bytes / 3 + static_cast<std::size_t>(rank)));
    bool same = all.size() == members.size();
    for (std::size_t m = 0; same && m < members.size(); ++m) {
      same = all[m] == text_of(members[m], bytes / 3 + static_cast<std::size_t>(members[m]));
    }
    expect(same, "all-gather of " + size);
  }
  // In the order of the members, whatever the shape of the tree.
  std::string order;
  for (const int member : members) order += std::to_string(member) + " ";
  const std::string joined =
      tree.reduce(std::to_string(rank) + " ", [](std::string a, const std::string& b) { return a + b; });
  expect(joined == (rank == members[0] ? order : ""), "reduce: " + joined + " instead of " + order);
  for (int i = 0; i < 100; ++i) tree.barrier();
}

/// The last rank stays away: all say so, and nobody waits for much longer than told.
void check_limit(MPI_Comm comm) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  std::vector<int> everyone(static_cast<std::size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  const ddl::TreeExchange tree(comm, everyone, 0.5, "in a test", "mend it");
  if (rank == size - 1) return;
  const auto start = std::chrono::steady_clock::now();
  try {
    tree.barrier();
    expect(false, "a barrier without all members ended");
  } catch (const ddl::Error& error) {
    const std::string said = error.what();
    expect(error.code() == DDL_ERR_TIMEOUT, said);
    expect(said.find("did not answer within 0.5 s; in a test; mend it") != std::string::npos, said);
    // Of more ranks one that is late on a busy machine may be named; on a virtual clock none is
    // (test_scale.cpp).
    if (size == 2) expect(said.find("rank 1 did not") != std::string::npos, said);
  }
  const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // Who comes late is told at once.
  expect(waited < 20, "waited " + std::to_string(waited) + " s");
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  std::vector<int> everyone(static_cast<std::size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  check_exchanges(comm, everyone);
  check_exchanges(comm, {size - 1});
  std::vector<int> odd;
  for (int rank = size - 1; rank > 0; rank -= 2) odd.push_back(rank);
  if (!odd.empty()) check_exchanges(comm, odd);
  if (size > 1) check_limit(comm);
  MPI_Barrier(MPI_COMM_WORLD);
  int all = 0;
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  // The communicator of the barrier that was given up is not freed.
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
