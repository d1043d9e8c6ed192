// Domains of the ranks of a host.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/error.hpp"
#include "topology/discovery.hpp"
#include "topology/domains.hpp"
#include "topology/facts.hpp"

namespace ddl {
namespace {

using Domains = std::vector<std::size_t>;

/// Ranks a domain, in the order of the domains' numbers.
std::vector<std::size_t> sizes(const Domains& domains) {
  std::vector<std::size_t> sizes;
  for (const std::size_t domain : domains) {
    if (sizes.size() <= domain) sizes.resize(domain + 1);
    ++sizes[domain];
  }
  return sizes;
}

/// A host of sockets of nodes of caches of processors with a rank each.
std::vector<MachinePosition> bound(int sockets, int nodes, int caches, int ranks) {
  std::vector<MachinePosition> positions;
  for (int socket = 0; socket < sockets; ++socket) {
    for (int node = 0; node < nodes; ++node) {
      for (int cache = 0; cache < caches; ++cache) {
        const int number = (socket * nodes + node) * caches + cache;
        positions.insert(positions.end(), static_cast<std::size_t>(ranks),
                         {socket * nodes + node, socket, number * ranks});
      }
    }
  }
  return positions;
}

TEST(TopologyDomains, FewRanksAreNotDivided) {
  EXPECT_TRUE(divide_host({}).empty());
  EXPECT_TRUE(divide_host(bound(2, 1, 1, 8)).empty());
  EXPECT_TRUE(divide_host(std::vector<MachinePosition>(16)).empty());
}

TEST(TopologyDomains, RanksThatAreNotBoundAreDividedIntoEqualRuns) {
  EXPECT_EQ(divide_host(std::vector<MachinePosition>(17)),
            (Domains{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(sizes(divide_host(std::vector<MachinePosition>(64))), (Domains{8, 8, 8, 8, 8, 8, 8, 8}));
  // One that may run anywhere is near none.
  std::vector<MachinePosition> some = bound(2, 1, 1, 10);
  some[3] = {};
  EXPECT_EQ(sizes(divide_host(some)), (Domains{6, 7, 7}));
}

TEST(TopologyDomains, SocketsThenNodesThenCaches) {
  EXPECT_EQ(sizes(divide_host(bound(2, 1, 1, 12))), (Domains{12, 12}));
  EXPECT_EQ(sizes(divide_host(bound(2, 4, 1, 6))), (Domains{6, 6, 6, 6, 6, 6, 6, 6}));
  EXPECT_EQ(sizes(divide_host(bound(1, 1, 8, 8))), (Domains{8, 8, 8, 8, 8, 8, 8, 8}));
  // What is one cache is divided into runs, each within a socket.
  EXPECT_EQ(sizes(divide_host(bound(2, 1, 1, 24))), (Domains{8, 8, 8, 8, 8, 8}));
  // Small caches of a node are joined.
  EXPECT_EQ(sizes(divide_host(bound(1, 2, 8, 3))), (Domains{6, 6, 6, 6, 6, 6, 6, 6}));
}

TEST(TopologyDomains, NumberingDoesNotMatter) {
  const std::vector<MachinePosition> packed = bound(2, 1, 1, 12);
  std::vector<MachinePosition> scattered;
  for (std::size_t i = 0; i < 12; ++i) {
    scattered.push_back(packed[i]);
    scattered.push_back(packed[i + 12]);
  }
  const Domains domains = divide_host(scattered);
  for (std::size_t i = 0; i < domains.size(); ++i) EXPECT_EQ(domains[i], i % 2);
}

TEST(TopologyDomains, EmulatedOnesAreOfConsecutiveRanks) {
  setenv("DDL_EMULATE_DOMAINS", "2", 1);
  std::vector<std::string> facts;
  for (int rank = 0; rank < 5; ++rank) facts.push_back(local_facts(rank, 5));
  EXPECT_EQ(gather_facts().emulated_domain, -1);
  unsetenv("DDL_EMULATE_DOMAINS");
  const Topology topology = discover(facts, {});
  EXPECT_EQ(domains_of(topology, {0, 1, 2, 3, 4}), (Domains{0, 0, 1, 1, 2}));
  EXPECT_EQ(domains_of(topology, {1, 2, 4}), (Domains{0, 1, 2}));
  EXPECT_TRUE(domains_of(topology, {2, 3}).empty());
}

TEST(TopologyDomains, AnythingButANumberOfRanksIsRefused) {
  EXPECT_EQ(parse_emulated_domains(""), 0);
  EXPECT_EQ(parse_emulated_domains("16"), 16);
  for (const char* bad : {"0", "-1", "2,2", "x", "2 ", "99999999999"}) {
    EXPECT_THROW(parse_emulated_domains(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace ddl
