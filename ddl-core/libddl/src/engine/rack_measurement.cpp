#include "engine/rack_measurement.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>

#include "engine/cache_folder.hpp"
#include "topology/grouping.hpp"
#include "topology/host_names.hpp"
#include "topology/matchings.hpp"
#include "topology/rack_evidence.hpp"
#include "transport/bandwidth_probe.hpp"
#include "transport/pair_probe.hpp"

namespace ddl {
namespace {

constexpr std::size_t kMostRounds = 63;
constexpr std::size_t kFewestRounds = 8;
/// Seconds for everything; on hosts that are slow to answer fewer rounds are made.
constexpr double kBudget = 2;
constexpr int kConfirmations = 3;
constexpr double kAnswerSeconds = 30;
/// For the ranks that wait while others measure.
constexpr double kResultSeconds = 120;
/// For all pairs of hosts.
constexpr double kAllPairsBudget = 10;
constexpr const char* kWhere = "in the measurement of the topology";
constexpr const char* kRemedy = "look at the output of the others, or describe the topology in a file";

double round_seconds(std::size_t hosts) {
  if (hosts <= 8) return 3 * kMinProbeSeconds;
  return hosts <= 16 ? 1.5 * kMinProbeSeconds : kMinProbeSeconds;
}

/// Hosts in the order of their names, as racks are mostly numbered through.
std::vector<std::size_t> by_name(const std::vector<Host>& hosts) {
  std::vector<std::size_t> order(hosts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const int compared = natural_compare(hosts[a].name, hosts[b].name);
    return compared != 0 ? compared < 0 : hosts[a].key < hosts[b].key;
  });
  return order;
}

std::string path_of(const std::vector<Host>& hosts, const std::vector<std::size_t>& order) {
  const std::string folder = cache_folder();
  if (folder.empty()) return "";
  std::string text;
  for (const std::size_t h : order) text += hosts[h].name + ' ';
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  text += std::string(version.data(), std::strcspn(version.data(), "\n"));
  return folder + "/racks-" + fingerprint_of(text);
}

/// What the root of a tree says, on all.
template <class T>
T told(const TreeExchange& tree, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::string text = tree.broadcast(std::string(reinterpret_cast<const char*>(&value), sizeof value));
  std::memcpy(&value, text.data(), sizeof value);
  return value;
}

using Groups = std::vector<std::vector<int>>;

/// The root's groups; every rank knows how many hosts there are.
Groups told_groups(const TreeExchange& tree, std::size_t hosts, const Groups& groups) {
  std::vector<std::int32_t> rack(hosts);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const int h : groups[g]) rack[static_cast<std::size_t>(h)] = static_cast<std::int32_t>(g);
  }
  const std::size_t bytes = hosts * sizeof(std::int32_t);
  const std::string text = tree.broadcast(std::string(reinterpret_cast<const char*>(rack.data()), bytes));
  std::memcpy(rack.data(), text.data(), bytes);
  Groups all(static_cast<std::size_t>(*std::max_element(rack.begin(), rack.end())) + 1);
  for (std::size_t h = 0; h < hosts; ++h) {
    all[static_cast<std::size_t>(rack[h])].push_back(static_cast<int>(h));
  }
  return all;
}

/// The hosts' leaders measure, rank 0 decides, and the others are told.
class RackMeasurement {
 public:
  /// @param leaders  of the hosts in the order of their numbers here
  RackMeasurement(MPI_Comm comm, const std::vector<int>& leaders, const TreeExchange& tree)
      : tree_(tree), hosts_(leaders.size()), seconds_(round_seconds(leaders.size())), probe_(comm, leaders) {}

  std::size_t rounds() const { return rounds_; }

  /// Whether what is known still holds. The same on all ranks.
  bool still_true(const RackEvidence& known) {
    const auto [near, far] = near_and_far(known.groups);
    return told(tree_, !known.contradicted_by(near, far));
  }

  /// The same on all ranks.
  RackEvidence find() {
    RackEvidence found = look();
    // Of one group near and far figures that differ tell that something has disturbed the measurement.
    if (told(tree_, tree_.is_root() && found.contradicts_itself())) found = look();
    return found;
  }

