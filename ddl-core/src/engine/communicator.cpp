#include "engine/communicator.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <sstream>
#include <type_traits>

#include "collective/stopwatch.hpp"
#include "engine/link_measurement.hpp"
#include "support/hash.hpp"
#include "support/json.hpp"
#include "topology/discovery.hpp"
#include "topology/grouping.hpp"
#include "transport/bandwidth_probe.hpp"

namespace ddl {
namespace {

/// Owners of parts smaller than this would write the same cache lines.
constexpr std::size_t kGrainBytes = kCacheLine;

std::size_t grain_of(std::size_t width) { return std::max<std::size_t>(1, kGrainBytes / width); }

/// Up to this size a call's messages are sent before it is known that all ranks make the same call.
constexpr std::size_t kEagerBytes = std::size_t{64} << 10;

/// Up to this size a chunk is not divided among the ranks of a host.
constexpr std::size_t kUndividedBytes = std::size_t{32} << 10;

/// Calls of this size take so long that the ranks look anew at what was submitted.
constexpr std::size_t kLongCallBytes = std::size_t{4} << 20;

/// How many time limits ddl_finalize waits: one rank may well evaluate or save while the others are done.
constexpr double kFinalizePatience = 10;

/// How long the pairs of hosts may take to measure the topology.
constexpr double kProbeBudget = 10;

/// Plans of chunks that are kept: a training step repeats the same few sizes.
constexpr std::size_t kMostPlans = 512;

/// What a world of one rank does.
const std::string kCopy = "copy";

/// The chunks of an all-reduce. A reference to it fits into a std::function without memory of its own.
struct Cuts {
  const Chunking& chunking;
  std::size_t elements;
  const ChunkPlan* whole;
  const ChunkPlan* last;

  ChunkSpec chunk(std::size_t i) const {
    const bool is_last = i + 1 == chunking.chunks;
    const std::size_t begin = i * chunking.chunk_elements;
    const std::size_t end = is_last ? elements : begin + chunking.chunk_elements;
    return ChunkSpec{{begin, end}, begin, is_last ? last : whole, nullptr, -1};
  }
};

struct PlacementRecord {
  std::array<char, 512> machine_key;  ///< the host's, also when hosts are emulated
  std::array<char, 1024> options;     ///< what of DDL_OPTIONS all ranks must agree on
  cpu_set_t processors;
};

std::string agreed_options(const Options& options) {
  std::string text = std::string("-mode ") + options.mode;
  for (std::size_t i = 0; i < options.dims.size(); ++i)
    text += (i == 0 ? ':' : 'x') + std::to_string(options.dims[i]);
  if (!options.topology.empty()) text += " -topology " + options.topology;
  constexpr const char* levels[] = {"run", "placement", "off"};
  if (options.determinism != Determinism::kRun) {
    text += std::string(" -deterministic ") + levels[static_cast<int>(options.determinism)];
  }
  if (options.wire != WireFormat::kFull) text += std::string(" -wire ") + name_of(options.wire);
  return text;
}

std::vector<PlacementRecord> exchange_placements(MPI_Comm base, int size, const Options& options) {
  PlacementRecord record{};
  std::snprintf(record.machine_key.data(), record.machine_key.size(), "%s",
                local_placement().host_key.c_str());
  std::snprintf(record.options.data(), record.options.size(), "%s", agreed_options(options).c_str());
  CPU_ZERO(&record.processors);
  sched_getaffinity(0, sizeof record.processors, &record.processors);
  std::vector<PlacementRecord> records(static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(&record, sizeof record, MPI_BYTE, records.data(), sizeof record, MPI_BYTE, base),
            "MPI_Allgather");
  for (std::size_t rank = 1; rank < records.size(); ++rank) {
    if (std::strcmp(records[rank].options.data(), records[0].options.data()) == 0) continue;
    throw Error(DDL_ERR_OPTION, "rank " + std::to_string(rank) + " has " + records[rank].options.data() +
                                    " but rank 0 has " + records[0].options.data() +
                                    "; in DDL_OPTIONS; give all ranks the same options");
  }
  return records;
}

std::string format(const char* how, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), how, value);
  return text.data();
}

bool explain_wanted() {
  const char* const text = std::getenv("DDL_PLAN");
  return text != nullptr && std::strcmp(text, "explain") == 0;
}

/// True when the ranks of this machine may together use fewer processors than there are ranks, so that a
/// spinning rank would keep another from working.
bool is_crowded(const std::vector<PlacementRecord>& records, int rank) {
  const PlacementRecord& mine = records[static_cast<std::size_t>(rank)];
  cpu_set_t processors;
  CPU_ZERO(&processors);
  int ranks = 0;
  for (const PlacementRecord& record : records) {
    if (record.machine_key != mine.machine_key) continue;
    CPU_OR(&processors, &processors, &record.processors);
    ++ranks;
  }
  return ranks > CPU_COUNT(&processors);
}

