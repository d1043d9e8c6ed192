#include "engine/startup_exchange.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "engine/rack_measurement.hpp"
#include "support/hash.hpp"
#include "topology/discovery.hpp"
#include "topology/facts.hpp"
#include "topology/machine.hpp"
#include "transport/shared_segment.hpp"

namespace ddl {
namespace {

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

void append(std::string& text, const void* data, std::size_t bytes) {
  text.append(static_cast<const char*>(data), bytes);
}

void append(std::string& text, const std::string& field) {
  const std::uint64_t length = field.size();
  append(text, &length, sizeof length);
  text += field;
}

/// Fields in the order in which they were appended. Only fields that releases have in common may be read
/// before the release is known to be the same.
class Fields {
 public:
  explicit Fields(const std::string& text) : text_(text) {}

  std::string text() {
    std::uint64_t length = 0;
    plain(&length, sizeof length);
    std::string field(length, 0);
    plain(field.data(), length);
    return field;
  }
  void plain(void* to, std::size_t bytes) {
    if (bytes > text_.size() - at_) {
      throw Error(DDL_ERR_INTERNAL, "a rank's record ends early", "in ddl_init", "please report this defect");
    }
    std::memcpy(to, text_.data() + at_, bytes);
    at_ += bytes;
  }

 private:
  const std::string& text_;
  std::size_t at_ = 0;
};

/// The file that rank 0 reads, for all ranks. @throws Error (DDL_ERR_OPTION) the same on all ranks
std::string broadcast_file(const TreeExchange& tree, const std::string& path) {
  constexpr std::size_t most = std::size_t{64} << 20;
  // The first character tells whether it could be read.
  std::string text = "-";
  if (tree.is_root()) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream read;
    if (in && read << in.rdbuf()) text = '+' + read.str();
    if (text.size() > most) text = "-";
  }
  text = tree.broadcast(std::move(text));
  if (text[0] == '+') return text.substr(1);
  throw Error(DDL_ERR_OPTION, "rank 0 cannot read the topology file " + path, "in -topology of DDL_OPTIONS",
              "give the path of a file (less than 64 MiB) that exists on its host, or none or measure");
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

std::vector<StartupRecord> exchange_records(const TreeExchange& tree, const Options& options) {
  int world_rank = 0;
  int world_size = 1;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &world_size), "MPI_Comm_size");
  std::random_device random;
  cpu_set_t processors;
  CPU_ZERO(&processors);
  sched_getaffinity(0, sizeof processors, &processors);
  const std::uint64_t nonce = (static_cast<std::uint64_t>(random()) << 32) | random();
  std::string mine;
  append(mine, std::string(DDL_VERSION));
  append(mine, options.refused);
  append(mine, agreed_options(options));
  append(mine, local_facts(world_rank, world_size));
  append(mine, local_placement().host_key);
  append(mine, &processors, sizeof processors);
  append(mine, &nonce, sizeof nonce);
  const std::uint64_t shm_free = SharedSegment::free_bytes();
  append(mine, &shm_free, sizeof shm_free);

  const std::vector<std::string> texts = tree.all_gather(mine);
  std::vector<StartupRecord> records;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    Fields fields(texts[rank]);
    StartupRecord& record = records.emplace_back();
    record.release = fields.text();
    if (record.release != records[0].release) {
      throw Error(DDL_ERR_LAUNCH,
                  "rank " + std::to_string(rank) + " has DDL " + record.release + " but rank 0 has " +
                      records[0].release,
                  "in ddl_init", "give all hosts the same environment");
    }
    if (const std::string refused = fields.text(); !refused.empty()) {
      throw Error::received(DDL_ERR_OPTION, refused + " [on rank " + std::to_string(rank) + "]");
    }
    record.options = fields.text();
    record.facts = fields.text();
    record.machine = fields.text();
    fields.plain(&record.processors, sizeof record.processors);
    fields.plain(&record.nonce, sizeof record.nonce);
    fields.plain(&record.shm_free, sizeof record.shm_free);
    if (record.options != records[0].options) {
      throw Error(
          DDL_ERR_OPTION,
          "rank " + std::to_string(rank) + " has " + record.options + " but rank 0 has " + records[0].options,
          "in DDL_OPTIONS", "give all ranks the same options");
    }
  }
  return records;
}

