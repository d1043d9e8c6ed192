// DDL's start, agreement, all-reduce and errors on many hosts, in one process: sums, and what
// ddl-core/README.md promises of messages and memory.
#include <gtest/gtest.h>
#include <malloc.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "engine/communicator.hpp"
#include "engine/private_communicator.hpp"
#include "transport/tree_exchange.hpp"
#include "virtual_cluster.hpp"

namespace ddl::sim {
namespace {

std::size_t hosts_wanted(std::size_t usual) {
  const char* const text = std::getenv("DDL_SIMULATION_HOSTS");
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

/// One tier of hosts, or racks of so many, with figures of their links, which are then not measured.
Options described(std::size_t hosts, std::size_t a_rack = 0) {
  Options options;
  std::string text =
      R"({"version":1,"tiers":[{"name":"host"},{"name":"rack","bandwidth_mbit":8000,"latency_us":20})";
  const auto list = [](std::size_t from, std::size_t to) {
    return "\"hosts\":[\"h[" + std::to_string(from) + "-" + std::to_string(to) + "]\"]";
  };
  if (a_rack == 0) {
    text += "]," + list(0, hosts - 1);
  } else {
    text += R"(,{"name":"cluster","bandwidth_mbit":4000,"latency_us":30}],"groups":[)";
    for (std::size_t from = 0; from < hosts; from += a_rack) {
      text += (from > 0 ? ",{" : "{") + list(from, std::min(from + a_rack, hosts) - 1) + "}";
    }
    text += "]";
  }
  options.topology = text + "}";
  return options;
}

/// Bytes of the heap that are in use: mallinfo2() is younger than the oldest glibc that this runs on.
std::size_t heap_bytes() {
  char* text = nullptr;
  std::size_t length = 0;
  std::FILE* const file = open_memstream(&text, &length);
  malloc_info(0, file);
  std::fclose(file);
  const std::string all(text, length);
  std::free(text);
  // The sums of all arenas come last.
  const auto size_after = [&](const char* element) {
    const std::size_t at = all.find("size=\"", all.rfind(element));
    return static_cast<std::size_t>(std::strtoull(all.c_str() + at + 6, nullptr, 10));
  };
  return size_after("<system type=\"current\"") + size_after("<total type=\"mmap\"") -
         size_after("<total type=\"fast\"") - size_after("<total type=\"rest\"");
}

int log2_of(std::size_t n) { return static_cast<int>(std::bit_width(n - 1)); }

struct Found {
  std::map<std::string, int> errors;  ///< how many ranks say so
  std::uint64_t wrong = 0;
  Traffic start, barrier, small, medium, finish;  ///< of a rank, the most
  std::uint64_t connections = 0;                  ///< of the start
  std::size_t bytes_a_rank = 0;                   ///< of the heap, after all calls
};

/// All ranks start, meet, and add up 10 and 10,000 values, each step begun when all have done the one before.
/// @param other_rank  adds up 11 values instead of the first 10, or meets the others
Found run(const std::vector<int>& ranks_of, const Options& options, int other_rank = -1,
          bool other_meets = false) {
  Cluster cluster(ranks_of, Network{}, 1);
  const int ranks = cluster.size();
  Found found;
  const std::size_t before = heap_bytes();
  std::map<int, int> arrived;
  const auto meet = [&](int step, Traffic& most) {
    const int last = ++arrived[step];
    if (last == ranks) {
      if (step == 0) found.connections = cluster.connections().size();
      for (int r = 0; r < ranks; ++r) {
        const Traffic& of = cluster.traffic(r);
        most.messages = std::max(most.messages, of.messages);
        most.bytes = std::max(most.bytes, of.bytes);
        most.steps = std::max(most.steps, of.steps);
      }
      cluster.reset_traffic();
      found.bytes_a_rank = (heap_bytes() - before) / static_cast<std::size_t>(ranks);
    }
    while (arrived[step] < ranks) cluster.compute(kMillisecond);
  };
  const auto add_up = [&](Communicator& all, std::size_t count) {
    std::vector<float> x(count);
    for (std::size_t i = 0; i < count; ++i)
      x[i] = static_cast<float>((static_cast<std::size_t>(all.rank()) + i) % 5);
    void* memory = x.data();
    all.allreduce(BufferList(&memory, &count, 1, DDL_TYPE_FLOAT), {}, DDL_TYPE_FLOAT, DDL_OP_SUM);
    for (std::size_t i = 0; i < count; i += 1 + count / 20) {
      // Of ranks 0 to n-1 every five in a row add up to 10; the rest is added one by one.
      float expected = static_cast<float>(ranks / 5 * 10);
      for (int r = ranks / 5 * 5; r < ranks; ++r)
        expected += static_cast<float>((static_cast<std::size_t>(r) + i) % 5);
      if (x[i] != expected) ++found.wrong;
    }
  };
  const std::vector<int> waiting = cluster.run(
      [&](int rank) {
        try {
          const MPI_Comm base = private_communicator(MPI_COMM_WORLD, options.limits.timeout_s);
          Communicator all(base, options);
          meet(0, found.start);
          all.barrier();
          meet(1, found.barrier);
          if (rank == other_rank && other_meets) all.barrier();
          add_up(all, rank == other_rank ? 11 : 10);
          meet(2, found.small);
          add_up(all, 10'000);
          meet(3, found.medium);
          all.finalize();
          meet(4, found.finish);
        } catch (const std::exception& error) {
          ++found.errors[error.what()];
          // Others may ask.
          while (cluster.clock() < 60 * kSecond) cluster.compute(kSecond);
        }
      },
      1000 * kSecond);
  EXPECT_EQ(waiting, std::vector<int>());
  return found;
}

void expect_no_errors(const Found& found) {
  for (const auto& [text, ranks] : found.errors) ADD_FAILURE() << ranks << " ranks: " << text;
  EXPECT_EQ(found.wrong, 0U);
}

TEST(Scale, StartAndCallsOfManyHostsTakeTheMessagesThatArePromised) {
  const std::size_t hosts = hosts_wanted(1000);
  const Found found = run(std::vector<int>(hosts, 1), described(hosts));
  expect_no_errors(found);
  EXPECT_EQ(found.connections, hosts - 1);
  // An all-gather and two agreements: each the way to the root and back.
  EXPECT_LE(found.start.steps, 3 * 2 * log2_of(hosts));
  // The ranks agree on a barrier, and on a call, in a message for each of log2 H rounds.
  EXPECT_LE(found.barrier.messages, static_cast<std::uint64_t>(log2_of(hosts)));
  EXPECT_LE(found.finish.messages, static_cast<std::uint64_t>(log2_of(hosts)));
  const auto rounds = static_cast<std::uint64_t>(log2_of(hosts));
  EXPECT_LE(found.small.messages, rounds + 2 * rounds + 4);
  EXPECT_LE(found.medium.messages, rounds + 2 * rounds + 4);
  std::printf(
      "%zu hosts: start %d steps; messages of a rank: start %llu, barrier %llu, 40 B %llu, 40 KB %llu; %zu "
      "bytes of the heap for each rank and host\n",
      hosts, found.start.steps, static_cast<unsigned long long>(found.start.messages),
      static_cast<unsigned long long>(found.barrier.messages),
      static_cast<unsigned long long>(found.small.messages),
      static_cast<unsigned long long>(found.medium.messages), found.bytes_a_rank / hosts);
}

/// The exchanges of the start alone, whose ranks keep nothing of each other, on more hosts than fit into this
/// process as wholes.
std::map<std::string, int> exchange(std::size_t hosts, std::optional<int> lost) {
  Network network;
  network.bytes_per_s = 1e10;
  Cluster cluster(std::vector<int>(hosts, 1), network, 1);
  std::map<std::string, int> said;
  const auto program = [&](int rank) {
    try {
      const MPI_Comm base = private_communicator(MPI_COMM_WORLD, 2);
      if (rank == lost) cluster.lose_process(rank, cluster.now());
      std::vector<int> everyone(hosts);
      std::iota(everyone.begin(), everyone.end(), 0);
      const TreeExchange tree(base, std::move(everyone), 2, "in a test", "mend it");
      bool right = true;
      {
        const std::vector<std::string> texts = tree.all_gather(std::to_string(rank));
        right = texts.size() == hosts;
        for (std::size_t r = 0; right && r < hosts; r += 1 + hosts / 100)
          right = texts[r] == std::to_string(r);
      }
      tree.barrier();
      ++said[right ? "all is right" : "something else came than was sent"];
    } catch (const std::exception& error) {
      ++said[error.what()];
    }
  };
  EXPECT_EQ(cluster.run(program, 60 * kSecond), std::vector<int>());
  if (!lost) {
    EXPECT_EQ(cluster.connections().size(), hosts - 1);
    int steps = 0;
    for (std::size_t r = 0; r < hosts; ++r)
      steps = std::max(steps, cluster.traffic(static_cast<int>(r)).steps);
    EXPECT_LE(steps, 2 * 2 * log2_of(hosts));
  }
  return said;
}

TEST(Scale, TheExchangesOfTheStartReachAllOrNameTheLostRank) {
  const std::size_t hosts = hosts_wanted(4096);
  const int all = static_cast<int>(hosts);
  EXPECT_EQ(exchange(hosts, {}), (std::map<std::string, int>{{"all is right", all}}));
  // A leaf, and one whose way to the root is that of many.
  for (const int lost : {all - 1, all / 2}) {
    const std::string text =
        "[ERROR DDL-1-8] rank " + std::to_string(lost) + " did not answer within 2 s; in a test; mend it";
    EXPECT_EQ(exchange(hosts, lost), (std::map<std::string, int>{{text, all - 1}}));
  }
}

TEST(Scale, RacksOfUnevenHostsAddUp) {
  std::vector<int> ranks_of;
  for (int h = 0; h < 150; ++h) ranks_of.push_back(1 + h % 4);
  const Found found = run(ranks_of, described(ranks_of.size(), 16));
  expect_no_errors(found);
  EXPECT_EQ(found.connections, 372U);
}

/// Fours take half as many rounds as pairs, and the agreement none of its own.
TEST(Scale, SmallCallsOfSomeHostsTakeTwoOrThreeRounds) {
  for (const std::size_t hosts : {16U, 25U, 33U, 64U}) {
    SCOPED_TRACE(hosts);
    const Found found = run(std::vector<int>(hosts, 1), described(hosts));
    expect_no_errors(found);
    const int rounds = (log2_of(hosts) + 1) / 2;
    EXPECT_LE(found.barrier.messages, static_cast<std::uint64_t>(3 * rounds));
    EXPECT_LE(found.small.messages, 10U);
  }
}

TEST(Scale, DifferentCallsOfSomeHostsAreTheSameErrorOnAllRanks) {
  for (const std::size_t hosts : {9U, 16U, 33U, 64U}) {
    for (const bool meets : {false, true}) {
      for (const std::size_t other : {std::size_t{0}, hosts / 3, hosts - 1}) {
        SCOPED_TRACE(std::to_string(hosts) + " hosts, " + std::to_string(other));
        const Found found = run(std::vector<int>(hosts, 1), described(hosts, other == 0 ? 0 : 5),
                                static_cast<int>(other), meets);
        ASSERT_EQ(found.errors.size(), 1U);
        EXPECT_EQ(found.errors.begin()->second, static_cast<int>(hosts));
        const std::string name = "rank " + std::to_string(other) + " (host h" + std::to_string(other) + ")";
        const std::string call = meets ? " called barrier" : " called allreduce of 11 float32 elements";
        EXPECT_NE(found.errors.begin()->first.find(name + call), std::string::npos)
            << found.errors.begin()->first;
      }
    }
  }
}

TEST(Scale, WhatARankKnowsGrowsWithTheHosts) {
  const Found few = run(std::vector<int>(100, 1), described(100));
  const Found many = run(std::vector<int>(400, 1), described(400));
  expect_no_errors(few);
  expect_no_errors(many);
  EXPECT_LT(many.bytes_a_rank, 400 * 3000U);
  // Four times as many hosts: four times as much, and not sixteen.
  EXPECT_LT(many.bytes_a_rank, 6 * few.bytes_a_rank);
}

TEST(Scale, ADifferentCallIsTheSameErrorOnAllRanks) {
  const Found found = run(std::vector<int>(300, 1), described(300), 123);
  ASSERT_EQ(found.errors.size(), 1U);
  EXPECT_EQ(found.errors.begin()->second, 300);
  EXPECT_NE(found.errors.begin()->first.find("rank 123 (host h123) called allreduce of 11 float32 elements"),
            std::string::npos)
      << found.errors.begin()->first;
}

}  // namespace
}  // namespace ddl::sim
