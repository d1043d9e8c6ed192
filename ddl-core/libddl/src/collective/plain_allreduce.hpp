#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/kernels.hpp"
#include "support/types.hpp"
#include "transport/send_scheduler.hpp"

namespace ddl {

/// MPI's own all-reduce, of one buffer: the baseline, and a candidate of the planner.
class PlainAllreduce {
 public:
  PlainAllreduce(const MpiTransport& transport, SendScheduler& scheduler)
      : transport_(transport), scheduler_(scheduler) {}

  /// Whose memory MPI works on. After an error it may go on with it, as nothing can be taken back from it.
  enum class Memory {
    kOwn,     ///< this object's, a part of the buffer at a time
    kCallers  ///< the buffer itself
  };

  /// @param size  number of ranks, by which an average is divided
  void start(char* buffer, std::size_t count, DDL_Type type, DDL_Op op, int size, Memory memory);
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return done_; }

 private:
  bool divides_first() const { return op_ == DDL_OP_AVG && is_16bit(type_); }

  const MpiTransport& transport_;
  SendScheduler& scheduler_;
  char* buffer_ = nullptr;
  std::size_t count_ = 0;
  std::size_t started_ = 0;
  std::size_t part_ = 0;  ///< elements of the part that is under way
  Memory memory_ = Memory::kOwn;
  std::vector<char> own_;
  DDL_Type type_ = DDL_TYPE_FLOAT;
  DDL_Op op_ = DDL_OP_SUM;
  int size_ = 1;
  int pending_ = 0;
  bool done_ = true;
};

}  // namespace ddl
