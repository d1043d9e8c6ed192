#include "transport/send_scheduler.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace ddl {
namespace {

/// How many messages are under way at once, or wait, depends on chance: so many need no memory later.
constexpr std::size_t kUsual = 128;

}  // namespace

SendScheduler::SendScheduler(const MpiTransport& transport) : transport_(transport) {
  requests_.reserve(kUsual);
  entries_.reserve(kUsual);
  completed_.reserve(kUsual);
}

void SendScheduler::add_queues(std::size_t tiers) {
  if (queues_.size() >= tiers) return;
  queues_.resize(tiers);
  for (Queue& queue : queues_) queue.all.reserve(kUsual);
  under_way_.resize(tiers, 0);
}

void SendScheduler::set_windows(const std::vector<std::size_t>& windows) {
  windows_ = windows;
  add_queues(windows_.size());
}

void SendScheduler::receive(void* to, std::size_t bytes, int peer, int tag, int* pending) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, peer, transport_.tag_of_size(tag, bytes),
                      transport_.data(), &request),
            "MPI_Irecv");
  ++*pending;
  requests_.push_back(request);
  entries_.push_back({pending, kNoTier, 0});
}

void SendScheduler::send(std::size_t tier, const void* from, std::size_t bytes, int peer, int tag,
                         int* pending) {
  add_queues(tier + 1);
  ++*pending;
  Queue& queue = queues_[tier];
  // What has left makes room, rather than the queue growing as long as it is never empty.
  if (queue.all.size() == queue.all.capacity() && queue.begin > 0) {
    queue.all.erase(queue.all.begin(), queue.all.begin() + static_cast<std::ptrdiff_t>(queue.begin));
    queue.begin = 0;
  }
  queue.all.push_back({from, bytes, peer, tag, pending});
  ++queued_;
}

void SendScheduler::watch(MPI_Request request, int* pending) {
  ++*pending;
  requests_.push_back(request);
  entries_.push_back({pending, kNoTier, 0});
}

bool SendScheduler::pump() {
  bool moved = false;
  for (std::size_t tier = 0; tier < queues_.size(); ++tier) {
    const std::size_t window = tier < windows_.size() ? windows_[tier] : static_cast<std::size_t>(-1);
    Queue& queue = queues_[tier];
    while (!queue.empty()) {
      const Queued next = queue.all[queue.begin];
      if (under_way_[tier] > 0 && under_way_[tier] + next.bytes > window) break;
      ++queue.begin;
      --queued_;
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Isend(next.from, static_cast<int>(next.bytes), MPI_BYTE, next.peer,
                          transport_.tag_of_size(next.tag, next.bytes), transport_.data(), &request),
                "MPI_Isend");
      under_way_[tier] += next.bytes;
      ++messages_sent_;
      bytes_sent_ += next.bytes;
      requests_.push_back(request);
      entries_.push_back({next.pending, tier, next.bytes});
      moved = true;
    }
    if (queue.empty()) queue.clear();
  }
  return moved;
}

bool SendScheduler::progress() {
  bool moved = queued_ > 0 && pump();
  if (requests_.empty()) return moved;
  completed_.resize(requests_.size());
  int count = 0;
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, completed_.data(),
                         MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  if (count == MPI_UNDEFINED || count == 0) return moved;
  completed_.resize(static_cast<std::size_t>(count));
  // From the back, so that moving the last entry into a hole never moves a completed one.
  std::sort(completed_.begin(), completed_.end(), std::greater<>());
  for (const int index : completed_) {
    const auto at = static_cast<std::size_t>(index);
    const Entry entry = entries_[at];
    --*entry.pending;
    if (entry.tier != kNoTier) under_way_[entry.tier] -= entry.bytes;
    requests_[at] = requests_.back();
    requests_.pop_back();
    entries_[at] = entries_.back();
    entries_.pop_back();
  }
  if (queued_ > 0) pump();
  return true;
}

void SendScheduler::abandon() {
  // Left to MPI: a request of a collective operation must not be freed while it is active (MPI 4.1, 6.12).
  requests_.clear();
  entries_.clear();
  for (Queue& queue : queues_) queue.clear();
  std::fill(under_way_.begin(), under_way_.end(), 0);
  queued_ = 0;
}

}  // namespace ddl
