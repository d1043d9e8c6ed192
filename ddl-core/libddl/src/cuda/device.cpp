#include "cuda/device.hpp"

#include <cstdio>
#include <map>
#include <memory>

#include "support/error.hpp"

namespace ddl::cuda {

Device& Device::at(int ordinal) {
  static std::mutex mutex;
  // Never destroyed: the driver may be gone when the process exits.
  static auto* const known = new std::map<int, std::unique_ptr<Device>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Device>& device = (*known)[ordinal];
  if (!device) device.reset(new Device(Driver::instance(), ordinal));
  return *device;
}

Device::Device(const Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {
  if (ordinal < 0 || ordinal >= driver.devices) {
    throw Error(DDL_ERR_DEVICE,
                "there is no GPU " + std::to_string(ordinal) + ": this process sees " +
                    std::to_string(driver.devices),
                Error::kOnThisRank, "pass a device below that number, or change CUDA_VISIBLE_DEVICES");
  }
  driver.check(driver.device_get(&handle_, ordinal), "looking for a device");
  char text[128] = "GPU";
  driver.check(driver.device_name(text, sizeof text, handle_), "asking for a device's name");
  driver.check(driver.device_uuid(&uuid_, handle_), "asking for a device's UUID");
  int pci[3] = {};
  const int attributes[3] = {kAttributePciDomain, kAttributePciBus, kAttributePciDevice};
  for (int i = 0; i < 3; ++i) {
    pci[i] = attribute(attributes[i]);
  }
  char place[32];
  std::snprintf(place, sizeof place, "%04x:%02x:%02x", static_cast<unsigned>(pci[0]),
                static_cast<unsigned>(pci[1]), static_cast<unsigned>(pci[2]));
  name_ = "GPU " + std::to_string(ordinal) + " (" + text + ", " + place + ")";
  driver.check(driver.primary_retain(&context_, handle_), "taking a device's primary context");
}

int Device::attribute(int which) const {
  int value = 0;
  driver_.check(driver_.device_attribute(&value, which, handle_), "asking for a device's attribute");
  return value;
}

Device::Current::Current(Device& device) : device_(device) {
  const Driver& driver = device.driver();
  driver.check(driver.context_get(&before_), "asking for the thread's context");
  if (before_ == device.context_) return;
  driver.check(driver.context_set(device.context_), "setting the thread's context");
  changed_ = true;
}

Device::Current::~Current() {
  if (changed_) device_.driver().context_set(before_);
}

Stream Device::make_stream() {
  // Before a computation that is queued: what DDL moves is what others wait for.
  int least = 0;
  int greatest = 0;
  driver_.check(driver_.stream_priorities(&least, &greatest), "asking for the priorities of streams");
  Stream made = nullptr;
  driver_.check(driver_.stream_create(&made, kStreamNonBlocking, greatest), "making a stream");
  return made;
}

Device::Streams Device::take_streams() {
  {
    const std::lock_guard lock(mutex_);
    if (!streams_.empty()) {
      const Streams taken = streams_.back();
      streams_.pop_back();
      return taken;
    }
  }
  Streams made;
  for (Stream* stream : {&made.to_host, &made.to_device, &made.collective}) *stream = make_stream();
  return made;
}

void Device::give_streams(const Streams& streams) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(streams);
}

Event Device::take_event() {
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      const Event taken = events_.back();
      events_.pop_back();
      return taken;
    }
  }
  Event made = nullptr;
  driver_.check(driver_.event_create(&made, kEventDisableTiming), "making an event");
  return made;
}

void Device::give_event(Event event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
}

int device_of(const Driver& driver, const void* address) {
  unsigned type = 0;
  unsigned managed = 0;
  int ordinal = -1;
  int attributes[3] = {kPointerMemoryType, kPointerIsManaged, kPointerDeviceOrdinal};
  void* values[3] = {&type, &managed, &ordinal};
  const auto at = reinterpret_cast<DeviceAddress>(address);
  // Memory that CUDA does not know has no attributes: no error, but zeros.
  if (driver.pointer_attributes(3, attributes, values, at) != kSuccess || type != kMemoryOfDevice) return -1;
  if (managed == 0) return ordinal;
  throw Error(DDL_ERR_DEVICE, "a buffer lies in managed memory, which moves between host and device",
              Error::kOnThisRank, "pass memory of cudaMalloc or of the host");
}

}  // namespace ddl::cuda
