#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/mpi_transport.hpp"

namespace ddl {

/**
 * All messages of a communicator that are under way.
 *
 * Sends wait in a queue of their tier until the tier's window has room: a shared, shaped or slow link drops
 * what exceeds its queue, and then waits for retransmission. One MPI call tests everything, as every call of
 * MPI_Test would poll the network anew.
 */
class SendScheduler {
 public:
  explicit SendScheduler(const MpiTransport& transport);

  /// Bytes that may be under way in each tier at a time, from this rank; at least one message always may.
  void set_windows(const std::vector<std::size_t>& windows);

  /// *pending is decremented when the message is complete; it must live until then.
  void receive(void* to, std::size_t bytes, int peer, int tag, int* pending);
  void send(std::size_t tier, const void* from, std::size_t bytes, int peer, int tag, int* pending);
  /// A request made elsewhere, for example of a non-blocking MPI collective.
  void watch(MPI_Request request, int* pending);

  /// Completes and starts what can be; true when something was. Never blocks. @throws Error
  bool progress();
  bool idle() const { return requests_.empty() && queued_ == 0; }

  /// Gives up what is not complete; the memory it uses must stay valid.
  void abandon();

  /// Counts from here on.
  void reset_counters() { messages_sent_ = bytes_sent_ = 0; }
  /// A message that was sent in another way.
  void count(std::size_t bytes) {
    ++messages_sent_;
    bytes_sent_ += bytes;
  }
  std::uint64_t messages_sent() const { return messages_sent_; }
  std::uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  static constexpr std::size_t kNoTier = static_cast<std::size_t>(-1);
  struct Entry {
    int* pending;
    std::size_t tier;
    std::size_t bytes;
  };
  struct Queued {
    const void* from;
    std::size_t bytes;
    int peer;
    int tag;
    int* pending;
  };
  /// What waits in a tier, in the order in which it came; keeps its memory.
  struct Queue {
    std::vector<Queued> all;
    std::size_t begin = 0;
    bool empty() const { return begin == all.size(); }
    void clear() {
      all.clear();
      begin = 0;
    }
  };
  void add_queues(std::size_t tiers);
  bool pump();

  const MpiTransport& transport_;
  std::vector<std::size_t> windows_;
  std::vector<std::size_t> under_way_;
  std::vector<Queue> queues_;
  std::size_t queued_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<Entry> entries_;
  std::vector<int> completed_;
  std::uint64_t messages_sent_ = 0;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace ddl
