#include "collective/mpi_operations.hpp"

#include "collective/kernels.hpp"

namespace ddl {
namespace {

template <DDL_Type type, DDL_Op op>
void reduce_pair(void* in, void* inout, int* count, MPI_Datatype*) {
  const void* sources[2] = {in, inout};
  reduce_kernel(type, op)(inout, sources, 2, static_cast<std::size_t>(*count), 1);
}

template <DDL_Type type>
MPI_User_function* function_of(DDL_Op op) {
  switch (op) {
    case DDL_OP_MIN:
      return reduce_pair<type, DDL_OP_MIN>;
    case DDL_OP_MAX:
      return reduce_pair<type, DDL_OP_MAX>;
    case DDL_OP_PRODUCT:
      return reduce_pair<type, DDL_OP_PRODUCT>;
    default:
      return reduce_pair<type, DDL_OP_SUM>;
  }
}

bool is_16bit(DDL_Type type) { return type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16; }

}  // namespace

MPI_Datatype mpi_datatype(DDL_Type type) {
  switch (type) {
    case DDL_TYPE_FLOAT:
      return MPI_FLOAT;
    case DDL_TYPE_DOUBLE:
      return MPI_DOUBLE;
    case DDL_TYPE_INT32:
      return MPI_INT32_T;
    case DDL_TYPE_INT64:
      return MPI_INT64_T;
    default:
      break;
  }
  static const MPI_Datatype two_bytes = [] {
    MPI_Datatype made = MPI_DATATYPE_NULL;
    check_mpi(MPI_Type_contiguous(2, MPI_BYTE, &made), "MPI_Type_contiguous");
    check_mpi(MPI_Type_commit(&made), "MPI_Type_commit");
    return made;
  }();
  return two_bytes;
}

MPI_Op mpi_operation(DDL_Type type, DDL_Op op) {
  if (is_16bit(type)) {
    static MPI_Op made[2][kOpCount] = {};
    MPI_Op& wanted = made[type == DDL_TYPE_HALF ? 0 : 1][op];
    if (wanted == MPI_Op{}) {
      MPI_User_function* const function =
          type == DDL_TYPE_HALF ? function_of<DDL_TYPE_HALF>(op) : function_of<DDL_TYPE_BFLOAT16>(op);
      check_mpi(MPI_Op_create(function, 1, &wanted), "MPI_Op_create");
    }
    return wanted;
  }
  switch (op) {
    case DDL_OP_MIN:
      return MPI_MIN;
    case DDL_OP_MAX:
      return MPI_MAX;
    case DDL_OP_PRODUCT:
      return MPI_PROD;
    default:
      return MPI_SUM;
  }
}

}  // namespace ddl
