#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace ddl {

/**
 * What a rank did when, as a file in Chrome's trace event format (the JSON array of "Trace Event Format",
 * Google 2016), which chrome://tracing and Perfetto show. One process of the picture is a rank, one line of
 * it a lane: the calls, the memory of the host, and every tier.
 *
 * Written as it goes, so that a rank that is killed leaves all but its last call. Times are those of the
 * system's clock in microseconds: ranks of several hosts are as well aligned as their clocks.
 */
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kCalls = 0;
  static constexpr int kMemory = 1;
  static constexpr int kFirstTier = 2;

  /// @param path   `.rankN` is put in before its last dot
  /// @param tiers  names of the tiers above the innermost
  /// @throws Error (DDL_ERR_OPTION) when the file cannot be written
  Timeline(const std::string& path, int rank, const std::string& host, const std::vector<std::string>& tiers);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  void add(std::string_view what, int lane, Clock::time_point from, Clock::time_point to,
           std::uint64_t number);
  void flush() { std::fflush(file_); }

 private:
  std::FILE* file_ = nullptr;
  int rank_;
  double offset_us_ = 0;  ///< from the steady clock to the system's
};

/// Adds its lifetime to a timeline, if there is one.
class TimelineSpan {
 public:
  TimelineSpan(Timeline* timeline, const char* what, int lane, std::uint64_t number)
      : timeline_(timeline), what_(what), lane_(lane), number_(number) {
    if (timeline_ != nullptr) from_ = Timeline::Clock::now();
  }
  ~TimelineSpan() {
    if (timeline_ != nullptr) timeline_->add(what_, lane_, from_, Timeline::Clock::now(), number_);
  }
  TimelineSpan(const TimelineSpan&) = delete;
  TimelineSpan& operator=(const TimelineSpan&) = delete;

 private:
  Timeline* timeline_;
  const char* what_;
  int lane_;
  std::uint64_t number_;
  Timeline::Clock::time_point from_;
};

}  // namespace ddl
