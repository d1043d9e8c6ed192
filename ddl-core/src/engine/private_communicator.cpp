#include "engine/private_communicator.hpp"

#include <array>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "support/error.hpp"
#include "transport/bounded_wait.hpp"

namespace ddl {
namespace {

/// Of the call that makes the communicator; groups are made on other communicators.
constexpr int kTag = 4242;

}  // namespace

MPI_Comm private_communicator(MPI_Comm comm, double timeout_s) {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  try {
    // Without threads nothing else can be under way on comm, so that a collective of it may be used, and
    // given up.
    if (provided != MPI_THREAD_MULTIPLE) return duplicate_within(comm, timeout_s, {});
    int size = 1;
    check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    std::vector<int> everyone(static_cast<std::size_t>(size));
    std::iota(everyone.begin(), everyone.end(), 0);
    return communicator_within(comm, everyone, kTag, timeout_s, {});
  } catch (const Error& error) {
    if (error.code() != DDL_ERR_TIMEOUT) throw;
    std::array<char, 32> limit{};
    std::snprintf(limit.data(), limit.size(), "%g s", timeout_s);
    throw Error(DDL_ERR_TIMEOUT,
                std::string("not all ranks called ddl_init within ") + limit.data() +
                    "; in ddl_init; every rank of " +
                    (comm == MPI_COMM_WORLD ? "MPI_COMM_WORLD" : "the communicator") +
                    " must call it: look at the output of the others, or raise -timeout in DDL_OPTIONS");
  }
}

}  // namespace ddl
