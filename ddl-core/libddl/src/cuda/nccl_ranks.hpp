#pragma once

#include <functional>
#include <string>

#include "cuda/nccl.hpp"
#include "transport/tree_exchange.hpp"

namespace ddl::cuda {

/**
 * A communicator of NCCL, and the operations that this rank has given it. It never blocks: whether NCCL has
 * put an operation on its stream is asked for, and so is its state. Ranks give all operations in the same
 * order.
 */
class NcclRanks {
 public:
  /// One look() for NCCL's own errors in so many questions whether an operation has ended.
  static constexpr unsigned kLooks = 256;

  NcclRanks(const Nccl& nccl, int size) : nccl_(nccl), size_(size) {}
  /// Gives it up without waiting for anybody.
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  /// Joins the ranks of `tree`, all of which call this, in the order of its members. Collective.
  /// @param rank     this one's place among them
  /// @param limit_s  for the others. @throws Error (DDL_ERR_DEVICE, DDL_ERR_TIMEOUT), not on all ranks
  void connect(const TreeExchange& tree, int rank, double limit_s);
  /// Some of the ranks of another one: those that pass the same color; in the order of `key`. Collective over
  /// the ranks of `all`.
  void split(NcclRanks& all, int color, int key, double limit_s);

  int size() const { return size_; }
  NcclComm comm() const { return comm_; }
  const Nccl& nccl() const { return nccl_; }

  /// Whether NCCL has put all operations on their streams and takes the next. Never blocks. @throws Error
  /// when NCCL has failed
  bool idle();
  /// Gives it operations that begin together; idle() must have been true. @param what  "an all-reduce", for
  /// texts
  void put(const std::string& what, const std::function<void()>& operations);
  /// @throws Error when an operation has failed, although it was put on its stream
  void look();
  /// Ends operations that are under way, on this rank. It is of no use any more.
  void abort();
  /// Waits until all ranks are done with it, for so long at most, and releases it.
  void finish(double limit_s);

 private:
  void wait(const std::string& what, double limit_s);

  const Nccl& nccl_;
  const int size_;
  NcclComm comm_ = nullptr;
  bool in_progress_ = false;
  std::string what_;
};

}  // namespace ddl::cuda
