#include "topology/nvml.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

namespace ddl {
namespace {

// Names, numbers and layouts are those of nvml.h, whose functions keep them for ever.
constexpr int kSuccess = 0;
constexpr unsigned kMostLinks = 18;
constexpr unsigned kLinkToSwitch = 2;

using Device = void*;

struct Pci {
  char bus_legacy[16];
  unsigned domain, bus, device, kind, subsystem;
  char bus_text[32];
};

/// The library, loaded for as long as this lives.
class Nvml {
 public:
  explicit Nvml(const char* library) : handle_(dlopen(library, RTLD_LAZY | RTLD_LOCAL)) {
    started_ = handle_ && succeeds("nvmlInit_v2");
  }
  ~Nvml() {
    if (started_) succeeds("nvmlShutdown");
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool started() const { return started_; }

  template <class... Arguments>
  bool succeeds(const char* name, Arguments... arguments) const {
    using Function = int (*)(Arguments...);
    const auto function = reinterpret_cast<Function>(dlsym(handle_.get(), name));
    return function != nullptr && function(arguments...) == kSuccess;
  }

 private:
  struct Close {
    void operator()(void* handle) const { dlclose(handle); }
  };
  std::unique_ptr<void, Close> handle_;
  bool started_ = false;
};

/// What a GPU's links lead to.
struct Links {
  std::vector<std::string> peers;  ///< buses of GPUs, or of what else is there
  bool to_switch = false;
};

std::string bus_of(const Pci& pci) {
  char text[sizeof pci.bus_text + 1] = {};
  std::copy(std::begin(pci.bus_text), std::end(pci.bus_text), text);
  return normal_bus(text);
}

Links links_of(const Nvml& nvml, Device gpu) {
  Links links;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    unsigned active = 0;
    if (!nvml.succeeds("nvmlDeviceGetNvLinkState", gpu, link, &active) || active == 0) continue;
    unsigned kind = 0;
    links.to_switch |=
        nvml.succeeds("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link, &kind) && kind == kLinkToSwitch;
    Pci far{};
    if (nvml.succeeds("nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu, link, &far)) {
      links.peers.push_back(bus_of(far));
    }
  }
  return links;
}

/// Links of the GPUs that this process may use, in the order of the bus.
std::map<std::string, Links> gpus_of(const Nvml& nvml) {
  std::map<std::string, Links> gpus;
  unsigned count = 0;
  if (!nvml.succeeds("nvmlDeviceGetCount_v2", &count)) return gpus;
  for (unsigned index = 0; index < count; ++index) {
    Device gpu = nullptr;
    Pci pci{};
    if (!nvml.succeeds("nvmlDeviceGetHandleByIndex_v2", index, &gpu) ||
        !nvml.succeeds("nvmlDeviceGetPciInfo_v3", gpu, &pci)) {
      continue;
    }
    unsigned divided = 0;
    unsigned pending = 0;
    if (!nvml.succeeds("nvmlDeviceGetMigMode", gpu, &divided, &pending)) divided = 0;
    // NVLink does not serve a GPU that is divided into MIG devices.
    gpus[bus_of(pci)] = divided != 0 ? Links{} : links_of(nvml, gpu);
  }
  return gpus;
}

/// By bus the number of the island, -1 for a GPU that is alone.
std::map<std::string, int> islands_of(const std::map<std::string, Links>& gpus) {
  std::map<std::string, std::string> first;  // of the island, by bus
  for (const auto& [bus, links] : gpus) first[bus] = bus;
  const auto join = [&first](const std::string& a, const std::string& b) {
    const std::string low = std::min(first[a], first[b]);
    const std::string high = std::max(first[a], first[b]);
    for (auto& [bus, one] : first) {
      if (one == high) one = low;
    }
  };
  std::string switched;
  for (const auto& [bus, links] : gpus) {
    for (const std::string& peer : links.peers) {
      if (gpus.contains(peer)) join(bus, peer);
    }
    if (!links.to_switch) continue;
    if (switched.empty()) switched = bus;
    join(bus, switched);
  }
  std::map<std::string, int> numbers;
  std::map<std::string, int> islands;
  for (const auto& [bus, one] : first) {
    const auto members = std::count_if(first.begin(), first.end(),
                                       [&one = one](const auto& other) { return other.second == one; });
    islands[bus] =
        members < 2 ? -1 : numbers.try_emplace(one, static_cast<int>(numbers.size())).first->second;
  }
  return islands;
}

}  // namespace

GpuPlace place_of_gpu(const std::string& bus, const char* library) {
  GpuPlace place{normal_bus(bus), -1};
  const Nvml nvml(library);
  if (!nvml.started()) return place;
  const std::map<std::string, int> islands = islands_of(gpus_of(nvml));
  if (const auto found = islands.find(place.bus); found != islands.end()) place.island = found->second;
  return place;
}

}  // namespace ddl
