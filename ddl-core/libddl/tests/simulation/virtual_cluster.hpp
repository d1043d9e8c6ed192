// A cluster on a virtual clock and network: every rank runs DDL's own code as a fiber of one thread. The
// functions of MPI, of the clock, of waiting and of the identity of a process are replaced at link time
// (virtual_mpi.cpp, virtual_process.cpp), so that nothing in the library knows of it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

namespace ddl::sim {

/// Nanoseconds.
using Time = std::int64_t;
inline constexpr Time kMicrosecond = 1000;
inline constexpr Time kMillisecond = 1000 * kMicrosecond;
inline constexpr Time kSecond = 1000 * kMillisecond;

/// Ends the fiber of a rank that is lost, or that waits beyond the deadline; nothing of DDL catches it for
/// good.
struct Killed {};

struct Network {
  Time latency = 20 * kMicrosecond;
  double bytes_per_s = 1e9;        ///< of a host's link, in each direction
  Time jitter = 5 * kMicrosecond;  ///< added to each message, at most
  double late_share = 0;           ///< of the messages, that are held up on their way
  Time late_most = 0;              ///< by so much at most
  std::size_t eager_bytes = 4096;  ///< up to this size a message is sent before it is waited for
};

struct Traffic {
  std::uint64_t messages = 0;  ///< sent
  std::uint64_t bytes = 0;
  int steps = 0;  ///< messages of the longest chain, each sent after the one before was received
};

/// What the functions of MPI need; in virtual_mpi.cpp.
class Mpi;

class Cluster {
 public:
  /// ranks_of[h] ranks on host h, numbered through.
  Cluster(const std::vector<int>& ranks_of, const Network& network, std::uint64_t seed);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// The one whose ranks run; null outside run().
  static Cluster* current();

  /// Runs the program of every rank until all have returned or are lost.
  /// @return the ranks that still wait at the deadline, which are ended then
  std::vector<int> run(const std::function<void(int rank)>& program, Time deadline);

  /// At a time: a host, or one process, is gone with all it has not sent.
  void lose_host(int host, Time at);
  void lose_process(int rank, Time at);
  /// For a while nothing of a host runs.
  void stall_host(int host, Time from, Time duration);

  int size() const { return static_cast<int>(host_of_.size()); }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& ranks_of(int host) const { return hosts_[static_cast<std::size_t>(host)].ranks; }
  static std::string host_name(int host) { return "h" + std::to_string(host); }
  bool lost(int rank) const { return ranks_[static_cast<std::size_t>(rank)].lost; }
  /// Of a rank that neither is lost nor has returned: its process answers.
  bool alive(int rank) const {
    const Rank& of = ranks_[static_cast<std::size_t>(rank)];
    return !of.lost && !of.ended;
  }

  /// Racks of so many hosts, as Slurm tells them; 0: none.
  int hosts_a_rack = 0;
  // For the replaced functions; all of the rank that runs.
  Time now();
  int rank() const { return running_; }
  bool in_fiber() const { return fiber_ != nullptr; }
  /// Waits for an event of this rank, or a time, of which `requested` is the least.
  void pause(Time requested, bool yields);
  /// Computes for so long: no event ends it.
  void compute(Time duration);
  void throw_if_killed() const;
  void set_tick(std::function<void()> tick);
  /// A further thread of the process.
  void start_thread(std::function<void()> action);

  // For the messages.
  void wake(int rank);
  /// Has something done at a time.
  void at(Time when, std::function<void()> action);
  void message_at(Time when, std::uint32_t message);
  std::uint64_t random() { return random_(); }
  /// Uniform, below `below`.
  Time random(Time below) {
    return below <= 0 ? 0 : static_cast<Time>(random_() % static_cast<std::uint64_t>(below));
  }
  bool chance(double share) { return static_cast<double>(random_() >> 11) * 0x1p-53 < share; }
  const Network& network() const { return network_; }
  Mpi& mpi() { return *mpi_; }
  Traffic& traffic(int rank) { return traffic_[static_cast<std::size_t>(rank)]; }
  void reset_traffic();
  /// Pairs of ranks that have sent each other something.
  std::unordered_set<std::uint64_t>& connections() { return connections_; }
  /// When the link of a rank's host is free to send, to be moved on by the message.
  Time& link_free(int rank) { return hosts_[static_cast<std::size_t>(host_of(rank))].link_free; }
  Time lost_at(int rank) const { return ranks_[static_cast<std::size_t>(rank)].lost_at; }
  std::uint64_t events() const { return events_; }
  Time clock() const { return now_; }

 private:
  struct Fiber;
  struct Rank {
    std::vector<Fiber*> fibers;  ///< its own, and those of its threads that have not ended
    std::function<void()> tick;
    bool lost = false;
    bool ended = false;
    Time lost_at = 0;
  };
  struct Host {
    std::vector<int> ranks;
    Time link_free = 0;
    Time stalled_until = 0;
  };
  enum class Kind : std::uint8_t { kRun, kTick, kMessage, kAction };
  struct Event {
    Time when;
    std::uint64_t order;
    Kind kind;
    std::uint32_t what;   ///< fiber, rank, message or action
    std::uint32_t token;  ///< of a fiber's wait
    bool operator<(const Event& other) const {
      return when != other.when ? when > other.when : order > other.order;
    }
  };

  void push(Time when, Kind kind, std::uint32_t what, std::uint32_t token = 0);
  void schedule(Fiber& fiber, Time when);
  Fiber& new_fiber(int rank, char* stack, std::function<void()> action);
  static void begin();
  void wake(Fiber& fiber);
  void enter(Fiber& fiber);
  void leave();
  void dispatch(const Event& event);
  void kill(int rank);
  void lose(int rank);

  const Network network_;
  std::mt19937_64 random_;
  std::vector<int> host_of_;
  std::vector<Host> hosts_;
  std::vector<Rank> ranks_;
  std::vector<Traffic> traffic_;
  std::unordered_set<std::uint64_t> connections_;
  std::priority_queue<Event> events_queue_;
  std::vector<std::function<void()>> actions_;
  std::vector<std::uint32_t> free_actions_;
  std::uint64_t order_ = 0;
  std::uint64_t events_ = 0;
  Time now_ = 0;
  Time local_ = 0;  ///< what the running rank has used of its slice
  int running_ = -1;
  Fiber* fiber_ = nullptr;
  int left_ = 0;              ///< ranks that have neither returned nor are lost
  std::deque<Fiber> fibers_;  ///< the first ones are the ranks'
  std::vector<std::uint32_t> free_fibers_;
  std::unique_ptr<Mpi> mpi_;
  char* stacks_ = nullptr;
  std::size_t stack_bytes_ = 0;
};

/// The messages of a cluster.
class Mpi {
 public:
  explicit Mpi(Cluster& cluster);
  ~Mpi();
  void arrive(std::uint32_t message);
  /// A rank has ended: its memory is not written to any more.
  void forget(int rank);
  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace ddl::sim
