// Thousands of short runs of small clusters, each with delays, late ranks and losses drawn from a seed: every
// rank that is left ends with the right sums or with one error, the same for all, which names a rank that is
// lost.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/communicator.hpp"
#include "engine/private_communicator.hpp"
#include "virtual_cluster.hpp"

namespace ddl::sim {
namespace {

constexpr double kTimeout = 2;
constexpr double kPatience = 8;
/// A living rank shows it within this time, with the limits above (failure_detector.cpp): delays stay below.
constexpr Time kLongestDelay = 150 * kMillisecond;
/// Computes for longer than -timeout, and for less than -patience.
constexpr Time kLate = 4 * kSecond;
constexpr const char* kRefusal = "a buffer that nobody knows; in a test; pass another";
/// No wait takes so long: the start has 2 log2 P steps of a timeout each, ddl_finalize ten times the limits.
constexpr Time kDeadline = 200 * kSecond;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : of_(seed * 0x9e3779b97f4a7c15 + 1) {}
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : of_() % n; }
  bool chance(double share) { return static_cast<double>(of_() >> 11) * 0x1p-53 < share; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + below(values.size()));
  }

 private:
  std::mt19937_64 of_;
};

enum class Kind { kAllreduce, kBarrier, kBroadcast, kAllGather, kAllToAll };

struct Call {
  Kind kind = Kind::kAllreduce;
  std::size_t count = 0;
  int root = 0;
  bool average = false;
};

/// What a rank does beside being lost.
enum class Odd { kNothing, kRefuses, kDiffers };

struct Loss {
  int rank = 0;
  bool host = true;  ///< with all of its host
  int watched = 0;   ///< when this rank comes to a call, or begins
  int call = -1;     ///< -1: the start
  Time after = 0;
};

struct Schedule {
  std::vector<int> ranks_of;
  int racks_of = 0;
  Network network;
  std::vector<Call> calls;
  std::vector<Loss> losses;
  std::map<std::pair<int, int>, Time> computes;  ///< by rank and call, where it takes long
  std::vector<std::pair<int, std::pair<Time, Time>>> stalls;
  bool leaves_on_error = false;  ///< a rank with an error ends its process at once
  Odd odd = Odd::kNothing;       ///< in no schedule with losses
  int odd_rank = 0;
  std::size_t odd_call = 0;
  int ranks = 0;

