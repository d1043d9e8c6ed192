#include "engine/link_measurement.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "engine/cache_folder.hpp"
#include "plan/planner.hpp"
#include "support/kept_on_error.hpp"
#include "support/stopwatch.hpp"

namespace ddl {
namespace {

/// A tier is measured with growing messages until one exchange takes this long.
constexpr double kLongEnough = 30e-3;
constexpr std::size_t kLeastBytes = std::size_t{128} << 10;
constexpr std::size_t kMostBytes = std::size_t{2} << 20;
constexpr std::size_t kMessageBytes = std::size_t{64} << 10;
constexpr int kPings = 8;

void complete(CollectiveContext& context, Backoff& backoff, const int& pending) {
  wait_while(
      backoff, [&] { return pending > 0; }, [&] { return context.scheduler.progress(); });
}

/// This rank's place in a tier: its counterparts in the next group and the one before.
struct Neighbours {
  int next = -1;
  int previous = -1;
};

const Group* group_at(const Group& root, int rank, std::size_t tier, std::size_t tiers) {
  const Group* group = &root;
  for (std::size_t t = tiers; t-- > tier + 1;) {
    for (const Group& child : group->children) {
      if (std::binary_search(child.ranks.begin(), child.ranks.end(), rank)) {
        group = &child;
        break;
      }
    }
  }
  return group;
}

Neighbours neighbours(const Group& group, int rank) {
  // Only as many ranks of each child as the smallest has: a counterpart must exist on both sides.
  std::size_t least = group.ranks.size();
  for (const Group& child : group.children) least = std::min(least, child.ranks.size());
  for (std::size_t c = 0; c < group.children.size(); ++c) {
    const auto& ranks = group.children[c].ranks;
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    if (found == ranks.end()) continue;
    const auto place = static_cast<std::size_t>(found - ranks.begin());
    const std::size_t children = group.children.size();
    if (place >= least || children < 2) return {};
    return {group.children[(c + 1) % children].ranks[place],
            group.children[(c + children - 1) % children].ranks[place]};
  }
  return {};
}

class LinkMeasurement {
  struct Memory {
    double value = 0;
    double result = 0;
    std::vector<char> buffer = std::vector<char>(2 * kMostBytes);
  };

 public:
  LinkMeasurement(CollectiveContext& context, Backoff& backoff, MPI_Comm comm)
      : context_(context), backoff_(backoff), comm_(comm) {}

  LinkFigures tier(std::size_t tier, std::size_t tiers) {
    const Group* group = group_at(context_.topology.root(), context_.rank, tier, tiers);
    const Neighbours near = neighbours(*group, context_.rank);
    std::size_t hosts = 1;
    for (const Group& child : group->children) hosts = std::max(hosts, innermost_groups(child).size());
    context_.scheduler.set_windows({window_bytes(hosts)});
    LinkFigures figures;
    exchange(near, 1);
    double least = 1e9;
    for (int i = 0; i < kPings; ++i) least = std::min(least, largest(exchange(near, 1)));
    figures.latency_s = least;
    // All ranks of the group use its link at the same time; bytes are counted for the link.
    const std::size_t sharing = least_members(context_.topology.root(), tier, tiers);
    for (std::size_t bytes = kLeastBytes;; bytes *= 2) {
      // The first exchange uses up what a shaped link lets pass at once.
      exchange(near, bytes);
      const double seconds = largest(exchange(near, bytes));
      figures.bytes_per_s = static_cast<double>(bytes * sharing) / std::max(seconds - least, seconds / 10);
      if (seconds > kLongEnough || bytes >= kMostBytes) return figures;
    }
  }

  LinkFigures memory() {
    // What post, reduce and gather move, without the others: about four times the bytes of the vector.
    std::vector<char> more(kMostBytes, 1);
    largest(0);
    const auto start = Clock::now();
    for (int i = 0; i < 2; ++i) {
      std::memcpy(memory_->buffer.data(), more.data(), kMostBytes);
      std::memcpy(more.data(), memory_->buffer.data() + kMostBytes, kMostBytes);
    }
    const double seconds = largest(seconds_since(start));
    return {2e-6, static_cast<double>(2 * kMostBytes) / seconds};
  }

