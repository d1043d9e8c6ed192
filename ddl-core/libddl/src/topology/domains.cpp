#include "topology/domains.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <numeric>

#include "support/error.hpp"

namespace ddl {
namespace {

using Ranks = std::vector<std::size_t>;

constexpr std::size_t kRun = kMostInDomain / 2;

/// From the outermost to the innermost.
constexpr std::array<int MachinePosition::*, 3> kPlaces{&MachinePosition::package,
                                                        &MachinePosition::numa_node, &MachinePosition::cache};

std::vector<Ranks> runs(const Ranks& ranks) {
  const std::size_t count = (ranks.size() + kRun - 1) / kRun;
  std::vector<Ranks> parts;
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = [&](std::size_t k) {
      return ranks.begin() + static_cast<std::ptrdiff_t>(k * ranks.size() / count);
    };
    parts.emplace_back(at(i), at(i + 1));
  }
  return parts;
}

/// Neighbours together, as long as they are not more than a run. Small caches have few ranks each.
std::vector<Ranks> joined(std::vector<Ranks> parts) {
  std::vector<Ranks> all;
  for (Ranks& part : parts) {
    if (!all.empty() && all.back().size() + part.size() <= kRun) {
      all.back().insert(all.back().end(), part.begin(), part.end());
    } else {
      all.push_back(std::move(part));
    }
  }
  return all;
}

std::vector<Ranks> divided(const std::vector<MachinePosition>& positions, const Ranks& ranks,
                           std::size_t level) {
  if (ranks.size() <= kMostInDomain) return {ranks};
  if (level == kPlaces.size()) return runs(ranks);
  std::map<int, Ranks> by_place;
  for (const std::size_t rank : ranks) by_place[positions[rank].*kPlaces[level]].push_back(rank);
  // A rank that is not bound to one of them is near none.
  if (by_place.begin()->first < 0) return divided(positions, ranks, level + 1);
  std::vector<Ranks> parts;
  for (const auto& [place, some] : by_place) {
    for (Ranks& part : divided(positions, some, level + 1)) parts.push_back(std::move(part));
  }
  return kPlaces[level] == &MachinePosition::package ? parts : joined(std::move(parts));
}

std::vector<std::size_t> numbered(const std::vector<Ranks>& parts, std::size_t ranks) {
  if (parts.size() < 2) return {};
  std::vector<std::size_t> domains(ranks);
  for (std::size_t domain = 0; domain < parts.size(); ++domain) {
    for (const std::size_t rank : parts[domain]) domains[rank] = domain;
  }
  return domains;
}

}  // namespace

std::vector<std::size_t> divide_host(const std::vector<MachinePosition>& positions) {
  Ranks all(positions.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return numbered(divided(positions, all, 0), all.size());
}

std::vector<std::size_t> domains_of(const Topology& topology, const std::vector<int>& ranks) {
  std::vector<MachinePosition> positions;
  std::map<int, Ranks> emulated;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    positions.push_back(topology.position_of(ranks[i]));
    emulated[topology.emulated_domain_of(ranks[i])].push_back(i);
  }
  if (emulated.begin()->first < 0) return divide_host(positions);
  std::vector<Ranks> parts;
  for (auto& [domain, members] : emulated) parts.push_back(std::move(members));
  return numbered(parts, ranks.size());
}

int parse_emulated_domains(const std::string& text) {
  int ranks = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, ranks);
  if (text.empty()) return 0;
  if (error != std::errc() || next != end || ranks < 1) {
    throw Error(DDL_ERR_OPTION, "DDL_EMULATE_DOMAINS='" + text + "' is not a number of ranks",
                "in the environment", "give how many ranks a domain has, such as 2, or unset it");
  }
  return ranks;
}

}  // namespace ddl
