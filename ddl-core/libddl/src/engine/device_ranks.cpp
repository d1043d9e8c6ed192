#include "engine/device_ranks.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>

#include "engine/kernel_cache.hpp"
#include "engine/startup_exchange.hpp"
#include "plan/exchange.hpp"
#include "support/error.hpp"
#include "support/json.hpp"
#include "support/stopwatch.hpp"

namespace ddl {
namespace {

/// For the others of a host to close this rank's memory. They come to the end together.
constexpr double kCloseSeconds = 10;

}  // namespace

/// What a rank tells the others about its GPU.
struct DeviceRanks::Record {
  cuda::Uuid uuid{};
  int nccl = 0;  ///< its release; 0: none; kUnusable
  int capability = 0;
  std::string text;  ///< the GPU's name, or why there is no NCCL

  std::string packed() const {
    std::string all(reinterpret_cast<const char*>(&uuid), sizeof uuid);
    all.append(reinterpret_cast<const char*>(&nccl), sizeof nccl);
    all.append(reinterpret_cast<const char*>(&capability), sizeof capability);
    return all + text;
  }
  static Record unpacked(const std::string& all) {
    Record record;
    std::memcpy(&record.uuid, all.data(), sizeof record.uuid);
    std::memcpy(&record.nccl, all.data() + sizeof record.uuid, sizeof record.nccl);
    std::memcpy(&record.capability, all.data() + sizeof record.uuid + sizeof record.nccl,
                sizeof record.capability);
    record.text = all.substr(sizeof record.uuid + sizeof record.nccl + sizeof record.capability);
    return record;
  }
  bool same_gpu(const Record& other) const { return std::memcmp(&uuid, &other.uuid, sizeof uuid) == 0; }
};

DeviceRanks::DeviceRanks(const TreeExchange& tree, CollectiveContext& context,
                         const std::vector<Region>& staging, cuda::Device& device, const Options& options)
    : context_(context), device_(device) {
  const cuda::Nccl* const nccl = cuda::Nccl::instance();
  Record mine;
  mine.uuid = device.uuid();
  constexpr int kUnusable = -1;
  mine.nccl = nccl != nullptr ? nccl->release : cuda::Nccl::unusable() ? kUnusable : 0;
  mine.capability = device.capability();
  mine.text = nccl == nullptr ? cuda::Nccl::why_not() : device.name();
  std::vector<Record> records;
  for (const std::string& text : tree.all_gather(mine.packed())) records.push_back(Record::unpacked(text));
  const auto name = [&](std::size_t rank) { return context.topology.describe_rank(static_cast<int>(rank)); };

  pin(staging);
  const bool wanted = (options.mode == 'p' || options.mode == 'n' || options.mode == 'b') &&
                      options.determinism != Determinism::kPlacement;
  if (!wanted) {
    note_ = options.determinism == Determinism::kPlacement ? "-deterministic placement is not NCCL's order"
                                                           : std::string("-mode ") + options.mode;
    return;
  }
  // Ranks that wait for each other elsewhere must still be heard of in time.
  const double limit_s = options.limits.timeout_s / 2;
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const Record& record = records[rank];
    if (record.nccl == kUnusable) {
      throw Error(DDL_ERR_DEVICE, record.text, "on " + name(rank),
                  "give all hosts an environment with a fitting NCCL, look at DDL_NCCL_LIBRARY and "
                  "LD_LIBRARY_PATH, or do without NCCL by -mode r in DDL_OPTIONS");
    }
    if (record.nccl == 0) {
      note_ = record.text + " (" + name(rank) + ")";
      share(tree, records, limit_s);
      return;
    }
    if (record.nccl != records[0].nccl) {
      throw Error(DDL_ERR_DEVICE,
                  name(rank) + " has NCCL " + cuda::nccl_version_text(record.nccl) + ", but " + name(0) +
                      " has " + cuda::nccl_version_text(records[0].nccl),
                  "in the first call on GPUs",
                  "give all hosts the same environment, and look at DDL_NCCL_LIBRARY and LD_LIBRARY_PATH");
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (!record.same_gpu(records[other])) continue;
      note_ = name(other) + " and " + name(rank) + " share " + record.text;
      share(tree, records, limit_s);
      return;
    }
  }
  std::string gpus;
  for (const Record& record : records) gpus += record.text + ";";
  try {
    connect(tree, limit_s);
    measure(tree, gpus, limit_s);
  } catch (const Error&) {
    // Memory of the device is freed only when nothing runs on it any more.
    abort();
    throw;
  }
}

