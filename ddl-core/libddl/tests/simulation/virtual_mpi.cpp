// The functions of MPI that DDL uses, on the network of a virtual cluster: messages of a pair of ranks and a
// communicator keep their order, others overtake each other; what is larger than eager_bytes is complete for
// its sender when it is received. Handles are numbers. A function that is missing here is libmpi's own, which
// was never initialised and says so.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "transport/mpi_transport.hpp"
#include "virtual_cluster.hpp"

namespace ddl::sim {

struct Mpi::State {
  struct Message {
    int source = 0;  ///< rank of the cluster
    int target = 0;
    std::uint32_t comm = 0;
    int tag = 0;
    std::uint32_t request = 0;  ///< of the sender, which waits for it; 0: none
    int steps = 0;
    Time leaves = 0;
    const char* from = nullptr;  ///< the sender's memory, which stays as it is until the message is received
    std::size_t size = 0;
    std::vector<char> kept;  ///< of an eager message: it
  };

  struct Request {
    bool done = false;
    bool used = false;
    int error = MPI_SUCCESS;
    int owner = 0;  ///< rank of the cluster
    // Of a receive.
    std::uint32_t comm = 0;
    void* buffer = nullptr;
    std::size_t capacity = 0;
    int source = 0;  ///< rank of comm, or MPI_ANY_SOURCE
    int tag = 0;
  };

  struct Comm {
    std::shared_ptr<const std::vector<int>> members;  ///< ranks of the cluster
    std::shared_ptr<const std::unordered_map<int, int>> places;
    std::unordered_map<int, std::uint32_t> collectives;  ///< by rank of the cluster: how many it has begun
    int rank_of(int member) const { return places ? places->at(member) : member; }
  };

  /// Messages and receives of a rank in a communicator.
  struct Box {
    std::deque<std::uint32_t> arrived;
    std::vector<std::uint32_t> receives;
    std::unordered_map<int, Time> last;  ///< by sender: when its last message arrives
  };

  struct Collective {
    std::size_t arrived = 0;
    std::size_t members = 0;
    std::vector<std::uint32_t> requests;
    std::vector<std::pair<int, void*>> results;  ///< by rank of the cluster: where it wants the value
    std::vector<char> value;
  };

  explicit State(Cluster& of) : cluster(of), boxes(static_cast<std::size_t>(of.size())) {
    std::vector<int> all(static_cast<std::size_t>(of.size()));
    std::iota(all.begin(), all.end(), 0);
    comms.push_back(Comm{std::make_shared<const std::vector<int>>(std::move(all)), nullptr, {}});
    requests.emplace_back();  // 0 is none
    groups.emplace_back();
  }

  std::uint32_t new_request() {
    std::uint32_t index = 0;
    if (free_requests.empty()) {
      index = static_cast<std::uint32_t>(requests.size());
      requests.emplace_back();
    } else {
      index = free_requests.back();
      free_requests.pop_back();
      requests[index] = Request{};
    }
    requests[index].used = true;
    requests[index].owner = cluster.rank();
    return index;
  }
  void free_request(std::uint32_t index) {
    requests[index].used = false;
    free_requests.push_back(index);
  }
  std::uint32_t new_message() {
    if (free_messages.empty()) {
      messages.emplace_back();
      return static_cast<std::uint32_t>(messages.size() - 1);
    }
    const std::uint32_t index = free_messages.back();
    free_messages.pop_back();
    return index;
  }
  void free_message(std::uint32_t index) {
    messages[index].kept = {};
    free_messages.push_back(index);
  }
  Box& box(int rank, std::uint32_t comm) {
    auto& of = boxes[static_cast<std::size_t>(rank)];
    for (auto& [number, box] : of) {
      if (number == comm) return box;
    }
    of.emplace_back(comm, Box{});
    return of.back().second;
  }
  bool fits(const Message& message, int source, int tag) const {
    return (source == MPI_ANY_SOURCE || comms[message.comm].rank_of(message.source) == source) &&
           (tag == MPI_ANY_TAG || message.tag == tag);
  }
  /// A message meets its receive.
  void match(std::uint32_t number, std::uint32_t receive) {
    Message& message = messages[number];
    // What a process has not sent when it ends does not come any more. Its announcement has: nothing that was
    // sent later overtakes it, and the receive waits for good.
    if (message.request != 0 && !cluster.alive(message.source)) {
      free_message(number);
      return;
    }
    Request& request = requests[receive];
    const std::size_t taken = std::min(message.size, request.capacity);
    const char* const from = message.request == 0 ? message.kept.data() : message.from;
    if (taken > 0) std::memcpy(request.buffer, from, taken);
    request.error = message.size > request.capacity ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
    request.done = true;
    Traffic& traffic = cluster.traffic(request.owner);
    traffic.steps = std::max(traffic.steps, message.steps);
    if (message.request != 0) {
      const std::uint32_t sent = message.request;
      const int sender = message.source;
      cluster.at(cluster.clock() + cluster.network().latency, [this, sent, sender] {
        if (!requests[sent].used) return;
        requests[sent].done = true;
        cluster.wake(sender);
      });
    }
    free_message(number);
  }
  void describe(const Message& message, MPI_Status& status) const {
    status.MPI_SOURCE = comms[message.comm].rank_of(message.source);
    status.MPI_TAG = message.tag;
    // Where MPI keeps the size is its own affair; here MPI_Get_count looks for it in this.
    status.MPI_ERROR = static_cast<int>(message.size);
  }

