#include "engine/topology_preview.hpp"

#include <fstream>
#include <iterator>
#include <vector>

#include "engine/options.hpp"
#include "support/error.hpp"
#include "support/json_reader.hpp"
#include "topology/discovery.hpp"
#include "topology/facts.hpp"

namespace ddl {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw Error(DDL_ERR_OPTION, "cannot read the topology file " + path, "in -topology of DDL_OPTIONS",
                "give the path of a file, none or measure");
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TopologyRequest request_of(const Options& options) {
  TopologyRequest request{options.dims, options.topology, "", std::nullopt};
  if (options.topology.starts_with('{')) {
    request.file_text = options.topology;
    request.source = "in -topology";
  } else if (options.topology == "measure") {
    request.source = "none";
  } else if (!options.topology.empty() && options.topology != "none") {
    request.file_text = read_file(options.topology);
  }
  return request;
}

struct DescribedJob {
  std::string options;
  std::vector<RankFacts> ranks;
};

DescribedJob parse(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    std::string order;
    for (const Json& name : json.value("order", Json::array())) {
      order += (order.empty() ? "" : ",") + name.get<std::string>();
    }
    DescribedJob job{json.value("options", ""), {}};
    for (const Json& rank : json.at("ranks")) {
      RankFacts facts;
      facts.host_name = facts.host_key = facts.machine_key = rank.at("host").get<std::string>();
      facts.position = {rank.value("numa", -1), rank.value("package", -1)};
      facts.gpu = parse_gpu_place(rank.value("gpu", ""));
      if (!order.empty()) facts.order = place_in(order, facts.host_name);
      job.ranks.push_back(std::move(facts));
    }
    if (!job.ranks.empty()) return job;
  } catch (const Json::exception& error) {
    throw Error(DDL_ERR_ARGUMENT, std::string("the request is not understood: ") + error.what(),
                "in ddl_preview_topology", "see its description in ddl.h");
  }
  throw Error(DDL_ERR_ARGUMENT, "the request has no ranks", "in ddl_preview_topology",
              "describe at least one");
}

}  // namespace

Topology preview_topology(const std::string& request) {
  const DescribedJob job = parse(request);
  const Options options = parse_options(job.options);
  check_dims(options, static_cast<int>(job.ranks.size()));
  std::vector<std::string> facts;
  for (const RankFacts& rank : job.ranks) facts.push_back(serialise(rank));
  return discover(facts, request_of(options));
}

}  // namespace ddl