DeviceRanks::~DeviceRanks() {
  try {
    const cuda::Device::Current current(device_);
    abort();
    close_stages();
    for (char* const memory : pinned_) device_.driver().host_unregister(memory);
    kernels_.reset();
    stage_.reset();
    scratch_.reset();
    tiers_.scratch.reset();
  } catch (const Error&) {
    // The device has failed: nothing of it is left to be freed.
  }
}

void DeviceRanks::pin(const std::vector<Region>& staging) {
  for (const auto& [memory, bytes] : staging) {
    const cuda::Status status = device_.driver().host_register(memory, bytes, cuda::kHostPortable);
    if (status == cuda::kSuccess) {
      pinned_.push_back(memory);
    } else {
      // Copies are slower then, but no less right.
      pin_note_ = device_.driver().text_of(status);
    }
  }
}

void DeviceRanks::connect(const TreeExchange& tree, double limit_s) {
  const cuda::Nccl& nccl = *cuda::Nccl::instance();
  const int size = context_.topology.size();
  std::optional<Error> error;
  const auto together = [&](auto&& action) {
    try {
      action();
    } catch (const Error& e) {
      error = e;
    }
    agree_on_success(tree, context_.rank, context_.topology, error);
  };
  all_ = std::make_unique<cuda::NcclRanks>(nccl, size);
  together([&] { all_->connect(tree, context_.rank, limit_s); });
  if (context_.groups.size() < 2) return;
  const bool several_in_one = std::any_of(context_.groups.begin(), context_.groups.end(),
                                          [](const Group* group) { return group->ranks.size() > 1; });
  if (!several_in_one) {
    connect_tiers(together, limit_s);
    return;
  }
  const std::size_t members = context_.members().size();
  in_host_ = std::make_unique<cuda::NcclRanks>(nccl, static_cast<int>(members));
  together([&] {
    in_host_->split(*all_, static_cast<int>(context_.group), static_cast<int>(context_.self), limit_s);
    scratch_ = std::make_unique<DeviceScratch>(device_, kDeviceSlots * kDeviceChunkBytes);
  });
  host_.ranks = members > 1 ? in_host_.get() : nullptr;
  host_.scratch = scratch_.get();
  connect_tiers(together, limit_s);
}

void DeviceRanks::measure(const TreeExchange& tree, const std::string& gpus, double limit_s) {
  std::string cluster = gpus + (all_ ? " NCCL " + std::to_string(all_->nccl().release) : " IPC");
  for (const Host& host : context_.topology.hosts())
    cluster += " " + host.name + ":" + std::to_string(host.ranks.size());
  cuda::NcclRanks* const in_host = context_.groups.size() == 1 ? all_.get() : host_.ranks;
  figures_ = kept_figures(tree, cluster);
  if (figures_) return;
  DeviceFigures mine;
  std::optional<Error> error;
  try {
    constexpr std::size_t most = std::size_t{4} << 20;
    const std::size_t bytes = std::min(most, context_.segment.stage_bytes());
    // It stays: freeing memory of a device waits for all its streams, also for those that wait for this call.
    if (!scratch_ && !stage_) scratch_ = std::make_unique<DeviceScratch>(device_, bytes);
    char* const on_device = (stage_ ? stage_ : scratch_)->at(0);
    std::function<void(cuda::Stream, std::size_t)> chunk;
    if (ipc() != nullptr && context_.members().size() > 1)
      chunk = [this](cuda::Stream stream, std::size_t size) { put_ipc_chunk(stream, size); };
    char* const pinned = context_.segment.stage(context_.self, 0, bytes);
    try {
      mine = measured_figures({device_, in_host, chunk, pinned, on_device, bytes}, limit_s);
    } catch (const Error&) {
      abort();
      throw;
    }
  } catch (const Error& e) {
    error = e;
  }
  agree_on_success(tree, context_.rank, context_.topology, error);
  figures_ = merged_figures(tree, mine, cluster);
}

void DeviceRanks::connect_tiers(const std::function<void(const std::function<void()>&)>& together,
                                double limit_s) {
  const Group& tree = context_.topology.root();
  if (!order_of_owners(tree)) return;
  const auto ranks = static_cast<std::size_t>(context_.topology.size());
  const Exchange exchange = plan_exchange(tree, context_.rank, ranks, 1);
  const auto add = [&](const std::vector<int>& owners, std::size_t self, int lane) {
    if (owners.size() < 2) return;
    auto made = std::make_unique<cuda::NcclRanks>(all_->nccl(), static_cast<int>(owners.size()));
    together([&] { made->split(*all_, owners.front(), static_cast<int>(self), limit_s); });
    tiers_.tiers.push_back({std::move(made), self, lane});
  };
  add(context_.members(), context_.self, Timeline::kMemory);
  int lane = Timeline::kFirstTier;
  for (const auto& segments : exchange.tiers) add(segments.front().owners, segments.front().mine, lane++);
  if (tiers_.tiers.size() < 2) {
    // NCCL's own all-reduce does it as well.
    tiers_.tiers.clear();
    return;
  }
  together([&] { tiers_.scratch = std::make_unique<DeviceScratch>(device_, kTiersScratchBytes); });
}