  const bool traced =
      std::getenv("DDL_SIMULATION_TRACE") != nullptr;  ///< every message is a line of the output
  Cluster& cluster;
  std::deque<Message> messages;
  std::vector<std::uint32_t> free_messages;
  std::deque<Request> requests;
  std::vector<std::uint32_t> free_requests;
  std::deque<Comm> comms;
  std::deque<std::vector<int>> groups;
  std::vector<std::vector<std::pair<std::uint32_t, Box>>> boxes;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Collective> collectives;
  std::map<std::vector<int>, std::uint32_t> making;  ///< communicators by base, tag and members
};

}  // namespace ddl::sim

namespace ddl::sim {
namespace {

/// Handles are pointers in one MPI and numbers in another. Low numbers are nobody's address.
template <class Handle>
Handle handle_of(std::uint32_t index) {
  return (Handle)(static_cast<std::uintptr_t>(index) * 16);  // NOLINT: either conversion
}
template <class Handle>
std::uint32_t index_of(Handle handle) {
  return static_cast<std::uint32_t>((std::uintptr_t)handle / 16);  // NOLINT
}
std::uint32_t comm_of(MPI_Comm comm) { return comm == MPI_COMM_WORLD ? 0 : index_of(comm); }

Cluster& cluster() {
  Cluster* const current = Cluster::current();
  if (current == nullptr || current->rank() < 0) {
    std::fprintf(stderr, "a function of MPI outside a virtual cluster\n");
    std::abort();
  }
  return *current;
}
Mpi::State& state() { return cluster().mpi().state(); }

/// The rank that runs, unless it is to end here.
int self() {
  cluster().throw_if_killed();
  return cluster().rank();
}

[[noreturn]] void not_simulated(const char* what) {
  std::fprintf(stderr, "%s is not simulated\n", what);
  std::abort();
}

std::size_t width_of(MPI_Datatype type) {
  if (type == MPI_BYTE) return 1;
  if (type == MPI_FLOAT || type == MPI_INT32_T) return 4;
  if (type == MPI_DOUBLE || type == MPI_INT64_T) return 8;
  not_simulated("this type of MPI");
}

template <class T>
void combine(MPI_Op op, void* into, const void* from, std::size_t count) {
  auto* const a = static_cast<T*>(into);
  const auto* const b = static_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) {
    if (op == MPI_SUM) {
      a[i] += b[i];
    } else if (op == MPI_MAX) {
      a[i] = std::max(a[i], b[i]);
    } else if (op == MPI_MIN) {
      a[i] = std::min(a[i], b[i]);
    } else {
      not_simulated("this operation of MPI");
    }
  }
}

void combine(MPI_Datatype type, MPI_Op op, void* into, const void* from, std::size_t count) {
  if (type == MPI_FLOAT) {
    combine<float>(op, into, from, count);
  } else if (type == MPI_DOUBLE) {
    combine<double>(op, into, from, count);
  } else if (type == MPI_INT32_T) {
    combine<std::int32_t>(op, into, from, count);
  } else if (type == MPI_INT64_T) {
    combine<std::int64_t>(op, into, from, count);
  } else {
    not_simulated("this type of MPI");
  }
}

/// Takes part in a collective operation of a communicator, which is over when all have. `give` adds this
/// rank's share to the value.
template <class Give>
std::uint32_t take_part(std::uint32_t comm, void* result, const Give& give) {
  Mpi::State& all = state();
  Mpi::State::Comm& of = all.comms[comm];
  const std::uint32_t number = of.collectives[self()]++;
  const std::pair key(comm, number);
  Mpi::State::Collective& under_way = all.collectives[key];
  under_way.members = of.members->size();
  const std::uint32_t request = all.new_request();
  under_way.requests.push_back(request);
  under_way.results.emplace_back(self(), result);
  give(under_way.value);
  if (++under_way.arrived < under_way.members) return request;
  int steps = 0;
  while ((std::size_t{1} << steps) < under_way.members) ++steps;
  Cluster& of_all = all.cluster;
  of_all.at(of_all.now() + steps * of_all.network().latency, [&all, key] {
    const auto found = all.collectives.find(key);
    Mpi::State::Collective& over = found->second;
    for (std::size_t i = 0; i < over.requests.size(); ++i) {
      Mpi::State::Request& done = all.requests[over.requests[i]];
      const auto& [rank, where] = over.results[i];
      if (!all.cluster.alive(rank)) continue;
      if (where != nullptr) std::memcpy(where, over.value.data(), over.value.size());
      done.done = true;
      all.cluster.wake(rank);
    }
    all.collectives.erase(found);
  });
  return request;
}

/// A communicator of the same members for all that make it at once.
std::uint32_t made_of(Mpi::State& all, std::vector<int> key, const std::vector<int>& members, bool whole) {
  const auto [found, added] = all.making.try_emplace(std::move(key), 0);
  if (added) {
    found->second = static_cast<std::uint32_t>(all.comms.size());
    Mpi::State::Comm& made = all.comms.emplace_back();
    if (whole) {
      made.members = all.comms[0].members;
    } else {
      made.members = std::make_shared<const std::vector<int>>(members);
      auto places = std::make_shared<std::unordered_map<int, int>>();
      for (std::size_t i = 0; i < members.size(); ++i) places->emplace(members[i], static_cast<int>(i));
      made.places = std::move(places);
    }
  }
  return found->second;
}

/// The next duplicate of a communicator.
std::uint32_t duplicate_of(std::uint32_t comm) {
  Mpi::State& all = state();
  Mpi::State::Comm& of = all.comms[comm];
  const auto number = static_cast<int>(of.collectives[self()]);
  return made_of(all, {static_cast<int>(comm), number, -1}, *of.members, of.places == nullptr);
}

void await(std::uint32_t request) {
  Mpi::State& all = state();
  while (!all.requests[request].done) {
    self();
    cluster().pause(10 * kMicrosecond, false);
  }
  all.free_request(request);
}

int tested(MPI_Request& handle, bool& done) {
  done = true;
  if (handle == MPI_REQUEST_NULL) return MPI_SUCCESS;
  Mpi::State& all = state();
  const std::uint32_t index = index_of(handle);
  if (!all.requests[index].done) {
    done = false;
    return MPI_SUCCESS;
  }
  const int error = all.requests[index].error;
  all.free_request(index);
  handle = MPI_REQUEST_NULL;
  return error;
}

}  // namespace

