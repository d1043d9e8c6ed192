#include "engine/communicator.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>

#include "collective/stopwatch.hpp"
#include "support/hash.hpp"
#include "support/json.hpp"

namespace ddl {
namespace {

/// Owners of parts smaller than this would write the same cache lines.
constexpr std::size_t kGrainBytes = kCacheLine;

/// How many time limits ddl_finalize waits: one rank may well evaluate or save while the others are done.
constexpr double kFinalizePatience = 10;

struct PlacementRecord {
  std::array<char, 256> host_name;
  std::array<char, 512> host_key;
  std::array<char, 512> machine_key;  ///< the host's, also when hosts are emulated
  std::array<char, 256> grouping;     ///< what of DDL_OPTIONS all ranks must agree on
  cpu_set_t processors;
};

/// Where this process runs, or is told to pretend to. Emulated hosts are those of MPI_COMM_WORLD, whatever
/// communicator is looked at.
Placement emulated_placement(Placement real) {
  const char* const emulated = std::getenv("DDL_EMULATE_HOSTS");
  if (emulated == nullptr || *emulated == 0) return real;
  int size = 1;
  int rank = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  emulate_host(real, parse_emulated_hosts(emulated, size), rank);
  return real;
}

std::string grouping_of(const Options& options) {
  std::string text = std::string("-mode ") + options.mode;
  for (std::size_t i = 0; i < options.dims.size(); ++i)
    text += (i == 0 ? ':' : 'x') + std::to_string(options.dims[i]);
  return text;
}

std::vector<PlacementRecord> exchange_placements(MPI_Comm base, int size, const Options& options) {
  const Placement real = local_placement();
  const Placement mine = emulated_placement(real);
  PlacementRecord record{};
  std::snprintf(record.machine_key.data(), record.machine_key.size(), "%s", real.host_key.c_str());
  std::snprintf(record.host_name.data(), record.host_name.size(), "%s", mine.host_name.c_str());
  std::snprintf(record.host_key.data(), record.host_key.size(), "%s", mine.host_key.c_str());
  std::snprintf(record.grouping.data(), record.grouping.size(), "%s", grouping_of(options).c_str());
  CPU_ZERO(&record.processors);
  sched_getaffinity(0, sizeof record.processors, &record.processors);
  std::vector<PlacementRecord> records(static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(&record, sizeof record, MPI_BYTE, records.data(), sizeof record, MPI_BYTE, base),
            "MPI_Allgather");
  for (std::size_t rank = 1; rank < records.size(); ++rank) {
    if (std::strcmp(records[rank].grouping.data(), records[0].grouping.data()) == 0) continue;
    throw Error(DDL_ERR_OPTION, "rank " + std::to_string(rank) + " has " + records[rank].grouping.data() +
                                    " but rank 0 has " + records[0].grouping.data() +
                                    "; in DDL_OPTIONS; give all ranks the same options");
  }
  return records;
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

}  // namespace

Communicator::Communicator(const Options& options) : options_(options) {
  check_dims(options_, 1);
  topology_ = Topology::build({local_placement()}, options_.dims);
}

Communicator::Communicator(MPI_Comm base, const Options& options) : options_(options) {
  int size = 1;
  check_mpi(MPI_Comm_size(base, &size), "MPI_Comm_size");
  check_mpi(MPI_Comm_rank(base, &rank_), "MPI_Comm_rank");
  // Errors from here to connect() are the same on all ranks, as all see the same records.
  const std::vector<PlacementRecord> records = exchange_placements(base, size, options_);
  check_dims(options_, size);
  crowded_ = is_crowded(records, rank_);
  std::vector<Placement> placements;
  for (const PlacementRecord& record : records) {
    placements.push_back({record.host_name.data(), record.host_key.data()});
  }
  topology_ = Topology::build(placements, options_.dims);
  distributed_ = size > 1;
  if (distributed_) connect(base);
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
  const auto groups = innermost_groups(topology_);
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
  monitor_.emplace(topology_, rank_, members, *segment_, link, options_.timeout_s);
  fabric_.emplace(Fabric{topology_, rank_, groups, group, self, *segment_, link, counters_, 0});
  agreement_.emplace(topology_, rank_, fabric_->groups, group, *segment_, link, *monitor_);
  allreduce_.emplace(*fabric_);
  broadcast_.emplace(*fabric_);
}

Communicator::~Communicator() {
  if (monitor_ && monitor_->failure() && link_) link_->abandon();
}

bool Communicator::ranks_missing() const { return monitor_ && monitor_->failure() && !monitor_->all_alive(); }

CallHeader Communicator::header_of(CallKind kind, DDL_Type type, int op, int root, std::uint64_t count,
                                   std::uint64_t n, std::uint64_t counts_hash, const char* name) {
  CallHeader header;
  header.sequence = ++sequence_;
  header.kind = kind;
  header.type = type;
  header.op = op;
  header.root = root;
  header.count = count;
  header.buffers = n;
  header.counts_hash = counts_hash;
  if (name != nullptr && *name != 0) {
    // Never 0, which stands for no name.
    header.name_hash = hash_bytes(name, std::strlen(name)) | 1;
    std::snprintf(header.name, sizeof header.name, "%s", name);
  }
  return header;
}

template <class Collective>
void Communicator::run(const CallHeader& header, Collective* collective, double patience) {
  if (monitor_->failure()) throw *monitor_->failure();
  monitor_->begin_call(header.sequence, describe_call(header), patience);
  Waiter waiter(*monitor_, crowded_);
  try {
    agreement_->begin(header, waiter);
    while (true) {
      bool moved = agreement_->step();
      bool done = agreement_->complete();
      if constexpr (!std::is_void_v<Collective>) {
        moved = collective->step(agreement_->locally(), agreement_->globally()) || moved;
        done = done && collective->done();
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

void Communicator::abandon() {
  agreement_->abandon();
  allreduce_->abandon();
  broadcast_->abandon();
}

const Exchange& Communicator::exchange_for(std::size_t elements, std::size_t grain) {
  // A training step repeats the same few sizes; a program with endlessly many must not fill the memory.
  constexpr std::size_t limit = 64;
  const auto key = std::pair(elements, grain);
  auto found = exchanges_.find(key);
  if (found != exchanges_.end()) return found->second;
  if (exchanges_.size() >= limit) exchanges_.clear();
  return exchanges_.emplace(key, plan_exchange(topology_, rank_, elements, grain)).first->second;
}

void Communicator::allreduce(const BufferList& buffers, std::uint64_t counts_hash, std::uint64_t n,
                             DDL_Type type, DDL_Op op, const char* name) {
  double seconds = 0;
  const CallHeader header =
      header_of(CallKind::kAllreduce, type, op, 0, buffers.count(), n, counts_hash, name);
  const Chunking chunking = plan_chunks(topology_, buffers.count(), type);
  if (distributed_) {
    const Stopwatch watch(seconds);
    const std::size_t grain = std::max<std::size_t>(1, kGrainBytes / size_of(type));
    Exchange whole;
    Exchange last;
    if (chunking.chunks > 0) {
      whole = exchange_for(chunking.chunk_elements, grain);
      last = exchange_for(buffers.count() - (chunking.chunks - 1) * chunking.chunk_elements, grain);
    }
    const AllreduceCall call{buffers, type, reduce_kernel(type, op), op == DDL_OP_AVG ? size() : 1,
                             whole,   last};
    allreduce_->start(call, chunking);
    run(header, &*allreduce_);
    fabric_->chunks_done += chunking.chunks;
  }
  last_chunks_ = chunking.chunks;
  last_chunk_bytes_ = chunking.chunk_elements * size_of(type);
  account(header, buffers.count() * size_of(type),
          distributed_ ? "tiered reduce-scatter + all-gather" : "copy", seconds);
}

void Communicator::broadcast(const BufferList& buffers, std::uint64_t counts_hash, std::uint64_t n,
                             DDL_Type type, int root, const char* name) {
  double seconds = 0;
  const CallHeader header =
      header_of(CallKind::kBroadcast, type, 0, root, buffers.count(), n, counts_hash, name);
  const Chunking chunking = plan_chunks(topology_, buffers.count(), type);
  if (distributed_) {
    const Stopwatch watch(seconds);
    broadcast_->start(buffers, type, root, chunking);
    run(header, &*broadcast_);
    fabric_->chunks_done += chunking.chunks;
  }
  last_chunks_ = chunking.chunks;
  last_chunk_bytes_ = chunking.chunk_elements * size_of(type);
  account(header, buffers.count() * size_of(type), distributed_ ? "binomial tree over hosts" : "copy",
          seconds);
}

void Communicator::barrier() {
  double seconds = 0;
  const CallHeader header = header_of(CallKind::kBarrier, DDL_TYPE_FLOAT, 0, 0, 0, 0, 0, nullptr);
  if (distributed_) {
    const Stopwatch watch(seconds);
    run<void>(header, nullptr);
  }
  account(header, 0, "agreement", seconds);
}

void Communicator::finalize() {
  if (!distributed_ || monitor_->failure()) return;
  const CallHeader header = header_of(CallKind::kFinalize, DDL_TYPE_FLOAT, 0, 0, 0, 0, 0, nullptr);
  run<void>(header, nullptr, kFinalizePatience);
}

namespace {

template <DDL_Type type, DDL_Op op>
void mpi_reduce(void* in, void* inout, int* count, MPI_Datatype*) {
  const void* sources[2] = {in, inout};
  reduce_kernel(type, op)(inout, sources, 2, static_cast<std::size_t>(*count), 1);
}

/// MPI has no 16-bit floating-point types, so these two come with reductions of our own.
template <DDL_Type type>
MPI_User_function* mpi_function(DDL_Op op) {
  switch (op) {
    case DDL_OP_MIN:
      return mpi_reduce<type, DDL_OP_MIN>;
    case DDL_OP_MAX:
      return mpi_reduce<type, DDL_OP_MAX>;
    case DDL_OP_PRODUCT:
      return mpi_reduce<type, DDL_OP_PRODUCT>;
    default:
      return mpi_reduce<type, DDL_OP_SUM>;
  }
}

MPI_Op mpi_op(DDL_Op op) {
  switch (op) {
    case DDL_OP_MIN:
      return MPI_MIN;
    case DDL_OP_MAX:
      return MPI_MAX;
    case DDL_OP_PRODUCT:
      return MPI_PROD;
    default:
      return MPI_SUM;
  }
}

}  // namespace

void Communicator::reduce_with_mpi(char* buf, std::size_t count, DDL_Type type, DDL_Op op) {
  constexpr std::size_t at_most = std::size_t{1} << 30;
  MPI_Datatype datatype = MPI_DATATYPE_NULL;
  MPI_Op operation = mpi_op(op);
  const bool own = type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16;
  switch (type) {
    case DDL_TYPE_FLOAT:
      datatype = MPI_FLOAT;
      break;
    case DDL_TYPE_DOUBLE:
      datatype = MPI_DOUBLE;
      break;
    case DDL_TYPE_INT32:
      datatype = MPI_INT32_T;
      break;
    case DDL_TYPE_INT64:
      datatype = MPI_INT64_T;
      break;
    case DDL_TYPE_HALF:
    case DDL_TYPE_BFLOAT16: {
      MPI_Type_contiguous(2, MPI_BYTE, &datatype);
      MPI_Type_commit(&datatype);
      MPI_User_function* const function =
          type == DDL_TYPE_HALF ? mpi_function<DDL_TYPE_HALF>(op) : mpi_function<DDL_TYPE_BFLOAT16>(op);
      MPI_Op_create(function, 1, &operation);
      break;
    }
  }
  int rc = MPI_SUCCESS;
  for (std::size_t at = 0; at < count && rc == MPI_SUCCESS; at += at_most) {
    const auto part = static_cast<int>(std::min(at_most, count - at));
    rc = MPI_Allreduce(MPI_IN_PLACE, buf + at * size_of(type), part, datatype, operation, link_->data());
  }
  if (own) {
    MPI_Op_free(&operation);
    MPI_Type_free(&datatype);
  }
  check_mpi(rc, "MPI_Allreduce");
  if (op == DDL_OP_AVG) {
    const void* source = buf;
    reduce_kernel(type, op)(buf, &source, 1, count, size());
  }
}

void Communicator::allreduce_plain(void* buf, std::size_t count, DDL_Type type, DDL_Op op) {
  double seconds = 0;
  const std::uint64_t hash = hash_bytes(&count, sizeof count);
  const CallHeader header = header_of(CallKind::kPlainAllreduce, type, op, 0, count, 1, hash, nullptr);
  if (distributed_) {
    const Stopwatch watch(seconds);
    run<void>(header, nullptr);
    try {
      reduce_with_mpi(static_cast<char*>(buf), count, type, op);
    } catch (const Error& error) {
      monitor_->fail(error, false);
    }
  }
  account(header, count * size_of(type), "MPI_Allreduce", seconds);
}

void Communicator::account(const CallHeader& header, std::size_t bytes, const char* algorithm,
                           double seconds) {
  ++counters_.calls;
  counters_.bytes += bytes;
  counters_.total_s += seconds;
  last_algorithm_ = algorithm;
  last_call_ = describe_call(header);
  last_seconds_ = seconds;
  if (header.kind == CallKind::kAllreduce && options_.dump_iter > 0 && rank_ == 0 &&
      counters_.calls % static_cast<std::uint64_t>(options_.dump_iter) == 0) {
    std::fprintf(
        stderr,
        "[DDL] call %llu: %s by %s in %.6f s; since the start: post %.6f s, reduce %.6f s, gather %.6f s, "
        "wait %.6f s, end to end %.6f s\n",
        static_cast<unsigned long long>(counters_.calls), last_call_.c_str(), algorithm, seconds,
        counters_.post_s, counters_.reduce_s, counters_.gather_s, counters_.wait_s, counters_.total_s);
  }
}

std::string Communicator::to_json() const {
  const auto number = [](double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.9g", value);
    return std::string(text);
  };
  std::string out = "{\"version\":" + json_string(ddl_version());
  out += ",\"rank\":" + std::to_string(rank_) + ",\"size\":" + std::to_string(size());
  out += ",\"mode\":" + json_string(std::string(1, options_.mode));
  out += ",\"options\":" + json_string(options_.text);
  out += ",\"timeout_s\":" + number(options_.timeout_s);
  out += ",\"kernels\":" + json_string(kernel_isa());
  out += ",\"topology\":" + topology_.to_json();
  out += ",\"transports\":" + std::string(!distributed_           ? "[]"
                                          : !fabric_->link        ? "[\"shared memory\"]"
                                          : segment_->ranks() > 1 ? "[\"shared memory\",\"MPI\"]"
                                                                  : "[\"MPI\"]");
  out += ",\"waiting\":" + json_string(crowded_ ? "yield" : "spin, then yield");
  out += ",\"last\":{\"call\":" + json_string(last_call_) + ",\"algorithm\":" + json_string(last_algorithm_) +
         ",\"seconds\":" + number(last_seconds_) + ",\"chunks\":" + std::to_string(last_chunks_) +
         ",\"chunk_bytes\":" + std::to_string(last_chunk_bytes_) + "}";
  out += ",\"counters\":{\"calls\":" + std::to_string(counters_.calls) +
         ",\"bytes\":" + std::to_string(counters_.bytes) +
         ",\"messages_sent\":" + std::to_string(counters_.messages_sent) +
         ",\"bytes_sent\":" + std::to_string(counters_.bytes_sent) +
         ",\"seconds\":{\"total\":" + number(counters_.total_s) + ",\"post\":" + number(counters_.post_s) +
         ",\"reduce\":" + number(counters_.reduce_s) + ",\"gather\":" + number(counters_.gather_s) +
         ",\"wait\":" + number(counters_.wait_s) + "}}";
  out +=
      ",\"failure\":" + (monitor_ && monitor_->failure() ? json_string(monitor_->failure()->what()) : "null");
  return out + "}";
}

}  // namespace ddl