  explicit Schedule(std::uint64_t seed) {
    Random random(seed);
    const int hosts = random.one_of({2, 2, 3, 4, 4, 5, 6, 8, 9, 12, 16, 24, 40, 64});
    const int most = hosts > 16 || random.chance(0.6) ? 1 : 3;
    for (int h = 0; h < hosts; ++h)
      ranks_of.push_back(1 + static_cast<int>(random.below(static_cast<std::uint64_t>(most))));
    for (const int n : ranks_of) ranks += n;
    if (hosts >= 4 && random.chance(0.4))
      racks_of = static_cast<int>(2 + random.below(static_cast<std::uint64_t>(hosts) / 2));
    network.latency = static_cast<Time>(2 + random.below(100)) * kMicrosecond;
    network.jitter = random.one_of<Time>({0, 10, 200}) * kMicrosecond;
    network.late_share = random.one_of({0.0, 0.01, 0.1});
    network.late_most = random.one_of<Time>({kMillisecond, kLongestDelay});
    // Every MPI sends a few bytes before they are waited for.
    network.eager_bytes = random.one_of<std::size_t>({512, 1000, 4096, 65536});
    const auto any_rank = [&] { return static_cast<int>(random.below(static_cast<std::uint64_t>(ranks))); };
    const auto length = static_cast<int>(1 + random.below(6));
    for (int c = 0; c < length; ++c) {
      Call& call = calls.emplace_back();
      call.kind = random.chance(0.6)
                      ? Kind::kAllreduce
                      : random.one_of({Kind::kBarrier, Kind::kBroadcast, Kind::kAllGather, Kind::kAllToAll});
      call.count = random.one_of<std::size_t>({1, 10, 1000, 5000, 40'000});
      if (random.chance(0.05)) call.count = 300'000;
      if (call.kind == Kind::kAllGather || call.kind == Kind::kAllToAll)
        call.count = std::min<std::size_t>(call.count, 1000);
      call.root = any_rank();
      call.average = random.chance(0.3);
    }
    const auto any_call = [&] { return static_cast<int>(random.below(calls.size() + 1)); };
    if (random.chance(0.3)) computes[{any_rank(), any_call()}] = kLate;
    for (int i = 0; i < 4; ++i)
      computes.emplace(std::pair(any_rank(), any_call()),
                       static_cast<Time>(random.below(2000)) * kMicrosecond);
    for (int i = random.one_of({0, 0, 1, 3}); i > 0; --i) {
      stalls.push_back({static_cast<int>(random.below(static_cast<std::uint64_t>(hosts))),
                        {static_cast<Time>(random.below(20 * kMillisecond)),
                         static_cast<Time>(random.below(kLongestDelay))}});
    }
    for (int i = random.one_of({0, 1, 1, 1, 1, 2}); i > 0; --i) {
      Loss& loss = losses.emplace_back();
      loss.rank = any_rank();
      loss.host = random.chance(0.7);
      loss.watched = random.chance(0.5) ? loss.rank : any_rank();
      loss.call = random.chance(0.2) ? -1 : any_call();
      loss.after =
          static_cast<Time>(random.below(random.one_of<std::uint64_t>({2, 100, 1000, 3000}) * kMicrosecond));
    }
    leaves_on_error = random.chance(0.3);
    if (!losses.empty() && !random.chance(0.2)) return;
    losses.clear();
    odd = random.one_of({Odd::kNothing, Odd::kRefuses, Odd::kDiffers});
    odd_rank = any_rank();
    odd_call = random.below(calls.size());
  }

  Options options() const {
    const auto hosts = static_cast<int>(ranks_of.size());
    const auto named = [](int from, int to) {
      return "\"hosts\":[\"h[" + std::to_string(from) + "-" + std::to_string(to) + "]\"]";
    };
    Options made;
    made.limits = {kTimeout, kTimeout / 2, kPatience};
    std::string text =
        R"({"version":1,"tiers":[{"name":"host"},{"name":"rack","bandwidth_mbit":8000,"latency_us":20})";
    if (racks_of > 0) text += R"(,{"name":"cluster","bandwidth_mbit":4000,"latency_us":30})";
    text += "],";
    if (racks_of == 0) {
      text += named(0, hosts - 1);
    } else {
      text += "\"groups\":[";
      for (int from = 0; from < hosts; from += racks_of) {
        text += (from > 0 ? ",{" : "{") + named(from, std::min(from + racks_of, hosts) - 1) + "}";
      }
      text += "]";
    }
    made.topology = text + "}";
    return made;
  }
};

/// What a rank came to.
struct Outcome {
  bool over = false;
  std::string error;  ///< empty: none
  int call = -1;      ///< in which it was
  std::string defect;
  Time at = 0;
};

float value_of(int rank, std::size_t i, std::size_t call) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 7 + i * 3 + call) % 17);
}

