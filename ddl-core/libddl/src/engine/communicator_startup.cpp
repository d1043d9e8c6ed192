// How a communicator begins and ends.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "engine/backoff.hpp"
#include "engine/communicator.hpp"
#include "engine/flight_recorder.hpp"
#include "engine/link_measurement.hpp"
#include "engine/startup_exchange.hpp"
#include "topology/discovery.hpp"
#include "topology/domains.hpp"

namespace ddl {
namespace {

bool explain_wanted() {
  const char* const text = std::getenv("DDL_PLAN");
  return text != nullptr && std::strcmp(text, "explain") == 0;
}

std::uint64_t pid_namespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? static_cast<std::uint64_t>(info.st_ino) : 0;
}

/// The ranks of MPI_COMM_WORLD that these are.
std::vector<int> ranks_in_world(MPI_Comm comm, int size) {
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(comm, &members), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  std::vector<int> own(static_cast<std::size_t>(size));
  std::iota(own.begin(), own.end(), 0);
  std::vector<int> ranks(own.size());
  check_mpi(MPI_Group_translate_ranks(members, size, own.data(), world, ranks.data()),
            "MPI_Group_translate_ranks");
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  return ranks;
}

}  // namespace

Communicator::Communicator(const Options& options) : options_(options), explain_(explain_wanted()) {
  check_dims(options_, 1);
  topology_ = discover({local_facts()}, TopologyRequest{options_.dims, "none", "", std::nullopt});
}

Communicator::Communicator(MPI_Comm base, const Options& options, bool of_part)
    : options_(options), explain_(explain_wanted()), of_part_(of_part) {
  int size = 1;
  check_mpi(MPI_Comm_size(base, &size), "MPI_Comm_size");
  check_mpi(MPI_Comm_rank(base, &rank_), "MPI_Comm_rank");
  distributed_ = size > 1;
  if (!distributed_) {
    check_dims(options_, size);
    topology_ = discover({local_facts()}, TopologyRequest{options_.dims, "none", "", std::nullopt});
    return;
  }
  transport_.emplace(base, options_.limits.timeout_s);
  try {
    connect(size);
  } catch (...) {
    // Freeing communicators would wait for ranks that may be gone.
    transport_->abandon();
    throw;
  }
  recorded_as_ = FlightRecorder::instance().add_communicator(ranks_in_world(base, size));
}

