#include "plan/planner.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

#include "memory/executor.hpp"

namespace ddl {
namespace {

constexpr std::size_t kTriesEach = 2;
/// Small calls depend on what no link's figures tell, such as how many ranks share a processor: all
/// candidates are tried from the start. They are quick, but a single time of theirs says little.
constexpr std::size_t kAlwaysTriedBytes = kSmallBytes;
constexpr std::size_t kTriesOfSmall = 7;
/// Leaders cut larger messages into parts, of which each adds up one.
constexpr std::size_t kWholePacketBytes = std::size_t{32} << 10;
/// Among fewer it is recursive doubling, or the one-shot exchange.
constexpr std::size_t kLeastMultiplied = 8;
/// The one-shot exchange multiplies the bytes by the hosts: only for messages that cost their latency.
constexpr std::size_t kOneShotBytes = std::size_t{1} << 20;
constexpr std::size_t kMostCandidates = 8;
constexpr std::size_t kMostCandidatesOfSmall = 12;
/// Sizes alike for which a plan is kept: a training step repeats the same ones.
constexpr std::size_t kMostPlans = 16;
/// Calls in a row that must be off: one may just have been disturbed.
constexpr int kOffAtFirst = 2;
/// Calls of the chosen candidate after which its time is compared again with the others'.
constexpr std::size_t kWindow = 6;
constexpr std::size_t kWindowOfSmall = 12;
/// How much of what is known such a time replaces: one window may be disturbed as a whole.
constexpr double kNewest = 0.25;
/// Another one must promise to be so much faster.
constexpr double kWorthwhile = 0.95;
/// Small calls: what was disturbed when it was tried gets another chance after so many calls, and then after
/// kRetryFactor times as many, so that the trials cost less and less.
constexpr std::uint64_t kRetryAfter = 1000;
constexpr std::uint64_t kRetryFactor = 4;
/// A prediction that is further off than this is corrected.
constexpr double kTolerance = 0.25;

/// Calls of up to so many bytes use so many slots in turn, so that their lines stay in the first caches. Of
/// larger ones they would be in another core's when they are written again, which takes longer than from the
/// cache that the cores share. (4 KiB between two ranks took 0.85 of the time, 64 KiB twice as long.)
constexpr std::size_t kCachedBytes = std::size_t{8} << 10;
constexpr std::size_t kCachedSlots = 4;
/// Where ranks take turns on the cores, more slots keep no core busier, but what all ranks have staged no
/// longer fits into the caches. The next call stages in one while others still read the other. (1 MiB among
/// 16 ranks on 2 cores took 2.3 ms with 2, 2.7 with 4, 3.2 with 8; among 64, 28, 30 and 47 ms.)
constexpr std::size_t kSlotsInTurns = 2;

constexpr std::size_t kChunkBytes[] = {64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20};

bool off_by(double measured, double expected) {
  return measured > expected * (1 + kTolerance) || measured < expected * (1 - kTolerance);
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void sort_best_first(std::vector<Plan>& plans) {
  // Of the same rounds those of the leaders need none for the agreement.
  const auto leaders_first = [](const Plan& plan) { return plan.shape == Shape::kLeaders ? 0 : 1; };
  std::stable_sort(plans.begin(), plans.end(), [&](const Plan& a, const Plan& b) {
    return std::pair(a.predicted_s, leaders_first(a)) < std::pair(b.predicted_s, leaders_first(b));
  });
}

/// What a -mode forces between hosts; none: the planner chooses.
std::optional<Algorithm> algorithm_of_mode(char mode) {
  switch (mode) {
    case 'r':
    case 'b':
    case 'n':
      return Algorithm::kRing;
    case 'c':
      return Algorithm::kRecursive;
    case 'm':
      return Algorithm::kMpi;
    default:
      return std::nullopt;
  }
}

std::string milliseconds(double seconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3f ms", seconds * 1e3);
  return text;
}

}  // namespace

std::size_t window_bytes(std::size_t hosts_below) {
  return hosts_below > 1 ? std::size_t{128} << 10 : std::size_t{4} << 20;
}

std::string Plan::to_text() const {
  if (plain_mpi) return "MPI_Allreduce";
  if (device == DevicePath::kNccl) return "NCCL all-reduce";
  if (device == DevicePath::kNcclTiers) {
    return "NCCL in every tier; " + std::to_string(chunking.chunks) + " x " +
           std::to_string(chunking.chunk_elements) + " elements";
  }
  std::string text = device == DevicePath::kNcclHosts ? "NCCL within hosts; "
                     : device == DevicePath::kIpc     ? "CUDA IPC within hosts; "
                                                      : "";
  text += algorithms.empty() ? "reduce-scatter + all-gather" : name_of(shape);
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    text += (i == 0 ? ": " : ", ") + std::string(name_of(algorithms[i]));
  }
  return text + "; " + std::to_string(chunking.chunks) + " x " + std::to_string(chunking.chunk_elements) +
         " elements" +
         (memory == 0 || device != DevicePath::kStaged
              ? ""
              : ", staged from " + name_of_memory(memory) + " memory");
}

Planner::Planner(const Topology& topology, PlannerRules rules, LinkModel model)
    : Planner(ClusterShape::of(topology), rules, std::move(model)) {}

Planner::Planner(ClusterShape cluster, PlannerRules rules, LinkModel model)
    : cluster_(std::move(cluster)), rules_(rules) {
  set_model(std::move(model));
}

void Planner::set_model(LinkModel model) {
  model_ = std::move(model);
  if (model_.tiers.size() != cluster_.tiers.size()) model_ = LinkModel::assumed(cluster_.tiers.size());
  records_.clear();
  newest_ = nullptr;
}

Planner::SizeClass Planner::size_class(const AllreduceShape& shape) const {
  SizeClass size;
  size.some = shape.elements > 0;
  size.small = shape.small(cluster_.hosts);
  size.whole = shape.bytes() <= kWholePacketBytes;
  size.one_shot = shape.bytes() * cluster_.hosts <= kOneShotBytes;
  size.tried = shape.bytes() <= kAlwaysTriedBytes;
  return size;
}

Planner::Key Planner::key_of(const AllreduceShape& shape) const {
  // Sizes within a quarter of a power of two behave alike.
  const std::size_t bytes = std::max<std::size_t>(shape.bytes(), 1);
  const auto log = static_cast<std::size_t>(std::bit_width(bytes));
  const std::size_t quarter = log > 3 ? (bytes >> (log - 3)) & 3 : 0;
  Key key{shape, size_class(shape)};
  key.calls.elements = log * 4 + quarter;
  return key;
}

Planner::Records::value_type& Planner::record_of(const AllreduceShape& shape) {
  if (newest_ == nullptr || newest_shape_ != shape) {
    newest_ = &*records_.try_emplace(key_of(shape)).first;
    newest_shape_ = shape;
  }
  return *newest_;
}

bool Planner::adds_in_steps(const Plan& plan) {
  return std::any_of(plan.algorithms.begin(), plan.algorithms.end(), [](Algorithm algorithm) {
    return algorithm == Algorithm::kDoubling || algorithm == Algorithm::kMultiplying ||
           algorithm == Algorithm::kRecursive;
  });
}

bool Planner::allows(const Plan& plan, const AllreduceShape& shape) const {
  const SizeClass size = size_class(shape);
  switch (plan.device) {
    case DevicePath::kNccl:
      return size.some && shape.nccl;
    case DevicePath::kNcclTiers:
      return size.some && shape.nccl && shape.nccl_tiers;
    case DevicePath::kNcclHosts:
      return size.some && shape.nccl && shape.nccl_hosts && keeps_bits(plan, shape);
    case DevicePath::kIpc:
      return size.some && shape.ipc && keeps_bits(plan, shape);
    case DevicePath::kStaged:
      break;
  }
  if (plan.plain_mpi) {
    return shape.one_buffer && !shape.encoded && shape.memory == 0 &&
           (shape.order_free || rules_.determinism == Determinism::kOff);
  }
  const Algorithm first = plan.algorithms.empty() ? Algorithm::kDirect : plan.algorithms.front();
  if (plan.shape == Shape::kLeaders) {
    if (!size.small) return false;
    const bool few = cluster_.hosts <= kFewHosts;
    const bool several = cluster_.hosts > 2;
    // Between two, star, doubling and halving are the others; what takes one round is the one-shot exchange.
    switch (first) {
      case Algorithm::kDirect:
        if (!few) return false;
        break;
      case Algorithm::kOneShot:
        if (!few || !size.whole) return false;
        break;
      case Algorithm::kStar:
        if (!few || !size.whole || !several) return false;
        break;
      case Algorithm::kDoubling:
        if (!size.whole || leaders_rounds(first, cluster_) < 2) return false;
        break;
      case Algorithm::kMultiplying:
        if (!size.whole || cluster_.hosts < kLeastMultiplied ||
            leaders_rounds(first, cluster_) == leaders_rounds(Algorithm::kDoubling, cluster_)) {
          return false;
        }
        break;
      case Algorithm::kRecursive:
        if (!several || !cluster_.in_pairs) return false;
        break;
      default:
        return false;
    }
  }
  const bool multiplies = !plan.algorithms.empty() && plan.algorithms.back() == Algorithm::kMultiplying;
  // It multiplies the bytes.
  if (multiplies && !size.tried) return false;
  // Leaders do the same without an agreement.
  if (multiplies && plan.shape == Shape::kHosts && size.small) return false;
  if (plan.shape == Shape::kHosts && first == Algorithm::kOneShot) {
    const bool doubled = cluster_.tiers.size() == 1 && cluster_.hosts == 2;
    const bool by_leaders = size.small && cluster_.hosts <= kFewHosts;
    if (doubled || by_leaders || !size.one_shot) return false;
  }
  return keeps_bits(plan, shape);
}

bool Planner::keeps_bits(const Plan& plan, const AllreduceShape& shape) const {
  for (std::size_t t = 0; t < plan.algorithms.size(); ++t) {
    const std::size_t owners = plan.shape == Shape::kTiers   ? cluster_.tiers[t].groups
                               : plan.shape == Shape::kRanks ? cluster_.ranks
                                                             : cluster_.hosts;
    if (shape.encoded && plan.algorithms[t] != Algorithm::kDirect) return false;
    if (shape.order_free || rules_.determinism == Determinism::kOff) continue;
    if (!keeps_order(plan.algorithms[t], owners)) return false;
    // Leaders round the halves of sums that they send each other.
    if (plan.shape == Shape::kLeaders && shape.rounds_each_step && owners > 2 &&
        plan.algorithms[t] == Algorithm::kRecursive) {
      return false;
    }
    // Without the racks the order would be another one, but for the exchanges that nest their sums.
    if (plan.shape == Shape::kHosts && cluster_.tiers.size() > 1 && !nests(plan.algorithms[t])) return false;
  }
  return true;
}

Plan Planner::finish_on_device(Plan plan, const AllreduceShape& shape) const {
  // NCCL's order depends on the size of a chunk, so that must not depend on measurements.
  const std::size_t slots = kDeviceSlots;
  const std::size_t ranks = cluster_.least_ranks_a_host;
  const std::size_t part = std::bit_floor(rules_.stage_bytes / slots);
  // Chunks of equal parts: each is a whole number of cache lines.
  const std::size_t round = cluster_.ranks_a_host * 64;
  const std::size_t most = std::min(kDeviceChunkBytes, part * ranks) / shape.width;
  const std::size_t elements = std::max<std::size_t>(shape.elements, 1);
  Chunking& chunking = plan.chunking;
  chunking.chunk_elements = elements > most ? std::max<std::size_t>(most / round, 1) * round : elements;
  chunking.chunks =
      shape.elements == 0 ? 0 : (shape.elements + chunking.chunk_elements - 1) / chunking.chunk_elements;
  chunking.slots = slots;
  chunking.slot_bytes = part;
  for (const TierFacts& tier : cluster_.tiers) plan.windows.push_back(window_bytes(tier.hosts_below));
  plan.predicted_s = cost_of(plan, shape, cluster_, model_).seconds;
  return plan;
}

Plan Planner::finish_in_tiers(Plan plan, const AllreduceShape& shape) const {
  // As above, and every rank owns equally much of a chunk.
  const std::size_t slots = 2 * (cluster_.tiers.size() + 1);
  const std::size_t most = kTiersScratchBytes / slots / shape.width;
  const std::size_t ranks = cluster_.ranks;
  // Parts that begin where memory is read best, if there are enough elements for that.
  const std::size_t round = most >= ranks * 64 ? ranks * 64 : ranks;
  const std::size_t elements = std::max<std::size_t>((shape.elements + round - 1) / round * round, round);
  Chunking& chunking = plan.chunking;
  chunking.chunk_elements = std::min(elements, most / round * round);
  chunking.chunks = (shape.elements + chunking.chunk_elements - 1) / chunking.chunk_elements;
  chunking.slots = slots;
  plan.predicted_s = cost_of(plan, shape, cluster_, model_).seconds;
  return plan;
}

std::vector<Plan> Planner::device_candidates(const AllreduceShape& shape) const {
  std::vector<Plan> plans;
  const auto add = [&](DevicePath path, std::vector<Algorithm> algorithms) {
    Plan plan;
    plan.device = path;
    plan.algorithms = std::move(algorithms);
    if (allows(plan, shape)) plans.push_back(finish(std::move(plan), shape));
  };
  // Its order is the processor's, so that the tiers may do whatever they may for the host's memory.
  const DevicePath in_hosts = shape.ipc ? DevicePath::kIpc : DevicePath::kNcclHosts;
  const auto add_within_hosts = [&] {
    auto top = in_every_tier(Algorithm::kDirect);
    add(in_hosts, top);
    if (top.empty()) return;
    for (const Algorithm algorithm : {Algorithm::kDoubling, Algorithm::kRecursive, Algorithm::kRing}) {
      top.back() = algorithm;
      if (cluster_.tiers.back().groups > 2) add(in_hosts, top);
    }
  };
  if (shape.ipc) {
    add_within_hosts();
    return plans;
  }
  const bool by_tiers = rules_.mode == 'b' && (shape.nccl_tiers || shape.nccl_hosts);
  if (!by_tiers) add(DevicePath::kNccl, {});
  if (rules_.mode == 'n') return plans;
  if (shape.nccl_tiers) {
    Plan plan;
    plan.device = DevicePath::kNcclTiers;
    plans.push_back(finish_in_tiers(std::move(plan), shape));
  }
  if (!shape.nccl_hosts || (rules_.mode == 'b' && shape.nccl_tiers)) return plans;
  add_within_hosts();
  return plans;
}

Plan Planner::finish(Plan plan, const AllreduceShape& shape) const {
  if (plan.device == DevicePath::kNccl) {
    plan.predicted_s = cost_of(plan, shape, cluster_, model_).seconds;
    return plan;
  }
  if (plan.device == DevicePath::kNcclTiers) return finish_in_tiers(std::move(plan), shape);
  if (plan.device == DevicePath::kNcclHosts || plan.device == DevicePath::kIpc) {
    plan.windows.clear();
    return finish_on_device(std::move(plan), shape);
  }
  if (plan.plain_mpi) {
    plan.predicted_s = cost_of(plan, shape, cluster_, model_).seconds;
    return plan;
  }
  const std::size_t bytes = shape.bytes();
  Chunking& chunking = plan.chunking;
  if (chunking.chunk_elements == 0) {
    double best = 0;
    for (const std::size_t size : kChunkBytes) {
      Plan trial = plan;
      trial.chunking.chunk_elements = std::max<std::size_t>(size / shape.width, 1);
      trial = finish(std::move(trial), shape);
      if (best == 0 || trial.predicted_s < best) {
        best = trial.predicted_s;
        chunking = trial.chunking;
      }
      if (size >= bytes) break;
    }
  }
  std::size_t chunk = std::max<std::size_t>(1, std::min(shape.elements, chunking.chunk_elements));
  // Cuts at these places keep shards apart in the cache, and blocks of the wire formats whole.
  if (chunk > 256) chunk = std::min(shape.elements, (chunk + 255) / 256 * 256);
  chunking.chunk_elements = chunk;
  chunking.chunks = shape.elements == 0 ? 0 : (shape.elements + chunk - 1) / chunk;
  chunking.slot_bytes = std::max(kSmallSlotBytes, std::bit_ceil(chunk * shape.width));
  chunking.slots = std::min(kMaxSlots, rules_.stage_bytes / chunking.slot_bytes);
  // Wide sums take four times the memory of the chunk.
  if (shape.rounds_each_step && adds_in_steps(plan)) chunking.slots = (chunking.slots + 3) / 4;
  if (shape.bytes() <= kCachedBytes) chunking.slots = std::min(chunking.slots, kCachedSlots);
  if (rules_.taking_turns) chunking.slots = std::min(chunking.slots, kSlotsInTurns);
  // MPI wants all ranks to start their collective operations in the same order.
  if (std::find(plan.algorithms.begin(), plan.algorithms.end(), Algorithm::kMpi) != plan.algorithms.end()) {
    chunking.slots = 1;
  }
  plan.windows.clear();
  for (const TierFacts& tier : cluster_.tiers) plan.windows.push_back(window_bytes(tier.hosts_below));
  if (plan.shape != Shape::kTiers) {
    plan.windows.assign(1, window_bytes(cluster_.tiers.empty() ? 1 : cluster_.tiers.back().hosts_below));
  }
  plan.predicted_s = cost_of(plan, shape, cluster_, model_).seconds;
  return plan;
}

std::vector<Plan> Planner::candidates(const AllreduceShape& shape) const {
  if (shape.ipc && shape.elements > 0) return ipc_candidates(shape);
  std::vector<Plan> plans;
  if (shape.nccl && shape.elements > 0) {
    plans = device_candidates(shape);
    sort_best_first(plans);
    if (rules_.mode != 'p') return plans;
    if (rules_.determinism == Determinism::kRun) return nccl_or_staged(std::move(plans), shape);
  }
  if (rules_.determinism == Determinism::kPlacement) {
    // Whoever owns an element has all ranks' contributions, and adds them up in the order of the ranks.
    Plan plan;
    plan.shape = Shape::kRanks;
    plan.algorithms = {Algorithm::kDirect};
    return {finish(std::move(plan), shape)};
  }
  if (const auto algorithm = algorithm_of_mode(rules_.mode)) return {forced_plan(*algorithm, shape)};
  add_tier_plans(shape, plans);
  if (!cluster_.tiers.empty()) {
    add_plan(Shape::kHosts, {Algorithm::kOneShot}, shape, plans);
    add_leader_plans(shape, plans);
    add_rackless_plans(shape, plans);
  }
  Plan plain;
  plain.plain_mpi = true;
  if (allows(plain, shape)) plans.push_back(finish(plain, shape));
  add_chunk_sizes(shape, plans);
  sort_best_first(plans);
  const std::size_t most = size_class(shape).tried ? kMostCandidatesOfSmall : kMostCandidates;
  if (plans.size() > most) plans.resize(most);
  return plans;
}

std::vector<Plan> Planner::ipc_candidates(const AllreduceShape& shape) const {
  std::vector<Plan> plans = device_candidates(shape);
  if (rules_.mode == 'p') {
    // The bits are the same, so that times may decide.
    AllreduceShape staged = shape;
    staged.ipc = false;
    for (Plan& plan : candidates(staged)) plans.push_back(std::move(plan));
  }
  sort_best_first(plans);
  if (plans.size() > kMostCandidates) plans.resize(kMostCandidates);
  return plans;
}

std::vector<Plan> Planner::nccl_or_staged(std::vector<Plan> plans, const AllreduceShape& shape) const {
  AllreduceShape staged = shape;
  staged.nccl = false;
  std::vector<Plan> host = candidates(staged);
  if (host.front().predicted_s < plans.front().predicted_s) return host;
  const DevicePath best = plans.front().device;
  std::erase_if(plans, [&](const Plan& plan) { return plan.device != best; });
  return plans;
}

Plan Planner::forced_plan(Algorithm algorithm, const AllreduceShape& shape) const {
  Plan plan;
  plan.algorithms = in_every_tier(shape.encoded ? Algorithm::kDirect : algorithm);
  // Some of these reduce in an order that depends on the chunk, so its size must not depend on measurements.
  plan.chunking.chunk_elements =
      (algorithm == Algorithm::kMpi ? kMaxChunkBytes : kMaxChunkBytes / 4) / shape.width;
  return finish(std::move(plan), shape);
}

void Planner::add_plan(Shape form, std::vector<Algorithm> algorithms, const AllreduceShape& shape,
                       std::vector<Plan>& plans) const {
  Plan plan;
  plan.shape = form;
  plan.algorithms = std::move(algorithms);
  if (form == Shape::kLeaders) plan.chunking.chunk_elements = shape.elements;
  if (allows(plan, shape)) plans.push_back(finish(std::move(plan), shape));
}

void Planner::add_tier_plans(const AllreduceShape& shape, std::vector<Plan>& plans) const {
  std::vector<Algorithm> algorithms = in_every_tier(Algorithm::kDirect);
  add_plan(Shape::kTiers, algorithms, shape, plans);
  if (algorithms.empty()) return;
  for (const Algorithm top :
       {Algorithm::kDoubling, Algorithm::kMultiplying, Algorithm::kRecursive, Algorithm::kRing}) {
    algorithms.back() = top;
    // Between two these are the direct exchange.
    const std::size_t least = top == Algorithm::kDoubling      ? 2
                              : top == Algorithm::kMultiplying ? kLeastMultiplied
                                                               : 3;
    if (cluster_.tiers.back().groups >= least) add_plan(Shape::kTiers, algorithms, shape, plans);
  }
  const bool wide = std::any_of(cluster_.tiers.begin(), cluster_.tiers.end() - 1,
                                [](const TierFacts& tier) { return tier.groups > 2; });
  if (wide) add_plan(Shape::kTiers, in_every_tier(Algorithm::kRecursive), shape, plans);
}

void Planner::add_leader_plans(const AllreduceShape& shape, std::vector<Plan>& plans) const {
  for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kOneShot, Algorithm::kStar,
                                    Algorithm::kDoubling, Algorithm::kMultiplying, Algorithm::kRecursive}) {
    add_plan(Shape::kLeaders, {algorithm}, shape, plans);
  }
}