/// @return what is wrong with the result; empty: nothing
std::string make(Communicator& all, const Call& call, std::size_t number) {
  const int rank = all.rank();
  const auto ranks = static_cast<std::size_t>(all.size());
  const auto wrong = [&](std::size_t i, float found, float expected) {
    return "call " + std::to_string(number) + ", element " + std::to_string(i) + ": " +
           std::to_string(found) + " instead of " + std::to_string(expected);
  };
  const auto values = [&](int of, std::size_t count) {
    std::vector<float> made(count);
    for (std::size_t i = 0; i < count; ++i) made[i] = value_of(of, i, number);
    return made;
  };
  switch (call.kind) {
    case Kind::kBarrier:
      all.barrier();
      return "";
    case Kind::kAllreduce: {
      std::vector<float> x = values(rank, call.count);
      void* memory = x.data();
      all.allreduce(BufferList(&memory, &call.count, 1, DDL_TYPE_FLOAT), {}, DDL_TYPE_FLOAT,
                    call.average ? DDL_OP_AVG : DDL_OP_SUM);
      for (std::size_t i = 0; i < call.count; i += 1 + call.count / 500) {
        float expected = 0;
        for (std::size_t r = 0; r < ranks; ++r) expected += value_of(static_cast<int>(r), i, number);
        if (call.average) expected /= static_cast<float>(ranks);
        // Sums of small whole numbers are exact, and divided in one step.
        if (std::abs(x[i] - expected) > (call.average ? 1e-5F * expected : 0))
          return wrong(i, x[i], expected);
      }
      return "";
    }
    case Kind::kBroadcast: {
      std::vector<float> x = values(rank, call.count);
      void* memory = x.data();
      all.broadcast(BufferList(&memory, &call.count, 1, DDL_TYPE_FLOAT), {}, DDL_TYPE_FLOAT, call.root);
      const std::vector<float> expected = values(call.root, call.count);
      for (std::size_t i = 0; i < call.count; ++i) {
        if (x[i] != expected[i]) return wrong(i, x[i], expected[i]);
      }
      return "";
    }
    case Kind::kAllGather: {
      const std::vector<float> x = values(rank, call.count);
      std::vector<float> out(call.count * ranks);
      all.all_gather(x.data(), out.data(), call.count, DDL_TYPE_FLOAT, nullptr);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const float expected = value_of(static_cast<int>(i / call.count), i % call.count, number);
        if (out[i] != expected) return wrong(i, out[i], expected);
      }
      return "";
    }
    case Kind::kAllToAll: {
      const std::vector<float> x = values(rank, call.count * ranks);
      std::vector<float> out(call.count * ranks);
      all.all_to_all(x.data(), out.data(), call.count, DDL_TYPE_FLOAT, nullptr);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t at = static_cast<std::size_t>(rank) * call.count + i % call.count;
        const float expected = value_of(static_cast<int>(i / call.count), at, number);
        if (out[i] != expected) return wrong(i, out[i], expected);
      }
      return "";
    }
  }
  return "no such call";
}

struct Tally {
  std::uint64_t schedules = 0;
  std::uint64_t ranks = 0;
  std::uint64_t calls = 0;   ///< right
  std::uint64_t failed = 0;  ///< schedules that end with an error
  std::uint64_t in_start = 0;
  std::uint64_t late = 0;
  Time longest = 0;  ///< from the first loss to the last error
};

