#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "topology/topology.hpp"
#include "transport/mpi_transport.hpp"

namespace ddl {

/**
 * Messages from one rank to another, which the other ranks know nothing of. They have an MPI communicator of
 * their own and no place in the order of the collective calls: a rank may wait for a message while it is late
 * for a call.
 *
 * Thread-safe. MPI must be as well.
 */
class Messages {
 public:
  using Handle = std::uint64_t;
  /// From whom a receive takes a message when it may be any rank.
  static constexpr int kAnyRank = -1;

  /// Collective over base, whose ranks must all come within the limit.
  /// @param topology  for the names of ranks in errors; outlives the messages
  Messages(MPI_Comm base, const Topology& topology, double limit_s);
  /// Gives up what is not complete.
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// The memory must stay as it is until the message is complete. @throws Error
  Handle isend(const void* from, std::size_t bytes, int rank, int tag);
  Handle irecv(void* to, std::size_t bytes, int rank, int tag);
  /// The sender's rank (the own one of a send) when the message is complete, whose handle is closed then, and
  /// also when it throws. @throws Error
  std::optional<int> test(Handle handle);
  /// Gives the message up and closes its handle, unless it is complete by now.
  void cancel(Handle handle);
  /// Leaves the communicator to MPI: freeing it would wait for ranks that are gone.
  void abandon() { abandoned_ = true; }

 private:
  struct Message {
    bool receiving = false;
    std::size_t bytes = 0;
    std::vector<MPI_Request> parts;
  };

  Handle add(Message message);
  std::map<Handle, Message>::iterator find(Handle handle);
  static void give_up(Message& message);

  const Topology& topology_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  bool abandoned_ = false;
  std::mutex mutex_;
  std::map<Handle, Message> open_;
  Handle last_ = 0;
};

}  // namespace ddl
