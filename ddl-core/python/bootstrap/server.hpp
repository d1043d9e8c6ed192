#pragma once

#include <map>
#include <string>

#include "frames.hpp"
#include "job.hpp"

namespace ddl::bootstrap {

/// The PMIx server of this host's ranks: what mpirun's daemon is otherwise. One a process.
class Server {
 public:
  /// Starts it. Throws std::runtime_error.
  Server(Job job, FramePipe& pipe);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// The variables by which each rank of this host finds the server.
  std::map<std::string, std::map<std::string, std::string>> environments() const;

  /// Ends exchange `id`, with what all hosts brought to it or as failed.
  static void complete_exchange(std::uint32_t id, bool good, std::string bytes);

  /// Fails every exchange, now and from now on: nobody is left who could carry one out.
  static void fail_exchanges();

  /// Whether the rank with this index on this host has taken leave.
  static bool finished(std::size_t index);
};

}  // namespace ddl::bootstrap
