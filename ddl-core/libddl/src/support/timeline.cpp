#include "support/timeline.hpp"

#include <cerrno>
#include <cstring>

#include "support/error.hpp"
#include "support/json.hpp"

namespace ddl {
namespace {

std::string path_of(const std::string& path, int rank) {
  const std::string part = ".rank" + std::to_string(rank);
  const std::size_t slash = path.rfind('/');
  const std::size_t dot = path.rfind('.');
  const bool extension =
      dot != std::string::npos && (slash == std::string::npos || dot > slash + 1) && dot > 0;
  return extension ? path.substr(0, dot) + part + path.substr(dot) : path + part;
}

double microseconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e3; }

}  // namespace

Timeline::Timeline(const std::string& path, int rank, const std::string& host,
                   const std::vector<std::string>& tiers)
    : rank_(rank) {
  const std::string own = path_of(path, rank);
  file_ = std::fopen(own.c_str(), "we");
  if (file_ == nullptr) {
    throw Error(DDL_ERR_OPTION, "cannot write the timeline " + own + ": " + std::strerror(errno),
                "in -timeline of DDL_OPTIONS", "give a path in a folder that exists on every host");
  }
  offset_us_ = microseconds(std::chrono::system_clock::now().time_since_epoch()) -
               microseconds(Clock::now().time_since_epoch());
  const auto name = [&](const char* what, int lane, const std::string& text) {
    std::fprintf(file_, "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":%s}},\n",
                 what, rank_, lane, json_string(text).c_str());
  };
  std::fputs("[\n", file_);
  name("process_name", 0, "rank " + std::to_string(rank) + " on " + host);
  name("thread_name", kCalls, "calls");
  name("thread_name", kMemory, "memory");
  for (std::size_t t = 0; t < tiers.size(); ++t) {
    name("thread_name", kFirstTier + static_cast<int>(t), "tier " + tiers[t]);
  }
}

Timeline::~Timeline() {
  // The last event needs no comma, and the format none of the array's end but for strict readers.
  std::fprintf(file_, "{\"name\":\"end\",\"ph\":\"i\",\"s\":\"p\",\"pid\":%d,\"tid\":0,\"ts\":%.3f}\n]\n",
               rank_, microseconds(Clock::now().time_since_epoch()) + offset_us_);
  std::fclose(file_);
}

void Timeline::add(std::string_view what, int lane, Clock::time_point from, Clock::time_point to,
                   std::uint64_t number) {
  std::fprintf(file_,
               "{\"name\":%s,\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{"
               "\"number\":%llu}},\n",
               json_string(what).c_str(), rank_, lane, microseconds(from.time_since_epoch()) + offset_us_,
               microseconds(to - from), static_cast<unsigned long long>(number));
}

}  // namespace ddl
