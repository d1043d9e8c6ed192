// ccl::allreduce of oneCCL on host memory, over the MPI library that it comes with.
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <oneapi/ccl.hpp>
#include <string>

extern "C" {
#include "timing.h"
}

namespace {

std::unique_ptr<ccl::communicator> communicator;
std::string last_error;

int allreduce(float* values, size_t count) {
  try {
    ccl::allreduce(values, values, count, ccl::datatype::float32, ccl::reduction::sum, *communicator).wait();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
    return 1;
  }
}

const char* error(int) { return last_error.c_str(); }

void start(int rank, int size) {
  ccl::init();
  std::shared_ptr<ccl::kvs> store;
  ccl::kvs::address_type address{};
  if (rank == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
  }
  MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) store = ccl::create_kvs(address);
  communicator = std::make_unique<ccl::communicator>(ccl::create_communicator(size, rank, store));
}

}  // namespace

int main(int argc, char** argv) {
  if (timing_bind()) return 2;
  int provided = 0, rank = 0, size = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::string library = "oneCCL ";
  try {
    start(rank, size);
    library += ccl::get_library_version().full;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "oneCCL does not start on rank %d: %s\n", rank, failure.what());
    MPI_Abort(MPI_COMM_WORLD, 4);
  }
  const timing_subject subject = {library.c_str(), allreduce, error, nullptr};
  const int rc = timing_run(argc, argv, &subject);
  communicator.reset();
  MPI_Finalize();
  return rc;
}
