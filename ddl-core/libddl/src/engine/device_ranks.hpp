#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collective/collective_context.hpp"
#include "collective/ipc_exchange.hpp"
#include "collective/nccl_exchange.hpp"
#include "collective/nccl_tiers.hpp"
#include "cuda/device.hpp"
#include "cuda/nccl_ranks.hpp"
#include "cuda/reduce_kernels.hpp"
#include "engine/device_measurement.hpp"
#include "engine/options.hpp"
#include "transport/tree_exchange.hpp"

namespace ddl {

/**
 * What a communicator needs for calls on GPUs: which GPU each rank uses, NCCL among all ranks and among those
 * of a host or, where there can be no NCCL, memory that the ranks of a host have opened of each other, and
 * staging memory that copies need not wait for. Made in the first call on GPUs, by all ranks.
 */
class DeviceRanks {
 public:
  /// Memory of the host, with its bytes.
  using Region = std::pair<char*, std::size_t>;

  /// Collective over the communicator, whose ranks all are in the call. @param tree  of all of them, in their
  /// order. @param staging  where buffers are staged
  /// @throws Error the same on all ranks
  DeviceRanks(const TreeExchange& tree, CollectiveContext& context, const std::vector<Region>& staging,
              cuda::Device& device, const Options& options);
  /// Gives NCCL up where finish() was not called.
  ~DeviceRanks();
  DeviceRanks(const DeviceRanks&) = delete;
  DeviceRanks& operator=(const DeviceRanks&) = delete;

  cuda::Device& device() const { return device_; }
  /// NCCL among all ranks; null where there is ipc() or calls are staged in host memory, and note() says why.
  cuda::NcclRanks* all() const { return all_.get(); }
  /// NCCL among the ranks of this rank's host, and what else calls need there. Only where there is all().
  NcclHost& host() { return host_; }
  /// NCCL in every tier, of a topology of several whose groups are equally large; else without tiers.
  NcclTiers& tiers() { return tiers_; }
  /// Stages that the ranks of this rank's host have open of each other; null where they have not.
  IpcHost* ipc() { return ipc_.kernels != nullptr ? &ipc_ : nullptr; }
  /// Why NCCL is not used, and why CUDA IPC is not where that could be in its place.
  std::string note() const { return note_ + (ipc_note_.empty() ? "" : "; no CUDA IPC: " + ipc_note_); }
  /// Measured; nothing where there is neither all() nor ipc().
  const std::optional<DeviceFigures>& figures() const { return figures_; }

  /// Ends what is under way after a failure, on this rank.
  void abort();
  /// Waits until all ranks have come to the end, for so long at most.
  void finish(double limit_s);
  std::string to_json() const;

 private:
  struct Record;
  void pin(const std::vector<Region>& staging);
  void connect(const TreeExchange& tree, double limit_s);
  void measure(const TreeExchange& tree, const std::string& gpus, double limit_s);
  /// Opens the stages of the host's ranks in each other's processes, or notes why that cannot be.
  void share(const TreeExchange& tree, const std::vector<Record>& records, double limit_s);
  void open_stages(const std::vector<std::string>& handles, double limit_s);
  /// What one chunk of the exchange by IPC costs a GPU, without waits for other ranks.
  void put_ipc_chunk(cuda::Stream stream, std::size_t bytes);
  /// Every rank's text, or nothing where one of them fails, which is then noted. Collective.
  std::optional<std::vector<std::string>> together(const TreeExchange& tree,
                                                   const std::function<std::string()>& action);
  void close_stages();
  /// @param together  does something on all ranks, and makes the error of one that of all
  void connect_tiers(const std::function<void(const std::function<void()>&)>& together, double limit_s);

  CollectiveContext& context_;
  cuda::Device& device_;
  std::string note_;
  std::string pin_note_;
  std::vector<char*> pinned_;
  std::unique_ptr<cuda::NcclRanks> all_;
  std::unique_ptr<cuda::NcclRanks> in_host_;
  std::unique_ptr<DeviceScratch> scratch_;
  NcclHost host_;
  NcclTiers tiers_;
  std::string ipc_note_;
  std::unique_ptr<cuda::ReduceKernels> kernels_;
  std::unique_ptr<DeviceScratch> stage_;     ///< what the others of the host have open
  std::vector<cuda::DeviceAddress> opened_;  ///< theirs
  bool shared_ = false;                      ///< stage_ has been opened, maybe
  IpcHost ipc_;
  std::optional<DeviceFigures> figures_;
};

}  // namespace ddl