/// Runs a schedule. @return what is wrong with it; empty: nothing
std::string run(std::uint64_t seed, Tally& tally) {
  const Schedule schedule(seed);
  const Options options = schedule.options();
  Cluster cluster(schedule.ranks_of, schedule.network, seed);
  for (const auto& [host, stall] : schedule.stalls) cluster.stall_host(host, stall.first, stall.second);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(schedule.ranks));
  const auto come_to = [&](int rank, int call) {
    for (const Loss& loss : schedule.losses) {
      if (loss.watched != rank || loss.call != call) continue;
      const Time at = cluster.now() + loss.after;
      if (loss.host) {
        cluster.lose_host(cluster.host_of(loss.rank), at);
      } else {
        cluster.lose_process(loss.rank, at);
      }
    }
    const auto computes = schedule.computes.find({rank, call});
    if (computes != schedule.computes.end()) cluster.compute(computes->second);
  };
  const auto all_over = [&] {
    for (int r = 0; r < schedule.ranks; ++r) {
      if (!cluster.lost(r) && !outcomes[static_cast<std::size_t>(r)].over) return false;
    }
    return true;
  };
  const std::vector<int> waiting = cluster.run(
      [&](int rank) {
        Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
        std::optional<Communicator> all;
        try {
          come_to(rank, -1);
          const MPI_Comm base = private_communicator(MPI_COMM_WORLD, kTimeout);
          all.emplace(base, options);
          for (std::size_t c = 0; c < schedule.calls.size(); ++c) {
            outcome.call = static_cast<int>(c);
            come_to(rank, static_cast<int>(c));
            Call call = schedule.calls[c];
            if (schedule.odd_rank == rank && schedule.odd_call == c) {
              if (schedule.odd == Odd::kRefuses) {
                all->refuse(
                    Error(DDL_ERR_ARGUMENT, "a buffer that nobody knows", "in a test", "pass another"));
              }
              if (schedule.odd == Odd::kDiffers) call = {Kind::kAllreduce, call.count + 1};
            }
            outcome.defect = make(*all, call, c);
            if (!outcome.defect.empty()) break;
            ++tally.calls;
          }
          outcome.call = static_cast<int>(schedule.calls.size());
          come_to(rank, outcome.call);
          if (outcome.defect.empty()) all->finalize();
        } catch (const std::exception& error) {
          outcome.error = error.what();
        }
        outcome.over = true;
        outcome.at = cluster.now();
        if (!outcome.error.empty()) {
          if (all) {
            try {
              all->barrier();
              outcome.defect = "a call after the error succeeded";
            } catch (const std::exception& again) {
              if (again.what() != outcome.error)
                outcome.defect = "later it says: " + std::string(again.what());
            }
          }
          if (schedule.leaves_on_error) return;
        }
        // As MPI_Finalize does, which every program calls.
        while (!all_over()) cluster.compute(200 * kMillisecond);
      },
      kDeadline);

  ++tally.schedules;
  tally.ranks += outcomes.size();
  Time first_loss = kDeadline;
  std::string lost;
  std::set<int> lost_hosts;
  bool any_lost = false;
  for (int r = 0; r < schedule.ranks; ++r) {
    if (!cluster.lost(r)) continue;
    any_lost = true;
    lost += " " + std::to_string(r);
    lost_hosts.insert(cluster.host_of(r));
    first_loss = std::min(first_loss, cluster.lost_at(r));
  }
  std::string wrong;
  const auto note = [&](const std::string& text) { wrong += "  " + text + "\n"; };
  for (const int rank : waiting) {
    if (!outcomes[static_cast<std::size_t>(rank)].over) {
      note("rank " + std::to_string(rank) + " still waits after " + std::to_string(kDeadline / kSecond) +
           " s, in call " + std::to_string(outcomes[static_cast<std::size_t>(rank)].call));
    }
  }
  // In the start each names the rank of a lost host that it waited for.
  const auto first_lost_of = [&](int rank) {
    const std::vector<int>& mates = cluster.ranks_of(cluster.host_of(rank));
    return *std::find_if(mates.begin(), mates.end(), [&](int mate) { return cluster.lost(mate); });
  };
  const auto as_one_name = [&](const std::string& text) {
    if (text.find("; in ddl_init;") == std::string::npos) return text;
    for (int r = 0; r < schedule.ranks; ++r) {
      const std::string said = " rank " + std::to_string(r) + " did not answer";
      if (!cluster.lost(r) || text.find(said) == std::string::npos) continue;
      return "of host " + std::to_string(cluster.host_of(r)) + " rank " + std::to_string(first_lost_of(r)) +
             " did not answer";
    }
    return text;
  };
  std::map<std::string, std::vector<int>> errors;
  Time last = 0;
  bool in_start = false;
  for (int r = 0; r < schedule.ranks; ++r) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(r)];
    if (cluster.lost(r)) continue;
    if (!outcome.defect.empty()) note("rank " + std::to_string(r) + ": " + outcome.defect);
    if (outcome.error.empty()) continue;
    errors[as_one_name(outcome.error)].push_back(r);
    last = std::max(last, outcome.at);
    in_start = in_start || outcome.call < 0;
  }
  const bool odd = schedule.odd != Odd::kNothing;
  if (!errors.empty() && !any_lost && !odd) note("no rank was lost, but:");
  // Two losses in the start are two failures for those who notice one of them only.
  const std::size_t failures = in_start ? std::max<std::size_t>(lost_hosts.size(), 1) : 1;
  const bool many = errors.size() > failures;
  if (many) note(std::to_string(errors.size()) + " names for one failure:");
  if (odd) {
    const std::string wanted = schedule.odd == Odd::kRefuses ? kRefusal : "ranks made different calls: ";
    for (const auto& [text, ranks] : errors) {
      const bool known = text.find(wanted) != std::string::npos;
      if (!known || ranks.size() != outcomes.size()) note(Topology::describe_ranks(ranks) + ": " + text);
    }
    if (errors.empty()) note("nobody was told what rank " + std::to_string(schedule.odd_rank) + " did");
    errors.clear();
  }
  for (const auto& [text, ranks] : errors) {
    // Until all have come nobody can know who has not.
    bool names = in_start && (text.find(" one of the ranks did not answer") != std::string::npos ||
                              text.find(" a rank did not answer") != std::string::npos);
    names = names || (in_start && text.find(" not all ranks called ddl_init") != std::string::npos);
    for (int r = 0; r < schedule.ranks; ++r) {
      const std::string name = "rank " + std::to_string(r);
      const std::size_t at = text.find(name);
      // What comes after "in " is the call, and a text on the start names whom it waited for.
      names = names || (cluster.lost(r) && at != std::string::npos && !std::isdigit(text[at + name.size()]));
    }
    if (!names) note("an error that names none of the lost ranks:");
    if (!names || many || !any_lost) note(Topology::describe_ranks(ranks) + ": " + text);
  }
  if (!errors.empty()) {
    ++tally.failed;
    if (in_start) ++tally.in_start;
    if (any_lost) tally.longest = std::max(tally.longest, last - first_loss);
  }
  if (wrong.empty()) return "";
  for (const auto& [of, time] : schedule.computes) {
    if (time == kLate)
      note("rank " + std::to_string(of.first) + " is late in call " + std::to_string(of.second));
  }
  for (const Loss& loss : schedule.losses) {
    note("rank " + std::to_string(loss.rank) + (loss.host ? " and its host are" : " is") +
         " lost when rank " + std::to_string(loss.watched) + " comes to call " + std::to_string(loss.call));
  }
  std::string layout;
  for (const int n : schedule.ranks_of) layout += (layout.empty() ? "" : ",") + std::to_string(n);
  return "seed " + std::to_string(seed) + ": hosts of " + layout + " ranks" +
         (schedule.racks_of > 0 ? " in racks of " + std::to_string(schedule.racks_of) : "") +
         "; lost:" + (lost.empty() ? " none" : lost) + "\n" + wrong +
         "  again: DDL_SIMULATION_SEED=" + std::to_string(seed) +
         " ddl_simulation --gtest_filter=FailureSchedules.*\n";
}

