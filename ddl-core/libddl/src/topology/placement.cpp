#include "topology/placement.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace ddl {

Placement local_placement() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) name = {'?'};
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  // Containers on one machine share the boot id but not necessarily /dev/shm, whose device number tells them
  // apart.
  struct stat shm {};
  const bool known = stat("/dev/shm", &shm) == 0;
  Placement placement;
  placement.host_name = name.data();
  placement.host_key =
      placement.host_name + '/' + boot_id + '/' + (known ? std::to_string(shm.st_dev) : std::string("none"));
  return placement;
}

}  // namespace ddl
