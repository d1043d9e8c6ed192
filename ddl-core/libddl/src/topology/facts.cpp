#include "topology/facts.hpp"

#include <algorithm>
#include <cstdlib>

#include "support/error.hpp"
#include "support/hash.hpp"
#include "support/json_reader.hpp"
#include "topology/domains.hpp"
#include "topology/emulation.hpp"
#include "topology/host_names.hpp"
#include "topology/placement.hpp"

namespace ddl {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

HostOrder place_in(const std::string& list, const std::string& host) {
  HostIndex index;
  int position = 0;
  for (std::size_t at = 0; at <= list.size(); ++position) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    index.add(list.substr(at, end - at), position);
    at = end + 1;
  }
  return {std::max(index.find(host), -1), hash_bytes(list.data(), list.size())};
}

RankFacts gather_facts(int world_rank, int world_size) {
  const Placement here = local_placement();
  RankFacts facts;
  facts.host_name = here.host_name;
  facts.host_key = facts.machine_key = here.host_key;
  cpu_set_t processors;
  CPU_ZERO(&processors);
  sched_getaffinity(0, sizeof processors, &processors);
  facts.position = position_of(processors);
  facts.gpu = own_gpu();

  if (const int ranks = parse_emulated_domains(environment("DDL_EMULATE_DOMAINS"));
      ranks > 0 && world_size > 0)
    facts.emulated_domain = world_rank / ranks;
  const std::string emulated = environment("DDL_EMULATE_HOSTS");
  if (!emulated.empty() && world_size > 0) {
    const std::vector<EmulatedHost> hosts = parse_emulation(emulated, world_size);
    const std::size_t host = emulated_host_of(hosts, world_rank);
    facts.host_name = "emulated" + std::to_string(host);
    // The real key stays in: emulation never claims that ranks on different machines share memory.
    facts.host_key += '/' + facts.host_name;
    facts.emulated_racks = hosts[host].racks;
    return facts;
  }
  const std::string address = environment("SLURM_TOPOLOGY_ADDR");
  const std::string pattern = environment("SLURM_TOPOLOGY_ADDR_PATTERN");
  if (!address.empty()) {
    facts.slurm = parse_topology_address(address, pattern);
    if (!facts.slurm) {
      facts.slurm_problem =
          "SLURM_TOPOLOGY_ADDR '" + address + "' does not fit SLURM_TOPOLOGY_ADDR_PATTERN '" + pattern + "'";
    }
  }
  if (const std::string list = environment("DDL_HOST_ORDER"); !list.empty()) {
    facts.order = place_in(list, facts.host_name);
  }
  return facts;
}

std::string serialise(const RankFacts& facts) {
  Json json = {{"host", facts.host_name},           {"key", facts.host_key},
               {"machine", facts.machine_key},      {"numa", facts.position.numa_node},
               {"package", facts.position.package}, {"cache", facts.position.cache}};
  if (facts.gpu) json["gpu"] = {facts.gpu->bus, facts.gpu->island};
  if (facts.slurm) json["slurm"] = {{"switches", facts.slurm->switches}, {"node", facts.slurm->node}};
  if (!facts.slurm_problem.empty()) json["slurm_problem"] = facts.slurm_problem;
  if (facts.order) json["order"] = {facts.order->position, facts.order->list};
  if (!facts.emulated_racks.empty()) json["racks"] = facts.emulated_racks;
  if (facts.emulated_domain >= 0) json["domain"] = facts.emulated_domain;
  // Names are bytes, JSON is UTF-8.
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

RankFacts parse_facts(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    RankFacts facts;
    facts.host_name = json.at("host").get<std::string>();
    facts.host_key = json.at("key").get<std::string>();
    facts.machine_key = json.at("machine").get<std::string>();
    facts.position = {json.at("numa").get<int>(), json.at("package").get<int>(), json.value("cache", -1)};
    if (json.contains("gpu")) {
      facts.gpu = GpuPlace{json["gpu"].at(0).get<std::string>(), json["gpu"].at(1).get<int>()};
    }
    if (json.contains("slurm")) {
      facts.slurm = SlurmAddress{json["slurm"].at("switches").get<std::vector<std::string>>(),
                                 json["slurm"].at("node").get<std::string>()};
    }
    facts.slurm_problem = json.value("slurm_problem", "");
    if (json.contains("order")) {
      facts.order = HostOrder{json["order"].at(0).get<int>(), json["order"].at(1).get<std::uint64_t>()};
    }
    facts.emulated_racks = json.value("racks", std::vector<int>{});
    facts.emulated_domain = json.value("domain", -1);
    return facts;
  } catch (const Json::exception& error) {
    throw Error(DDL_ERR_INTERNAL, std::string("a rank's facts cannot be read: ") + error.what(),
                "in the discovery of the topology", "please report this defect");
  }
}

}  // namespace ddl