std::uint64_t pid_namespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? static_cast<std::uint64_t>(info.st_ino) : 0;
}

/// All ranks' texts, by rank.
std::vector<std::string> all_gather_texts(MPI_Comm base, int size, const std::string& mine) {
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, base), "MPI_Allgather");
  std::vector<int> starts(lengths.size(), 0);
  for (std::size_t i = 1; i < lengths.size(); ++i) starts[i] = starts[i - 1] + lengths[i - 1];
  std::vector<char> together(static_cast<std::size_t>(starts.back() + lengths.back()) + 1);
  check_mpi(MPI_Allgatherv(mine.data(), length, MPI_CHAR, together.data(), lengths.data(), starts.data(),
                           MPI_CHAR, base),
            "MPI_Allgatherv");
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    texts.emplace_back(together.data() + starts[i], static_cast<std::size_t>(lengths[i]));
  }
  return texts;
}

/// The file that rank 0 reads, for all ranks. @throws Error (DDL_ERR_OPTION) the same on all ranks
std::string broadcast_file(MPI_Comm base, int rank, const std::string& path) {
  std::string text;
  long long length = -1;
  if (rank == 0) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream read;
    if (in && read << in.rdbuf()) {
      text = read.str();
      length = static_cast<long long>(text.size());
    }
    if (length > 64 << 20) length = -1;
  }
  check_mpi(MPI_Bcast(&length, 1, MPI_LONG_LONG, 0, base), "MPI_Bcast");
  if (length < 0) {
    throw Error(DDL_ERR_OPTION,
                "rank 0 cannot read the topology file " + path +
                    "; in -topology of DDL_OPTIONS; give the path of a file (less than 64 MiB) that "
                    "exists on its host, or none or measure");
  }
  text.resize(static_cast<std::size_t>(length));
  check_mpi(MPI_Bcast(text.data(), static_cast<int>(length), MPI_CHAR, 0, base), "MPI_Bcast");
  return text;
}

}  // namespace

Communicator::Communicator(const Options& options) : options_(options), explain_(explain_wanted()) {
  check_dims(options_, 1);
  topology_ = discover({local_facts()}, TopologyRequest{options_.dims, "none", "", std::nullopt});
}

Communicator::Communicator(MPI_Comm base, const Options& options)
    : options_(options), explain_(explain_wanted()) {
  int size = 1;
  check_mpi(MPI_Comm_size(base, &size), "MPI_Comm_size");
  check_mpi(MPI_Comm_rank(base, &rank_), "MPI_Comm_rank");
  // Errors from here to connect() are the same on all ranks, as all see the same records.
  const std::vector<PlacementRecord> records = exchange_placements(base, size, options_);
  check_dims(options_, size);
  crowded_ = is_crowded(records, rank_);
  discover_topology(base);
  distributed_ = size > 1;
  if (distributed_) connect(base);
}

void Communicator::discover_topology(MPI_Comm base) {
  int world_rank = 0;
  int world_size = 1;
  int size = 1;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &world_size), "MPI_Comm_size");
  check_mpi(MPI_Comm_size(base, &size), "MPI_Comm_size");
  const auto facts = all_gather_texts(base, size, local_facts(world_rank, world_size));
  TopologyRequest request{options_.dims, options_.topology, "", std::nullopt};
  const std::string& source = options_.topology;
  if (source.starts_with('{')) {
    // ddlrun describes the hosts in the option itself: it knows no folder that rank 0 could read as well.
    request.file_text = source;
    request.source = "in -topology";
  } else if (!source.empty() && source != "none" && source != "measure") {
    request.file_text = broadcast_file(base, rank_, source);
  }
  if (source == "measure") {
    const Topology hosts = discover(facts, TopologyRequest{{}, "none", "", std::nullopt});
    std::vector<int> leaders;
    for (const Host& host : hosts.hosts()) leaders.push_back(host.ranks.front());
    request.measured = group_hosts_by_bandwidth(measure_bandwidth(base, leaders, kProbeBudget));
  }
  topology_ = discover(facts, request);
}

void Communicator::agree_on_success(MPI_Comm base, const std::optional<Error>& error) {
  struct {
    int bad;
    int rank;
  } mine{error ? 1 : 0, rank_}, first{};
  check_mpi(MPI_Allreduce(&mine, &first, 1, MPI_2INT, MPI_MAXLOC, base), "MPI_Allreduce");
  if (first.bad == 0) return;
  struct {
    int code;
    std::array<char, 1024> text;
  } report{};
  if (rank_ == first.rank) {
    report.code = error->code();
    std::snprintf(report.text.data(), report.text.size(), "%s", error->what());
  }
  check_mpi(MPI_Bcast(&report, sizeof report, MPI_BYTE, first.rank, base), "MPI_Bcast");
  throw Error::verbatim(static_cast<DDL_Status>(report.code), std::string(report.text.data()) + " [on " +
                                                                  topology_.describe_rank(first.rank) + "]");
}