Mpi::Mpi(Cluster& cluster) : state_(std::make_unique<State>(cluster)) {}
Mpi::~Mpi() = default;

void Mpi::arrive(std::uint32_t number) {
  State& all = *state_;
  State::Message& message = all.messages[number];
  Cluster& of = all.cluster;
  const bool unsent = of.lost(message.source) && of.lost_at(message.source) <= message.leaves;
  if (unsent || !of.alive(message.target)) {
    all.free_message(number);
    return;
  }
  State::Box& box = all.box(message.target, message.comm);
  const int target = message.target;
  const auto receive = std::find_if(box.receives.begin(), box.receives.end(), [&](std::uint32_t r) {
    return all.fits(message, all.requests[r].source, all.requests[r].tag);
  });
  if (receive == box.receives.end()) {
    box.arrived.push_back(number);
  } else {
    const std::uint32_t matched = *receive;
    box.receives.erase(receive);
    all.match(number, matched);
  }
  of.wake(target);
}

void Mpi::forget(int rank) {
  for (auto& [comm, box] : state_->boxes[static_cast<std::size_t>(rank)]) {
    for (const std::uint32_t message : box.arrived) state_->free_message(message);
    box = {};
  }
}

}  // namespace ddl::sim

using namespace ddl::sim;

extern "C" {

int MPI_Initialized(int* flag) {
  *flag = 1;
  return MPI_SUCCESS;
}
int MPI_Finalized(int* flag) {
  *flag = 0;
  return MPI_SUCCESS;
}
int MPI_Query_thread(int* provided) {
  *provided = MPI_THREAD_MULTIPLE;
  return MPI_SUCCESS;
}
double MPI_Wtime() { return static_cast<double>(cluster().now()) * 1e-9; }
int MPI_Error_string(int code, char* text, int* length) {
  *length = std::snprintf(text, MPI_MAX_ERROR_STRING, "error %d of the virtual network", code);
  return MPI_SUCCESS;
}
int MPI_Get_library_version(char* text, int* length) {
  *length = std::snprintf(text, MPI_MAX_LIBRARY_VERSION_STRING, "virtual network");
  return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm comm, int* rank) {
  *rank = state().comms[comm_of(comm)].rank_of(cluster().rank());
  return MPI_SUCCESS;
}
int MPI_Comm_size(MPI_Comm comm, int* size) {
  *size = static_cast<int>(state().comms[comm_of(comm)].members->size());
  return MPI_SUCCESS;
}
int MPI_Comm_set_errhandler(MPI_Comm, MPI_Errhandler) { return MPI_SUCCESS; }
int MPI_Comm_get_attr(MPI_Comm, int key, void* value, int* known) {
  static int most = std::numeric_limits<int>::max();
  *known = key == MPI_TAG_UB ? 1 : 0;
  *static_cast<int**>(value) = &most;
  return MPI_SUCCESS;
}
int MPI_Comm_free(MPI_Comm* comm) {
  *comm = MPI_COMM_NULL;
  return MPI_SUCCESS;
}
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* made, MPI_Request* request) {
  const std::uint32_t copy = duplicate_of(comm_of(comm));
  *request = handle_of<MPI_Request>(take_part(comm_of(comm), nullptr, [](auto&) {}));
  *made = handle_of<MPI_Comm>(copy);
  return MPI_SUCCESS;
}
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  const std::uint32_t copy = duplicate_of(comm_of(comm));
  await(take_part(comm_of(comm), nullptr, [](auto&) {}));
  *made = handle_of<MPI_Comm>(copy);
  return MPI_SUCCESS;
}
int MPI_Comm_group(MPI_Comm comm, MPI_Group* group) {
  Mpi::State& all = state();
  // Every rank asks for the whole, and gives it back.
  if (comm_of(comm) == 0 || all.comms[comm_of(comm)].places == nullptr) {
    if (all.groups[0].empty()) all.groups[0] = *all.comms[0].members;
    *group = handle_of<MPI_Group>(1);
    return MPI_SUCCESS;
  }
  all.groups.push_back(*all.comms[comm_of(comm)].members);
  *group = handle_of<MPI_Group>(static_cast<std::uint32_t>(all.groups.size()));
  return MPI_SUCCESS;
}
int MPI_Group_incl(MPI_Group group, int size, const int ranks[], MPI_Group* made) {
  Mpi::State& all = state();
  std::vector<int> members;
  for (int i = 0; i < size; ++i) {
    members.push_back(all.groups[index_of(group) - 1][static_cast<std::size_t>(ranks[i])]);
  }
  all.groups.push_back(std::move(members));
  *made = handle_of<MPI_Group>(static_cast<std::uint32_t>(all.groups.size()));
  return MPI_SUCCESS;
}
int MPI_Group_translate_ranks(MPI_Group from, int size, const int ranks[], MPI_Group to, int found[]) {
  Mpi::State& all = state();
  const std::vector<int>& target = all.groups[index_of(to) - 1];
  for (int i = 0; i < size; ++i) {
    const int member = all.groups[index_of(from) - 1][static_cast<std::size_t>(ranks[i])];
    const auto at = static_cast<std::size_t>(member);
    if (at < target.size() && target[at] == member) {
      found[i] = member;
    } else {
      found[i] = static_cast<int>(std::find(target.begin(), target.end(), member) - target.begin());
    }
  }
  return MPI_SUCCESS;
}
int MPI_Group_free(MPI_Group* group) {
  if (index_of(*group) > 1) state().groups[index_of(*group) - 1] = {};
  *group = MPI_GROUP_NULL;
  return MPI_SUCCESS;
}

