// Where processors are, from sysfs: that of this machine, and made ones.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "topology/machine.hpp"

namespace ddl {
namespace {

namespace fs = std::filesystem;

/// A sysfs with the parts that are read.
class TopologyMachine : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ddl-sysfs-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    fs::create_directories(root_ / "devices/system/node");
  }
  void TearDown() override { fs::remove_all(root_); }

  void node(int number, const std::string& cpus) {
    const fs::path folder = root_ / "devices/system/node" / ("node" + std::to_string(number));
    fs::create_directories(folder);
    std::ofstream(folder / "cpulist") << cpus << '\n';
  }
  void package(int cpu, const std::string& number) {
    const fs::path folder = root_ / "devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
    fs::create_directories(folder);
    std::ofstream(folder / "physical_package_id") << number << '\n';
  }
  void cache(int cpu, int index, int level, const std::string& cpus) {
    const fs::path folder = root_ / "devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "cache" /
                            ("index" + std::to_string(index));
    fs::create_directories(folder);
    std::ofstream(folder / "level") << level << '\n';
    std::ofstream(folder / "shared_cpu_list") << cpus << '\n';
  }
  MachinePosition at(std::initializer_list<int> cpus) const {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus) CPU_SET(cpu, &set);
    return position_of(set, root_);
  }

  fs::path root_;
};

TEST_F(TopologyMachine, TwoSockets) {
  node(0, "0-1,4-5");
  node(1, "2-3,6-7");
  for (int cpu = 0; cpu < 8; ++cpu) package(cpu, cpu % 4 < 2 ? "0" : "1");
  EXPECT_EQ(at({0, 5}).numa_node, 0);
  EXPECT_EQ(at({0, 5}).package, 0);
  EXPECT_EQ(at({7}).numa_node, 1);
  EXPECT_EQ(at({7}).package, 1);
  EXPECT_EQ(at({1, 2}).numa_node, -1);
  EXPECT_EQ(at({1, 2}).package, -1);
}

TEST_F(TopologyMachine, SeveralNodesInASocketAndNodesWithoutProcessors) {
  node(0, "0-1");
  node(1, "2-3");
  node(8, "");
  for (int cpu = 0; cpu < 4; ++cpu) package(cpu, "0");
  EXPECT_EQ(at({2, 3}).numa_node, 1);
  EXPECT_EQ(at({0, 3}).numa_node, -1);
  EXPECT_EQ(at({0, 3}).package, 0);
}

TEST_F(TopologyMachine, WhatCannotBeReadIsNotKnown) {
  EXPECT_EQ(at({0}).numa_node, -1);
  EXPECT_EQ(at({0}).package, -1);
  node(0, "x-3,-2,5-,,1-99999999999");
  package(0, "-1");
  package(1, "two");
  EXPECT_EQ(at({0, 1}).numa_node, -1);
  EXPECT_EQ(at({0}).package, -1);
  EXPECT_EQ(at({1}).package, -1);
  node(1, "0");
  EXPECT_EQ(at({0}).numa_node, 1);
  EXPECT_EQ(at({}).numa_node, -1);
  EXPECT_EQ(at({}).package, -1);
}

TEST_F(TopologyMachine, CacheOfTheLastLevel) {
  for (const int cpu : {2, 4}) {
    cache(cpu, 0, 1, std::to_string(cpu));
    cache(cpu, 1, 1, std::to_string(cpu));
    cache(cpu, 3, 3, "2-5");
    cache(cpu, 2, 2, std::to_string(cpu));
  }
  EXPECT_EQ(at({2}).cache, 2);
  EXPECT_EQ(at({4, 5}).cache, 2);
  EXPECT_EQ(at({2, 6}).cache, -1);
  EXPECT_EQ(at({7}).cache, -1);
  EXPECT_EQ(at({}).cache, -1);
}

TEST_F(TopologyMachine, NoSysfs) {
  fs::remove_all(root_);
  EXPECT_EQ(at({0}).numa_node, -1);
}

TEST(TopologyThisMachine, AgreesWithTheKernelOnOneProcessor) {
  if (!fs::exists("/sys/devices/system/node/node0"))
    GTEST_SKIP() << "no /sys/devices/system/node on this machine";
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    // The kernel links each processor to its node.
    const int node = position_of(one).numa_node;
    EXPECT_TRUE(
        fs::exists("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/node" + std::to_string(node)))
        << cpu << " " << node;
  }
}

}  // namespace
}  // namespace ddl
