#include "collective/mpi_operations.hpp"

#include "collective/kernels.hpp"

namespace ddl {
namespace {

template <DDL_Type type, DDL_Op op>
void reduce_pair(void* in, void* inout, int* count, MPI_Datatype*) {
  const void* sources[2] = {in, inout};
  reduce_kernel(type, op)(inout, sources, 2, static_cast<std::size_t>(*count), 1);
}

/// Made once, by whichever thread comes first.
template <DDL_Type type, DDL_Op op>
MPI_Op made() {
  static const MPI_Op operation = [] {
    MPI_Op one = MPI_OP_NULL;
    check_mpi(MPI_Op_create(reduce_pair<type, op>, 1, &one), "MPI_Op_create");
    return one;
  }();
  return operation;
}

template <DDL_Type type>
MPI_Op own_operation(DDL_Op op) {
  switch (op) {
    case DDL_OP_MIN:
      return made<type, DDL_OP_MIN>();
    case DDL_OP_MAX:
      return made<type, DDL_OP_MAX>();
    case DDL_OP_PRODUCT:
      return made<type, DDL_OP_PRODUCT>();
    default:
      return made<type, DDL_OP_SUM>();
  }
}

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
  if (type == DDL_TYPE_HALF) return own_operation<DDL_TYPE_HALF>(op);
  if (type == DDL_TYPE_BFLOAT16) return own_operation<DDL_TYPE_BFLOAT16>(op);
  const bool least_or_most = op == DDL_OP_MIN || op == DDL_OP_MAX;
  if (type == DDL_TYPE_FLOAT && least_or_most) return own_operation<DDL_TYPE_FLOAT>(op);
  if (type == DDL_TYPE_DOUBLE && least_or_most) return own_operation<DDL_TYPE_DOUBLE>(op);
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