int MPI_Isend(const void* from, int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const int source = self();
  Mpi::State& all = state();
  Cluster& of = all.cluster;
  const Network& network = of.network();
  const std::size_t bytes = static_cast<std::size_t>(count) * width_of(type);
  const std::uint32_t sent = all.new_request();
  *request = handle_of<MPI_Request>(sent);
  const std::uint32_t number = all.new_message();
  Mpi::State::Message& message = all.messages[number];
  message.source = source;
  message.comm = comm_of(comm);
  message.target = (*all.comms[message.comm].members)[static_cast<std::size_t>(rank)];
  message.tag = tag;
  message.request = bytes > network.eager_bytes ? sent : 0;
  if (message.request == 0) all.requests[sent].done = true;
  message.from = static_cast<const char*>(from);
  message.size = bytes;
  if (message.request == 0) message.kept.assign(message.from, message.from + bytes);
  Traffic& traffic = of.traffic(source);
  ++traffic.messages;
  traffic.bytes += bytes;
  message.steps = traffic.steps + 1;
  const auto [low, high] = std::minmax(source, message.target);
  of.connections().insert(static_cast<std::uint64_t>(low) << 32 | static_cast<std::uint64_t>(high));
  const Time now = of.now();
  const auto wire = static_cast<Time>(static_cast<double>(bytes + 64) / network.bytes_per_s * 1e9);
  Time arrives = now + network.latency + wire + of.random(network.jitter);
  message.leaves = now;
  if (of.host_of(source) != of.host_of(message.target)) {
    Time& free = of.link_free(source);
    message.leaves = std::max(now, free);
    free = message.leaves + wire;
    arrives += message.leaves - now;
  }
  if (network.late_share > 0 && of.chance(network.late_share)) arrives += of.random(network.late_most);
  Time& last = all.box(message.target, message.comm).last[source];
  last = std::max(arrives, last + 1);
  of.message_at(last, number);
  if (all.traced) {
    std::printf("%.6f %d -> %d, arrives %.6f: tag %d of communicator %u, %zu bytes\n",
                static_cast<double>(now) * 1e-9, source, message.target, static_cast<double>(last) * 1e-9,
                tag, message.comm, bytes);
  }
  return MPI_SUCCESS;
}

