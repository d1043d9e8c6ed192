#include "topology/rack_evidence.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "topology/grouping.hpp"

namespace ddl {
namespace {

constexpr const char* kFormat = "ddl-racks-1";
constexpr double kTolerance = 1.25;

}  // namespace

std::string RackEvidence::to_text() const {
  std::size_t hosts = 0;
  for (const auto& group : groups) hosts += group.size();
  std::vector<std::size_t> rack(hosts);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const int host : groups[g]) rack[static_cast<std::size_t>(host)] = g;
  }
  char figures[80];
  std::snprintf(figures, sizeof figures, "%s\n%.6g %.6g\n", kFormat, near, far);
  std::string text = figures;
  for (std::size_t h = 0; h < hosts; ++h) text += (h > 0 ? " " : "") + std::to_string(rack[h]);
  return text + "\n";
}

std::optional<RackEvidence> RackEvidence::from_text(const std::string& text, std::size_t hosts) {
  std::istringstream in(text);
  std::string format;
  RackEvidence found;
  if (!(in >> format >> found.near >> found.far) || format != kFormat) return {};
  if (!(found.near > 0) || !(found.far > 0) || !std::isfinite(found.near) || !std::isfinite(found.far)) {
    return {};
  }
  for (std::size_t h = 0; h < hosts; ++h) {
    std::size_t rack = 0;
    // Racks are numbered by their first hosts.
    if (!(in >> rack) || rack > found.groups.size()) return {};
    if (rack == found.groups.size()) found.groups.emplace_back();
    found.groups[rack].push_back(static_cast<int>(h));
  }
  std::string more;
  if (hosts == 0 || in >> more) return {};
  return found;
}

bool RackEvidence::contradicted_by(double new_near, double new_far) const {
  if (!(new_near > 0) || !(new_far > 0)) return true;
  const double change = (new_near / new_far) / (near / far);
  return change > kTolerance || change < 1 / kTolerance;
}

bool RackEvidence::contradicts_itself() const {
  if (!(near > 0) || !(far > 0)) return true;
  return groups.size() == 1 && std::max(near, far) >= kMinBandwidthRatio * std::min(near, far);
}

bool racks_suspected(std::vector<double> mbit) {
  const auto [least, most] = std::minmax_element(mbit.begin(), mbit.end());
  return *most >= kMinBandwidthRatio * *least;
}

bool plausible_racks(const std::vector<std::vector<int>>& groups) {
  std::size_t hosts = 0;
  std::size_t alone = 0;
  for (const auto& group : groups) {
    hosts += group.size();
    alone += group.size() == 1 ? 1 : 0;
  }
  return groups.size() > 1 && groups.size() < hosts && 4 * alone <= hosts;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace ddl