void Communicator::connect(MPI_Comm base) {
  const auto groups = innermost_groups(topology_.root());
  std::size_t group = 0;
  while (!std::binary_search(groups[group]->ranks.begin(), groups[group]->ranks.end(), rank_)) ++group;
  const std::vector<int>& members = groups[group]->ranks;
  const auto self =
      static_cast<std::size_t>(std::find(members.begin(), members.end(), rank_) - members.begin());

  link_.emplace(base);
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
  std::array<char, 128> name{};
  if (self == 0) {
    attempt([&] {
      segment_ =
          members.size() == 1 ? SharedSegment::create_private() : SharedSegment::create(members.size());
      std::snprintf(name.data(), name.size(), "%s", segment_->name().c_str());
    });
  }
  agree_on_success(base, error);
  MPI_Comm local = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(base, static_cast<int>(group), rank_, &local), "MPI_Comm_split");
  check_mpi(MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, local), "MPI_Bcast");
  MPI_Comm_free(&local);
  if (self != 0) attempt([&] { segment_ = SharedSegment::open(name.data(), members.size()); });
  attempt([&] {
    segment_->reserve(self);
    segment_->cell(self).pid = getpid();
    segment_->cell(self).pid_namespace = pid_namespace();
  });
  agree_on_success(base, error);
  segment_->unlink();

  MpiLink* const link = groups.size() > 1 ? &*link_ : nullptr;
  messenger_.emplace(*link_);
  attempt([&] {
    if (options_.timeline.empty()) return;
    const auto& names = topology_.tiers();
    timeline_.emplace(options_.timeline, rank_, topology_.host_name_of(rank_),
                      std::vector<std::string>(names.begin() + 1, names.end()));
  });
  agree_on_success(base, error);
  monitor_.emplace(topology_, rank_, members, *segment_, link, options_.timeout_s);
  const std::size_t tiers = topology_.tiers().size() - 1;
  // One for a flat exchange on a single host, too.
  tier_clocks_.resize(std::max<std::size_t>(tiers, 1));
  fabric_.emplace(Fabric{topology_,
                         rank_,
                         groups,
                         group,
                         self,
                         *segment_,
                         *messenger_,
                         counters_,
                         tier_clocks_,
                         timeline_ ? &*timeline_ : nullptr,
                         0,
                         0,
                         0,
                         0,
                         {}});
  agreement_.emplace(topology_, rank_, fabric_->groups, group, *segment_, link, *monitor_);
  reduction_.emplace(*fabric_);
  nesting_ = nesting_of(topology_);
  small_.emplace(*fabric_, *agreement_, *link_, nesting_);
  broadcast_.emplace(*fabric_);
  all_to_all_.emplace(*fabric_);
  plain_.emplace(*link_, *messenger_);
  for (const Shape shape : {Shape::kTiers, Shape::kHosts, Shape::kRanks}) {
    trees_.emplace(shape, shaped_tree(topology_, shape));
  }
  planner_.emplace(topology_, PlannerRules{options_.mode, options_.determinism}, LinkModel::assumed(tiers));
  planner_->set_model(links());
  messenger_->reset_counters();
}

LinkModel Communicator::links() {
  const std::size_t tiers = topology_.tiers().size() - 1;
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
  Waiter waiter(*monitor_, crowded_ || background_);
  monitor_->begin_call(0, [] { return std::string("the measurement of the links"); });
  try {
    return measured_links(*fabric_, waiter, link_->data());
  } catch (const Error& error) {
    messenger_->abandon();
    if (monitor_->failure()) throw;
    monitor_->fail(error, false);
  }
}

Communicator::~Communicator() {
  if (monitor_ && monitor_->failure() && link_) link_->abandon();
}

bool Communicator::ranks_missing() const { return monitor_ && monitor_->failure() && !monitor_->all_alive(); }

CallHeader Communicator::header_of(CallKind kind, DDL_Type type, int op, int root, std::uint64_t count,
                                   const Label& label) {
  // Here no call uses any.
  if (chunk_plans_.size() > kMostPlans || prepared_.size() > kMostPlans) {
    prepared_.clear();
    chunk_plans_.clear();
  }
  CallHeader header;
  header.sequence = ++sequence_;
  header.kind = kind;
  header.type = type;
  header.op = op;
  header.root = root;
  header.count = count;
  header.buffers = label.buffers;
  header.counts_hash = label.counts_hash;
  header.submitted = submitted_;
  header.last_s = last_seconds_;
  if (label.name != nullptr && *label.name != 0) {
    // Never 0, which stands for no name.
    header.name_hash = hash_bytes(label.name, std::strlen(label.name)) | 1;
    std::snprintf(header.name, sizeof header.name, "%s", label.name);
  }
  return header;
}