bool is_oversubscribed(const std::vector<StartupRecord>& records, int rank) {
  const std::string& mine = records[static_cast<std::size_t>(rank)].machine;
  cpu_set_t processors;
  CPU_ZERO(&processors);
  int ranks = 0;
  for (const StartupRecord& record : records) {
    if (record.machine != mine) continue;
    CPU_OR(&processors, &processors, &record.processors);
    ++ranks;
  }
  return ranks > CPU_COUNT(&processors);
}

std::size_t stage_bytes_for(const std::vector<StartupRecord>& records, std::size_t most) {
  struct Machine {
    std::uint64_t ranks = 0;
    std::uint64_t free = ~std::uint64_t{0};
  };
  std::map<std::string, Machine> machines;
  for (const StartupRecord& record : records) {
    Machine& machine = machines[record.machine];
    ++machine.ranks;
    machine.free = std::min(machine.free, record.shm_free);
  }
  const auto fits = [&](std::size_t bytes) {
    return std::all_of(machines.begin(), machines.end(), [&](const auto& named) {
      const Machine& machine = named.second;
      return machine.ranks == 1 || machine.ranks * bytes <= machine.free / 2;
    });
  };
  std::size_t bytes = most;
  while (bytes > kLeastStageBytes && !fits(bytes)) bytes /= 2;
  return bytes;
}

Topology discover_topology(MPI_Comm comm, const TreeExchange& tree, int rank,
                           const std::vector<StartupRecord>& records, const Options& options) {
  std::vector<std::string> facts;
  for (const StartupRecord& record : records) facts.push_back(record.facts);
  TopologyRequest request{options.dims, options.topology, "", std::nullopt};
  const std::string& source = options.topology;
  if (source.starts_with('{')) {
    // ddlrun describes the hosts in the option itself: it knows no folder that rank 0 could read as well.
    request.file_text = source;
    request.source = "in -topology";
  } else if (!source.empty() && source != "none" && source != "measure") {
    request.file_text = broadcast_file(tree, source);
  }
  if (source == "measure" && options.known_racks == nullptr) {
    const Topology hosts = discover(facts, TopologyRequest{{}, "none", "", std::nullopt});
    request.measured = measure_all_pairs(comm, rank, hosts.hosts());
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
    MeasuredRacks racks = measure_racks(comm, rank, found.hosts());
    request.measured = std::move(racks.groups);
    request.notes.push_back(std::move(racks.note));
  }
  // What a scheduler said, and why it is not used, is still told.
  request.notes.insert(request.notes.begin(), found.notes().begin(), found.notes().end());
  request.source = "measure";
  return discover(facts, request);
}

void agree_on_success(const TreeExchange& tree, int rank, const Topology& topology,
                      const std::optional<Error>& error) {
  std::string mine;
  if (error) {
    const std::int32_t code = error->code();
    append(mine, &code, sizeof code);
    const std::string self = "on " + topology.describe_rank(rank);
    mine += error->where() == Error::kOnThisRank ? std::string(error->at(self).what())
                                                 : std::string(error->what()) + " [" + self + "]";
  }
  // Who only waited in vain for another rank knows less than that one.
  const auto knows = [](const std::string& packed) {
    std::int32_t code = 0;
    if (packed.size() >= sizeof code) std::memcpy(&code, packed.data(), sizeof code);
    return packed.empty() ? 0 : code == DDL_ERR_TIMEOUT ? 1 : 2;
  };
  const std::string first = tree.broadcast(tree.reduce(
      std::move(mine), [&](std::string a, const std::string& b) { return knows(b) > knows(a) ? b : a; }));
  if (first.empty()) return;
  std::int32_t code = 0;
  std::memcpy(&code, first.data(), sizeof code);
  throw Error::received(static_cast<DDL_Status>(code), first.substr(sizeof code));
}

}  // namespace ddl
