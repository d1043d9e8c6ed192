#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collective/wire/wire_format.hpp"
#include "engine/wait_limits.hpp"
#include "plan/planner.hpp"

namespace ddl {

/// Racks that were measured: a number for each, by Host::key.
using HostRacks = std::map<std::string, int>;

/// The parsed form of DDL_OPTIONS.
struct Options {
  char mode = 'p';
  /// What -mode says after the colon, innermost first: ranks a host, hosts a rack, racks an aisle, aisles.
  /// Empty when the topology is to be discovered.
  std::vector<int> dims;
  /// Where the topology comes from, as in TopologyRequest::source.
  std::string topology;
  Determinism determinism = Determinism::kRun;
  WireFormat wire = WireFormat::kFull;
  std::string timeline;  ///< file for a timeline, its rank is put in; empty: none
  WaitLimits limits;
  int dump_iter = 0;
  int dev_sync = 0;
  int rebind_iter = 0;
  int dbg_level = 0;
  std::string text;     ///< as given
  std::string refused;  ///< the error that they are, which the other ranks are to be told; empty: none
  /// Of a group: what the whole job has measured.
  std::shared_ptr<const HostRacks> known_racks;

  bool operator==(const Options&) const = default;
};

/// Parses a list such as "-mode p:2x2 -timeout 60". Options may start with one dash or two, and "-mode=p" is
/// "-mode p".
/// @param base  what holds where the list says nothing. Its sizes stay where the list names a mode without
///              sizes, and no topology.
/// @throws Error (DDL_ERR_OPTION) that names the offending word and what is valid instead.
Options parse_options(std::string_view text, const Options& base = {});

/// Whether both make the same world, however they are written.
bool same_effect(const Options& one, const Options& other);

/// @throws Error (DDL_ERR_OPTION) `invalid dim size=A usr_size=B dim[0]=…` when the dims' product is not
/// `size`.
void check_dims(const Options& options, int size);

}  // namespace ddl
