#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ddl {

/// Order of names in which numbers count as numbers: h2 < h10 < h010, and "a" < "a1". Total: only equal texts
/// compare as equal.
/// @return negative, 0 or positive
int natural_compare(std::string_view a, std::string_view b);

/// The part before the first dot, in lower case.
std::string short_name(std::string_view name);
std::string lower_case(std::string_view text);

/// Letters, digits, dots, dashes and underscores, at most 255.
bool valid_host_name(std::string_view name);

/**
 * Finds hosts by name, case aside: by the whole name, or, where one of the two names has no domain, by the
 * part before the first dot.
 */
class HostIndex {
 public:
  static constexpr int kNone = -1;
  static constexpr int kAmbiguous = -2;

  /// @return false when the same whole name is there already; then nothing changes
  bool add(std::string_view name, int value);
  /// The value added for the host, kNone, or kAmbiguous when several names fit.
  int find(std::string_view name) const;

 private:
  struct Short {
    std::vector<int> values;
    int without_domain = kNone;
  };
  std::map<std::string, int> whole_;
  std::map<std::string, Short> short_;
};

}  // namespace ddl