std::optional<std::vector<std::string>> DeviceRanks::together(const TreeExchange& tree,
                                                              const std::function<std::string()>& action) {
  std::string mine;
  try {
    mine = "+" + action();
  } catch (const Error& error) {
    // Without "[ERROR DDL-1-11] ": it is none.
    mine = "-" + std::string(error.problem());
  }
  std::vector<std::string> all = tree.all_gather(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] == '-') {
      ipc_note_ = all[rank].substr(1) + " (" + context_.topology.describe_rank(static_cast<int>(rank)) + ")";
      return std::nullopt;
    }
    all[rank].erase(0, 1);
  }
  return all;
}

void DeviceRanks::share(const TreeExchange& tree, const std::vector<Record>& records, double limit_s) {
  std::size_t most = 1;
  for (const Group* const group : context_.groups) most = std::max(most, group->ranks.size());
  if (most == 1) return;
  if (most > cuda::kMostReduced) {
    ipc_note_ = "a host has more than " + std::to_string(cuda::kMostReduced) + " ranks";
    return;
  }
  // The first rank with a kind of GPU compiles for it, unless an earlier job has: that takes seconds of a
  // processor.
  const auto compiler_of = [&](int capability) {
    return static_cast<std::size_t>(
        std::find_if(records.begin(), records.end(),
                     [&](const Record& record) { return record.capability == capability; }) -
        records.begin());
  };
  const int capability = records[static_cast<std::size_t>(context_.rank)].capability;
  const std::size_t compiler = compiler_of(capability);
  const auto codes = together(tree, [&] {
    const bool mine = compiler == static_cast<std::size_t>(context_.rank);
    return mine ? kept_kernels(capability) : std::string();
  });
  if (!codes) return;
  const std::size_t members = context_.members().size();
  const auto handles = together(tree, [&] {
    kernels_ = std::make_unique<cuda::ReduceKernels>(device_, (*codes)[compiler]);
    stage_ = std::make_unique<DeviceScratch>(
        device_, kDeviceSlots * kDeviceChunkBytes + members * sizeof(cuda::DeviceAddress));
    if (members == 1) return std::string();
    cuda::IpcHandle handle{};
    device_.driver().check(
        device_.driver().ipc_handle(&handle, reinterpret_cast<cuda::DeviceAddress>(stage_->at(0))),
        "sharing memory of the device");
    shared_ = true;
    return std::string(handle.reserved, sizeof handle.reserved);
  });
  if (!handles) return;
  const auto opened = together(tree, [&] {
    open_stages(*handles, limit_s);
    return std::string();
  });
  if (!opened) return;
  ipc_.stage_bytes = kDeviceSlots * kDeviceChunkBytes;
  ipc_.kernels = kernels_.get();
  std::string gpus;
  for (const Record& record : records) gpus += std::string(record.uuid.bytes, sizeof record.uuid) + ";";
  try {
    measure(tree, gpus, limit_s);
  } catch (const Error&) {
    // Others have the stage open, and what was launched may still run.
    static_cast<void>(stage_.release());
    static_cast<void>(kernels_.release());
    throw;
  }
}

void DeviceRanks::open_stages(const std::vector<std::string>& handles, double limit_s) {
  const cuda::Driver& driver = device_.driver();
  for (const int member : context_.members()) {
    if (member == context_.rank) {
      ipc_.stages.push_back(stage_->at(0));
      continue;
    }
    cuda::IpcHandle handle{};
    std::memcpy(handle.reserved, handles[static_cast<std::size_t>(member)].data(), sizeof handle.reserved);
    cuda::DeviceAddress address = 0;
    driver.check(driver.ipc_open(&address, handle, cuda::kIpcLazyPeerAccess),
                 ("opening memory of " + context_.topology.describe_rank(member)).c_str());
    opened_.push_back(address);
    ipc_.stages.push_back(reinterpret_cast<char*>(address));
  }
  // Behind the stage, which nobody writes to in this way again.
  const std::size_t bytes = ipc_.stages.size() * sizeof(char*);
  char* const on_device = stage_->at(kDeviceSlots * kDeviceChunkBytes);
  ipc_.bases = reinterpret_cast<cuda::DeviceAddress>(on_device);
  char* const pinned = context_.segment.stage(context_.self, 0, bytes);
  std::memcpy(pinned, ipc_.stages.data(), bytes);
  const cuda::Device::Streams streams = device_.take_streams();
  const cuda::Event event = device_.take_event();
  driver.check(driver.copy_to_device(ipc_.bases, pinned, bytes, streams.collective), "copying to the device");
  kernels_->launch_all(streams.collective);
  driver.check(driver.event_record(event, streams.collective), "recording an event");
  wait_for_event(device_, event, limit_s, "the first launch of the reductions");
  device_.give_event(event);
  device_.give_streams(streams);
}