void Planner::add_rackless_plans(const AllreduceShape& shape, std::vector<Plan>& plans) const {
  if (cluster_.tiers.size() <= 1) return;
  for (const Algorithm algorithm : {Algorithm::kMultiplying, Algorithm::kRing, Algorithm::kRecursive}) {
    add_plan(Shape::kHosts, {algorithm}, shape, plans);
  }
}

void Planner::add_chunk_sizes(const AllreduceShape& shape, std::vector<Plan>& plans) const {
  const Plan first = *std::min_element(
      plans.begin(), plans.end(), [](const Plan& a, const Plan& b) { return a.predicted_s < b.predicted_s; });
  // Leaders exchange a message as a whole.
  if (first.plain_mpi || first.shape == Shape::kLeaders || first.device != DevicePath::kStaged) return;
  for (const std::size_t size : kChunkBytes) {
    const std::size_t elements = std::max<std::size_t>(size / shape.width, 1);
    if (elements >= 2 * shape.elements || elements == first.chunking.chunk_elements) continue;
    Plan plan = first;
    plan.chunking.chunk_elements = elements;
    plan = finish(std::move(plan), shape);
    if (plan.chunking.chunk_elements != first.chunking.chunk_elements) plans.push_back(std::move(plan));
  }
}

const Plan& Planner::choose(const AllreduceShape& shape) {
  auto& [key, record] = record_of(shape);
  if (record.candidates.empty()) {
    for (Plan& plan : candidates(shape)) record.candidates.push_back({std::move(plan), 0, {}});
    record.exploring = record.candidates.size() > 1 && key.size.tried && !shape.nccl;
  }
  if (rehearsed_links) record.chosen = record.turn++ % record.candidates.size();
  for (const Plan& made : record.made) {
    if (made.candidate == record.chosen && made.elements == shape.elements) return made;
  }
  if (record.made.size() >= kMostPlans) record.made.clear();
  Plan plan = record.candidates[record.chosen].plan;
  plan.candidate = record.chosen;
  // The record is for about this size; the cuts are for this one.
  if (plan.chunking.chunks <= 1 && plan.device == DevicePath::kStaged) {
    plan.chunking.chunk_elements =
        std::min(std::max<std::size_t>(shape.elements, 1), kMaxChunkBytes / shape.width);
  }
  plan = finish(std::move(plan), shape);
  plan.elements = shape.elements;
  plan.memory = shape.memory;
  plan.id = ++plans_made_;
  return record.made.emplace_back(std::move(plan));
}

