#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddl {

/// One host of DDL_EMULATE_HOSTS.
struct EmulatedHost {
  int ranks = 0;
  /// Which rack (last), aisle (before it), … it is in, outermost first, counted over the whole cluster; empty
  /// when the text has no slash.
  std::vector<int> racks{};
};

/**
 * Parses DDL_EMULATE_HOSTS, a test aid that makes ranks of one machine act as several hosts: "3,2" stands for
 * a host of the first three ranks and one of the next two. A slash begins a rack ("3,2/2,1"), two an aisle
 * ("2,2/2//1/1"), and so on up to eight.
 * @throws Error (DDL_ERR_OPTION) when it is malformed or the sum is not `size`
 */
std::vector<EmulatedHost> parse_emulation(const std::string& text, int size);

/// Index of the host of `rank`. Hosts take the ranks in their order.
std::size_t emulated_host_of(const std::vector<EmulatedHost>& hosts, int rank);

}  // namespace ddl