template <class Collective>
void Communicator::run(const CallHeader& header, Collective* collective, bool eager, double patience) {
  if (monitor_->failure()) throw *monitor_->failure();
  under_way_ = header;
  monitor_->begin_call(
      header.sequence, [this] { return describe_call(under_way_); }, patience * patience_);
  Waiter waiter(*monitor_, crowded_ || background_);
  try {
    agreement_->begin(header, waiter, std::is_same_v<Collective, SmallAllreduce>);
    while (true) {
      bool moved = agreement_->step();
      bool done = agreement_->complete();
      if constexpr (!std::is_void_v<Collective>) {
        try {
          moved = collective->step(agreement_->locally(), agreement_->globally() || eager) || moved;
          moved = messenger_->progress() || moved;
        } catch (const Error&) {
          // A message that does not fit may be another call's: the agreement says more about it.
          if (!eager || agreement_->globally()) throw;
          agree_after_failure(waiter);
          throw;
        }
        done = done && collective->done() && messenger_->idle();
      }
      if (done) break;
      if (moved) {
        waiter.reset();
      } else {
        waiter.idle();
      }
    }
    waiter.reset();
    counters_.wait_s += waiter.waited_s();
    submitted_by_all_ = agreement_->submitted_by_all();
    learn();
  } catch (const Error& error) {
    abandon();
    if (monitor_->failure()) throw;
    monitor_->fail(error, false);
  } catch (const std::bad_alloc&) {
    // The others must not wait for this rank.
    abandon();
    monitor_->fail(Error(DDL_ERR_MEMORY, "out of memory; on " + topology_.describe_rank(rank_) +
                                             "; free memory or raise its limit"),
                   false);
  }
}

template <class Collective, class Call>
void Communicator::carry_out(const CallHeader& header, Collective& collective, const Call& call,
                             const std::vector<std::size_t>& windows, bool eager) {
  messenger_->set_windows(windows);
  collective.start(call);
  run(header, &collective, eager);
  fabric_->chunks_done += call.chunking.chunks;
  last_chunking_ = call.chunking;
}

void Communicator::agree_after_failure(Waiter& waiter) {
  wait_while(
      waiter, [&] { return !agreement_->complete(); }, [&] { return agreement_->step(); });
}

void Communicator::abandon() {
  agreement_->abandon();
  small_->abandon();
  messenger_->abandon();
}

void Communicator::learn() {
  if (!timed_) return;
  planner_->learn(timed_->shape, timed_->candidate, agreement_->slowest_last_s());
  if (explain_ && rank_ == 0) {
    const std::string news = planner_->explain(timed_->shape);
    if (!news.empty()) std::fprintf(stderr, "[DDL] plan of %s\n", news.c_str());
  }
  timed_.reset();
}

const ChunkPlan& Communicator::chunk_plan(const Plan& plan, std::size_t count, std::size_t grain, int root) {
  const PlanKey key{plan.shape, plan.algorithms, count, grain, root};
  const auto found = chunk_plans_.find(key);
  if (found != chunk_plans_.end()) return found->second;
  const Group& tree = trees_.at(plan.shape);
  ChunkPlan made = root < 0 ? plan_allreduce_chunk(tree, rank_, count, grain, plan.algorithms,
                                                   plan.shape == Shape::kHosts ? &nesting_ : nullptr)
                            : plan_reduce_chunk(tree, rank_, root, count, grain);
  return chunk_plans_.emplace(key, std::move(made)).first->second;
}

const Communicator::Prepared& Communicator::prepared(const Plan& plan, const AllreduceShape& shape,
                                                     WireFormat wire) {
  const auto found = prepared_.find(plan.id);
  if (found != prepared_.end()) return found->second;
  Prepared made;
  made.text = plan.to_text();
  const Chunking& cut = plan.chunking;
  if (!plan.plain_mpi && plan.shape != Shape::kLeaders && cut.chunks > 0) {
    std::size_t grain = wire == WireFormat::kQ8 ? kWireBlockElements : grain_of(shape.width);
    // Small messages cost their number, not their bytes: one rank of a group exchanges all of it.
    if (shape.bytes() <= kUndividedBytes) grain = std::max<std::size_t>(shape.elements, 1);
    made.last = &chunk_plan(plan, shape.elements - (cut.chunks - 1) * cut.chunk_elements, grain);
    made.whole = cut.chunks == 1 ? made.last : &chunk_plan(plan, cut.chunk_elements, grain);
    made.by_mpi =
        std::find(made.whole->by_mpi.begin(), made.whole->by_mpi.end(), 1) != made.whole->by_mpi.end();
  }
  return prepared_.emplace(plan.id, std::move(made)).first->second;
}

const RelayNode& Communicator::relays(int root, bool chain) {
  const auto found = relays_.find({root, chain});
  if (found != relays_.end()) return found->second;
  return relays_.emplace(std::pair(root, chain), relay_node(topology_.root(), rank_, root, chain))
      .first->second;
}

