#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/ticking_thread.hpp"
#include "transport/call_header.hpp"

namespace ddl {

/**
 * The last calls of this process, over all of its communicators, for whoever has to find out why a job
 * stopped.
 *
 * A record is written as a JSON object: `format` (1), `rank` and `size` (of MPI_COMM_WORLD), `host`, `pid`,
 * `written` (Unix time, s), `reason`, `communicators` (by number: `ranks`, ascending ranges such as "0-3,6",
 * and `instance`, which tells those of the same ranks apart) and `calls`, oldest first: `communicator`,
 * `number`, `kind`, `call` (in words), `bytes`, `name`, `state` ("running", "done" or "failed"), `began` and
 * `ended` (Unix time, s; null while it runs).
 *
 * Where the environment variable DDL_FLIGHT_RECORDER names a folder, every rank writes rank-<r>.json there
 * once it knows of a failure, when SIGTERM ends it and the program has not provided for that itself, and when
 * it exits without ddl_finalize. As it may be killed at any time, it does so as well when no call has begun
 * or ended for 5 s, 10 s, 20 s and so on; such a record is deleted when the job ends well.
 *
 * Thread-safe. A forked copy of the process writes nothing by itself.
 */
class FlightRecorder {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kCalls = 256;

  /// Never destroyed, as threads may still call in while the process exits.
  static FlightRecorder& instance();

  /// Of which process the record is. @param folder  null or "": only write() writes
  void configure(const char* folder, int rank, int size);

  /// @param ranks  of MPI_COMM_WORLD, in any order. @return a number for begin()
  std::uint64_t add_communicator(std::vector<int> ranks);
  void remove_communicator(std::uint64_t communicator);
  /// Begins the making of one, call 0 of the communicator that is added next of these ranks.
  /// @return a number for end()
  std::uint64_t begin_forming(std::vector<int> ranks);

  /// @return a number for end()
  std::uint64_t begin(std::uint64_t communicator, const CallHeader& header, Clock::time_point now);
  void end(std::uint64_t call, bool failed, Clock::time_point now);

  /// Writes the record to the folder, if there is one. Never throws: a folder that is full or gone is warned
  /// of once.
  /// @param replace  what was written before, too
  void note_failure(const std::string& reason, bool replace);
  /// Ends what is done by itself: the world was finalised. Deletes a record that is of no failure.
  void stop();
  /// That looks for failures; null where nothing is written by itself. It makes no calls of MPI, and so goes
  /// on while another thread is stuck in one.
  TickingThread* thread() { return thread_; }

  /// Writes the record to a file, whole or not at all. @throws Error (DDL_ERR_ARGUMENT) with the reason
  void write(const std::string& path, const std::string& reason) const;

 private:
  enum class State : std::uint8_t { kRunning, kDone, kFailed };
  struct Call {
    std::uint64_t number = 0;  ///< in this process, from 1; 0: none yet
    std::uint64_t communicator = 0;
    CallHeader header;
    State state = State::kRunning;
    Clock::time_point began;
    Clock::time_point ended;
  };
  struct Communicator {
    std::string ranks;
    std::uint64_t instance = 0;
    bool gone = false;
  };

  std::uint64_t begin_locked(std::uint64_t communicator, const CallHeader& header, Clock::time_point now);
  std::string to_json(const std::string& reason) const;
  void forget_communicators();
  void watch_termination();
  void tick();
  bool paused();
  void try_to_write(const std::string& reason);
  std::string path() const;
  void at_exit();

  mutable std::mutex mutex_;
  std::array<Call, kCalls> calls_;  ///< by number % kCalls
  std::uint64_t last_ = 0;
  Clock::time_point last_change_ = Clock::now();
  Clock::duration next_pause_;  ///< after so long without a change a record is written
  std::map<std::uint64_t, Communicator> communicators_;
  std::map<std::string, std::uint64_t> instances_;  ///< by ranks: how many communicators there were
  std::uint64_t last_communicator_ = 0;
  std::string folder_;
  int rank_ = 0;
  int size_ = 1;
  bool active_ = false;
  TickingThread* thread_ = nullptr;  ///< once made, for good

  mutable std::mutex writing_;
  bool provisional_ = false;  ///< there is a record that is of no failure
  bool written_ = false;      ///< there is one of a failure
  bool warned_ = false;
};

}  // namespace ddl