void Planner::try_all(Record& record) {
  record.exploring = record.candidates.size() > 1;
  for (Candidate& candidate : record.candidates) candidate.tries.clear();
}

void Planner::settle(Record& record) {
  record.exploring = false;
  record.settled = true;
  record.news = true;
  for (std::size_t i = 0; i < record.candidates.size(); ++i) {
    Candidate& candidate = record.candidates[i];
    candidate.measured_s = median(candidate.tries);
    candidate.tries.clear();
    if (candidate.measured_s < record.candidates[record.chosen].measured_s || i == 0) record.chosen = i;
  }
  record.retry_at = std::max(kRetryAfter, record.retry_at * kRetryFactor);
}

void Planner::learn(const AllreduceShape& shape, std::size_t number, double seconds) {
  auto& [key, record] = record_of(shape);
  if (number >= record.candidates.size()) return;
  Candidate& tried = record.candidates[number];
  record.last_s = seconds;
  // The first call of a size also touches memory and makes connections for the first time.
  if (++record.learned == 1) return;
  const bool small = key.size.tried;
  if (record.exploring) {
    tried.tries.push_back(seconds);
    const std::size_t wanted = small ? kTriesOfSmall : kTriesEach;
    const auto next =
        std::find_if(record.candidates.begin(), record.candidates.end(),
                     [&](const Candidate& candidate) { return candidate.tries.size() < wanted; });
    if (next == record.candidates.end()) {
      settle(record);
    } else {
      record.chosen = static_cast<std::size_t>(next - record.candidates.begin());
    }
    return;
  }
  if (!record.settled) {
    record.off = off_by(seconds, tried.plan.predicted_s) ? record.off + 1 : 0;
    if (record.off < kOffAtFirst) return;
    // What was predicted for the others is no better founded, so all are tried.
    record.corrected = true;
    record.news = true;
    try_all(record);
    tried.measured_s = seconds;
    tried.tries = {seconds};
    if (!record.exploring) settle(record);
    return;
  }
  // The call had been planned before the last one's time was known.
  if (number != record.chosen) return;
  tried.tries.push_back(seconds);
  if (tried.tries.size() < (small ? kWindowOfSmall : kWindow)) return;
  tried.measured_s += kNewest * (median(tried.tries) - tried.measured_s);
  tried.tries.clear();
  const auto best =
      std::min_element(record.candidates.begin(), record.candidates.end(),
                       [](const Candidate& a, const Candidate& b) { return a.measured_s < b.measured_s; });
  if (best->measured_s < kWorthwhile * tried.measured_s) {
    // It did better when it was tried than in earnest, or times have changed.
    record.chosen = static_cast<std::size_t>(best - record.candidates.begin());
    record.corrected = true;
    record.news = true;
  } else if (small && record.learned >= record.retry_at) {
    try_all(record);
  }
}

std::string Planner::explain(const AllreduceShape& shape) {
  const auto found = records_.find(key_of(shape));
  // The first time of a size says little, as it is no steady one.
  if (found == records_.end() || found->second.learned < 2 || !found->second.news) return "";
  Record& record = found->second;
  record.news = false;
  const Candidate& now = record.candidates[record.chosen];
  std::string text = std::to_string(shape.bytes()) + " bytes: " + now.plan.to_text() + "; predicted " +
                     milliseconds(now.plan.predicted_s) + " (links " + model_.origin + ")";
  if (record.last_s > 0) text += ", measured " + milliseconds(record.last_s);
  if (now.measured_s > 0) text += ", expected now " + milliseconds(now.measured_s);
  if (record.exploring) text += ", trying candidates";
  if (record.corrected) text += ", corrected";
  for (std::size_t i = 0; i < record.candidates.size(); ++i) {
    const Candidate& other = record.candidates[i];
    if (i == record.chosen) continue;
    text += "\n[DDL]   instead of " + other.plan.to_text() + ", predicted " +
            milliseconds(other.plan.predicted_s);
    if (other.measured_s > 0) text += ", measured " + milliseconds(other.measured_s);
  }
  return text;
}

}  // namespace ddl
