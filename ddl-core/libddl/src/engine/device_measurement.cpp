#include "engine/device_measurement.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <sstream>
#include <vector>

#include "engine/cache_folder.hpp"
#include "support/error.hpp"
#include "support/stopwatch.hpp"
#include "topology/rack_evidence.hpp"

namespace ddl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTries = 5;
constexpr int kTriesOfSmall = 15;
constexpr const char* kHeader = "ddl-gpus 2";

[[noreturn]] void too_late(const cuda::Device& device, const std::string& what) {
  throw Error(DDL_ERR_TIMEOUT, what + " " + device.name() + " has not ended within the time limit",
              Error::kOnThisRank, "look at the state of the GPUs of the host");
}

class DeviceMeasurement {
 public:
  DeviceMeasurement(const DeviceProbe& probe, double limit_s)
      : probe_(probe),
        limit_s_(limit_s),
        streams_(probe.device.take_streams()),
        event_(probe.device.take_event()) {}
  ~DeviceMeasurement() {
    // With work under way they would be given to others that do not expect it.
    if (!idle_) return;
    probe_.device.give_event(event_);
    probe_.device.give_streams(streams_);
  }
  DeviceMeasurement(const DeviceMeasurement&) = delete;
  DeviceMeasurement& operator=(const DeviceMeasurement&) = delete;

  LinkFigures copies() {
    LinkFigures figures;
    const auto both = [this](std::size_t bytes) {
      return [this, bytes] {
        const auto at = reinterpret_cast<cuda::DeviceAddress>(probe_.on_device);
        const cuda::Driver& driver = probe_.device.driver();
        driver.check(driver.copy_to_host(probe_.pinned, at, bytes, streams_.collective), "measuring copies");
        driver.check(driver.copy_to_device(at, probe_.pinned, bytes, streams_.collective),
                     "measuring copies");
      };
    };
    figures.latency_s = timed(both(4), kTriesOfSmall) / 2;
    const double seconds = timed(both(probe_.bytes), kTries) / 2;
    figures.bytes_per_s = static_cast<double>(probe_.bytes) / std::max(seconds - figures.latency_s, 1e-9);
    return figures;
  }

  LinkFigures ipc() {
    if (!probe_.ipc_chunk) return {0, 0};
    LinkFigures figures;
    figures.latency_s =
        timed([this] { probe_.ipc_chunk(streams_.collective, sizeof(float)); }, kTriesOfSmall);
    const double seconds = timed([this] { probe_.ipc_chunk(streams_.collective, probe_.bytes); }, kTries);
    figures.bytes_per_s = static_cast<double>(probe_.bytes) / std::max(seconds - figures.latency_s, 1e-9);
    return figures;
  }

  LinkFigures devices() {
    if (probe_.in_host == nullptr) return {0, 0};
    cuda::NcclRanks& ranks = *probe_.in_host;
    const auto reduce = [&](std::size_t bytes) {
      return [this, bytes, &ranks] {
        ranks.put("an all-reduce", [&] {
          const cuda::Nccl& nccl = ranks.nccl();
          nccl.check(
              nccl.all_reduce(probe_.on_device, probe_.on_device, bytes / sizeof(float),
                              cuda::NcclType::kFloat, cuda::NcclOp::kMax, ranks.comm(), streams_.collective),
              ranks.comm(), "an all-reduce");
        });
        const auto start = Clock::now();
        while (!ranks.idle()) check_time(start);
      };
    };
    LinkFigures figures;
    figures.latency_s = timed(reduce(4), kTriesOfSmall);
    const double seconds = timed(reduce(probe_.bytes), kTries);
    const auto count = static_cast<double>(ranks.size());
    const double sent = 2 * (count - 1) / count * static_cast<double>(probe_.bytes);
    figures.bytes_per_s = sent / std::max(seconds - figures.latency_s, 1e-9);
    return figures;
  }

 private:
  template <class Work>
  double timed(const Work& work, int tries) {
    std::vector<double> seconds;
    // The first one also makes connections.
    for (int i = 0; i <= tries; ++i) {
      const auto start = Clock::now();
      idle_ = false;
      work();
      const cuda::Driver& driver = probe_.device.driver();
      driver.check(driver.event_record(event_, streams_.collective), "recording an event");
      wait_for_event(probe_.device, event_, limit_s_ - seconds_since(start), "measuring");
      idle_ = true;
      if (i > 0) seconds.push_back(seconds_since(start));
    }
    return median(std::move(seconds));
  }