void Communicator::make_segment_comms(const ChunkPlan& plan) {
  for (std::size_t t = 0; t < plan.by_mpi.size(); ++t) {
    if (plan.by_mpi[t] == 0) continue;
    for (const Segment& segment : plan.exchange.tiers[t]) {
      if (fabric_->segment_comms.count(segment.owners) != 0) continue;
      const MPI_Comm made = communicator_of(link_->data(), segment.owners, 0);
      MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
      fabric_->segment_comms.emplace(segment.owners, made);
    }
  }
}

Chunking Communicator::plain_chunking(std::size_t elements, std::size_t width) const {
  Chunking chunking;
  chunking.slot_bytes = std::size_t{256} << 10;
  chunking.slots = kMaxSlots;
  if (elements == 0) return chunking;
  chunking.chunk_elements = std::min(elements, chunking.slot_bytes / width);
  chunking.chunks = (elements + chunking.chunk_elements - 1) / chunking.chunk_elements;
  return chunking;
}

bool Communicator::use_chain(std::size_t bytes) const {
  // The binomial tree's first link carries everything log2(H) times; the chain's last host waits for H - 1
  // chunks.
  const auto hosts = static_cast<double>(fabric_->groups.size());
  double steps = 0;
  for (double reached = 1; reached < hosts; reached *= 2) ++steps;
  const double chunk = 256 << 10;
  return hosts > 2 && static_cast<double>(bytes) * (steps - 1) > (hosts - 1) * chunk;
}

void Communicator::allreduce(const BufferList& buffers, const Label& label, DDL_Type type, DDL_Op op) {
  double seconds = 0;
  const CallHeader header = header_of(CallKind::kAllreduce, type, op, 0, buffers.count(), label);
  const std::string* algorithm = &kCopy;
  if (distributed_) {
    const Stopwatch watch(seconds);
    const WireFormat wire =
        type == DDL_TYPE_FLOAT && (op == DDL_OP_SUM || op == DDL_OP_AVG) && fabric_->groups.size() > 1
            ? options_.wire
            : WireFormat::kFull;
    AllreduceShape shape;
    shape.elements = buffers.count();
    shape.width = size_of(type);
    shape.order_free = type == DDL_TYPE_INT32 || type == DDL_TYPE_INT64;
    shape.rounds_each_step = type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16;
    shape.one_buffer = buffers.buffers() == 1;
    shape.encoded = wire != WireFormat::kFull;
    const Plan& plan = planner_->choose(shape);
    const Prepared& ready = prepared(plan, shape, wire);
    algorithm = &ready.text;
    if (plan.plain_mpi) {
      plain_->start(buffers.buffer(0), buffers.count(), type, op, size());
      run(header, &*plain_);
      last_chunking_ = {};
    } else if (plan.shape == Shape::kLeaders) {
      const SmallAllreduce::Call call{
          buffers,      type, reduce_kernel(type, op), op == DDL_OP_AVG ? size() : 1, plan.algorithms.front(),
          plan.chunking};
      carry_out(header, *small_, call);
    } else {
      float* residual = nullptr;
      // Only a name tells that it is the same tensor again; what another one lost must not be added to it.
      if (wire == WireFormat::kQ8 && header.name_hash != 0) {
        auto& kept = residuals_[header.name_hash ^ header.counts_hash ^ header.count];
        kept.resize(buffers.count(), 0.0F);
        residual = kept.data();
      }
      const Cuts cuts{plan.chunking, buffers.count(), ready.whole, ready.last};
      // Where ranks share processors the redundant work would take turns.
      const bool redundant = fabric_->groups.size() == 1 && plan.shape != Shape::kRanks && !crowded_ &&
                             shape.bytes() <= kUndividedBytes;
      const ReductionCall call{buffers,
                               buffers,
                               true,
                               type,
                               op,
                               reduce_kernel(type, op),
                               op == DDL_OP_AVG ? size() : 1,
                               redundant,
                               wire,
                               residual,
                               plan.chunking,
                               [&cuts](std::size_t i) { return cuts.chunk(i); }};
      CallHeader data = header;
      if (ready.by_mpi) {
        // Communicators are made by those concerned, who must be known to be here.
        run<void>(header, nullptr);
        make_segment_comms(*ready.whole);
        make_segment_comms(*ready.last);
        data.sequence = ++sequence_;
      }
      carry_out(data, *reduction_, call, plan.windows, !ready.by_mpi && shape.bytes() <= kEagerBytes);
    }
    timed_ = Timed{shape, plan.candidate};
  }
  account(header, buffers.count() * size_of(type), *algorithm, seconds);
  if (distributed_ && buffers.count() * size_of(type) >= kLongCallBytes) {
    // Much may have been submitted meanwhile; what is urgent among it should not wait for one call more.
    run<void>(header_of(CallKind::kSchedule, DDL_TYPE_FLOAT, 0, 0, 0, Label{0, 0, nullptr}), nullptr);
  }
}