 private:
  RackEvidence look() {
    RackEvidence flat;
    flat.groups.emplace_back(hosts_);
    std::iota(flat.groups[0].begin(), flat.groups[0].end(), 0);
    const std::vector<Matching> doubling = doubling_matchings(hosts_);
    const std::vector<Pair> first = pairs_of(doubling);
    if (told(tree_, tree_.is_root() && racks_suspected(rates(first)))) {
      std::vector<Pair> pairs = pairs_of(wide_matchings(affordable_rounds()));
      // These leave hosts idle, and thus room for the others: only where not all hosts have met.
      if (pairs.size() < hosts_ * (hosts_ - 1)) pairs.insert(pairs.end(), first.begin(), first.end());
      RackEvidence found;
      found.groups = told_groups(tree_, hosts_, tree_.is_root() ? group(pairs) : Groups{});
      if (plausible_racks(found.groups) && confirmed(found)) return found;
    }
    std::tie(flat.near, flat.far) = near_and_far(flat.groups);
    return flat;
  }

  struct Pair {
    std::uint32_t a;
    std::uint32_t b;
    float mbit;
  };

  /// All pairs' figures, on rank 0.
  std::vector<Pair> pairs_of(const std::vector<Matching>& matchings) {
    std::vector<Pair> mine;
    for (const Matching& matching : matchings) {
      const auto sample = probe_.round(matching, seconds_);
      // One figure of each host and round, so that all ranks send as many; of a pair either's.
      Pair pair{0, 0, 0};
      if (sample) {
        pair = {static_cast<std::uint32_t>(probe_.self()), static_cast<std::uint32_t>(sample->partner),
                static_cast<float>(sample->mbit)};
      }
      mine.push_back(pair);
    }
    rounds_ += matchings.size();
    const std::string all =
        tree_.reduce(std::string(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Pair)),
                     [](std::string a, const std::string& b) { return std::move(a.append(b)); });
    std::vector<Pair> pairs(all.size() / sizeof(Pair));
    if (!all.empty()) std::memcpy(pairs.data(), all.data(), all.size());
    std::erase_if(pairs, [](const Pair& pair) { return pair.a == pair.b; });
    return pairs;
  }

  static std::vector<double> rates(const std::vector<Pair>& pairs) {
    std::vector<double> mbit;
    for (const Pair& pair : pairs) mbit.push_back(pair.mbit);
    return mbit;
  }

  /// Rounds of the circle method: all, or as many as time allows.
  std::vector<Matching> wide_matchings(std::size_t most) const {
    const std::size_t all = circle_rounds(hosts_);
    const std::size_t some = std::min(all, most);
    std::vector<Matching> matchings;
    for (std::size_t i = 0; i < some; ++i) matchings.push_back(circle_matching(hosts_, i * all / some));
    return matchings;
  }

  /// As rank 0 sees it.
  std::size_t affordable_rounds() {
    const double spent = MPI_Wtime() - begun_;
    const double each = std::max(spent / static_cast<double>(std::max<std::size_t>(rounds_, 1)), seconds_);
    const double left = kBudget - spent - 2 * kConfirmations * each;
    return told(tree_,
                std::clamp(static_cast<std::size_t>(std::max(left / each, 0.0)), kFewestRounds, kMostRounds));
  }

  std::vector<std::vector<int>> group(const std::vector<Pair>& pairs) const {
    std::vector<std::vector<double>> mbit(hosts_, std::vector<double>(hosts_, 0.0));
    for (const Pair& pair : pairs) {
      for (const auto& [a, b] : {std::pair(pair.a, pair.b), std::pair(pair.b, pair.a)}) {
        mbit[a][b] = std::max<double>(mbit[a][b], pair.mbit);
      }
    }
    return group_hosts_by_bandwidth(mbit);
  }

  /// The middle figures of a round inside groups and one across; on rank 0. Of one group: of neighbours, and
  /// of the hosts that are farthest apart.
  std::pair<double, double> near_and_far(const std::vector<std::vector<int>>& groups) {
    Matching inside;
    Matching across;
    if (groups.size() > 1) {
      inside = matching_inside(groups, hosts_);
      across = matching_across(groups, hosts_);
    } else {
      const std::vector<Matching> doubling = doubling_matchings(hosts_);
      inside = doubling.front();
      across = doubling.back();
    }
    const double near = median(rates(pairs_of({inside})));
    return {near, median(rates(pairs_of({across})))};
  }

  bool confirmed(RackEvidence& found) {
    bool clear = true;
    std::vector<double> near;
    std::vector<double> far;
    for (int i = 0; i < kConfirmations; ++i) {
      const auto [inside, across] = near_and_far(found.groups);
      clear = clear && inside >= kMinBandwidthRatio * across;
      near.push_back(inside);
      far.push_back(across);
    }
    found.near = median(near);
    found.far = median(far);
    return told(tree_, clear);
  }

  const TreeExchange& tree_;
  const std::size_t hosts_;
  const double seconds_;
  const double begun_ = MPI_Wtime();
  PairProbe probe_;
  std::size_t rounds_ = 0;
};

