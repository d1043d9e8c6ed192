#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ddl {

/// What is known of the racks of a set of hosts, and from which bandwidths (Mbit/s).
struct RackEvidence {
  std::vector<std::vector<int>> groups;  ///< indices of the hosts; every host once; one group: no racks
  double near = 0;  ///< between hosts of a group; without racks between hosts next to each other
  double far = 0;   ///< between hosts of different groups; without racks between distant ones

  /// A text for a file, and back. @return none where the text is not of that many hosts
  std::string to_text() const;
  static std::optional<RackEvidence> from_text(const std::string& text, std::size_t hosts);

  /// Whether two new figures disagree with the ratio of the old ones by more than a quarter.
  bool contradicted_by(double new_near, double new_far) const;
  /// One group, although hosts near and far differ as if there were several; or figures are missing.
  bool contradicts_itself() const;
};

/// Whether bandwidths differ so much that there may be racks. @param mbit  at least one
bool racks_suspected(std::vector<double> mbit);

/// Whether groups are worth being called racks: some are of several hosts, and at most every fourth host is
/// alone.
bool plausible_racks(const std::vector<std::vector<int>>& groups);

/// The middle one; 0 of none.
double median(std::vector<double> values);

}  // namespace ddl
