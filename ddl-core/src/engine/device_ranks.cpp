#include "engine/device_ranks.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include "engine/startup_exchange.hpp"
#include "plan/exchange.hpp"
#include "support/error.hpp"
#include "support/json.hpp"

namespace ddl {

/// What a rank tells the others about its GPU.
struct DeviceRanks::Record {
  cuda::Uuid uuid{};
  int nccl = 0;      ///< its release; 0: none; kUnusable
  std::string text;  ///< the GPU's name, or why there is no NCCL

  std::string packed() const {
    std::string all(reinterpret_cast<const char*>(&uuid), sizeof uuid);
    all.append(reinterpret_cast<const char*>(&nccl), sizeof nccl);
    return all + text;
  }
  static Record unpacked(const std::string& all) {
    Record record;
    std::memcpy(&record.uuid, all.data(), sizeof record.uuid);
    std::memcpy(&record.nccl, all.data() + sizeof record.uuid, sizeof record.nccl);
    record.text = all.substr(sizeof record.uuid + sizeof record.nccl);
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
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const Record& record = records[rank];
    if (record.nccl == kUnusable) {
      throw Error(DDL_ERR_DEVICE,
                  record.text + "; on " + name(rank) +
                      "; give all hosts an environment with a fitting NCCL, look at DDL_NCCL_LIBRARY "
                      "and LD_LIBRARY_PATH, or do without NCCL by -mode r in DDL_OPTIONS");
    }
    if (record.nccl == 0) {
      note_ = record.text + " (" + name(rank) + ")";
      return;
    }
    if (record.nccl != records[0].nccl) {
      throw Error(DDL_ERR_DEVICE,
                  name(rank) + " has NCCL " + cuda::nccl_version_text(record.nccl) + ", but " + name(0) +
                      " has " + cuda::nccl_version_text(records[0].nccl) +
                      "; in the first call on GPUs; give all hosts the same environment, and look at "
                      "DDL_NCCL_LIBRARY and LD_LIBRARY_PATH");
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (!record.same_gpu(records[other])) continue;
      note_ = name(other) + " and " + name(rank) + " share " + record.text;
      return;
    }
  }
  std::string gpus;
  for (const Record& record : records) gpus += record.text + ";";
  // Ranks that wait for each other elsewhere must still be heard of in time.
  const double limit_s = options.limits.timeout_s / 2;
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
    for (char* const memory : pinned_) device_.driver().host_unregister(memory);
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
  std::string cluster = gpus + " NCCL " + std::to_string(all_->nccl().release);
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
    if (!scratch_) scratch_ = std::make_unique<DeviceScratch>(device_, bytes);
    char* const pinned = context_.segment.stage(context_.self, 0, bytes);
    try {
      mine = measured_figures({device_, in_host, pinned, scratch_->at(0), bytes}, limit_s);
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
  const auto add = [&](const std::vector<int>& owners, std::size_t self) {
    if (owners.size() < 2) return;
    auto made = std::make_unique<cuda::NcclRanks>(all_->nccl(), static_cast<int>(owners.size()));
    together([&] { made->split(*all_, owners.front(), static_cast<int>(self), limit_s); });
    tiers_.tiers.push_back({std::move(made), self});
  };
  add(context_.members(), context_.self);
  for (const auto& segments : exchange.tiers) add(segments.front().owners, segments.front().mine);
  if (tiers_.tiers.size() < 2) {
    // NCCL's own all-reduce does it as well.
    tiers_.tiers.clear();
    return;
  }
  together([&] { tiers_.scratch = std::make_unique<DeviceScratch>(device_, kTiersScratchBytes); });
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
  out += ",\"note\":" + json_string(note_);
  out += ",\"staging_pinned\":" + std::string(pin_note_.empty() ? "true" : "false");
  if (figures_) {
    char text[200];
    std::snprintf(
        text, sizeof text,
        ",\"figures\":{\"origin\":\"%s\",\"nccl_in_host\":{\"latency_s\":%.6g,\"bytes_per_s\":%.6g},"
        "\"copies\":{\"latency_s\":%.6g,\"bytes_per_s\":%.6g}}",
        figures_->origin.c_str(), figures_->devices.latency_s, figures_->devices.bytes_per_s,
        figures_->copies.latency_s, figures_->copies.bytes_per_s);
    out += text;
  }
  out += ",\"nccl_tiers\":" + std::to_string(tiers_.tiers.size());
  return out + ",\"pin_note\":" + json_string(pin_note_) + "}";
}

}  // namespace ddl