/// path: where it is kept, if its figures are worth it.
std::string describe(const RackEvidence& found, const std::string& how, std::size_t rounds, double seconds,
                     const std::string& path) {
  const bool racks = found.groups.size() > 1;
  char text[400];
  std::snprintf(text, sizeof text, "%s, %s in %.2f s and %zu rounds: %.0f Mbit/s %s, %.0f %s",
                racks ? (std::to_string(found.groups.size()) + " racks").c_str() : "no racks", how.c_str(),
                seconds, rounds, found.near, racks ? "inside" : "between neighbours", found.far,
                racks ? "across" : "between distant hosts");
  if (path.empty()) return text;
  return text + (found.contradicts_itself() ? "; not kept, as they should be alike: something disturbed them"
                                            : "; kept in " + path);
}

/// What a leader makes of the figures; rank 0's note.
std::pair<RackEvidence, std::string> measure(MPI_Comm comm, const std::vector<int>& leaders,
                                             const std::string& path) {
  const double begun = MPI_Wtime();
  std::vector<int> members = leaders;
  // Rank 0 leads its host.
  std::iter_swap(members.begin(), std::find(members.begin(), members.end(), 0));
  const TreeExchange tree(comm, members, kAnswerSeconds, kWhere, kRemedy);
  RackMeasurement measurement(comm, leaders, tree);
  const std::string kept = tree.broadcast(
      tree.is_root() && !path.empty() ? read_cached(path, 16 * leaders.size() + 100) : std::string());
  std::optional<RackEvidence> evidence = RackEvidence::from_text(kept, leaders.size());
  std::string how = "as found before, checked";
  if (!evidence || !measurement.still_true(*evidence)) {
    how = evidence ? "measured anew, as figures have changed," : "measured";
    evidence = measurement.find();
    if (tree.is_root() && !path.empty() && !evidence->contradicts_itself()) {
      write_cached(path, evidence->to_text());
    }
  }
  return {*evidence, describe(*evidence, how, measurement.rounds(), MPI_Wtime() - begun, path)};
}

/// All ranks.
std::vector<int> ranks_of(const std::vector<Host>& hosts) {
  std::size_t number = 0;
  for (const Host& host : hosts) number += host.ranks.size();
  std::vector<int> ranks(number);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

MeasuredRacks measure_racks(MPI_Comm comm, int rank, const std::vector<Host>& hosts) {
  const std::vector<std::size_t> order = by_name(hosts);
  std::vector<int> leaders;
  for (const std::size_t h : order) leaders.push_back(hosts[h].ranks.front());
  MeasuredRacks found;
  Groups groups;
  if (std::find(leaders.begin(), leaders.end(), rank) != leaders.end()) {
    auto [evidence, note] = measure(comm, leaders, path_of(hosts, order));
    groups = std::move(evidence.groups);
    found.note = std::move(note);
  }
  // The others wait here while the leaders measure.
  const TreeExchange all(comm, ranks_of(hosts), kResultSeconds, kWhere, kRemedy);
  groups = told_groups(all, hosts.size(), groups);
  found.note = all.broadcast(std::move(found.note));
  for (const auto& group : groups) {
    std::vector<int>& made = found.groups.emplace_back();
    for (const int h : group) made.push_back(static_cast<int>(order[static_cast<std::size_t>(h)]));
  }
  return found;
}

std::vector<std::vector<int>> measure_all_pairs(MPI_Comm comm, int rank, const std::vector<Host>& hosts) {
  std::vector<int> leaders;
  for (const Host& host : hosts) leaders.push_back(host.ranks.front());
  const auto mbit = measure_bandwidth(comm, leaders, kAllPairsBudget);
  const TreeExchange all(comm, ranks_of(hosts), kResultSeconds, kWhere, kRemedy);
  // Rank 0 is the first leader.
  return told_groups(all, hosts.size(), rank == 0 ? group_hosts_by_bandwidth(mbit) : Groups{});
}

}  // namespace ddl
