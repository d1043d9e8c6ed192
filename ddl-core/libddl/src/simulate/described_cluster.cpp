#include "simulate/described_cluster.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "support/error.hpp"
#include "support/json_reader.hpp"

namespace ddl {
namespace {

constexpr int kVersion = 1;
constexpr int kDeepest = 6;
constexpr const char* kHostTier = "host";

/// A part of the tree, reduced to its sizes.
struct Node {
  std::size_t ranks = 0;
  std::size_t hosts = 0;
  std::size_t leaves = 0;  ///< innermost groups of the model
};

/// Calls each(first, last) for the children of each group of a tier.
template <class Each>
void for_groups(const std::vector<std::size_t>& members, std::size_t children, Each each) {
  for (std::size_t first = 0, group = 0; first < children; ++group) {
    const std::size_t count = members.size() == 1 ? members.front() : members[group];
    const std::size_t last = std::min(children, first + count);
    each(first, last);
    first = last;
  }
}

}  // namespace

class ClusterReader : private JsonReader {
 public:
  ClusterReader() : JsonReader(DDL_ERR_ARGUMENT, "the cluster description", kSimulatePage) {}

  DescribedCluster read(const std::string& text) {
    if (text.size() > kMaxClusterFileBytes) {
      refuse("there are " + std::to_string(text.size()) + " bytes", "",
             "at most " + std::to_string(kMaxClusterFileBytes) + " are read");
    }
    const Json json = parse(text, kDeepest, "the nesting is deeper than a description's", kSimulatePage);
    if (!json.is_object()) {
      refuse("it is no object but " + kind(json), "", "write {\"version\": 1, \"tiers\": […]}");
    }
    check_keys(json, "",
               {"version", "name", "description", "source", "device", "tiers", "overheads", "step"});
    const auto version = json.find("version");
    if (version == json.end()) refuse("'version' is missing", "", "write \"version\": 1");
    if (!version->is_number_integer() || *version != kVersion) {
      refuse("version " + shown(*version) + " is not known", "/version", "this release reads version 1");
    }
    DescribedCluster cluster;
    cluster.name = optional_text(json, "name", "");
    cluster.description = optional_text(json, "description", "");
    optional_text(json, "source", "");
    if (!json.contains("tiers"))
      refuse("'tiers' is missing", "", "list the tiers from the innermost outwards");
    read_tiers(json["tiers"], cluster);
    read_device(json, cluster);
    read_overheads(json, cluster);
    read_step(json, cluster);
    return cluster;
  }

 private:
  std::string optional_text(const Json& object, const char* key, const std::string& where) const {
    return object.contains(key) ? text_of(object[key], where + '/' + key) : std::string();
  }

  const Json& object_of(const Json& json, const std::string& where, const std::set<std::string>& keys) const {
    if (!json.is_object()) refuse("an object is expected, not " + kind(json), where, "write {…}");
    check_keys(json, where, keys);
    return json;
  }

