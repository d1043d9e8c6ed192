// What a communicator counts and tells: counters, the lines of -dump_iter, its JSON.
#include <algorithm>
#include <array>
#include <cstdio>

#include "engine/backoff.hpp"
#include "engine/communicator.hpp"
#include "support/json.hpp"
#include "support/kept_on_error.hpp"
#include "support/stopwatch.hpp"

namespace ddl {
namespace {

std::string format(const char* how, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), how, value);
  return text.data();
}

}  // namespace

void Communicator::account(const CallHeader& header, std::size_t bytes, std::string_view algorithm) {
  const double seconds = distributed_ ? std::chrono::duration<double>(ended_ - began_).count() : 0;
  history_.note(header, bytes, algorithm, seconds);
  if (timeline_) {
    const auto now = Timeline::Clock::now();
    const auto took =
        std::chrono::duration_cast<Timeline::Clock::duration>(std::chrono::duration<double>(seconds));
    timeline_->add(describe_call(history_.last_call) + " by " + history_.last_algorithm, Timeline::kCalls,
                   now - took, now, header.sequence);
    timeline_->flush();
  }
  if (header.kind == CallKind::kAllreduce && options_.dump_iter > 0 && distributed_ &&
      history_.counters.calls % static_cast<std::uint64_t>(options_.dump_iter) == 0) {
    dump(seconds);
  }
}

void Communicator::dump(double seconds) {
  // A rank that computes longer comes later and waits less: the one that waited least is the slowest.
  struct Times {
    double waited;
    int rank;
  };
  const KeptOnError<Times> mine(Times{history_.counters.wait_s - history_.wait_at_last_dump_s, rank_});
  history_.wait_at_last_dump_s = history_.counters.wait_s;
  const KeptOnError<std::vector<Times>> all(rank_ == 0 ? static_cast<std::size_t>(size()) : 0);
  MPI_Request request = MPI_REQUEST_NULL;
  int pending = 0;
  try {
    check_mpi(MPI_Igather(&*mine, sizeof *mine, MPI_BYTE, all->data(), sizeof *mine, MPI_BYTE, 0,
                          transport_->data(), &request),
              "MPI_Igather");
    scheduler_->watch(request, &pending);
    Backoff backoff(*detector_, *segment_, oversubscribed_ || background_);
    wait_while(
        backoff, [&] { return pending > 0; }, [&] { return scheduler_->progress(); });
  } catch (const Error& error) {
    abandon();
    fail(error);
  }
  if (rank_ != 0) return;
  const auto slowest = std::min_element(all->begin(), all->end(),
                                        [](const Times& a, const Times& b) { return a.waited < b.waited; });
  const std::string straggler = topology_.describe_rank(slowest->rank);
  std::string tiers = "host " + format("%.6f s", history_.counters.post_s + history_.counters.reduce_s +
                                                     history_.counters.gather_s);
  for (std::size_t t = 0; t + 1 < topology_.tiers().size(); ++t) {
    tiers += ", " + topology_.tiers()[t + 1] + format(" %.6f s", history_.tier_clocks[t].busy_s());
  }
  std::fprintf(stderr,
               "[DDL] call %llu: %s by %s in %.6f s; since the start: %s, waiting %.6f s, end to end %.6f s; "
               "straggler since the last line: %s\n",
               static_cast<unsigned long long>(history_.counters.calls),
               describe_call(history_.last_call).c_str(), history_.last_algorithm.c_str(), seconds,
               tiers.c_str(), history_.counters.wait_s, history_.counters.total_s, straggler.c_str());
}

std::string Communicator::stats_json() const {
  std::string out = "{\"calls\":" + std::to_string(history_.counters.calls) +
                    ",\"bytes\":" + std::to_string(history_.counters.bytes) +
                    ",\"messages_sent\":" + std::to_string(scheduler_ ? scheduler_->messages_sent() : 0) +
                    ",\"bytes_sent\":" + std::to_string(scheduler_ ? scheduler_->bytes_sent() : 0) +
                    ",\"seconds\":{\"total\":" + format("%.9g", history_.counters.total_s) +
                    ",\"post\":" + format("%.9g", history_.counters.post_s) +
                    ",\"reduce\":" + format("%.9g", history_.counters.reduce_s) +
                    ",\"gather\":" + format("%.9g", history_.counters.gather_s) +
                    ",\"wait\":" + format("%.9g", history_.counters.wait_s) + "},\"tiers\":[";
  for (std::size_t t = 0; t + 1 < topology_.tiers().size(); ++t) {
    out += (t > 0 ? ",{\"tier\":" : "{\"tier\":") + json_string(topology_.tiers()[t + 1]) + ",\"busy_s\":" +
           format("%.9g", t < history_.tier_clocks.size() ? history_.tier_clocks[t].busy_s() : 0) + "}";
  }
  out += "],\"topology\":{\"source\":" + json_string(topology_.source()) + ",\"notes\":[";
  for (std::size_t i = 0; i < topology_.notes().size(); ++i) {
    out += (i > 0 ? "," : "") + json_string(topology_.notes()[i]);
  }
  out += "]},\"algorithms\":{";
  bool first = true;
  for (const auto& [algorithm, calls] : history_.calls_by_algorithm) {
    out += (first ? "" : ",") + json_string(algorithm) + ":" + std::to_string(calls);
    first = false;
  }
  out += "},\"under_way\":";
  if (!under_way_since_) return out + "null}";
  return out + "{\"call\":" + json_string(describe_call(under_way_)) +
         ",\"number\":" + std::to_string(under_way_.sequence) +
         ",\"seconds\":" + format("%.9g", seconds_since(*under_way_since_)) + "}}";
}

std::string Communicator::to_json() const {
  std::string out = "{\"version\":" + json_string(ddl_version());
  out += ",\"rank\":" + std::to_string(rank_) + ",\"size\":" + std::to_string(size());
  out += ",\"mode\":" + json_string(std::string(1, options_.mode));
  out += ",\"options\":" + json_string(options_.text);
  out += ",\"timeout_s\":" + format("%.9g", options_.limits.timeout_s);
  out += ",\"late_s\":" + format("%.9g", options_.limits.late_s);
  out += ",\"patience_s\":" + format("%.9g", options_.limits.patience_s);
  out += ",\"kernels\":" + json_string(kernel_isa());
  out += ",\"topology\":" + topology_.to_json();
  out += ",\"transports\":" + std::string(!distributed_                  ? "[]"
                                          : context_->groups.size() == 1 ? "[\"shared memory\"]"
                                          : segment_->ranks() > 1        ? "[\"shared memory\",\"MPI\"]"
                                                                         : "[\"MPI\"]");
  out += ",\"device\":" + (devices_ ? devices_->to_json() : "null");
  out += ",\"staging_bytes\":" + std::to_string(distributed_ ? segment_->stage_bytes() : 0);
  out += ",\"waiting\":" + json_string(oversubscribed_ ? "yield" : "spin, then yield");
  out += ",\"last\":{\"call\":" +
         json_string(history_.counters.calls == 0 ? "none" : describe_call(history_.last_call)) +
         ",\"algorithm\":" + json_string(history_.last_algorithm) +
         ",\"seconds\":" + format("%.9g", history_.last_s) +
         ",\"chunks\":" + std::to_string(history_.last_chunking.chunks) +
         ",\"chunk_elements\":" + std::to_string(history_.last_chunking.chunk_elements) + "}";
  out += ",\"counters\":" + stats_json();
  out += ",\"failure\":" +
         (detector_ && detector_->failure() ? json_string(detector_->failure()->what()) : "null");
  return out + "}";
}

}  // namespace ddl
