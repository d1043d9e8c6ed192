#include "collective/plain_allreduce.hpp"

#include <algorithm>
#include <cstring>

#include "collective/mpi_operations.hpp"

namespace ddl {

namespace {

/// Of this object's memory.
constexpr std::size_t kOwnBytes = std::size_t{4} << 20;
/// MPI counts in ints.
constexpr std::size_t kMostElements = std::size_t{1} << 30;

}  // namespace

void PlainAllreduce::start(char* buffer, std::size_t count, DDL_Type type, DDL_Op op, int size,
                           Memory memory) {
  buffer_ = buffer;
  count_ = count;
  started_ = part_ = 0;
  memory_ = memory;
  type_ = type;
  op_ = op;
  size_ = size;
  pending_ = 0;
  done_ = false;
}

bool PlainAllreduce::step(bool, bool globally_agreed) {
  // Not before: nothing can be taken back from a collective operation of MPI.
  if (!globally_agreed || done_ || pending_ > 0) return false;
  const std::size_t width = size_of(type_);
  const bool own = memory_ == Memory::kOwn;
  if (own && part_ > 0) std::memcpy(buffer_ + (started_ - part_) * width, own_.data(), part_ * width);
  part_ = std::min(count_ - started_, own ? kOwnBytes / width : kMostElements);
  if (part_ > 0) {
    char* memory = buffer_ + started_ * width;
    const char* const source = memory;
    if (own) {
      if (own_.size() < part_ * width) own_.resize(part_ * width);
      memory = own_.data();
    }
    // MPI rounds every partial sum of a 16-bit type, so these must not be larger than the average can be.
    if (divides_first()) {
      const void* const undivided = source;
      reduce_kernel(type_, op_)(memory, &undivided, 1, part_, size_);
    } else if (own) {
      std::memcpy(memory, source, part_ * width);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, memory, static_cast<int>(part_), mpi_datatype(type_),
                             mpi_operation(type_, op_), transport_.data(), &request),
              "MPI_Iallreduce");
    scheduler_.watch(request, &pending_);
    started_ += part_;
    return true;
  }
  if (op_ == DDL_OP_AVG && count_ > 0 && !divides_first()) {
    const void* source = buffer_;
    reduce_kernel(type_, op_)(buffer_, &source, 1, count_, size_);
  }
  done_ = true;
  return true;
}

}  // namespace ddl