int MPI_Irecv(void* to, int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const int target = self();
  Mpi::State& all = state();
  const std::uint32_t received = all.new_request();
  *request = handle_of<MPI_Request>(received);
  Mpi::State::Request& of = all.requests[received];
  of.comm = comm_of(comm);
  of.buffer = to;
  of.capacity = static_cast<std::size_t>(count) * width_of(type);
  of.source = rank;
  of.tag = tag;
  Mpi::State::Box& box = all.box(target, of.comm);
  const auto message = std::find_if(box.arrived.begin(), box.arrived.end(),
                                    [&](std::uint32_t m) { return all.fits(all.messages[m], rank, tag); });
  if (message == box.arrived.end()) {
    box.receives.push_back(received);
    return MPI_SUCCESS;
  }
  const std::uint32_t number = *message;
  box.arrived.erase(message);
  all.match(number, received);
  return MPI_SUCCESS;
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  const int target = self();
  Mpi::State& all = state();
  Mpi::State::Box& box = all.box(target, comm_of(comm));
  const auto message = std::find_if(box.arrived.begin(), box.arrived.end(),
                                    [&](std::uint32_t m) { return all.fits(all.messages[m], source, tag); });
  *flag = message == box.arrived.end() ? 0 : 1;
  if (*flag != 0) all.describe(all.messages[*message], *status);
  return MPI_SUCCESS;
}
int MPI_Get_count(const MPI_Status* status, MPI_Datatype, int* count) {
  *count = status->MPI_ERROR;
  return MPI_SUCCESS;
}
int MPI_Recv(void* to, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status*) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(to, count, type, source, tag, comm, &request);
  const std::uint32_t index = index_of(request);
  const bool done = state().requests[index].done;
  if (!done) not_simulated("MPI_Recv of what has not come");
  const int error = state().requests[index].error;
  state().free_request(index);
  return error;
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status*) {
  self();
  bool done = false;
  const int error = tested(*request, done);
  *flag = done ? 1 : 0;
  return error;
}
int MPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status*) {
  self();
  Mpi::State& all = state();
  *flag = 0;
  for (int i = 0; i < count; ++i) {
    if (requests[i] != MPI_REQUEST_NULL && !all.requests[index_of(requests[i])].done) return MPI_SUCCESS;
  }
  *flag = 1;
  int error = MPI_SUCCESS;
  for (int i = 0; i < count; ++i) {
    bool done = false;
    if (tested(requests[i], done) != MPI_SUCCESS) error = MPI_ERR_TRUNCATE;
  }
  return error;
}
int MPI_Testsome(int count, MPI_Request requests[], int* completed, int indices[], MPI_Status*) {
  self();
  *completed = MPI_UNDEFINED;
  int error = MPI_SUCCESS;
  for (int i = 0; i < count; ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    if (*completed == MPI_UNDEFINED) *completed = 0;
    bool done = false;
    if (tested(requests[i], done) != MPI_SUCCESS) error = MPI_ERR_TRUNCATE;
    if (done) indices[(*completed)++] = i;
  }
  return error;
}