 private:
  /// The most of all ranks.
  double largest(double value) {
    int pending = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    memory_->value = value;
    check_mpi(MPI_Iallreduce(&memory_->value, &memory_->result, 1, MPI_DOUBLE, MPI_MAX, comm_, &request),
              "MPI_Iallreduce");
    context_.scheduler.watch(request, &pending);
    wait(pending);
    return memory_->result;
  }

  /// Seconds until `bytes` are sent and received.
  double exchange(const Neighbours& near, std::size_t bytes) {
    largest(0);
    const auto start = Clock::now();
    if (near.next < 0) return 0;
    int pending = 0;
    for (std::size_t at = 0; at < bytes; at += kMessageBytes) {
      const std::size_t size = std::min(kMessageBytes, bytes - at);
      context_.scheduler.receive(memory_->buffer.data() + kMostBytes + at, size, near.previous,
                                 CollectiveContext::tag(0, 0, 0), &pending);
      context_.scheduler.send(0, memory_->buffer.data() + at, size, near.next,
                              CollectiveContext::tag(0, 0, 0), &pending);
    }
    wait(pending);
    return seconds_since(start);
  }

  void wait(const int& pending) { complete(context_, backoff_, pending); }

  /// Ranks of a child that take part, over all groups of the tier the most.
  static std::size_t least_members(const Group& group, std::size_t tier, std::size_t tiers) {
    if (tiers == tier + 1) {
      std::size_t least = group.ranks.size();
      for (const Group& child : group.children) least = std::min(least, child.ranks.size());
      return least;
    }
    std::size_t most = 1;
    for (const Group& child : group.children) most = std::max(most, least_members(child, tier, tiers - 1));
    return most;
  }

  CollectiveContext& context_;
  Backoff& backoff_;
  MPI_Comm comm_;
  KeptOnError<Memory> memory_;
};

void shape_of(const Group& group, std::string& out) {
  if (group.leaf()) return;
  out += '(' + std::to_string(group.ranks.size());
  for (const Group& child : group.children) shape_of(child, out);
  out += ')';
}

std::string fingerprint(const Topology& topology) {
  std::vector<std::string> names;
  for (const Host& host : topology.hosts())
    names.push_back(host.name + ':' + std::to_string(host.ranks.size()));
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += name + ' ';
  shape_of(topology.root(), text);
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  text += std::string(version.data(), std::strcspn(version.data(), "\n"));
  return fingerprint_of(text);
}

}  // namespace

LinkModel measured_links(CollectiveContext& context, Backoff& backoff, MPI_Comm comm) {
  const std::size_t tiers = context.topology.tiers().size() - 1;
  LinkModel model = LinkModel::assumed(tiers);
  const std::string folder = cache_folder();
  const std::string path = folder + "/links-" + fingerprint(context.topology);
  const KeptOnError<std::array<char, 4096>> cached;
  cached->fill(0);
  if (context.rank == 0 && !folder.empty()) {
    const std::string kept = read_cached(path, cached->size() - 1);
    std::copy(kept.begin(), kept.end(), cached->begin());
  }
  int pending = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibcast(cached->data(), static_cast<int>(cached->size()), MPI_BYTE, 0, comm, &request),
            "MPI_Ibcast");
  context.scheduler.watch(request, &pending);
  complete(context, backoff, pending);
  if (model.from_text(cached->data(), tiers)) {
    model.origin = "cached";
    return model;
  }
  LinkMeasurement measurement(context, backoff, comm);
  model.memory = measurement.memory();
  for (std::size_t t = 0; t < tiers; ++t) model.tiers[t] = measurement.tier(t, tiers);
  model.origin = "measured";
  // Others' figures are rank 0's, who also wrote them down with nine digits.
  const std::string text = model.to_text();
  model.from_text(text, tiers);
  if (context.rank == 0 && !folder.empty()) write_cached(path, text);
  return model;
}

}  // namespace ddl