void Communicator::reduce(const BufferList& buffers, const Label& label, DDL_Type type, DDL_Op op, int root) {
  double seconds = 0;
  const CallHeader header = header_of(CallKind::kReduce, type, op, root, buffers.count(), label);
  if (distributed_) {
    const Stopwatch watch(seconds);
    const Chunking cut = plain_chunking(buffers.count(), size_of(type));
    const std::size_t grain = grain_of(size_of(type));
    ReductionCall call{
        buffers, buffers,           false,   type, op, reduce_kernel(type, op), op == DDL_OP_AVG ? size() : 1,
        false,   WireFormat::kFull, nullptr, {},   {}};
    call.chunking = cut;
    call.chunks = [&](std::size_t i) {
      const std::size_t begin = i * cut.chunk_elements;
      const std::size_t end = std::min(buffers.count(), begin + cut.chunk_elements);
      return ChunkSpec{{begin, end}, begin, &chunk_plan(Plan{}, end - begin, grain, root), nullptr, root};
    };
    carry_out(header, *reduction_, call);
  }
  account(header, buffers.count() * size_of(type),
          distributed_ ? "tiers: direct, gather to the root" : "copy", seconds);
}

void Communicator::reduce_scatter(const void* in, void* out, std::size_t count, DDL_Type type, DDL_Op op,
                                  const char* name) {
  double seconds = 0;
  const auto ranks = static_cast<std::size_t>(size());
  const std::size_t total = count * ranks;
  const CallHeader header = header_of(CallKind::kReduceScatter, type, op, 0, total,
                                      Label{1, hash_bytes(&count, sizeof count), name});
  // The input is only read: what is reduced lies in the stages.
  void* const input = const_cast<void*>(in);
  const BufferList from(&input, &total, 1, type);
  const BufferList to(&out, &count, 1, type);
  if (distributed_) {
    const Stopwatch watch(seconds);
    Chunking cut = plain_chunking(count, size_of(type));
    cut.chunks *= ranks;
    const std::size_t grain = grain_of(size_of(type));
    ReductionCall call{from,
                       to,
                       false,
                       type,
                       op,
                       reduce_kernel(type, op),
                       op == DDL_OP_AVG ? size() : 1,
                       false,
                       WireFormat::kFull,
                       nullptr,
                       {},
                       {}};
    call.chunking = cut;
    // Rank by rank within each round of chunks, so that all links are busy throughout.
    call.chunks = [&](std::size_t i) {
      const std::size_t root = i % ranks;
      const std::size_t begin = i / ranks * cut.chunk_elements;
      const std::size_t end = std::min(count, begin + cut.chunk_elements);
      const auto& plan = chunk_plan(Plan{}, end - begin, grain, static_cast<int>(root));
      return ChunkSpec{
          {root * count + begin, root * count + end}, begin, &plan, nullptr, static_cast<int>(root)};
    };
    carry_out(header, *reduction_, call);
  } else {
    from.copy_out({0, count}, static_cast<char*>(out));
  }
  account(header, total * size_of(type), distributed_ ? "tiers: direct, each block to its rank" : "copy",
          seconds);
}

void Communicator::broadcast(const BufferList& buffers, const Label& label, DDL_Type type, int root) {
  double seconds = 0;
  const CallHeader header = header_of(CallKind::kBroadcast, type, 0, root, buffers.count(), label);
  std::string algorithm = "copy";
  if (distributed_) {
    const Stopwatch watch(seconds);
    const Chunking cut = plain_chunking(buffers.count(), size_of(type));
    const bool chain = use_chain(buffers.count() * size_of(type));
    algorithm = chain ? "chain of hosts" : "binomial tree of hosts";
    const RelayNode& node = relays(root, chain);
    const BroadcastCall call{buffers, buffers, true, type, cut, [&](std::size_t i) {
                               const std::size_t begin = i * cut.chunk_elements;
                               const std::size_t end = std::min(buffers.count(), begin + cut.chunk_elements);
                               return ChunkSpec{{begin, end}, begin, nullptr, &node, root};
                             }};
    carry_out(header, *broadcast_, call, {}, buffers.count() * size_of(type) <= kEagerBytes);
  }
  account(header, buffers.count() * size_of(type), algorithm, seconds);
}

