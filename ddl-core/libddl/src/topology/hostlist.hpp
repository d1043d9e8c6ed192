#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ddl {

/// What is wrong with a host list; the caller knows where it stands.
class HostlistError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr std::size_t kMaxHostlistNames = 100'000;

/**
 * Names of a host list as Slurm and pdsh write it: `a,node[01-16],gpu[1,4-6]-ib[0-1]`. Leading zeros are
 * kept, several brackets in one name multiply out, the order is that of the text.
 * @param limit  most names that it may hold
 * @throws HostlistError for unbalanced brackets, empty or backward ranges, empty names, and too many names
 */
std::vector<std::string> expand_hostlist(std::string_view text, std::size_t limit = kMaxHostlistNames);

}  // namespace ddl
