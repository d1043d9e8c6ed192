#pragma once

#include <sched.h>

#include <string>

namespace ddl {

/// Where in a host a set of processors is. -1: on several, or not known.
struct MachinePosition {
  int numa_node = -1;
  int package = -1;  ///< processor socket
  int cache = -1;    ///< of the last level, by the first processor that uses it
};

/**
 * Position of the processors in `allowed`, from Linux's sysfs.
 *
 * Not by hwloc: Open MPI's wheel brings a private libhwloc.so.15, and a second library of that name in one
 * process, whichever is loaded first, would serve both.
 * @param sysfs  the folder that is mounted at /sys, another one in tests
 */
MachinePosition position_of(const cpu_set_t& allowed, const std::string& sysfs = "/sys");

}  // namespace ddl
