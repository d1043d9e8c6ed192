#include "topology/slurm.hpp"

#include <algorithm>
#include <cstdint>
#include <map>

#include "support/error.hpp"
#include "topology/host_names.hpp"
#include "topology/hostlist.hpp"
#include "topology/in_quotes.hpp"

namespace ddl {
namespace {

constexpr std::size_t kNoParent = SIZE_MAX;

/// A line of topology.conf.
struct Switch {
  std::string name;
  std::size_t line = 0;
  std::vector<std::string> nodes;
  std::vector<std::string> switches;
  std::size_t parent = kNoParent;
};

class ConfReader {
 public:
  explicit ConfReader(const std::string& path) : path_(path) {}

  Description read(const std::string& text) {
    std::size_t number = 0;
    std::size_t begun = 0;
    std::string joined;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      std::string_view line = std::string_view(text).substr(at, end - at);
      at = end + 1;
      ++number;
      if (joined.empty()) begun = number;
      line = line.substr(0, line.find('#'));
      const std::size_t last = line.find_last_not_of(" \t\r\f\v");
      line = line.substr(0, last == std::string_view::npos ? 0 : last + 1);
      const bool more = line.ends_with('\\');
      joined += line.substr(0, line.size() - (more ? 1 : 0));
      if (more && at < text.size()) {
        joined += ' ';
        continue;
      }
      read_line(joined, begun);
      joined.clear();
    }
    return describe();
  }

 private:
  [[noreturn]] void refuse(const std::string& what, std::size_t line, const std::string& remedy) const {
    throw Error(
        DDL_ERR_OPTION, what,
        "in topology file " + path_ + (line == 0 ? std::string() : " at line " + std::to_string(line)),
        remedy);
  }

  void read_line(std::string_view line, std::size_t number) {
    constexpr std::string_view space = " \t\r\f\v";
    Switch entry;
    entry.line = number;
    bool block = false;
    bool sizes = false;
    for (std::size_t at = line.find_first_not_of(space); at != std::string_view::npos;) {
      const std::size_t end = std::min(line.find_first_of(space, at), line.size());
      const std::string_view word = line.substr(at, end - at);
      at = line.find_first_not_of(space, end);
      const std::size_t equals = word.find('=');
      if (equals == std::string_view::npos || equals + 1 == word.size()) {
        refuse(in_quotes(word) + " is no KEY=VALUE", number,
               "write SwitchName=… Switches=… or SwitchName=… Nodes=… without blanks around the '='");
      }
      const std::string key = lower_case(word.substr(0, equals));
      const std::string_view value = word.substr(equals + 1);
      if (key == "switchname" || key == "blockname") {
        if (!entry.name.empty())
          refuse("a second name " + in_quotes(value), number, "write one switch a line");
        entry.name = value;
        block = key == "blockname";
      } else if (key == "nodes") {
        entry.nodes = names_of(value, number);
        for (const std::string& name : entry.nodes) {
          if (!valid_host_name(name)) {
            refuse(in_quotes(name) + " is no host name", number,
                   "names have letters, digits, dots, dashes and underscores");
          }
        }
      } else if (key == "switches") {
        entry.switches = names_of(value, number);
      } else if (key == "blocksizes") {
        sizes = true;
      } else if (key != "linkspeed") {
        refuse("unknown key " + in_quotes(word.substr(0, equals)), number,
               "valid are SwitchName, Switches, Nodes, LinkSpeed, BlockName, BlockSizes");
      }
    }
    const bool empty = entry.nodes.empty() && entry.switches.empty();
    if (entry.name.empty() && empty) return;
    if (entry.name.empty()) refuse("there is no SwitchName", number, "begin the line with SwitchName=…");
    if (empty && !(block && sizes)) {
      refuse("switch " + in_quotes(entry.name) + " has neither Switches nor Nodes", number,
             "say what is connected to it");
    }
    // Slurm allows a switch's name as a list only where it stands as a child.
    if (!by_name_.emplace(entry.name, switches_.size()).second) {
      refuse("switch " + in_quotes(entry.name) + " is there twice, first at line " +
                 std::to_string(switches_[by_name_[entry.name]].line),
             number, "give it one line");
    }
    switches_.push_back(std::move(entry));
  }