  double fraction(const Json& object, const char* key, const std::string& where, double least) const {
    const Json& value = object[key];
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= least) || !(number <= 1)) {
      char range[60];
      std::snprintf(range, sizeof range, "write a number from %g to 1", least);
      refuse(std::string(key) + " is " + shown(value), where + '/' + key, range);
    }
    return number;
  }

  std::size_t count_of(const Json& value, const std::string& where) const {
    if (!value.is_number_integer() || value < 1 || value > kMaxDescribedRanks) {
      refuse("members is " + shown(value), where,
             "write a whole number from 1 to " + std::to_string(kMaxDescribedRanks));
    }
    return value.get<std::size_t>();
  }

  Sharing sharing_of(const std::string& text, std::size_t tier, bool above_host,
                     const std::string& where) const {
    if (text == "memory") {
      if (tier > 0) {
        refuse("only the innermost tier can be memory", where,
               "say what the tier's links are shared by: rank, host, member, pair or tier");
      }
      return Sharing::kMemory;
    }
    if (text == "rank") return Sharing::kRank;
    if (text == "host") {
      if (!above_host) {
        refuse("a tier inside a host has no hosts below", where, "write rank, member, pair or tier");
      }
      return Sharing::kHost;
    }
    if (text == "member") return Sharing::kMember;
    if (text == "pair") return Sharing::kPair;
    if (text == "tier") return Sharing::kTier;
    refuse("shared_by is " + shown(Json(text)), where, "write memory, rank, host, member, pair or tier");
  }

  void read_tiers(const Json& json, DescribedCluster& cluster) const {
    const Json& list = array_of(json, "/tiers");
    if (list.size() > kMaxDescribedTiers) {
      refuse("there are " + std::to_string(list.size()) + " tiers", "/tiers",
             "describe at most " + std::to_string(kMaxDescribedTiers));
    }
    bool above_host = false;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string where = "/tiers/" + std::to_string(i);
      const Json& entry = object_of(
          list[i], where, {"name", "members", "bandwidth", "latency", "shared_by", "efficiency", "source"});
      DescribedTier tier;
      if (!entry.contains("name"))
        refuse("'name' is missing", where, "name the tier; the one of a host \"host\"");
      tier.name = text_of(entry["name"], where + "/name");
      for (const DescribedTier& other : cluster.tiers) {
        if (other.name == tier.name) {
          refuse("two tiers have the name " + shown(Json(tier.name)), where + "/name", "give each its own");
        }
      }
      if (!entry.contains("members")) {
        refuse("'members' is missing", where, "say how many members a group of this tier has");
      }
      if (entry["members"].is_array()) {
        const Json& counts = array_of(entry["members"], where + "/members");
        for (std::size_t k = 0; k < counts.size(); ++k) {
          tier.members.push_back(count_of(counts[k], where + "/members/" + std::to_string(k)));
        }
      } else {
        tier.members.push_back(count_of(entry["members"], where + "/members"));
      }
      optional_text(entry, "source", where);
      const std::string sharing =
          entry.contains("shared_by") ? text_of(entry["shared_by"], where + "/shared_by") : "member";
      tier.sharing = sharing_of(sharing, i, above_host, where + "/shared_by");
      tier.bytes_per_s = quantity_of(entry, "bandwidth", where, Quantity::kBytesPerSecond, 1e3, 1e15);
      tier.latency_s = quantity_of(entry, "latency", where, Quantity::kSeconds, 0, 10);
      if (entry.contains("efficiency")) tier.efficiency = fraction(entry, "efficiency", where, 1e-6);
      if (tier.name == kHostTier) {
        cluster.host_tier = i;
        above_host = true;
      }
      cluster.tiers.push_back(std::move(tier));
    }
    if (!above_host) {
      refuse("no tier is named \"host\"", "/tiers", "name the tier that joins the ranks of a host \"host\"");
    }
    count_ranks(cluster);
  }

  /// From the outermost tier, of which there is one group, inwards.
  void count_ranks(DescribedCluster& cluster) const {
    std::size_t groups = 1;
    for (std::size_t i = cluster.tiers.size(); i-- > 0;) {
      const std::string where = "/tiers/" + std::to_string(i) + "/members";
      std::vector<std::size_t>& members = cluster.tiers[i].members;
      std::size_t below = 0;
      if (members.size() == 1) {
        below = groups * members.front();
      } else {
        if (members.size() != groups) {
          refuse("members names " + std::to_string(members.size()) + " groups, but there are " +
                     std::to_string(groups) + " of this tier",
                 where, "give a number for each of them, or one number for all");
        }
        for (const std::size_t count : members) below += count;
      }
      if (below > kMaxDescribedRanks) {
        refuse("the cluster has " + std::to_string(below) + " or more ranks", where,
               "describe at most " + std::to_string(kMaxDescribedRanks));
      }
      groups = below;
    }
    cluster.ranks_ = groups;
  }

  void read_device(const Json& json, DescribedCluster& cluster) const {
    if (cluster.in_memory()) {
      if (json.contains("device")) {
        refuse("there is a 'device', but ranks reduce in memory", "/device",
               "leave it out, or say who shares the innermost tier's links");
      }
      return;
    }
    if (!json.contains("device")) {
      refuse(
          "'device' is missing", "",
          "say how fast a rank reduces: \"device\": {\"reduce\": \"300 GB/s\"}; or make the innermost tier "
          "\"shared_by\": \"memory\"");
    }
    const Json& device = object_of(json["device"], "/device", {"reduce", "latency", "source"});
    optional_text(device, "source", "/device");
    cluster.device.bytes_per_s =
        quantity_of(device, "reduce", "/device", Quantity::kBytesPerSecond, 1e3, 1e15);
    if (device.contains("latency")) {
      cluster.device.latency_s = quantity_of(device, "latency", "/device", Quantity::kSeconds, 0, 10);
    }
  }

  void read_overheads(const Json& json, DescribedCluster& cluster) const {
    if (!json.contains("overheads")) return;
    const Json& entry = object_of(json["overheads"], "/overheads", {"chunk", "message", "overlap", "source"});
    optional_text(entry, "source", "/overheads");
    if (entry.contains("chunk")) {
      cluster.overheads.chunk_s = quantity_of(entry, "chunk", "/overheads", Quantity::kSeconds, 0, 1);
    }
    if (entry.contains("message")) {
      cluster.overheads.message_s = quantity_of(entry, "message", "/overheads", Quantity::kSeconds, 0, 1);
    }
    if (entry.contains("overlap")) cluster.overheads.overlap = fraction(entry, "overlap", "/overheads", 0);
  }

  void read_step(const Json& json, DescribedCluster& cluster) const {
    if (!json.contains("step")) return;
    const Json& step = object_of(json["step"], "/step", {"compute", "fixed", "bytes", "source"});
    optional_text(step, "source", "/step");
    cluster.step_s = quantity_of(step, "compute", "/step", Quantity::kSeconds, 0, 1e6);
    if (step.contains("fixed"))
      cluster.fixed_s = quantity_of(step, "fixed", "/step", Quantity::kSeconds, 0, 1e6);
    if (step.contains("bytes")) {
      cluster.bytes = static_cast<std::size_t>(
          std::llround(quantity_of(step, "bytes", "/step", Quantity::kBytes, 1, 1e15)));
    }
  }
};

