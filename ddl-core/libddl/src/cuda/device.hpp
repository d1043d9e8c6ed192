#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "cuda/driver.hpp"

namespace ddl::cuda {

/// One GPU of this process: its primary context, which it shares with the CUDA runtime and with frameworks,
/// and streams and events that calls borrow. Thread-safe.
class Device {
 public:
  /// What a call works on, apart from the streams of the program: none of these waits for the default stream.
  struct Streams {
    Stream to_host = nullptr;
    Stream to_device = nullptr;
    Stream collective = nullptr;  ///< of NCCL's operations, and copies within the device
  };

  /// @param ordinal  as the driver numbers those of this process. @throws Error (DDL_ERR_DEVICE)
  static Device& at(int ordinal);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Driver& driver() const { return driver_; }
  int ordinal() const { return ordinal_; }
  const Uuid& uuid() const { return uuid_; }
  /// "GPU 0 (NVIDIA H100, 0000:4f:00)"
  const std::string& name() const { return name_; }
  /// A CUdevice_attribute. @throws Error (DDL_ERR_DEVICE)
  int attribute(int which) const;
  /// As 90 for compute capability 9.0.
  int capability() const {
    return 10 * attribute(kAttributeCapabilityMajor) + attribute(kAttributeCapabilityMinor);
  }

  /// While it lives, the calling thread's calls are for this device.
  class Current {
   public:
    explicit Current(Device& device);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    Device& device_;
    Context before_ = nullptr;
    bool changed_ = false;
  };

  /// In a thread where the device is Current. They are given back with nothing under way on them.
  Streams take_streams();
  /// Of the highest priority, which does not wait for the default stream. The caller's own.
  Stream make_stream();
  void give_streams(const Streams& streams);
  Event take_event();
  void give_event(Event event);

 private:
  Device(const Driver& driver, int ordinal);

  const Driver& driver_;
  const int ordinal_;
  DeviceHandle handle_ = 0;
  Context context_ = nullptr;
  Uuid uuid_{};
  std::string name_;
  std::mutex mutex_;
  std::vector<Streams> streams_;
  std::vector<Event> events_;
};

/// The device whose memory an address lies in; -1 for the host's. @throws Error (DDL_ERR_DEVICE) for managed
/// memory
int device_of(const Driver& driver, const void* address);

}  // namespace ddl::cuda
