#include "engine/private_communicator.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "support/error.hpp"
#include "support/kept_on_error.hpp"
#include "transport/bounded_wait.hpp"

namespace ddl {
namespace {

/// Of the call that makes the communicator; groups are made on other communicators.
constexpr int kTag = 4242;

/// MPI_Comm_create_group takes no time limit, so a thread of its own calls it; late ranks leave it there.
MPI_Comm create_on_thread(MPI_Comm comm, double timeout_s) {
  int size = 1;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  std::promise<MPI_Comm> promise;
  std::future<MPI_Comm> made = promise.get_future();
  std::thread([comm, size, promise = std::move(promise)]() mutable {
    try {
      std::vector<int> everyone(static_cast<std::size_t>(size));
      std::iota(everyone.begin(), everyone.end(), 0);
      promise.set_value(communicator_of(comm, everyone, kTag));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  if (made.wait_for(std::chrono::duration<double>(timeout_s)) != std::future_status::ready) {
    throw Error(DDL_ERR_TIMEOUT, "");
  }
  return made.get();
}

/// Without threads nothing else can be under way on comm, so that a collective of it may be used, and given
/// up.
MPI_Comm duplicate(MPI_Comm comm, double timeout_s) {
  const KeptOnError<MPI_Comm> made(MPI_COMM_NULL);
  std::array<MPI_Request, 1> request{MPI_REQUEST_NULL};
  check_mpi(MPI_Comm_idup(comm, &*made, request.data()), "MPI_Comm_idup");
  wait_for(request, timeout_s, {});
  return *made;
}

}  // namespace

MPI_Comm private_communicator(MPI_Comm comm, double timeout_s) {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  try {
    return provided == MPI_THREAD_MULTIPLE ? create_on_thread(comm, timeout_s) : duplicate(comm, timeout_s);
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
