#include "topology/machine.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace ddl {
namespace {

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string first_line(const std::filesystem::path& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  return line;
}

/// Processors of a list such as "0-3,8". What cannot be read counts as none.
cpu_set_t parse_cpu_list(std::string_view list) {
  cpu_set_t set;
  CPU_ZERO(&set);
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    list.remove_prefix(std::min(range.size() + 1, list.size()));
    const std::size_t dash = range.find('-');
    const std::optional<int> first = parse_int(range.substr(0, dash));
    const std::optional<int> last =
        dash == std::string_view::npos ? first : parse_int(range.substr(dash + 1));
    if (!first || !last || *first < 0) continue;
    for (int cpu = *first; cpu <= *last && cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &set);
  }
  return set;
}

int numa_node_of(const cpu_set_t& allowed, const std::filesystem::path& sysfs) {
  int found = -1;
  std::error_code error;
  for (std::filesystem::directory_iterator it(sysfs / "devices/system/node", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with("node")) continue;
    const std::optional<int> node = parse_int(std::string_view(name).substr(4));
    if (!node) continue;
    cpu_set_t common = parse_cpu_list(first_line(it->path() / "cpulist"));
    CPU_AND(&common, &common, &allowed);
    if (CPU_COUNT(&common) == 0) continue;
    if (found >= 0) return -1;
    found = *node;
  }
  return found;
}

int package_of(const cpu_set_t& allowed, const std::filesystem::path& sysfs) {
  int found = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const std::optional<int> package = parse_int(first_line(
        sysfs / "devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology/physical_package_id"));
    if (!package || *package < 0 || (found >= 0 && *package != found)) return -1;
    found = *package;
  }
  return found;
}

int cache_of(const cpu_set_t& allowed, const std::filesystem::path& sysfs) {
  int first = 0;
  while (first < CPU_SETSIZE && !CPU_ISSET(first, &allowed)) ++first;
  int last_level = 0;
  cpu_set_t users;
  CPU_ZERO(&users);
  std::error_code error;
  for (std::filesystem::directory_iterator
           it(sysfs / "devices/system/cpu" / ("cpu" + std::to_string(first)) / "cache", error),
       end;
       !error && it != end; it.increment(error)) {
    const int level = parse_int(first_line(it->path() / "level")).value_or(0);
    if (level <= last_level) continue;
    last_level = level;
    users = parse_cpu_list(first_line(it->path() / "shared_cpu_list"));
  }
  cpu_set_t common;
  CPU_AND(&common, &users, &allowed);
  if (CPU_COUNT(&common) == 0 || CPU_EQUAL(&common, &allowed) == 0) return -1;
  int user = 0;
  while (!CPU_ISSET(user, &users)) ++user;
  return user;
}

}  // namespace

MachinePosition position_of(const cpu_set_t& allowed, const std::string& sysfs) {
  return {numa_node_of(allowed, sysfs), package_of(allowed, sysfs), cache_of(allowed, sysfs)};
}

}  // namespace ddl
