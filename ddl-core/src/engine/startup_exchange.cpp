#include "engine/startup_exchange.hpp"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "engine/rack_measurement.hpp"
#include "support/hash.hpp"
#include "topology/discovery.hpp"
#include "topology/facts.hpp"
#include "topology/grouping.hpp"
#include "transport/bandwidth_probe.hpp"

namespace ddl {
namespace {

/// How long the pairs of hosts may take to measure the topology.
constexpr double kProbeBudget = 10;

/// Of a topology in the options so many bytes are compared, and shown, as they are.
constexpr std::size_t kWholeTopology = 512;

std::string agreed_options(const Options& options) {
  std::string text = std::string("-mode ") + options.mode;
  for (std::size_t i = 0; i < options.dims.size(); ++i)
    text += (i == 0 ? ':' : 'x') + std::to_string(options.dims[i]);
  constexpr const char* levels[] = {"run", "placement", "off"};
  if (options.determinism != Determinism::kRun) {
    text += std::string(" -deterministic ") + levels[static_cast<int>(options.determinism)];
  }
  if (options.wire != WireFormat::kFull) text += std::string(" -wire ") + name_of(options.wire);
  if (options.dump_iter > 0) text += " -dump_iter " + std::to_string(options.dump_iter);
  if (options.topology.empty()) return text;
  if (options.topology.size() <= kWholeTopology) return text + " -topology " + options.topology;
  // A description of many hosts: its beginning may be the same where the whole is not.
  char digest[64];
  std::snprintf(
      digest, sizeof digest, "… (%zu bytes, %016llx)", options.topology.size(),
      static_cast<unsigned long long>(hash_bytes(options.topology.data(), options.topology.size())));
  return text + " -topology " + options.topology.substr(0, kWholeTopology) + digest;
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

/// Whether every host is a machine of its own. Between emulated hosts there are no links to measure.
bool are_machines(const std::vector<std::string>& facts, std::size_t hosts) {
  std::set<std::string> machines;
  for (const std::string& text : facts) machines.insert(parse_facts(text).machine_key);
  return machines.size() == hosts;
}

/// Groups of these hosts as a larger job knows them.
std::vector<std::vector<int>> grouped_as(const HostRacks& racks, const std::vector<Host>& hosts) {
  std::map<int, std::vector<int>> groups;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const auto found = racks.find(hosts[h].key);
    groups[found == racks.end() ? -1 : found->second].push_back(static_cast<int>(h));
  }
  std::vector<std::vector<int>> all;
  for (auto& [rack, members] : groups) all.push_back(std::move(members));
  return all;
}

}  // namespace

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

bool is_oversubscribed(const std::vector<PlacementRecord>& records, int rank) {
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

Topology discover_topology(MPI_Comm base, int rank, const Options& options) {
  int world_rank = 0;
  int world_size = 1;
  int size = 1;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &world_size), "MPI_Comm_size");
  check_mpi(MPI_Comm_size(base, &size), "MPI_Comm_size");
  const auto facts = all_gather_texts(base, size, local_facts(world_rank, world_size));
  TopologyRequest request{options.dims, options.topology, "", std::nullopt};
  const std::string& source = options.topology;
  if (source.starts_with('{')) {
    // ddlrun describes the hosts in the option itself: it knows no folder that rank 0 could read as well.
    request.file_text = source;
    request.source = "in -topology";
  } else if (!source.empty() && source != "none" && source != "measure") {
    request.file_text = broadcast_file(base, rank, source);
  }
  if (source == "measure" && options.known_racks == nullptr) {
    const Topology hosts = discover(facts, TopologyRequest{{}, "none", "", std::nullopt});
    std::vector<int> leaders;
    for (const Host& host : hosts.hosts()) leaders.push_back(host.ranks.front());
    request.measured = group_hosts_by_bandwidth(measure_bandwidth(base, leaders, kProbeBudget));
  }
  Topology found = discover(facts, request);
  const bool wanted = source == "measure" && options.known_racks != nullptr;
  if (wanted) {
    request.measured = grouped_as(*options.known_racks, found.hosts());
    return discover(facts, request);
  }
  if (found.source() != "hosts" || source == "none" || !options.dims.empty()) return found;
  if (found.hosts().size() < kFewestHostsToMeasure || !are_machines(facts, found.hosts().size()))
    return found;
  if (options.known_racks != nullptr) {
    request.measured = grouped_as(*options.known_racks, found.hosts());
  } else if (found.hosts().size() > kMostHostsToMeasure) {
    request.notes.push_back("more than " + std::to_string(kMostHostsToMeasure) +
                            " hosts: their racks are not measured; describe them in a topology file");
    return discover(facts, request);
  } else {
    MeasuredRacks racks = measure_racks(base, rank, found.hosts());
    request.measured = std::move(racks.groups);
    request.notes.push_back(std::move(racks.note));
  }
  // What a scheduler said, and why it is not used, is still told.
  request.notes.insert(request.notes.begin(), found.notes().begin(), found.notes().end());
  request.source = "measure";
  return discover(facts, request);
}

void agree_on_success(MPI_Comm base, int rank, const Topology& topology, const std::optional<Error>& error) {
  struct {
    int bad;
    int rank;
  } mine{error ? 1 : 0, rank}, first{};
  check_mpi(MPI_Allreduce(&mine, &first, 1, MPI_2INT, MPI_MAXLOC, base), "MPI_Allreduce");
  if (first.bad == 0) return;
  struct {
    int code;
    std::array<char, 1024> text;
  } report{};
  if (rank == first.rank) {
    report.code = error->code();
    std::snprintf(report.text.data(), report.text.size(), "%s", error->what());
  }
  check_mpi(MPI_Bcast(&report, sizeof report, MPI_BYTE, first.rank, base), "MPI_Bcast");
  throw Error::verbatim(static_cast<DDL_Status>(report.code),
                        std::string(report.text.data()) + " [on " + topology.describe_rank(first.rank) + "]");
}

}  // namespace ddl
