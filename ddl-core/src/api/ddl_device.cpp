#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "api/guard.hpp"
#include "cuda/device.hpp"
#include "cuda/stream_latch.hpp"
#include "ddl.h"
#include "engine/runtime.hpp"

using namespace ddl;
using namespace ddl::api;

namespace {

/// The latches of this process.
class Latches {
 public:
  static Latches& instance() {
    // Never destroyed: streams may still wait while the process exits.
    static auto* const made = new Latches;
    return *made;
  }
  DDL_Latch add(std::shared_ptr<cuda::StreamLatch> latch) {
    const std::lock_guard lock(mutex_);
    latches_.emplace(++last_, std::move(latch));
    return last_;
  }
  std::shared_ptr<cuda::StreamLatch> find(const char* function, DDL_Latch number, bool take) {
    const std::lock_guard lock(mutex_);
    const auto found = latches_.find(number);
    if (found == latches_.end()) {
      throw Error(DDL_ERR_ARGUMENT, "latch " + std::to_string(number) + " is none; in " + function +
                                        "; pass what ddl_latch_create gave, until ddl_latch_release");
    }
    const std::shared_ptr<cuda::StreamLatch> latch = found->second;
    if (take) latches_.erase(found);
    return latch;
  }

 private:
  std::mutex mutex_;
  std::map<DDL_Latch, std::shared_ptr<cuda::StreamLatch>> latches_;
  DDL_Latch last_ = 0;
};

}  // namespace

extern "C" {

int ddl_stream_wait(DDL_Handle handle, void* stream) {
  return guard([&] { Runtime::instance().engine().hold(handle, stream); });
}

int ddl_stream_create(int device, void** stream) {
  return guard([&] {
    check_pointer("ddl_stream_create", stream, "stream");
    cuda::Device& gpu = cuda::Device::at(device);
    const cuda::Device::Current current(gpu);
    *stream = gpu.make_stream();
  });
}

int ddl_latch_create(int device, DDL_Latch* latch) {
  return guard([&] {
    check_pointer("ddl_latch_create", latch, "latch");
    cuda::Device& gpu = cuda::Device::at(device);
    const cuda::Device::Current current(gpu);
    *latch = Latches::instance().add(std::make_shared<cuda::StreamLatch>(gpu.driver()));
  });
}

int ddl_latch_wait(DDL_Latch latch, void* stream) {
  return guard([&] {
    Latches::instance().find("ddl_latch_wait", latch, false)->hold(static_cast<cuda::Stream>(stream));
  });
}

int ddl_latch_release(DDL_Latch latch) {
  return guard([&] { Latches::instance().find("ddl_latch_release", latch, true)->release(); });
}

}  // extern "C"
