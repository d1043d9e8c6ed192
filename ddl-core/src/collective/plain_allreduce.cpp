#include "collective/plain_allreduce.hpp"

#include <algorithm>

#include "collective/mpi_operations.hpp"

namespace ddl {

void PlainAllreduce::start(char* buffer, std::size_t count, DDL_Type type, DDL_Op op, int size) {
  buffer_ = buffer;
  count_ = count;
  started_ = 0;
  type_ = type;
  op_ = op;
  size_ = size;
  pending_ = 0;
  done_ = false;
}

bool PlainAllreduce::step(bool, bool globally_agreed) {
  // Not before: nothing can be taken back from a collective operation of MPI.
  if (!globally_agreed || done_ || pending_ > 0) return false;
  if (started_ < count_) {
    // MPI counts in ints.
    const std::size_t part = std::min(count_ - started_, std::size_t{1} << 30);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, buffer_ + started_ * size_of(type_), static_cast<int>(part),
                             mpi_datatype(type_), mpi_operation(type_, op_), transport_.data(), &request),
              "MPI_Iallreduce");
    scheduler_.watch(request, &pending_);
    started_ += part;
    return true;
  }
  if (op_ == DDL_OP_AVG && count_ > 0) {
    const void* source = buffer_;
    reduce_kernel(type_, op_)(buffer_, &source, 1, count_, size_);
  }
  done_ = true;
  return true;
}

}  // namespace ddl
