// The topology of a job that has not been started.
#include <gtest/gtest.h>

#include "ddl.h"
#include "engine/topology_preview.hpp"
#include "support/error.hpp"

namespace ddl {
namespace {

std::string ranks(std::initializer_list<const char*> hosts) {
  std::string text;
  for (const char* host : hosts) {
    text += (text.empty() ? "" : ",") + std::string("{\"host\":\"") + host + "\",\"numa\":1,\"package\":0}";
  }
  return "[" + text + "]";
}

std::string refusal(const std::string& request) {
  try {
    preview_topology(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TopologyPreview, GroupsByTheOptions) {
  const Topology topology = preview_topology(
      R"({"options":"-mode p:1x2x2","order":["d","c","b","a"],"ranks":)" + ranks({"a", "b", "c", "d"}) + "}");
  EXPECT_EQ(topology.tiers(), (std::vector<std::string>{"host", "rack", "cluster"}));
  EXPECT_EQ(topology.root().children.at(0).ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(topology.root().children.at(1).ranks, (std::vector<int>{2, 3}));
  EXPECT_EQ(topology.numa_node_of(2), 1);
  const Topology hosts =
      preview_topology(R"({"options":"-topology measure","ranks":)" + ranks({"a", "b", "a"}) + "}");
  ASSERT_EQ(hosts.hosts().size(), 2U);
  EXPECT_EQ(hosts.hosts()[0].ranks, (std::vector<int>{0, 2}));
}

TEST(TopologyPreview, RefusesWhatTheStartWould) {
  EXPECT_NE(refusal(R"({"options":"-mode p:3","ranks":)" + ranks({"a", "a"}) + "}").find("invalid dim size"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"options":"-topology /absent","ranks":)" + ranks({"a"}) + "}").find("/absent"),
            std::string::npos);
  for (const char* request :
       {"", "[]", "{}", R"({"ranks":[]})", R"({"ranks":[{"host":7}]})",
        R"({"ranks":[{"host":"a"}],"order":[1]})", R"({"ranks":[{"host":"a","numa":"x"}]})"}) {
    EXPECT_NE(refusal(request).find("in ddl_preview_topology"), std::string::npos) << request;
  }
}

TEST(TopologyPreview, SpeaksC) {
  size_t needed = 0;
  const std::string request = R"({"ranks":)" + ranks({"a", "b"}) + "}";
  ASSERT_EQ(ddl_preview_topology(request.c_str(), nullptr, 0, &needed), DDL_SUCCESS);
  std::string text(needed, '?');
  ASSERT_EQ(ddl_preview_topology(request.c_str(), text.data(), text.size(), nullptr), DDL_SUCCESS);
  EXPECT_NE(text.find(R"("tiers":["host",)"), std::string::npos) << text;
  EXPECT_EQ(ddl_preview_topology(request.c_str(), text.data(), 5, nullptr), DDL_ERR_ARGUMENT);
  EXPECT_EQ(ddl_preview_topology(nullptr, text.data(), text.size(), nullptr), DDL_ERR_ARGUMENT);
}

}  // namespace
}  // namespace ddl
