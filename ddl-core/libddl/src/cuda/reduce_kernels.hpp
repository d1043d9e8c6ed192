#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "cuda/device.hpp"
#include "ddl.h"

namespace ddl::cuda {

/// kernels/reduce.cu, as text.
extern const char* const kReduceSource;

/// One launch of reduce.cu reduces so many sources at most.
inline constexpr std::size_t kMostReduced = 511;

/// reduce.cu, loaded on a GPU: the reductions of ReduceKernel, for sources that lie in stages of several
/// ranks.
class ReduceKernels {
 public:
  /// The code for GPUs of a compute capability, as 90 for 9.0. @throws Error (DDL_ERR_DEVICE)
  static std::string compiled(int capability);
  /// The release of NVRTC that compiled() takes, as "12.8". @throws Error (DDL_ERR_DEVICE)
  static std::string compiler();

  /// In a thread where the device is Current, as all of it. @param code  of compiled()
  /// @throws Error (DDL_ERR_DEVICE)
  ReduceKernels(Device& device, const std::string& code);
  ~ReduceKernels();
  ReduceKernels(const ReduceKernels&) = delete;
  ReduceKernels& operator=(const ReduceKernels&) = delete;

  struct Sources {
    DeviceAddress bases;   ///< of the device: where each rank's stage begins, n addresses
    std::uint64_t offset;  ///< what is reduced begins so many bytes further on in each
    const void* mine;      ///< but for source `self`, which begins here
    int self;
    int n;
  };
  /// Puts a reduction on a stream. `out` may be `mine`, or where source `self` would be. Arguments as for
  /// ReduceKernel. @throws Error (DDL_ERR_DEVICE)
  void launch(DDL_Type type, DDL_Op op, void* out, const Sources& sources, std::size_t count,
              std::int64_t divisor, Stream stream) const;
  /// Launches all of them for nothing: a driver may load a kernel at its first launch only, and wait for all
  /// streams then.
  void launch_all(Stream stream) const;

 private:
  Device& device_;
  Module module_ = nullptr;
  std::map<std::pair<DDL_Type, DDL_Op>, Function> functions_;
  unsigned blocks_ = 1;  ///< of one launch, at most
};

}  // namespace ddl::cuda