DescribedCluster DescribedCluster::parse(const std::string& text) { return ClusterReader().read(text); }

std::vector<std::size_t> DescribedCluster::host_ranks() const {
  std::vector<std::size_t> groups(ranks_, 1);
  for (std::size_t t = 0; t <= host_tier; ++t) {
    std::vector<std::size_t> above;
    for_groups(tiers[t].members, groups.size(), [&](std::size_t first, std::size_t last) {
      std::size_t sum = 0;
      for (std::size_t i = first; i < last; ++i) sum += groups[i];
      above.push_back(sum);
    });
    groups = std::move(above);
  }
  return groups;
}

LinkFigures DescribedCluster::figures(std::size_t tier, std::size_t groups, std::size_t ranks_below,
                                      std::size_t hosts_below) const {
  const DescribedTier& described = tiers[tier];
  LinkFigures link{described.latency_s, described.bytes_per_s * described.efficiency};
  switch (described.sharing) {
    case Sharing::kRank:
      link.bytes_per_s *= static_cast<double>(ranks_below);
      link.by_one_rank = 1.0 / static_cast<double>(ranks_below);
      break;
    case Sharing::kHost:
      link.bytes_per_s *= static_cast<double>(hosts_below);
      link.by_one_rank = 1.0 / static_cast<double>(hosts_below);
      break;
    case Sharing::kPair:
      link.bytes_per_s *= static_cast<double>(groups - 1);
      link.to_one_peer = 1.0 / static_cast<double>(groups - 1);
      break;
    case Sharing::kTier:
      link.bytes_per_s /= static_cast<double>(groups);
      break;
    case Sharing::kMemory:
    case Sharing::kMember:
      break;
  }
  return link;
}

JobShape DescribedCluster::job(std::size_t ranks) const {
  JobShape job;
  job.cluster.ranks = ranks;
  job.model = overheads;
  job.model.origin = "described";
  job.model.memory = device;
  std::vector<Node> nodes;
  for (std::size_t t = 0; t < tiers.size(); ++t) {
    const bool leaves = t == 0 && in_memory();
    std::vector<Node> above;
    TierFacts facts;
    // A member's link must carry its share however few ranks or hosts have come to lie below it.
    std::size_t least_ranks = ranks;
    std::size_t least_hosts = ranks;
    for_groups(tiers[t].members, t == 0 ? ranks : nodes.size(), [&](std::size_t first, std::size_t last) {
      Node group;
      for (std::size_t i = first; i < last; ++i) {
        const Node member = t == 0 ? Node{1, 0, leaves ? std::size_t{0} : 1} : nodes[i];
        group.ranks += member.ranks;
        group.hosts += member.hosts;
        group.leaves += member.leaves;
        facts.ranks_below = std::max(facts.ranks_below, member.ranks);
        facts.hosts_below = std::max(facts.hosts_below, member.leaves);
        least_ranks = std::min(least_ranks, member.ranks);
        least_hosts = std::min(least_hosts, member.hosts);
      }
      facts.groups = std::max(facts.groups, last - first);
      if (t == host_tier) group.hosts = 1;
      if (leaves) group.leaves = 1;
      above.push_back(group);
    });
    nodes = std::move(above);
    if (leaves) {
      job.model.memory = {tiers[t].latency_s, tiers[t].bytes_per_s * tiers[t].efficiency};
      job.cluster.ranks_a_host = facts.groups;
    } else if (facts.groups > 1) {
      job.cluster.tiers.push_back(facts);
      job.model.tiers.push_back(figures(t, facts.groups, least_ranks, least_hosts));
      job.tiers.push_back(t);
    }
  }
  job.hosts = nodes.front().hosts;
  job.cluster.hosts = nodes.front().leaves;
  return job;
}

}  // namespace ddl