/// Warnings of ranks that are late are as many as there are such ranks.
class QuietErrors {
 public:
  QuietErrors() : kept_(dup(2)) {
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 2);
    close(nowhere);
  }
  ~QuietErrors() {
    std::fflush(stderr);
    dup2(kept_, 2);
    close(kept_);
  }
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;

 private:
  const int kept_;
};

TEST(FailureSchedules, EndWithTheRightSumsOrOneErrorForAll) {
  Tally tally;
  if (std::getenv("DDL_SIMULATION_SEED") != nullptr) {
    const std::string wrong = run(setting("DDL_SIMULATION_SEED", 0), tally);
    EXPECT_EQ(wrong, "");
    return;
  }
  const std::uint64_t first = setting("DDL_SIMULATION_FIRST", 1);
  const std::uint64_t schedules = setting("DDL_SIMULATION_SCHEDULES", 300);
  const double seconds = static_cast<double>(setting("DDL_SIMULATION_SECONDS", 60));
  const auto start = std::chrono::steady_clock::now();
  int failures = 0;
  const QuietErrors quiet;
  for (std::uint64_t seed = first; seed < first + schedules && failures < 20; ++seed) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) break;
    const std::string wrong = run(seed, tally);
    if (wrong.empty()) continue;
    ++failures;
    ADD_FAILURE() << wrong;
  }
  std::printf(
      "%llu schedules of %llu ranks, %llu right calls of a rank; %llu ended with an error, %llu of them in "
      "the "
      "start; from a loss to the last error at most %.1f s\n",
      static_cast<unsigned long long>(tally.schedules), static_cast<unsigned long long>(tally.ranks),
      static_cast<unsigned long long>(tally.calls), static_cast<unsigned long long>(tally.failed),
      static_cast<unsigned long long>(tally.in_start), static_cast<double>(tally.longest) * 1e-9);
}

}  // namespace
}  // namespace ddl::sim
