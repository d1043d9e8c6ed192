#include "topology/description.hpp"

#include <algorithm>

#include "support/error.hpp"
#include "topology/host_names.hpp"

namespace ddl {
namespace {

void collect(const DescribedGroup& group, std::vector<const DescribedHost*>& all) {
  for (const DescribedHost& host : group.hosts) all.push_back(&host);
  for (const DescribedGroup& inner : group.groups) collect(inner, all);
}

/// members[i] are the job's hosts that stand at entry i, in the order of collect().
Branch branch_of(const DescribedGroup& group, const std::vector<std::vector<std::size_t>>& members,
                 const std::vector<Host>& hosts, std::size_t& entry) {
  Branch branch{group.name, {}};
  branch.height = static_cast<int>(tiers_of(group));
  for (std::size_t i = 0; i < group.hosts.size(); ++i, ++entry) {
    for (const std::size_t h : members[entry]) branch.children.push_back({hosts[h].name, hosts[h].ranks});
  }
  for (const DescribedGroup& inner : group.groups) {
    branch.children.push_back(branch_of(inner, members, hosts, entry));
  }
  return branch;
}

[[noreturn]] void refuse(const std::string& what, const std::string& where, const std::string& remedy) {
  throw Error(DDL_ERR_OPTION, what, "in " + where, remedy);
}

}  // namespace

std::size_t tiers_of(const DescribedGroup& group) {
  std::size_t inner = 1;
  for (const DescribedGroup& child : group.groups) inner = std::max(inner, tiers_of(child));
  return inner + 1;
}

Branch place_hosts(const Description& description, const std::vector<Host>& hosts,
                   const std::string& source) {
  std::vector<const DescribedHost*> entries;
  collect(description.root, entries);
  HostIndex index;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (index.add(entries[i]->name, static_cast<int>(i))) continue;
    const DescribedHost& first = *entries[static_cast<std::size_t>(index.find(entries[i]->name))];
    refuse("host " + entries[i]->name + " is there twice, at " + first.where + " and at " + entries[i]->where,
           source, "a host is in one group: leave one of the two out");
  }

  std::vector<std::vector<std::size_t>> members(entries.size());
  std::vector<std::string> missing;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const int entry = index.find(hosts[h].name);
    if (entry == HostIndex::kAmbiguous) {
      refuse("host " + hosts[h].name + " of the job fits several hosts of the file", source,
             "give the hosts of the job with their domain, or without it in the file");
    }
    if (entry == HostIndex::kNone) {
      missing.push_back(hosts[h].name);
      continue;
    }
    std::vector<std::size_t>& here = members[static_cast<std::size_t>(entry)];
    // Containers of one host may have its name and yet share no memory.
    if (!here.empty() && lower_case(hosts[here.front()].name) != lower_case(hosts[h].name)) {
      refuse("hosts " + hosts[here.front()].name + " and " + hosts[h].name + " of the job both fit " +
                 entries[static_cast<std::size_t>(entry)]->name + " at " +
                 entries[static_cast<std::size_t>(entry)]->where,
             source, "give that host with its domain");
    }
    here.push_back(h);
  }
  if (!missing.empty()) {
    std::sort(missing.begin(), missing.end(),
              [](const std::string& a, const std::string& b) { return natural_compare(a, b) < 0; });
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    constexpr std::size_t shown = 8;
    std::string names;
    for (std::size_t i = 0; i < std::min(missing.size(), shown); ++i)
      names += (i > 0 ? ", " : "") + missing[i];
    if (missing.size() > shown) names += " and " + std::to_string(missing.size() - shown) + " more";
    refuse((missing.size() == 1 ? "host " : "hosts ") + names + " of the job " +
               (missing.size() == 1 ? "is" : "are") + " not in the file",
           source, "add them to a group (names as `hostname` prints them), or leave the file out");
  }
  std::size_t entry = 0;
  return branch_of(description.root, members, hosts, entry);
}

}  // namespace ddl