void DeviceRanks::put_ipc_chunk(cuda::Stream stream, std::size_t bytes) {
  const cuda::Driver& driver = device_.driver();
  const std::size_t members = ipc_.stages.size();
  const std::size_t part = bytes / members / sizeof(float) * sizeof(float);
  const std::size_t half = ipc_.stage_bytes / 2;
  const auto copy = [&](const char* from) {
    if (part == 0) return;
    driver.check(driver.copy_within(reinterpret_cast<cuda::DeviceAddress>(stage_->at(half)),
                                    reinterpret_cast<cuda::DeviceAddress>(from), part, stream),
                 "measuring copies");
  };
  for (std::size_t i = 0; i + 1 < members; ++i) copy(stage_->at(0));
  kernels_->launch(DDL_TYPE_FLOAT, DDL_OP_MAX, stage_->at(half),
                   {ipc_.bases, 0, stage_->at(0), static_cast<int>(context_.self), static_cast<int>(members)},
                   part / sizeof(float), 1, stream);
  for (const char* const stage : ipc_.stages) copy(stage);
}

void DeviceRanks::close_stages() {
  for (const cuda::DeviceAddress address : opened_) device_.driver().ipc_close(address);
  opened_.clear();
  ipc_.kernels = nullptr;
  context_.cell().devices_closed.store(1, std::memory_order_release);
  if (!shared_) return;
  // Its owner frees memory when nobody has it open any more.
  const auto start = std::chrono::steady_clock::now();
  const auto all_closed = [&] {
    for (std::size_t i = 0; i < context_.segment.ranks(); ++i) {
      if (context_.segment.cell(i).devices_closed.load(std::memory_order_acquire) == 0) return false;
    }
    return true;
  };
  while (!all_closed()) {
    if (seconds_since(start) > kCloseSeconds) {
      // Somebody still has it: it goes with the process.
      static_cast<void>(stage_.release());
      return;
    }
    const timespec pause{0, 200'000};
    nanosleep(&pause, nullptr);
  }
}

void DeviceRanks::abort() {
  for (NcclTiers::Tier& tier : tiers_.tiers) tier.ranks->abort();
  if (in_host_) in_host_->abort();
  if (all_) all_->abort();
}

void DeviceRanks::finish(double limit_s) {
  const cuda::Device::Current current(device_);
  for (NcclTiers::Tier& tier : tiers_.tiers) tier.ranks->finish(limit_s);
  if (in_host_) in_host_->finish(limit_s);
  if (all_) all_->finish(limit_s);
}

std::string DeviceRanks::to_json() const {
  std::string out = "{\"name\":" + json_string(device_.name());
  out += ",\"nccl\":" + (all_ ? json_string(cuda::nccl_version_text(all_->nccl().release)) : "null");
  out += ",\"nccl_in_hosts\":" + std::string(host_.scratch != nullptr ? "true" : "false");
  out += ",\"ipc\":" + std::string(ipc_.kernels != nullptr ? "true" : "false");
  out += ",\"note\":" + json_string(note());
  out += ",\"staging_pinned\":" + std::string(pin_note_.empty() ? "true" : "false");
  if (figures_) {
    char text[300];
    std::snprintf(
        text, sizeof text,
        ",\"figures\":{\"origin\":\"%s\",\"nccl_in_host\":{\"latency_s\":%.6g,\"bytes_per_s\":%.6g},"
        "\"ipc\":{\"latency_s\":%.6g,\"bytes_per_s\":%.6g},"
        "\"copies\":{\"latency_s\":%.6g,\"bytes_per_s\":%.6g}}",
        figures_->origin.c_str(), figures_->devices.latency_s, figures_->devices.bytes_per_s,
        figures_->ipc.latency_s, figures_->ipc.bytes_per_s, figures_->copies.latency_s,
        figures_->copies.bytes_per_s);
    out += text;
  }
  out += ",\"nccl_tiers\":" + std::to_string(tiers_.tiers.size());
  return out + ",\"pin_note\":" + json_string(pin_note_) + "}";
}

}  // namespace ddl