void Communicator::connect(int size) {
  std::vector<int> everyone(static_cast<std::size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  const TreeExchange tree(transport_->data(), std::move(everyone), options_.limits.timeout_s, "in ddl_init",
                          "look at the output of the others, or raise -timeout in DDL_OPTIONS");
  // Errors before the segments are made are the same on all ranks, as all see the same records.
  std::vector<StartupRecord> records = exchange_records(tree, options_);
  check_dims(options_, size);
  oversubscribed_ = is_oversubscribed(records, rank_);
  topology_ = discover_topology(transport_->data(), tree, rank_, records, options_);

  const auto groups = innermost_groups(topology_.root());
  std::size_t group = 0;
  while (!std::binary_search(groups[group]->ranks.begin(), groups[group]->ranks.end(), rank_)) ++group;
  const std::vector<int>& members = groups[group]->ranks;
  const auto self =
      static_cast<std::size_t>(std::find(members.begin(), members.end(), rank_) - members.begin());

  std::optional<Error> error;
  const auto attempt = [&](auto&& action) {
    if (error) return;
    try {
      action();
    } catch (const Error& e) {
      error = e;
    }
  };

  // Every step ends in an agreement, so that a rank that fails takes the others along instead of leaving them
  // waiting.
  const std::size_t stage = stage_bytes_for(records, of_part_ ? kGroupStageBytes : kStageBytes);
  const std::string name = SharedSegment::name_for(records[0].nonce, members[0]);
  const Division division = domains_of(topology_, members);
  // Of many ranks they take more than all that is kept.
  records = {};
  if (self == 0) {
    attempt([&] {
      segment_ = members.size() == 1 ? SharedSegment::create_private(stage)
                                     : SharedSegment::create(name, members.size(), stage, division);
      segment_->reserve_control();
    });
  }
  const auto agree = [&] {
    try {
      agree_on_success(tree, rank_, topology_, error);
    } catch (const Error&) {
      // The rank that created the segment may be the one that is lost.
      SharedSegment::remove(name);
      throw;
    }
  };
  agree();
  if (self != 0) attempt([&] { segment_ = SharedSegment::open(name, members.size(), stage, division); });
  attempt([&] {
    if (!of_part_) segment_->reserve_stage(self);
    segment_->cell(self).pid = getpid();
    segment_->cell(self).pid_namespace = pid_namespace();
  });
  attempt([&] {
    if (options_.timeline.empty()) return;
    const auto& names = topology_.tiers();
    timeline_.emplace(options_.timeline, rank_, topology_.host_name_of(rank_),
                      std::vector<std::string>(names.begin() + 1, names.end()));
  });
  MpiTransport* const between = groups.size() > 1 ? &*transport_ : nullptr;
  std::vector<std::vector<int>> hosts;
  for (const Group* host : groups) hosts.push_back(host->ranks);
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  // Where it cannot be started all are to know.
  if (provided == MPI_THREAD_MULTIPLE || between == nullptr) attempt([] { liveness_thread().begin(); });
  const auto make_detector = [&] {
    detector_.emplace(topology_, rank_, hosts, group, *segment_, between, options_.limits,
                      provided == MPI_THREAD_MULTIPLE);
  };
  try {
    agree();
  } catch (const Error& failure) {
    if (failure.code() != DDL_ERR_TIMEOUT || !segment_) throw;
    // The others may have come through, and would find this rank missing besides the one that is lost.
    make_detector();
    detector_->fail(failure, false);
  }
  segment_->unlink();
  scheduler_.emplace(*transport_);
  make_detector();
  const std::size_t tiers = topology_.tiers().size() - 1;
  // One for a flat exchange on a single host, too.
  history_.tier_clocks.resize(std::max<std::size_t>(tiers, 1));
  context_.emplace(CollectiveContext{topology_, rank_, groups, group, self, *segment_, *scheduler_,
                                     history_.counters, history_.tier_clocks,
                                     timeline_ ? &*timeline_ : nullptr});
  validation_.emplace(topology_, rank_, context_->groups, group, *segment_, between, *detector_);
  reduction_.emplace(*context_);
  plans_.emplace(topology_, rank_, oversubscribed_, segment_->divided());
  small_.emplace(*context_, *validation_, *transport_, plans_->nesting());
  broadcast_.emplace(*context_);
  all_to_all_.emplace(*context_);
  block_sizes_.emplace(*context_);
  plain_.emplace(*transport_, *scheduler_);
  const PlannerRules rules{options_.mode, options_.determinism, segment_->stage_bytes(),
                           plans_->taking_turns()};
  planner_.emplace(topology_, rules, LinkModel::assumed(tiers));
  planner_->set_model(links());
  scheduler_->reset_counters();
}

LinkModel Communicator::links() {
  const std::size_t tiers = topology_.tiers().size() - 1;
  if (rehearsed_links) {
    LinkModel model = *rehearsed_links;
    model.tiers.resize(tiers, model.tiers.back());
    return model;
  }
  LinkModel model = LinkModel::assumed(tiers);
  bool known = tiers > 0;
  for (std::size_t t = 0; t < tiers; ++t) {
    const TierLink& link = topology_.links()[t + 1];
    known = known && link.bandwidth_mbit.has_value();
    if (link.bandwidth_mbit) model.tiers[t].bytes_per_s = *link.bandwidth_mbit * 1e6 / 8;
    if (link.latency_us) model.tiers[t].latency_s = *link.latency_us * 1e-6;
  }
  if (known) {
    model.origin = "topology file";
    return model;
  }
  Backoff backoff(*detector_, *segment_, oversubscribed_ || background_);
  detector_->begin_call(0, [] { return std::string("the measurement of the links"); });
  try {
    return measured_links(*context_, backoff, transport_->data());
  } catch (const Error& error) {
    scheduler_->abandon();
    fail(error);
  }
}

Communicator::~Communicator() {
  FlightRecorder::instance().remove_communicator(recorded_as_);
  const bool failed = detector_ && detector_->failure();
  if (failed && transport_) transport_->abandon();
  if (failed || !context_) return;
  for (auto& [owners, comm] : context_->segment_comms) MPI_Comm_free(&comm);
}

}  // namespace ddl