void Communicator::all_gather(const void* in, void* out, std::size_t count, DDL_Type type, const char* name) {
  double seconds = 0;
  const auto ranks = static_cast<std::size_t>(size());
  const CallHeader header = header_of(CallKind::kAllGather, type, 0, 0, count * ranks,
                                      Label{1, hash_bytes(&count, sizeof count), name});
  void* const input = const_cast<void*>(in);
  const std::size_t total = count * ranks;
  const BufferList from(&input, &count, 1, type);
  const BufferList to(&out, &total, 1, type);
  if (distributed_) {
    const Stopwatch watch(seconds);
    Chunking cut = plain_chunking(count, size_of(type));
    cut.chunks *= ranks;
    const bool chain = use_chain(count * ranks * size_of(type));
    // A chunk of every rank in turn: all chains are busy, each at another host.
    const BroadcastCall call{from, to, false, type, cut, [&](std::size_t i) {
                               const std::size_t root = i % ranks;
                               const std::size_t begin = i / ranks * cut.chunk_elements;
                               const std::size_t end = std::min(count, begin + cut.chunk_elements);
                               return ChunkSpec{{begin, end},
                                                root * count + begin,
                                                nullptr,
                                                &relays(static_cast<int>(root), chain),
                                                static_cast<int>(root)};
                             }};
    carry_out(header, *broadcast_, call);
  } else {
    from.copy_out({0, count}, static_cast<char*>(out));
  }
  account(header, total * size_of(type), distributed_ ? "a broadcast from every rank" : "copy", seconds);
}

void Communicator::all_to_all(const void* in, void* out, std::size_t count, DDL_Type type, const char* name) {
  double seconds = 0;
  const std::size_t total = count * static_cast<std::size_t>(size());
  const CallHeader header =
      header_of(CallKind::kAllToAll, type, 0, 0, total, Label{1, hash_bytes(&count, sizeof count), name});
  if (distributed_) {
    const Stopwatch watch(seconds);
    messenger_->set_windows({});
    all_to_all_->start(static_cast<const char*>(in), static_cast<char*>(out), count * size_of(type));
    run(header, &*all_to_all_);
  } else if (total > 0) {
    std::memcpy(out, in, total * size_of(type));
  }
  account(header, total * size_of(type), distributed_ ? "pairwise exchange" : "copy", seconds);
}

void Communicator::exchange(std::vector<ExchangedBlocks> blocks, const char* name) {
  double seconds = 0;
  std::size_t bytes = 0;
  for (const ExchangedBlocks& block : blocks) bytes += block.in_bytes;
  const CallHeader header = header_of(CallKind::kExchange, DDL_TYPE_FLOAT, 0, 0, 0, Label{1, 0, name});
  if (distributed_) {
    const Stopwatch watch(seconds);
    messenger_->set_windows({});
    all_to_all_->start(std::move(blocks));
    run(header, &*all_to_all_);
  } else if (bytes > 0) {
    std::memcpy(blocks[0].out, blocks[0].in, bytes);
  }
  account(header, bytes, distributed_ ? "pairwise exchange" : "copy", seconds);
}

void Communicator::barrier() {
  double seconds = 0;
  const CallHeader header = header_of(CallKind::kBarrier, DDL_TYPE_FLOAT, 0, 0, 0, Label{0, 0, nullptr});
  if (distributed_) {
    const Stopwatch watch(seconds);
    run<void>(header, nullptr);
  }
  account(header, 0, "agreement", seconds);
}

void Communicator::finalize() {
  if (!distributed_ || monitor_->failure()) return;
  const CallHeader header = header_of(CallKind::kFinalize, DDL_TYPE_FLOAT, 0, 0, 0, Label{0, 0, nullptr});
  run<void>(header, nullptr, false, kFinalizePatience);
}

void Communicator::allreduce_plain(void* buf, std::size_t count, DDL_Type type, DDL_Op op) {
  double seconds = 0;
  const Label label{1, hash_bytes(&count, sizeof count), nullptr};
  const CallHeader header = header_of(CallKind::kPlainAllreduce, type, op, 0, count, label);
  if (distributed_) {
    const Stopwatch watch(seconds);
    plain_->start(static_cast<char*>(buf), count, type, op, size());
    run(header, &*plain_);
  }
  account(header, count * size_of(type), "MPI_Allreduce", seconds);
}

void Communicator::account(const CallHeader& header, std::size_t bytes, const std::string& algorithm,
                           double seconds) {
  ++counters_.calls;
  counters_.bytes += bytes;
  counters_.total_s += seconds;
  if (algorithm != last_algorithm_ || last_algorithm_calls_ == nullptr) {
    last_algorithm_ = algorithm;
    last_algorithm_calls_ = &calls_by_algorithm_[algorithm.substr(0, algorithm.find(';'))];
  }
  ++*last_algorithm_calls_;
  last_call_ = header;
  last_seconds_ = seconds;
  if (timeline_) {
    const auto now = Timeline::Clock::now();
    const auto took =
        std::chrono::duration_cast<Timeline::Clock::duration>(std::chrono::duration<double>(seconds));
    timeline_->add(describe_call(last_call_) + " by " + algorithm, Timeline::kCalls, now - took, now,
                   header.sequence);
    timeline_->flush();
  }
  if (header.kind == CallKind::kAllreduce && options_.dump_iter > 0 && distributed_ &&
      counters_.calls % static_cast<std::uint64_t>(options_.dump_iter) == 0) {
    dump(algorithm, seconds);
  }
}