  std::vector<std::string> names_of(std::string_view value, std::size_t line) {
    try {
      std::vector<std::string> names =
          expand_hostlist(value, std::min(kMaxHostlistNames, kMaxDescribedHosts - named_));
      named_ += names.size();
      return names;
    } catch (const HostlistError& error) {
      refuse("list " + in_quotes(value) + ": " + error.what(), line,
             "write names such as tux1 or tux[0-3,12,18-20]");
    }
  }

  Description describe() {
    if (switches_.empty()) {
      refuse("it is neither a JSON object nor does it have a line SwitchName=…", 0,
             "docs/cluster/topology.md describes the file");
    }
    reached_.assign(switches_.size(), false);
    for (std::size_t i = 0; i < switches_.size(); ++i) {
      const Switch& entry = switches_[i];
      for (const std::string& name : entry.switches) {
        const auto child = by_name_.find(name);
        if (child == by_name_.end()) {
          refuse("switch " + in_quotes(name) + " of " + in_quotes(entry.name) + " has no line", entry.line,
                 "add a line SwitchName=… for it");
        }
        if (switches_[child->second].parent != kNoParent) {
          refuse("switch " + in_quotes(name) + " is connected twice", entry.line,
                 "a tree is needed: a switch is below one other");
        }
        switches_[child->second].parent = i;
      }
    }
    Description description;
    for (std::size_t i = 0; i < switches_.size(); ++i) {
      if (switches_[i].parent == kNoParent) description.root.groups.push_back(group_of(i, 1));
    }
    // Switches that no root leads to have a parent each, so that the way up ends in a circle.
    const auto lost = std::find(reached_.begin(), reached_.end(), false);
    if (lost != reached_.end()) {
      auto at = static_cast<std::size_t>(lost - reached_.begin());
      for (std::size_t steps = 0; steps < switches_.size(); ++steps) at = switches_[at].parent;
      refuse("switch " + in_quotes(switches_[at].name) + " is below itself", switches_[at].line,
             "a tree is needed");
    }
    return description;
  }

  DescribedGroup group_of(std::size_t index, std::size_t depth) {
    const Switch& entry = switches_[index];
    if (depth + 1 >= kMaxTiers) {
      refuse("the switches are deeper than " + std::to_string(kMaxTiers) + " tiers", entry.line,
             "leave out switches of one switch");
    }
    reached_[index] = true;
    DescribedGroup group{entry.name, {}};
    for (const std::string& node : entry.nodes) {
      group.hosts.push_back({node, "line " + std::to_string(entry.line)});
    }
    for (const std::string& name : entry.switches) {
      group.groups.push_back(group_of(by_name_.at(name), depth + 1));
    }
    return group;
  }

  const std::string& path_;
  std::vector<Switch> switches_;
  std::vector<bool> reached_;
  std::map<std::string, std::size_t> by_name_;
  std::size_t named_ = 0;
};

}  // namespace

std::optional<SlurmAddress> parse_topology_address(std::string_view address, std::string_view pattern) {
  SlurmAddress parsed;
  while (true) {
    const std::size_t dot = pattern.find('.');
    const std::string_view level = pattern.substr(0, dot);
    if (dot == std::string_view::npos) {
      if (level != "node" || !valid_host_name(address)) return std::nullopt;
      parsed.node = address;
      return parsed;
    }
    const std::size_t end = address.find('.');
    if (level.empty() || level == "node" || end == std::string_view::npos ||
        parsed.switches.size() + 2 >= kMaxTiers) {
      return std::nullopt;
    }
    parsed.switches.emplace_back(address.substr(0, end));
    address.remove_prefix(end + 1);
    pattern.remove_prefix(dot + 1);
  }
}

Description parse_topology_conf(const std::string& text, const std::string& path) {
  return ConfReader(path).read(text);
}

}  // namespace ddl
