#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cuda/device.hpp"
#include "cuda/nccl_ranks.hpp"
#include "plan/link_model.hpp"
#include "transport/tree_exchange.hpp"

namespace ddl {

/// What the planner needs to know of GPUs.
struct DeviceFigures {
  LinkFigures devices;  ///< NCCL between those of a host
  LinkFigures ipc;      ///< as LinkModel::ipc
  LinkFigures copies;   ///< between one and the host's memory
  std::string origin;   ///< "measured", "cached"
};

/// What is measured on.
struct DeviceProbe {
  cuda::Device& device;
  cuda::NcclRanks* in_host;  ///< of the ranks of a host; null: this rank is alone there
  /// Puts the work of one chunk of the exchange by IPC, of so many bytes, on a stream; none: there is none.
  std::function<void(cuda::Stream, std::size_t)> ipc_chunk;
  char* pinned;  ///< of the host, bytes of it as many as of the device
  char* on_device;
  std::size_t bytes;
};

/// What was found earlier, and kept in the folder of the links' figures. The same on all ranks of `tree`.
/// Collective.
/// @param cluster  names the hosts and GPUs
std::optional<DeviceFigures> kept_figures(const TreeExchange& tree, const std::string& cluster);

/// Waits until a device has come to an event, for so long at most. @param what  is waited for, for texts
/// @throws Error (DDL_ERR_DEVICE, DDL_ERR_TIMEOUT)
void wait_for_event(cuda::Device& device, cuda::Event event, double limit_s, const std::string& what);

/// Of this rank; some milliseconds. All ranks of the host at the same time. @throws Error
DeviceFigures measured_figures(const DeviceProbe& probe, double limit_s);

/// Of the slowest GPUs, on all ranks, and kept for the next time. Collective.
DeviceFigures merged_figures(const TreeExchange& tree, const DeviceFigures& mine, const std::string& cluster);

}  // namespace ddl