  void check_time(Clock::time_point start) const {
    if (seconds_since(start) >= limit_s_) too_late(probe_.device, "measuring");
  }

  const DeviceProbe& probe_;
  const double limit_s_;
  const cuda::Device::Streams streams_;
  const cuda::Event event_;
  bool idle_ = true;
};

std::string text_of(const DeviceFigures& figures) {
  char text[200];
  std::snprintf(text, sizeof text, "%s %.9g %.9g %.9g %.9g %.9g %.9g\n", kHeader, figures.devices.latency_s,
                figures.devices.bytes_per_s, figures.ipc.latency_s, figures.ipc.bytes_per_s,
                figures.copies.latency_s, figures.copies.bytes_per_s);
  return text;
}

bool read_figures(const std::string& text, DeviceFigures& figures) {
  std::istringstream in(text);
  std::string name;
  std::string version;
  in >> name >> version >> figures.devices.latency_s >> figures.devices.bytes_per_s >>
      figures.ipc.latency_s >> figures.ipc.bytes_per_s >> figures.copies.latency_s >>
      figures.copies.bytes_per_s;
  if (!in || name + " " + version != kHeader) return false;
  for (const LinkFigures& link : {figures.devices, figures.ipc, figures.copies}) {
    if (!std::isfinite(link.latency_s) || !std::isfinite(link.bytes_per_s) || link.latency_s < 0 ||
        link.latency_s > 100 || link.bytes_per_s < 0 || link.bytes_per_s > 1e15) {
      return false;
    }
  }
  return figures.copies.bytes_per_s > 1;
}

/// The slower of each.
void merge(LinkFigures& all, const LinkFigures& other) {
  if (other.bytes_per_s <= 0) return;
  all.latency_s = std::max(all.latency_s, other.latency_s);
  all.bytes_per_s = all.bytes_per_s <= 0 ? other.bytes_per_s : std::min(all.bytes_per_s, other.bytes_per_s);
}

std::string path_for(const std::string& folder, const std::string& cluster) {
  return folder + "/gpus-" + fingerprint_of(cluster);
}

}  // namespace

std::optional<DeviceFigures> kept_figures(const TreeExchange& tree, const std::string& cluster) {
  const std::string folder = cache_folder();
  std::string kept;
  if (tree.is_root() && !folder.empty()) kept = read_cached(path_for(folder, cluster), 1000);
  kept = tree.broadcast(std::move(kept));
  DeviceFigures figures;
  if (!read_figures(kept, figures)) return std::nullopt;
  figures.origin = "cached";
  return figures;
}

void wait_for_event(cuda::Device& device, cuda::Event event, double limit_s, const std::string& what) {
  const auto start = Clock::now();
  cuda::Status status = cuda::kNotReady;
  while ((status = device.driver().event_query(event)) == cuda::kNotReady) {
    if (seconds_since(start) >= limit_s) too_late(device, what);
  }
  device.driver().check(status, (what + " " + device.name()).c_str());
}

DeviceFigures measured_figures(const DeviceProbe& probe, double limit_s) {
  DeviceMeasurement measurement(probe, limit_s);
  DeviceFigures figures;
  figures.copies = measurement.copies();
  figures.devices = measurement.devices();
  figures.ipc = measurement.ipc();
  return figures;
}

DeviceFigures merged_figures(const TreeExchange& tree, const DeviceFigures& mine,
                             const std::string& cluster) {
  DeviceFigures all;
  for (const std::string& text : tree.all_gather(text_of(mine))) {
    DeviceFigures figures;
    if (!read_figures(text, figures)) continue;
    merge(all.copies, figures.copies);
    merge(all.devices, figures.devices);
    merge(all.ipc, figures.ipc);
  }
  all.origin = "measured";
  const std::string folder = cache_folder();
  if (tree.is_root() && !folder.empty()) write_cached(path_for(folder, cluster), text_of(all));
  return all;
}

}  // namespace ddl
