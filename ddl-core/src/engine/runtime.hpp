#pragma once

#include <memory>
#include <mutex>

#include "engine/communicator.hpp"

namespace ddl {

/// The one DDL of a process: initialises and finalises, and serialises the calls of its threads.
class Runtime {
 public:
  static Runtime& instance();

  /// options may be null: DDL_OPTIONS. @throws Error
  void init(const char* options);
  void finalize();
  bool initialized();

  /// Calls action(Communicator&) on the world. @throws Error (DDL_ERR_STATE) outside init … finalize
  template <class Action>
  void with_world(Action action) {
    const std::lock_guard lock(mutex_);
    action(world());
  }
  /// The same on the communicator that belongs to comm, made at its first use.
  template <class Action>
  void with_communicator(MPI_Comm comm, Action action) {
    const std::lock_guard lock(mutex_);
    action(of(comm));
  }

 private:
  enum class State { kFresh, kRunning, kFinalized };

  Communicator& world();
  Communicator& of(MPI_Comm comm);
  void init_mpi(const Options& options, bool initialized_by_user);
  static void wait_for_all_ranks(double timeout_s);
  static int forget(MPI_Comm comm, int keyval, void* attribute, void* extra);
  void release(std::unique_ptr<Communicator> communicator);

  std::mutex mutex_;
  State state_ = State::kFresh;
  int pid_ = 0;  ///< the process that initialised
  Options options_;
  bool owns_mpi_ = false;
  bool mpi_finalized_ = false;
  int keyval_ = MPI_KEYVAL_INVALID;
  std::unique_ptr<Communicator> world_;
  std::vector<MPI_Comm> others_;
};

}  // namespace ddl
