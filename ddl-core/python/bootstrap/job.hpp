#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddl::bootstrap {

struct Host {
  std::string name;
  std::vector<std::uint32_t> ranks;
};

/// Who takes part, and where.
struct Job {
  std::string name_space;        ///< names the job; no two jobs have the same
  std::vector<Host> hosts;       ///< in the same order on every host
  std::size_t here = 0;          ///< which of them this one is
  std::vector<pid_t> processes;  ///< of the ranks of this host, in their order
  bool oversubscribed = false;   ///< more ranks here than cores
  std::string folder;            ///< for temporary files of this host; not part of the text

  std::uint32_t size() const;
};

/// Throws std::exception for text that describes no job.
Job parse_job(const std::string& json);

}  // namespace ddl::bootstrap
