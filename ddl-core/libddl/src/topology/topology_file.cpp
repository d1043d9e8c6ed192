#include "topology/topology_file.hpp"

#include <algorithm>

#include "support/error.hpp"
#include "support/json_reader.hpp"
#include "topology/host_names.hpp"
#include "topology/hostlist.hpp"
#include "topology/slurm.hpp"

namespace ddl {
namespace {

constexpr int kVersion = 1;
/// Objects and arrays in each other: a group takes two, and the file itself some.
constexpr int kMaxNesting = 2 * static_cast<int>(kMaxTiers) + 8;
constexpr const char* kTopologyPage = "docs/cluster/topology.md describes the file";

class Reader : private JsonReader {
 public:
  explicit Reader(const std::string& path)
      : JsonReader(DDL_ERR_OPTION, "topology file " + path, kTopologyPage) {}

  Description read(const std::string& text) {
    const Json json =
        parse(text, kMaxNesting, "the nesting is deeper than " + std::to_string(kMaxTiers) + " tiers",
              "leave out groups of one group");
    if (!json.is_object()) refuse("the file is no object but " + kind(json), "", "write {\"version\": 1, …}");
    check_keys(json, "", {"version", "description", "name", "tiers", "groups", "hosts"});
    const auto version = json.find("version");
    if (version == json.end()) refuse("'version' is missing", "", "write \"version\": 1");
    if (!version->is_number_integer() || *version != kVersion) {
      refuse("version " + shown(*version) + " is not known", "/version", "this release reads version 1");
    }
    if (json.contains("description")) static_cast<void>(text_of(json["description"], "/description"));
    Description description;
    description.root = read_group(json, "", 1);
    if (json.contains("tiers")) description.tiers = read_tiers(json["tiers"], tiers_of(description.root));
    return description;
  }

 private:
  DescribedGroup read_group(const Json& json, const std::string& where, std::size_t depth) {
    if (depth >= kMaxTiers) {
      refuse("the nesting is deeper than " + std::to_string(kMaxTiers) + " tiers", where,
             "leave out groups of one group");
    }
    DescribedGroup group;
    if (json.contains("name")) group.name = text_of(json["name"], where + "/name");
    if (!json.contains("groups") && !json.contains("hosts")) {
      refuse("there are neither 'groups' nor 'hosts'", where.empty() ? "/" : where,
             "name the hosts, or the groups of hosts");
    }
    if (json.contains("hosts")) {
      const std::string list = where + "/hosts";
      const Json& hosts = array_of(json["hosts"], list);
      for (std::size_t i = 0; i < hosts.size(); ++i) {
        read_hosts(text_of(hosts[i], list + '/' + std::to_string(i)), list + '/' + std::to_string(i),
                   group.hosts);
      }
    }
    if (json.contains("groups")) {
      const std::string list = where + "/groups";
      const Json& groups = array_of(json["groups"], list);
      for (std::size_t i = 0; i < groups.size(); ++i) {
        const std::string here = list + '/' + std::to_string(i);
        if (!groups[i].is_object()) {
          refuse("a group is an object, not " + kind(groups[i]), here, "write {\"name\": …, \"hosts\": […]}");
        }
        check_keys(groups[i], here, {"name", "groups", "hosts"});
        group.groups.push_back(read_group(groups[i], here, depth + 1));
      }
    }
    return group;
  }

  void read_hosts(const std::string& text, const std::string& where, std::vector<DescribedHost>& hosts) {
    std::vector<std::string> names;
    try {
      names = expand_hostlist(text, std::min(kMaxHostlistNames, kMaxDescribedHosts - named_));
    } catch (const HostlistError& error) {
      refuse("host list " + shown(Json(text)) + ": " + error.what(), where,
             "write names such as \"h1\" or \"node[01-16]\"");
    }
    named_ += names.size();
    for (std::string& name : names) {
      if (!valid_host_name(name)) {
        refuse(shown(Json(name)) + " is no host name", where,
               "names have letters, digits, dots, dashes and underscores");
      }
      hosts.push_back({std::move(name), where});
    }
  }

  std::vector<TierInfo> read_tiers(const Json& json, std::size_t tiers) const {
    std::vector<TierInfo> infos;
    const Json& list = array_of(json, "/tiers");
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string where = "/tiers/" + std::to_string(i);
      if (i >= tiers) {
        refuse("there are " + std::to_string(list.size()) + " tiers, but hosts and groups make " +
                   std::to_string(tiers),
               where, "list the tiers from the innermost (ranks of a host) to the outermost");
      }
      const Json& entry = list[i];
      if (!entry.is_object()) {
        refuse("a tier is an object, not " + kind(entry), where, "write {\"name\": …}");
      }
      check_keys(entry, where, {"name", "bandwidth_mbit", "latency_us"});
      TierInfo info;
      if (entry.contains("name")) info.name = text_of(entry["name"], where + "/name");
      for (const TierInfo& other : infos) {
        if (!info.name.empty() && other.name == info.name) {
          refuse("two tiers have the name " + shown(Json(info.name)), where + "/name", "give each its own");
        }
      }
      info.link.bandwidth_mbit = figure_of(entry, "bandwidth_mbit", where);
      info.link.latency_us = figure_of(entry, "latency_us", where);
      infos.push_back(std::move(info));
    }
    return infos;
  }

  std::optional<double> figure_of(const Json& entry, const char* key, const std::string& where) const {
    if (!entry.contains(key)) return std::nullopt;
    const Json& value = entry[key];
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!(number > 0) || !(number <= 1e9)) {
      refuse(std::string(key) + " is " + shown(value), where + '/' + key,
             "write a number, more than 0 and at most 1e9");
    }
    return number;
  }

  std::size_t named_ = 0;
};

}  // namespace

Description parse_topology_file(const std::string& text, const std::string& path) {
  if (text.size() > kMaxTopologyFileBytes) {
    throw Error(DDL_ERR_OPTION, "the topology file has " + std::to_string(text.size()) + " bytes",
                "in " + path,
                "at most " + std::to_string(kMaxTopologyFileBytes) +
                    " are read: name the hosts by ranges such as node[01-16]");
  }
  std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) {
    throw Error(DDL_ERR_OPTION, "the topology file is empty", "in " + path, kTopologyPage);
  }
  if (text[first] == '{' || text[first] == '[') return Reader(path).read(text);
  return parse_topology_conf(text, path);
}

}  // namespace ddl