int MPI_Ibcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  const std::size_t bytes = static_cast<std::size_t>(count) * width_of(type);
  const auto* const from = static_cast<const char*>(buffer);
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  *request = handle_of<MPI_Request>(take_part(comm_of(comm), buffer, [&](std::vector<char>& value) {
    if (rank == root) value.assign(from, from + bytes);
  }));
  return MPI_SUCCESS;
}
int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  const std::size_t bytes = static_cast<std::size_t>(count) * width_of(type);
  const auto* const given = static_cast<const char*>(from == MPI_IN_PLACE ? to : from);
  *request = handle_of<MPI_Request>(take_part(comm_of(comm), to, [&](std::vector<char>& value) {
    if (value.empty()) {
      value.assign(given, given + bytes);
    } else {
      combine(type, op, value.data(), given, static_cast<std::size_t>(count));
    }
  }));
  return MPI_SUCCESS;
}
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made) {
  Mpi::State& all = state();
  const std::vector<int>& members = all.groups[index_of(group) - 1];
  std::vector<int> key = members;
  key.push_back(tag);
  key.push_back(static_cast<int>(comm_of(comm)));
  key.push_back(-2);
  const std::uint32_t copy = made_of(all, std::move(key), members, false);
  *made = handle_of<MPI_Comm>(copy);
  await(take_part(copy, nullptr, [](auto&) {}));
  return MPI_SUCCESS;
}
int MPI_Igather(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Comm, MPI_Request*) {
  not_simulated("MPI_Igather");
}
int MPI_Iallgatherv(const void*, int, MPI_Datatype, void*, const int*, const int*, MPI_Datatype, MPI_Comm,
                    MPI_Request*) {
  not_simulated("MPI_Iallgatherv");
}
int MPI_Ireduce_scatter(const void*, void*, const int*, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*) {
  not_simulated("MPI_Ireduce_scatter");
}

}  // extern "C"
