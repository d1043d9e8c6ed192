#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddl {

/// The GPU that a rank uses, as a place in its host.
struct GpuPlace {
  std::string bus;  ///< its place on the PCI bus, in normal_bus() form
  /// Number, in the host, of the group of GPUs that NVLink joins directly or through NVSwitches. -1: the GPU
  /// is in none, or it is not known.
  int island = -1;
  friend bool operator==(const GpuPlace&, const GpuPlace&) = default;
};

/// A place on the PCI bus as Linux writes it, "0000:1b:00.0": CUDA and NVML write other cases and longer
/// domains. Empty when the text is none.
std::string normal_bus(std::string_view text);

/// What this process tells other ranks of its GPU: DDL_RANK_GPU of the environment. Nothing where that does
/// not say it. Ranks are started near the GPU that ddlrun names there; which one a program uses is known only
/// when the topology has been found.
std::optional<GpuPlace> own_gpu();

/// Reads "0000:1b:00.0/2", or "0000:1b:00.0" without an island, as ddlrun tells each rank in DDL_RANK_GPU.
std::optional<GpuPlace> parse_gpu_place(std::string_view text);

}  // namespace ddl
