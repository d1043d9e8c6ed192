#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <cstddef>
#include <vector>

namespace ddl {

/// @throws Error (DDL_ERR_MPI) with MPI's text when rc is not MPI_SUCCESS
void check_mpi(int rc, const char* call);

/// A communicator of some ranks of another one, in this order, which must all be here. The caller frees it.
/// @param tag  keeps makings by several threads apart
MPI_Comm communicator_of(MPI_Comm all, const std::vector<int>& ranks, int tag);

/// Non-blocking operations that are waited for together.
class Requests {
 public:
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  bool empty() const { return requests_.empty(); }
  /// True, and empty afterwards, when all are complete. Never blocks.
  bool test();
  /// Leaves what is not complete to MPI; the memory it uses must stay valid for good.
  void abandon() { requests_.clear(); }

 private:
  std::vector<MPI_Request> requests_;
};

/// Messages between ranks, on two communicators of DDL's own: data, and control, so that neither the
/// program's messages nor a failure report can be taken for data.
class MpiTransport {
 public:
  /// Collective over base, whose ranks must all come within the limit.
  /// @throws Error (DDL_ERR_TIMEOUT): base is of no use any more; DDL_ERR_MPI
  MpiTransport(MPI_Comm base, double limit_s);
  ~MpiTransport();
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  MPI_Comm data() const { return data_; }
  MPI_Comm control() const { return control_; }

  /// Tags of data messages, before their size is added.
  static constexpr int kTags = 8192;
  /**
   * For messages that may leave before the ranks have found out whether they make the same call: a tag of its
   * own for each size, so that none meets a receive that has no room for it. Open MPI (5.0.11, ob1) reports
   * such a message as truncated, but writes the whole of it where it reads the other process's memory.
   * @param tag  below kTags
   */
  int tag_of_size(int tag, std::size_t bytes) const {
    return sizes_ == 0 ? tag : tag + kTags * static_cast<int>(kFirstSize + bytes % sizes_);
  }

  void send(const void* from, std::size_t bytes, int rank, int tag, Requests& requests) const;
  void receive(void* to, std::size_t bytes, int rank, int tag, Requests& requests) const;

  /// Leaves the communicators to MPI: freeing them would wait for ranks that are gone.
  void abandon() { abandoned_ = true; }

 private:
  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm control_ = MPI_COMM_NULL;
  /// The tags before it are those of messages that are received with room for everything.
  static constexpr std::size_t kFirstSize = 32768 / kTags;
  std::size_t sizes_ = 0;  ///< that have tags of their own; with Open MPI all that leave so early
  bool abandoned_ = false;
};

}  // namespace ddl