void Communicator::dump(const std::string& algorithm, double seconds) {
  // A rank that computes longer comes later and waits less: the one that waited least is the slowest.
  struct Times {
    double waited;
    int rank;
  };
  const Times mine{counters_.wait_s - wait_at_last_dump_, rank_};
  wait_at_last_dump_ = counters_.wait_s;
  std::vector<Times> all(rank_ == 0 ? static_cast<std::size_t>(size()) : 0);
  MPI_Request request = MPI_REQUEST_NULL;
  int pending = 0;
  try {
    check_mpi(MPI_Igather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, 0, link_->data(),
                          &request),
              "MPI_Igather");
    messenger_->watch(request, &pending);
    Waiter waiter(*monitor_, crowded_ || background_);
    wait_while(
        waiter, [&] { return pending > 0; }, [&] { return messenger_->progress(); });
  } catch (const Error& error) {
    abandon();
    if (monitor_->failure()) throw;
    monitor_->fail(error, false);
  }
  if (rank_ != 0) return;
  const auto slowest = std::min_element(all.begin(), all.end(),
                                        [](const Times& a, const Times& b) { return a.waited < b.waited; });
  slowest_ = topology_.describe_rank(slowest->rank);
  std::string tiers = "host " + format("%.6f s", counters_.post_s + counters_.reduce_s + counters_.gather_s);
  for (std::size_t t = 0; t + 1 < topology_.tiers().size(); ++t) {
    tiers += ", " + topology_.tiers()[t + 1] + format(" %.6f s", tier_clocks_[t].busy_s());
  }
  std::fprintf(
      stderr,
      "[DDL] call %llu: %s by %s in %.6f s; since the start: %s, waiting %.6f s, end to end %.6f s; slowest "
      "learner since the last line: %s\n",
      static_cast<unsigned long long>(counters_.calls), describe_call(last_call_).c_str(), algorithm.c_str(),
      seconds, tiers.c_str(), counters_.wait_s, counters_.total_s, slowest_.c_str());
}

std::string Communicator::stats_json() const {
  std::string out =
      "{\"calls\":" + std::to_string(counters_.calls) + ",\"bytes\":" + std::to_string(counters_.bytes) +
      ",\"messages_sent\":" + std::to_string(messenger_ ? messenger_->messages_sent() : 0) +
      ",\"bytes_sent\":" + std::to_string(messenger_ ? messenger_->bytes_sent() : 0) +
      ",\"seconds\":{\"total\":" + format("%.9g", counters_.total_s) +
      ",\"post\":" + format("%.9g", counters_.post_s) + ",\"reduce\":" + format("%.9g", counters_.reduce_s) +
      ",\"gather\":" + format("%.9g", counters_.gather_s) + ",\"wait\":" + format("%.9g", counters_.wait_s) +
      "},\"tiers\":[";
  for (std::size_t t = 0; t + 1 < topology_.tiers().size(); ++t) {
    out += (t > 0 ? ",{\"tier\":" : "{\"tier\":") + json_string(topology_.tiers()[t + 1]) +
           ",\"busy_s\":" + format("%.9g", t < tier_clocks_.size() ? tier_clocks_[t].busy_s() : 0) + "}";
  }
  out += "],\"algorithms\":{";
  bool first = true;
  for (const auto& [algorithm, calls] : calls_by_algorithm_) {
    out += (first ? "" : ",") + json_string(algorithm) + ":" + std::to_string(calls);
    first = false;
  }
  return out + "}}";
}

std::string Communicator::to_json() const {
  std::string out = "{\"version\":" + json_string(ddl_version());
  out += ",\"rank\":" + std::to_string(rank_) + ",\"size\":" + std::to_string(size());
  out += ",\"mode\":" + json_string(std::string(1, options_.mode));
  out += ",\"options\":" + json_string(options_.text);
  out += ",\"timeout_s\":" + format("%.9g", options_.timeout_s);
  out += ",\"kernels\":" + json_string(kernel_isa());
  out += ",\"topology\":" + topology_.to_json();
  out += ",\"transports\":" + std::string(!distributed_                 ? "[]"
                                          : fabric_->groups.size() == 1 ? "[\"shared memory\"]"
                                          : segment_->ranks() > 1       ? "[\"shared memory\",\"MPI\"]"
                                                                        : "[\"MPI\"]");
  out += ",\"waiting\":" + json_string(crowded_ ? "yield" : "spin, then yield");
  out += ",\"last\":{\"call\":" + json_string(counters_.calls == 0 ? "none" : describe_call(last_call_)) +
         ",\"algorithm\":" + json_string(last_algorithm_) + ",\"seconds\":" + format("%.9g", last_seconds_) +
         ",\"chunks\":" + std::to_string(last_chunking_.chunks) +
         ",\"chunk_elements\":" + std::to_string(last_chunking_.chunk_elements) + "}";
  out += ",\"counters\":" + stats_json();
  out +=
      ",\"failure\":" + (monitor_ && monitor_->failure() ? json_string(monitor_->failure()->what()) : "null");
  return out + "}";
}

}  // namespace ddl
