// What the ranks of a real job discover: prints the topology as rank 0 sees it, as JSON or as text, and fails
// unless all ranks see the same one.
//
// usage: topology_ranks [--text] [--dims AxBxC] [--topology none|measure|FILE] [--budget SECONDS]
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "support/error.hpp"
#include "support/hash.hpp"
#include "topology/discovery.hpp"
#include "topology/grouping.hpp"
#include "transport/bandwidth_probe.hpp"
#include "transport/tree_exchange.hpp"

namespace {

std::vector<std::string> gather(const std::string& mine, int size) {
  const auto length = static_cast<int>(mine.size());
  std::vector<int> lengths(static_cast<std::size_t>(size));
  MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::vector<int> offsets;
  int total = 0;
  for (const int n : lengths) {
    offsets.push_back(total);
    total += n;
  }
  std::string all(static_cast<std::size_t>(total), '\0');
  MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(), MPI_CHAR,
                 MPI_COMM_WORLD);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    texts.push_back(
        all.substr(static_cast<std::size_t>(offsets[rank]), static_cast<std::size_t>(lengths[rank])));
  }
  return texts;
}

std::vector<int> parse_dims(const std::string& text) {
  std::vector<int> dims;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at <= end;) {
    int size = 0;
    at = std::from_chars(at, end, size).ptr + 1;
    dims.push_back(size);
  }
  return dims;
}

int run(const std::vector<std::string>& words) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  ddl::TopologyRequest request;
  bool text = false;
  double budget = 2;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--text") {
      text = true;
    } else if (i + 1 < words.size() && words[i] == "--dims") {
      request.dims = parse_dims(words[++i]);
    } else if (i + 1 < words.size() && words[i] == "--topology") {
      request.source = words[++i];
    } else if (i + 1 < words.size() && words[i] == "--budget") {
      budget = std::stod(words[++i]);
    } else {
      std::fprintf(stderr, "unknown argument %s\n", words[i].c_str());
      return 2;
    }
  }
  if (!request.source.empty() && request.source != "none" && request.source != "measure") {
    std::ifstream file(request.source);
    request.file_text.assign(std::istreambuf_iterator<char>(file), {});
  }
  const std::vector<std::string> facts = gather(ddl::local_facts(rank, size), size);
  ddl::Topology topology = ddl::discover(facts, request);
  if (request.source == "measure") {
    std::vector<int> leaders;
    for (const ddl::Host& host : topology.hosts()) leaders.push_back(host.ranks.front());
    const double begun = MPI_Wtime();
    const auto mbit = ddl::measure_bandwidth(MPI_COMM_WORLD, leaders, budget);
    if (rank == 0) std::fprintf(stderr, "measured in %.2f s\n", MPI_Wtime() - begun);
    for (std::size_t i = 0; rank == 0 && i < mbit.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        std::fprintf(stderr, "%s %s %.0f Mbit/s\n", topology.hosts()[i].name.c_str(),
                     topology.hosts()[j].name.c_str(), mbit[i][j]);
      }
    }
    std::vector<int> everyone(static_cast<std::size_t>(size));
    std::iota(everyone.begin(), everyone.end(), 0);
    // The first leader, rank 0, has the figures.
    std::string figures;
    for (const auto& row : mbit) {
      figures.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(double));
    }
    figures = ddl::TreeExchange(MPI_COMM_WORLD, everyone, 60, "in a test", "mend it").broadcast(figures);
    std::vector<std::vector<double>> all(leaders.size(), std::vector<double>(leaders.size()));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t bytes = all.size() * sizeof(double);
      std::memcpy(all[i].data(), figures.data() + i * bytes, bytes);
    }
    request.measured = ddl::group_hosts_by_bandwidth(all);
    topology = ddl::discover(facts, request);
  }
  const std::string json = topology.to_json();
  const std::uint64_t mine = ddl::hash_bytes(json.data(), json.size());
  std::array<std::uint64_t, 2> range{mine, ~mine};
  MPI_Allreduce(MPI_IN_PLACE, range.data(), 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
  if (range[0] != ~range[1]) {
    std::fprintf(stderr, "rank %d: the ranks see different topologies\n", rank);
    return 1;
  }
  if (rank == 0) std::printf("%s%s", text ? topology.to_text().c_str() : json.c_str(), text ? "" : "\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 0;
  try {
    status = run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const ddl::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 3;
  }
  // Every error is every rank's, so that nobody waits here for one that has left.
  MPI_Finalize();
  return status;
}
