#include "ddl_mpi.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "api/guard.hpp"
#include "engine/runtime.hpp"
#include "support/hash.hpp"

using namespace ddl;
using namespace ddl::api;

namespace {

DDL_Type type_of(MPI_Datatype datatype) {
  if (datatype == MPI_FLOAT) return DDL_TYPE_FLOAT;
  if (datatype == MPI_DOUBLE) return DDL_TYPE_DOUBLE;
  static_assert(sizeof(int) == 4 && sizeof(long long) == 8);
  if (datatype == MPI_INT || datatype == MPI_INT32_T) return DDL_TYPE_INT32;
  if (datatype == MPI_LONG_LONG || datatype == MPI_INT64_T) return DDL_TYPE_INT64;
  if (datatype == MPI_LONG) return sizeof(long) == 8 ? DDL_TYPE_INT64 : DDL_TYPE_INT32;
  throw Error(DDL_ERR_ARGUMENT, "unsupported MPI datatype", "in ddl_allreduce_mpi",
              "use MPI_FLOAT, MPI_DOUBLE, MPI_INT, MPI_INT32_T, MPI_LONG, MPI_LONG_LONG or MPI_INT64_T");
}

DDL_Op op_of(MPI_Op op) {
  if (op == MPI_SUM) return DDL_OP_SUM;
  if (op == MPI_MIN) return DDL_OP_MIN;
  if (op == MPI_MAX) return DDL_OP_MAX;
  if (op == MPI_PROD) return DDL_OP_PRODUCT;
  throw Error(DDL_ERR_ARGUMENT, "unsupported MPI op", "in ddl_allreduce_mpi",
              "use MPI_SUM, MPI_MIN, MPI_MAX or MPI_PROD");
}

std::string first_line(const char* text) {
  const std::string_view all(text);
  return std::string(all.substr(0, std::min<std::size_t>(all.find_first_of(",\n"), 80)));
}

}  // namespace

extern "C" int ddl_init_mpi(const char* options, MPI_Comm comm) {
  return guard([&] { Runtime::instance().init(options, comm); });
}

extern "C" int ddl_init_comm_f(const char* options, int comm, const char* library) {
  return guard([&] {
    char own[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(own, &length);
    if (library != nullptr && std::string_view(library) != own) {
      throw Error(
          DDL_ERR_MPI, "the communicator is of " + first_line(library) + ", and DDL uses " + first_line(own),
          "in ddl_init_comm_f", "let both use one MPI library: install mpi4py and ddl from one channel");
    }
    Runtime::instance().init(options, MPI_Comm_f2c(static_cast<MPI_Fint>(comm)));
  });
}

extern "C" int ddl_allreduce_mpi(const char* options, void* buf, size_t count, MPI_Datatype datatype,
                                 MPI_Op op, MPI_Comm comm) {
  return guard([&] {
    const DDL_Type type = type_of(datatype);
    const DDL_Op operation = op_of(op);
    check_pointer("ddl_allreduce_mpi", buf, "buf", count > 0);
    Runtime::instance().init(options);
    Runtime::instance().with_communicator(comm, [&](Communicator& communicator) {
      const BufferList& buffers = communicator.list(&buf, &count, 1, type, host_executor());
      communicator.allreduce(buffers, {1, hash_bytes(&count, sizeof count), nullptr}, type, operation);
    });
  });
}
