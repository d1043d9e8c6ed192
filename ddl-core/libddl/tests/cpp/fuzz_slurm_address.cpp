// SLURM_TOPOLOGY_ADDR with its pattern (before the first newline the address, after it the pattern), and host
// lists.

#include "fuzz_target.hpp"
#include "topology/hostlist.hpp"
#include "topology/slurm.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string address = text.substr(0, end);
  const std::string pattern = end < text.size() ? text.substr(end + 1) : "";
  if (const auto parsed = ddl::parse_topology_address(address, pattern)) {
    std::string again;
    for (const std::string& name : parsed->switches) again += name + '.';
    require(again + parsed->node == address);
    require(parsed->switches.size() < ddl::kMaxTiers);
  }
  try {
    constexpr std::size_t limit = 2000;
    const std::vector<std::string> names = ddl::expand_hostlist(address, limit);
    require(!names.empty() && names.size() <= limit);
    for (const std::string& name : names) {
      require(!name.empty() && name.find_first_of("[],") == std::string::npos);
    }
    // Names without brackets stand for themselves.
    if (address.find('[') == std::string::npos) {
      std::string again;
      for (const std::string& name : names) again += (again.empty() ? "" : ",") + name;
      require(again == address);
    }
  } catch (const ddl::HostlistError& error) {
    require(*error.what() != 0);
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {"s0.s2.node7\nswitch.switch.node", "n1.site.org\nnode", "b1.n1\nblock.node",
          "s[0-3].s1.n\nswitch.switch.node", "a,n[01-16],gpu[1,4-6]-ib[0-1]\n"};
}

std::vector<std::string> fuzz_words() {
  return {".",
          "..",
          "switch.",
          "node",
          "\n",
          "[",
          "]",
          "[1-3]",
          "[0-9][0-9]",
          ",",
          "-",
          "001-010",
          "n",
          "18446744073709551615",
          "999999999999999999",
          "\xff",
          std::string(1, '\0')};
}
