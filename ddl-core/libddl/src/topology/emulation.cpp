#include "topology/emulation.hpp"

#include <algorithm>
#include <charconv>

#include "support/error.hpp"

namespace ddl {
namespace {

constexpr std::size_t kMaxSlashes = 8;

}  // namespace

std::vector<EmulatedHost> parse_emulation(const std::string& text, int size) {
  std::vector<EmulatedHost> hosts;
  std::vector<std::size_t> slashes{};  // before each host but the first
  const char* at = text.data();
  const char* const end = at + text.size();
  long long sum = 0;
  bool good = !text.empty();
  while (good) {
    int number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    good = error == std::errc() && number > 0;
    if (!good) break;
    hosts.push_back({number});
    sum += number;
    if (next == end) break;
    at = next;
    std::size_t run = 0;
    while (at != end && *at == '/' && run <= kMaxSlashes) ++at, ++run;
    good = run > 0 ? run <= kMaxSlashes : *at++ == ',';
    slashes.push_back(run);
  }
  if (!good || sum != size) {
    throw Error(DDL_ERR_OPTION,
                "DDL_EMULATE_HOSTS='" + text + "' does not divide " + std::to_string(size) + " ranks",
                "in the environment",
                "give the number of ranks of each host, separated by commas (or slashes between racks), with "
                "the sum " +
                    std::to_string(size) + ", or unset it");
  }
  std::size_t tiers = 0;
  for (const std::size_t run : slashes) tiers = std::max(tiers, run);
  std::vector<int> counters(tiers, 0);
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    // n slashes begin a group of the n inner tiers, which are the last n counters.
    if (h > 0) {
      for (std::size_t i = tiers - slashes[h - 1]; i < tiers; ++i) ++counters[i];
    }
    hosts[h].racks = counters;
  }
  return hosts;
}

std::size_t emulated_host_of(const std::vector<EmulatedHost>& hosts, int rank) {
  std::size_t host = 0;
  for (int first_of_next = hosts[0].ranks; rank >= first_of_next; first_of_next += hosts[host].ranks) ++host;
  return host;
}

}  // namespace ddl
