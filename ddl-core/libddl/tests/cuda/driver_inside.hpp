#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "cuda/driver_functions.hpp"
#include "device_memory.hpp"
#include "settings.hpp"
#include "streams.hpp"

/// What the stand-in for NCCL uses of the one for the driver. Status values are CUresult.
namespace stand_in {

/// The device of this thread's current context; 0, as for CUDA's runtime, where there is none.
STAND_IN_EXPORT Status device_of_thread(int* device);
STAND_IN_EXPORT ddl::cuda::Uuid uuid_of(int device);
/// Bus number, which NCCL's messages name.
STAND_IN_EXPORT int bus_of(int device);
STAND_IN_EXPORT std::optional<Place> find_memory(const void* address, std::size_t bytes);
/// An error unless the stream (null: the legacy default stream) is one of the device and can take work.
STAND_IN_EXPORT Status check_stream(int device, ddl::cuda::Stream stream);
STAND_IN_EXPORT Status queue(int device, ddl::cuda::Stream stream, std::unique_ptr<Operation> operation);
/// `waiting` goes on when `other` has done what is queued on it by now.
STAND_IN_EXPORT Status queue_behind(int device, ddl::cuda::Stream waiting, ddl::cuda::Stream other);
/// The worker runs the task, once the delay has passed.
STAND_IN_EXPORT void run_later(std::chrono::microseconds delay, std::function<void()> task);
/// A random number of microseconds, as copies are late.
STAND_IN_EXPORT std::chrono::microseconds some_time();
STAND_IN_EXPORT void wake_worker();
/// Whether a call holds the lock of the device's context, which launches need, while it waits for streams.
STAND_IN_EXPORT bool context_locked(int device);
/// The process is about to end: nothing that is queued will be done.
STAND_IN_EXPORT bool driver_gone();

}  // namespace stand_in
