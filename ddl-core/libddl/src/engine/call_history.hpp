#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collective/collective_context.hpp"
#include "collective/tier_clock.hpp"
#include "plan/chunking.hpp"
#include "transport/call_header.hpp"

namespace ddl {

/// What a communicator remembers of the calls that it has made.
class CallHistory {
 public:
  Counters counters;
  std::vector<TierClock> tier_clocks;  ///< by tier, innermost first
  /// Calls by the name of their algorithm, without what follows a semicolon.
  std::map<std::string, std::uint64_t, std::less<>> calls_by_algorithm;
  CallHeader last_call;
  std::string last_algorithm = "none";
  double last_s = 0;
  Chunking last_chunking;
  double wait_at_last_dump_s = 0;

  /// @param bytes  of the call. @param seconds  that it took
  void note(const CallHeader& header, std::size_t bytes, std::string_view algorithm, double seconds) {
    ++counters.calls;
    counters.bytes += bytes;
    counters.total_s += seconds;
    if (algorithm != last_algorithm || same_algorithm_ == nullptr) {
      last_algorithm = algorithm;
      const std::string_view name = algorithm.substr(0, algorithm.find(';'));
      auto found = calls_by_algorithm.find(name);
      if (found == calls_by_algorithm.end()) found = calls_by_algorithm.emplace(name, 0).first;
      same_algorithm_ = &found->second;
    }
    ++*same_algorithm_;
    last_call = header;
    last_s = seconds;
  }

 private:
  std::uint64_t* same_algorithm_ = nullptr;  ///< where calls by last_algorithm are counted
};

}  // namespace ddl
