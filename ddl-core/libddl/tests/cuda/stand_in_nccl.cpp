// Stands for NCCL in tests, on the stand-in for CUDA's driver.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "cuda/nccl_functions.hpp"
#include "driver_inside.hpp"
#include "nccl_launch.hpp"
#include "nccl_meeting.hpp"
#include "nccl_reduction.hpp"
#include "settings.hpp"
#include "stand_in.hpp"

namespace ddl::cuda {

// As in stand_in_driver.cpp: what is not defined below, the table at the end lacks.
#define F(member, symbol, parameters) \
  extern "C" STAND_IN_EXPORT NcclStatus stand_in_##member parameters __asm__(symbol);
DDL_NCCL_FUNCTIONS(F)
#undef F

}  // namespace ddl::cuda

namespace stand_in {

using ddl::cuda::kNcclInProgress;
using ddl::cuda::kNcclSuccess;
using ddl::cuda::NcclConfig;
using ddl::cuda::NcclId;
using ddl::cuda::NcclOp;
using ddl::cuda::NcclStatus;
using ddl::cuda::NcclType;

/// A communicator and what its caller still has to wait for.
struct Handle {
  std::shared_ptr<Communicator> of;
  enum class State {
    kJoining,
    kReady,
    kSplitting,
    kLaunching,
    kFinalizing,
    kFinalized
  } state = State::kJoining;
  Clock::time_point not_before;
  std::atomic<bool> launching{false};
  std::uint64_t splits = 0;
  // of a split that is under way
  int color = 0;
  ddl::cuda::NcclComm* made = nullptr;
  std::shared_ptr<Handle> child;
  bool child_blocking = true;
};

namespace {

using ddl::cuda::NcclComm;
using State = Handle::State;

constexpr NcclStatus kUnhandledCudaError = 1;
constexpr NcclStatus kInternalError = 3;
constexpr NcclStatus kInvalidArgument = 4;
constexpr NcclStatus kInvalidUsage = 5;
constexpr NcclStatus kRemoteError = 6;

/// The text of the last error; as NCCL's, of any communicator and thread.
std::mutex text_mutex;
char last_error[512];

__attribute__((format(printf, 2, 3))) NcclStatus fails(NcclStatus status, const char* format, ...) {
  const std::lock_guard lock(text_mutex);
  va_list list;
  va_start(list, format);
  std::vsnprintf(last_error, sizeof last_error, format, list);
  va_end(list);
  return status;
}

/// All that this process has; never destroyed, as calls come at exit as well.
struct Handles {
  std::mutex mutex;
  std::map<NcclComm, std::shared_ptr<Handle>> all;
};
Handles& handles() {
  static auto* const instance = new Handles;
  return *instance;
}

NcclComm name_of(const std::shared_ptr<Handle>& handle) { return reinterpret_cast<NcclComm>(handle.get()); }

std::shared_ptr<Handle> find(NcclComm name) {
  const std::lock_guard lock(handles().mutex);
  const auto found = handles().all.find(name);
  return found == handles().all.end() ? nullptr : found->second;
}

NcclComm keep(const std::shared_ptr<Handle>& handle) {
  const std::lock_guard lock(handles().mutex);
  handles().all[name_of(handle)] = handle;
  count(Count::kNcclCommunicators);
  count(Count::kHeldCommunicators);
  return name_of(handle);
}

void forget(NcclComm name) {
  const std::lock_guard lock(handles().mutex);
  if (handles().all.erase(name) > 0) count_back(Count::kHeldCommunicators);
}

NcclStatus unknown(const char* call) {
  return fails(kInvalidArgument, "%s : comm argument is no communicator", call);
}

/// Waits as a blocking call of NCCL does, which has no limit.
void wait_for(const char* call, const std::function<bool()>& condition) {
  const auto limit = Clock::now() + std::chrono::seconds(setting(Setting::kPatienceS));
  bool waited = false;
  while (!condition() && !driver_gone()) {
    if (!waited) count(Count::kHostBlocks);
    waited = true;
    if (Clock::now() > limit) {
      die("%s has waited for %lld s: NCCL would wait for ever", call, setting(Setting::kPatienceS));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

std::uint64_t host_hash() {
  const char* text = std::getenv("NCCL_HOSTID");
  return std::hash<std::string>{}(text == nullptr ? "" : text);
}

std::shared_ptr<Handle> join(const std::string& name, int rank, int ranks, int device, bool blocking) {
  auto handle = std::make_shared<Handle>();
  handle->of = std::make_shared<Communicator>();
  Communicator& own = *handle->of;
  own.name = name;
  own.rank = rank;
  own.ranks = ranks;
  own.device = device;
  own.blocking = blocking;
  own.sent.resize(static_cast<std::size_t>(ranks));
  own.received.resize(static_cast<std::size_t>(ranks));
  own.meeting = std::make_unique<Meeting>(name, rank, ranks);
  handle->not_before = Clock::now() + std::chrono::milliseconds(1) + 10 * some_time();
  Member& member = own.meeting->member(rank);
  member.ranks = ranks;
  member.version = static_cast<int>(setting(Setting::kNcclVersion));
  member.bus = bus_of(device);
  member.device = uuid_of(device);
  member.host = host_hash();
  member.joined.store(1, std::memory_order_release);
  return handle;
}

/// What the ranks find out about each other when all are there.
NcclStatus check_members(const Communicator& own) {
  for (int a = 0; a < own.ranks; ++a) {
    const Member& one = own.meeting->member(a);
    if (one.ranks != own.ranks) {
      return fails(kInvalidUsage, "rank %d has a communicator of %d ranks, rank %d of %d", a, one.ranks,
                   own.rank, own.ranks);
    }
    for (int b = 0; b < a; ++b) {
      const Member& other = own.meeting->member(b);
      if (one.version != other.version) {
        return fails(kInvalidUsage,
                     "Mismatched NCCL version detected : rank %d version %d rank %d version %d", b,
                     other.version, a, one.version);
      }
      if (one.host == other.host && std::memcmp(&one.device, &other.device, sizeof one.device) == 0) {
        return fails(kInvalidUsage, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", b,
                     a, static_cast<unsigned>(one.bus) << 12);
      }
    }
  }
  return kNcclSuccess;
}

/// Whether all ranks of the parent want the split; then the child is joined, or there is none.
bool split_agreed(Handle& handle) {
  Communicator& parent = *handle.of;
  std::vector<std::pair<int, int>> members;  // key, rank
  const auto wish = [&](int rank) -> SplitWish& {
    return parent.meeting->member(rank).splits[handle.splits % 2];
  };
  for (int rank = 0; rank < parent.ranks; ++rank) {
    if (wish(rank).sequence.load(std::memory_order_acquire) != handle.splits + 1) return false;
    if (wish(rank).color == handle.color) members.emplace_back(wish(rank).key, rank);
  }
  if (handle.color != ddl::cuda::kNcclNoColor) {
    std::sort(members.begin(), members.end());
    const auto own = std::find_if(members.begin(), members.end(),
                                  [&](const auto& member) { return member.second == parent.rank; });
    const std::string name =
        parent.name + "." + std::to_string(handle.splits) + "." + std::to_string(handle.color);
    handle.child = join(name, static_cast<int>(own - members.begin()), static_cast<int>(members.size()),
                        parent.device, handle.child_blocking);
  }
  ++handle.splits;
  return true;
}

/// With nccl_hold, what is in progress stays so.
bool held(const Communicator& own) { return !own.blocking && setting(Setting::kNcclHold) != 0; }

NcclStatus state_of(Handle& handle);

NcclStatus split_state(Handle& handle) {
  if (handle.child == nullptr && handle.made != nullptr && !split_agreed(handle)) return kNcclInProgress;
  if (handle.child != nullptr) {
    const NcclStatus status = state_of(*handle.child);
    if (status == kNcclInProgress) return status;
    if (status != kNcclSuccess) handle.of->error = status;
    // As NCCL does it, the caller's variable gets the communicator only now.
    *handle.made = keep(handle.child);
  }
  handle.child = nullptr;
  handle.made = nullptr;
  handle.state = State::kReady;
  return handle.of->error;
}

/// What ncclCommGetAsyncError says; moves on what is under way.
NcclStatus state_of(Handle& handle) {
  Communicator& own = *handle.of;
  if (own.error != 0) return own.error;
  if (handle.state == State::kReady || handle.state == State::kFinalized) return kNcclSuccess;
  if (Clock::now() < handle.not_before || held(own)) return kNcclInProgress;
  switch (handle.state) {
    case State::kJoining:
      if (!own.meeting->all_joined()) return kNcclInProgress;
      own.error = check_members(own);
      if (own.error == 0) handle.state = State::kReady;
      return own.error;
    case State::kSplitting:
      return split_state(handle);
    case State::kLaunching:
      if (handle.launching) return kNcclInProgress;
      handle.state = State::kReady;
      return own.error;
    case State::kFinalizing: {
      const std::lock_guard lock(own.mutex);
      if (!own.order.empty()) return kNcclInProgress;
      handle.state = State::kFinalized;
      return kNcclSuccess;
    }
    case State::kReady:
    case State::kFinalized:
      return kNcclSuccess;
  }
  return kInternalError;
}

/// Success, or why the communicator cannot take a call.
NcclStatus ready(Handle& handle, const char* call) {
  const NcclStatus status = state_of(handle);
  if (status == kNcclInProgress) {
    return fails(kInvalidArgument,
                 "%s : Attempt to use communicator before the previous operation returned ncclSuccess", call);
  }
  if (status == kNcclSuccess && handle.state == State::kFinalized) {
    return fails(kInvalidArgument, "%s : the communicator has been finalized", call);
  }
  return status;
}

NcclStatus settle(Handle& handle, const char* call) {
  NcclStatus status = kNcclInProgress;
  wait_for(call, [&] {
    status = state_of(handle);
    return status != kNcclInProgress;
  });
  return status;
}

/// One operation of a group call.
struct Queued {
  std::shared_ptr<Handle> handle;
  ddl::cuda::Stream stream;
  std::vector<Collective> collective;  // one, or none
  std::vector<Message> message;
};

struct Group {
  int depth = 0;
  NcclStatus error = kNcclSuccess;
  std::vector<Queued> queued;
  std::vector<std::shared_ptr<Handle>> begun;  ///< communicators that are made or split in the group
};
thread_local Group group;

/// What one group call has for one communicator.
struct Batch {
  std::vector<ddl::cuda::Stream> streams;
  std::vector<Collective> collectives;
  std::vector<Message> messages;
};

void launch(const std::shared_ptr<Communicator>& own, Batch batch) {
  const bool breaks = comes_due(Setting::kNcclAsyncError);
  const bool never = comes_due(Setting::kNcclNever);
  auto operation =
      std::make_unique<Launch>(own, std::move(batch.collectives), std::move(batch.messages), never || breaks);
  // With several streams in a group call, all wait for each other.
  const ddl::cuda::Stream first = batch.streams.front();
  Status status = 0;
  for (std::size_t i = 1; i < batch.streams.size() && status == 0; ++i) {
    status = queue_behind(own->device, first, batch.streams[i]);
  }
  if (status == 0) status = queue(own->device, first, std::move(operation));
  for (std::size_t i = 1; i < batch.streams.size() && status == 0; ++i) {
    status = queue_behind(own->device, batch.streams[i], first);
  }
  if (status != 0) own->error = fails(kUnhandledCudaError, "Cuda failure %d", status);
  if (breaks) own->error = kRemoteError;
  count(Count::kNcclLaunches);
}

void launch_later(const std::shared_ptr<Handle>& handle, Batch batch) {
  run_later(some_time(), [handle, batch = std::move(batch)]() mutable {
    if ((held(*handle->of) || context_locked(handle->of->device)) && !handle->of->aborted) {
      launch_later(handle, std::move(batch));
      return;
    }
    if (!handle->of->aborted) launch(handle->of, std::move(batch));
    handle->launching = false;
  });
}

NcclStatus end_group() {
  Group ended;
  std::swap(ended, group);
  if (ended.error != kNcclSuccess) return ended.error;
  NcclStatus result = kNcclSuccess;
  for (const auto& handle : ended.begun) {
    if (!handle->of->blocking) {
      result = kNcclInProgress;
      continue;
    }
    const NcclStatus status = settle(*handle, "a blocking call that makes a communicator");
    if (status != kNcclSuccess) return status;
  }
  std::vector<std::shared_ptr<Handle>> order;
  std::map<Handle*, Batch> batches;
  for (Queued& one : ended.queued) {
    Batch& batch = batches[one.handle.get()];
    if (batch.streams.empty()) order.push_back(one.handle);
    if (std::find(batch.streams.begin(), batch.streams.end(), one.stream) == batch.streams.end()) {
      batch.streams.push_back(one.stream);
    }
    std::move(one.collective.begin(), one.collective.end(), std::back_inserter(batch.collectives));
    std::move(one.message.begin(), one.message.end(), std::back_inserter(batch.messages));
  }
  for (const auto& handle : order) {
    Batch& batch = batches[handle.get()];
    if (batch.collectives.size() > kParts / 2) {
      return fails(kInvalidUsage, "the stand-in takes %zu collectives in a group call at most", kParts / 2);
    }
    if (handle->of->blocking) {
      wait_for("the launch of a blocking communicator", [&] { return !context_locked(handle->of->device); });
      launch(handle->of, std::move(batch));
      if (handle->of->error != 0 && handle->of->error != kRemoteError) return handle->of->error;
      continue;
    }
    // Until ncclCommGetAsyncError says so, the operation may not be on its stream.
    handle->launching = true;
    handle->state = State::kLaunching;
    result = kNcclInProgress;
    launch_later(handle, std::move(batch));
  }
  return result;
}

NcclStatus leave_group(NcclStatus status) {
  if (status != kNcclSuccess && group.error == kNcclSuccess) group.error = status;
  if (--group.depth > 0) return status;
  return end_group();
}

bool good_config(const NcclConfig* config) {
  if (config == nullptr) return true;
  const bool set = config->blocking != INT_MIN;
  return config->magic == 0xcafebeef && config->size >= offsetof(NcclConfig, cga_cluster_size) &&
         (!set || config->blocking == 0 || config->blocking == 1);
}

/// A range of device memory that a call uses; null bytes: none.
struct Range {
  const void* address = nullptr;
  std::size_t bytes = 0;
  std::optional<Place> place;
};

NcclStatus check_range(const Communicator& own, const char* call, const char* what, std::size_t element,
                       Range& range) {
  if (range.bytes == 0) return kNcclSuccess;
  range.place = find_memory(range.address, range.bytes);
  if (!range.place) {
    return fails(kInvalidArgument, "%s : %s %p is not a valid pointer to %zu bytes of a device", call, what,
                 range.address, range.bytes);
  }
  if (range.place->device != own.device) {
    return fails(kInvalidArgument, "%s : %s allocated on device %d mismatchs with NCCL device %d", call, what,
                 range.place->device, own.device);
  }
  if (reinterpret_cast<std::uintptr_t>(range.address) % element != 0) {
    return fails(kInvalidArgument, "%s : %s %p is not aligned", call, what, range.address);
  }
  return kNcclSuccess;
}

/// `in_place`: where the input may lie in the output, or the output in the input, by NCCL's rules.
bool overlaps_badly(const Range& in, const Range& out, bool in_place) {
  if (in.bytes == 0 || out.bytes == 0 || in_place) return false;
  const auto* const from = static_cast<const char*>(in.address);
  const auto* const to = static_cast<const char*>(out.address);
  return from < to + out.bytes && to < from + in.bytes;
}

Source source_of(const Range& range) {
  return range.place ? Source{getpid(), range.place->file, range.place->offset} : Source{};
}

char* shown(const Range& range) { return range.place ? range.place->shown : nullptr; }

NcclStatus accept(const std::shared_ptr<Handle>& handle, const char* call, int type, int op,
                  ddl::cuda::Stream stream) {
  if (handle == nullptr) return unknown(call);
  if (const NcclStatus status = ready(*handle, call); status != kNcclSuccess) return status;
  if (type < 0 || type >= kTypes) return fails(kInvalidArgument, "%s : invalid type %d", call, type);
  if (op < 0 || op > static_cast<int>(NcclOp::kAverage)) {
    return fails(kInvalidArgument, "%s : invalid reduction operation %d", call, op);
  }
  if (const Status status = check_stream(handle->of->device, stream); status != 0) {
    return fails(kUnhandledCudaError, "Cuda failure %d at the stream of %s", status, call);
  }
  if (comes_due(Setting::kNcclFail)) return fails(kInternalError, "%s : the test wants it so", call);
  return kNcclSuccess;
}

NcclStatus collective(Kind kind, Count counter, const void* in, void* out, std::size_t elements,
                      NcclType type, int op, int root, NcclComm comm, ddl::cuda::Stream stream) {
  const char* const call = name_of_kind(kind);
  const std::shared_ptr<Handle> handle = find(comm);
  const int number = static_cast<int>(type);
  if (const NcclStatus status = accept(handle, call, number, op, stream); status != kNcclSuccess)
    return status;
  Communicator& own = *handle->of;
  if (root < 0 || root >= own.ranks) return fails(kInvalidArgument, "%s : invalid root %d", call, root);
  if (elements == 0) return kNcclSuccess;
  const std::size_t bytes = elements * size_of(number);
  const auto ranks = static_cast<std::size_t>(own.ranks);
  const auto* const input = static_cast<const char*>(in);
  auto* const output = static_cast<char*>(out);
  const std::size_t own_chunk = static_cast<std::size_t>(own.rank) * bytes;
  Range from{in, bytes, {}};
  Range to{out, bytes, {}};
  bool in_place = in == out;
  if (kind == Kind::kReduceScatter) {
    from.bytes *= ranks;
    in_place = output == input + own_chunk;
  } else if (kind == Kind::kAllGather) {
    to.bytes *= ranks;
    in_place = input == output + own_chunk;
  } else if (kind == Kind::kBroadcast && own.rank != root) {
    from = {};
  } else if (kind == Kind::kReduce && own.rank != root) {
    to = {};
  }
  NcclStatus status = check_range(own, call, "sendbuff", size_of(number), from);
  if (status == kNcclSuccess) status = check_range(own, call, "recvbuff", size_of(number), to);
  if (status != kNcclSuccess) return status;
  if (overlaps_badly(from, to, in_place)) {
    return fails(kInvalidArgument, "%s : sendbuff %p and recvbuff %p overlap, and this is no in-place call",
                 call, in, out);
  }
  count(counter);
  count(Count::kNcclBytes, bytes);
  Collective one;
  one.signature = {kind, number, op, root, elements, 0, 0};
  one.in = shown(from);
  one.source = source_of(from);
  one.out = shown(to);
  group.queued.push_back({handle, stream, {one}, {}});
  return kNcclSuccess;
}

NcclStatus message(bool sends, void* at, std::size_t elements, NcclType type, int peer, NcclComm comm,
                   ddl::cuda::Stream stream) {
  const char* const call = sends ? "Send" : "Recv";
  const std::shared_ptr<Handle> handle = find(comm);
  const int number = static_cast<int>(type);
  if (const NcclStatus status = accept(handle, call, number, 0, stream); status != kNcclSuccess)
    return status;
  Communicator& own = *handle->of;
  if (peer < 0 || peer >= own.ranks) return fails(kInvalidArgument, "%s : invalid peer %d", call, peer);
  Range range{at, elements * size_of(number), {}};
  if (const NcclStatus status =
          check_range(own, call, sends ? "sendbuff" : "recvbuff", size_of(number), range);
      status != kNcclSuccess) {
    return status;
  }
  count(sends ? Count::kNcclSend : Count::kNcclReceive);
  if (sends) count(Count::kNcclBytes, range.bytes);
  group.queued.push_back(
      {handle, stream, {}, {{sends, peer, number, elements, shown(range), source_of(range)}}});
  return kNcclSuccess;
}

/// A call outside a group call is one of its own.
template <class Call>
NcclStatus grouped(Call call) {
  ++group.depth;
  return leave_group(call());
}

NcclStatus release(NcclComm comm, const char* call) {
  const std::shared_ptr<Handle> handle = find(comm);
  if (handle == nullptr) return unknown(call);
  Communicator& own = *handle->of;
  if (own.error == 0) {
    settle(*handle, call);
    wait_for(call, [&] {
      const std::lock_guard lock(own.mutex);
      return own.order.empty();
    });
  }
  forget(comm);
  return kNcclSuccess;
}

}  // namespace
}  // namespace stand_in

namespace ddl::cuda {

using stand_in::collective;
using stand_in::Count;
using stand_in::fails;
using stand_in::find;
using stand_in::group;
using stand_in::grouped;
using stand_in::Handle;
using stand_in::keep;
using stand_in::Kind;
using stand_in::kInvalidArgument;
using stand_in::kInvalidUsage;
using stand_in::setting;
using stand_in::Setting;

extern "C" {

NcclStatus stand_in_version(int* version) {
  if (version == nullptr) return fails(kInvalidArgument, "GetVersion : version argument is NULL");
  *version = static_cast<int>(setting(Setting::kNcclVersion));
  return kNcclSuccess;
}

NcclStatus stand_in_unique_id(NcclId* id) {
  if (id == nullptr) return fails(kInvalidArgument, "GetUniqueId : out argument is NULL");
  std::random_device random;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "stand-in-nccl-%d-%08x%08x", getpid(), random(), random());
  return kNcclSuccess;
}

NcclStatus stand_in_init_rank(NcclComm* comm, int ranks, NcclId id, int rank, NcclConfig* config) {
  return grouped([&]() -> NcclStatus {
    if (comm == nullptr) return fails(kInvalidArgument, "CommInitRankConfig : comm argument is NULL");
    *comm = nullptr;
    id.internal[sizeof id.internal - 1] = 0;
    const std::string name = id.internal;
    if (name.rfind("stand-in-nccl-", 0) != 0 || name.find('/') != std::string::npos) {
      return fails(kInvalidArgument, "CommInitRankConfig : the id is not from ncclGetUniqueId");
    }
    if (!stand_in::good_config(config)) {
      return fails(kInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    }
    if (ranks < 1 || rank < 0 || rank >= ranks) {
      return fails(kInvalidArgument, "Invalid rank requested : %d/%d", rank, ranks);
    }
    int device = 0;
    Status status = stand_in::device_of_thread(&device);
    // Like CUDA's runtime, NCCL makes the primary context itself; here somebody must have it already.
    if (status == 0) status = stand_in::check_stream(device, nullptr);
    if (status != 0) return fails(stand_in::kUnhandledCudaError, "Cuda failure %d", status);
    if (setting(Setting::kNcclInitStatus) != 0) {
      return fails(static_cast<NcclStatus>(setting(Setting::kNcclInitStatus)),
                   "CommInitRankConfig : as the test wants");
    }
    const bool blocking = config == nullptr || config->blocking != 0;
    const auto handle = stand_in::join(name, rank, ranks, device, blocking);
    *comm = keep(handle);
    group.begun.push_back(handle);
    return kNcclSuccess;
  });
}

NcclStatus stand_in_split(NcclComm comm, int color, int key, NcclComm* made, NcclConfig* config) {
  return grouped([&]() -> NcclStatus {
    if (made == nullptr) return fails(kInvalidArgument, "CommSplit : newcomm argument is NULL");
    *made = nullptr;
    const auto handle = find(comm);
    if (handle == nullptr) return stand_in::unknown("CommSplit");
    if (const NcclStatus status = stand_in::ready(*handle, "CommSplit"); status != kNcclSuccess)
      return status;
    if (!stand_in::good_config(config)) {
      return fails(kInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    }
    if (color < 0 && color != kNcclNoColor)
      return fails(kInvalidArgument, "CommSplit : invalid color %d", color);
    {
      const std::lock_guard lock(handle->of->mutex);
      if (!handle->of->order.empty()) {
        return fails(kInvalidUsage,
                     "CommSplit : operations of the communicator are outstanding, which may deadlock");
      }
    }
    const bool set = config != nullptr && config->blocking != INT_MIN;
    handle->child_blocking = set ? config->blocking != 0 : handle->of->blocking;
    handle->color = color;
    handle->made = made;
    handle->state = Handle::State::kSplitting;
    handle->not_before = stand_in::Clock::now() + 5 * stand_in::some_time();
    stand_in::SplitWish& wish = handle->of->meeting->member(handle->of->rank).splits[handle->splits % 2];
    wish.color = color;
    wish.key = key;
    wish.sequence.store(handle->splits + 1, std::memory_order_release);
    group.begun.push_back(handle);
    stand_in::count(Count::kNcclSplits);
    return kNcclSuccess;
  });
}

NcclStatus stand_in_finalize(NcclComm comm) {
  const auto handle = find(comm);
  if (handle == nullptr) return stand_in::unknown("CommFinalize");
  if (const NcclStatus status = stand_in::ready(*handle, "CommFinalize"); status != kNcclSuccess)
    return status;
  handle->state = Handle::State::kFinalizing;
  handle->not_before = stand_in::Clock::now() + stand_in::some_time();
  return handle->of->blocking ? stand_in::settle(*handle, "ncclCommFinalize") : kNcclInProgress;
}

NcclStatus stand_in_destroy(NcclComm comm) {
  return comm == nullptr ? kNcclSuccess : stand_in::release(comm, "ncclCommDestroy");
}

NcclStatus stand_in_abort(NcclComm comm) {
  if (comm == nullptr) return kNcclSuccess;
  const auto handle = find(comm);
  if (handle == nullptr) return stand_in::unknown("CommAbort");
  handle->of->aborted = true;
  if (handle->child != nullptr) handle->child->of->aborted = true;
  stand_in::wake_worker();
  stand_in::forget(comm);
  return kNcclSuccess;
}

NcclStatus stand_in_async_error(NcclComm comm, NcclStatus* error) {
  const auto handle = find(comm);
  if (handle == nullptr) return stand_in::unknown("ncclGetAsyncError");
  if (error == nullptr) return fails(kInvalidArgument, "ncclGetAsyncError : asyncError argument is NULL");
  *error = stand_in::state_of(*handle);
  return kNcclSuccess;
}

NcclStatus stand_in_group_start() {
  ++group.depth;
  return kNcclSuccess;
}

NcclStatus stand_in_group_end() {
  if (group.depth == 0) return fails(kInvalidUsage, "ncclGroupEnd: not in a group call.");
  return stand_in::leave_group(kNcclSuccess);
}

NcclStatus stand_in_all_reduce(const void* in, void* out, std::size_t count, NcclType type, NcclOp op,
                               NcclComm comm, Stream stream) {
  return grouped([&] {
    return collective(Kind::kAllReduce, Count::kNcclAllReduce, in, out, count, type, static_cast<int>(op), 0,
                      comm, stream);
  });
}

NcclStatus stand_in_reduce_scatter(const void* in, void* out, std::size_t count, NcclType type, NcclOp op,
                                   NcclComm comm, Stream stream) {
  return grouped([&] {
    return collective(Kind::kReduceScatter, Count::kNcclReduceScatter, in, out, count, type,
                      static_cast<int>(op), 0, comm, stream);
  });
}

NcclStatus stand_in_all_gather(const void* in, void* out, std::size_t count, NcclType type, NcclComm comm,
                               Stream stream) {
  return grouped([&] {
    return collective(Kind::kAllGather, Count::kNcclAllGather, in, out, count, type, 0, 0, comm, stream);
  });
}

NcclStatus stand_in_reduce(const void* in, void* out, std::size_t count, NcclType type, NcclOp op, int root,
                           NcclComm comm, Stream stream) {
  return grouped([&] {
    return collective(Kind::kReduce, Count::kNcclReduce, in, out, count, type, static_cast<int>(op), root,
                      comm, stream);
  });
}

NcclStatus stand_in_broadcast(const void* in, void* out, std::size_t count, NcclType type, int root,
                              NcclComm comm, Stream stream) {
  return grouped([&] {
    return collective(Kind::kBroadcast, Count::kNcclBroadcast, in, out, count, type, 0, root, comm, stream);
  });
}

NcclStatus stand_in_send(const void* from, std::size_t count, NcclType type, int peer, NcclComm comm,
                         Stream stream) {
  return grouped(
      [&] { return stand_in::message(true, const_cast<void*>(from), count, type, peer, comm, stream); });
}

NcclStatus stand_in_receive(void* to, std::size_t count, NcclType type, int peer, NcclComm comm,
                            Stream stream) {
  return grouped([&] { return stand_in::message(false, to, count, type, peer, comm, stream); });
}

STAND_IN_EXPORT const char* ncclGetErrorString(NcclStatus status) {
  switch (status) {
    case kNcclSuccess:
      return "no error";
    case stand_in::kUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case 2:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case stand_in::kInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case kInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case kInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case stand_in::kRemoteError:
      return "remote process exited or there was a network error";
    case kNcclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

STAND_IN_EXPORT const char* ncclGetLastError(NcclComm) {
  thread_local char text[sizeof stand_in::last_error];
  const std::lock_guard lock(stand_in::text_mutex);
  std::memcpy(text, stand_in::last_error, sizeof text);
  return text;
}

}  // extern "C"

namespace {

[[maybe_unused]] __attribute__((used)) const void* const kWholeList[] = {
#define F(member, symbol, parameters) reinterpret_cast<const void*>(&stand_in_##member),
    DDL_NCCL_FUNCTIONS(F)
#undef F
};

}  // namespace
}  // namespace ddl::cuda

extern "C" STAND_IN_EXPORT int stand_in_nccl_break(void* communicator, int status) {
  const auto handle = stand_in::find(static_cast<ddl::cuda::NcclComm>(communicator));
  if (handle == nullptr) return stand_in::kInvalidArgument;
  handle->of->error = status;
  return 0;
}
