#include "api/guard.hpp"
#include "cuda/device.hpp"
#include "ddl.h"
#include "engine/runtime.hpp"

using namespace ddl;
using namespace ddl::api;

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

}  // extern "C"
