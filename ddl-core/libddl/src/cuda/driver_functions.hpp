#pragma once

#include <cstddef>
#include <cstdint>

/**
 * What DDL uses of NVIDIA's CUDA driver (libcuda.so.1), declared anew: DDL is compiled without CUDA, and
 * opens the driver at run time where there is one. Names, values and layouts are those of the CUDA Driver
 * API, which keeps them for good; a test compares them with NVIDIA's own header.
 */
namespace ddl::cuda {

/// CUresult; 0 is success.
using Status = int;
/// CUdevice, the ordinal that the driver gives: CUDA_VISIBLE_DEVICES chooses and orders them.
using DeviceHandle = int;
/// CUdeviceptr.
using DeviceAddress = unsigned long long;
using Context = struct CUctx_st*;
using Stream = struct CUstream_st*;
using Event = struct CUevent_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;

/// CUuuid.
struct Uuid {
  char bytes[16];
};
/// CUipcMemHandle.
struct IpcHandle {
  char reserved[64];
};

inline constexpr Status kSuccess = 0;
inline constexpr Status kNotInitialized = 3;
inline constexpr Status kDeinitialized = 4;
inline constexpr Status kNoDevice = 100;
inline constexpr Status kNotReady = 600;
inline constexpr Status kAlreadyRegistered = 712;
inline constexpr Status kNotSupported = 801;

/// CUdevice_attribute
inline constexpr int kAttributeMultiprocessors = 16;
inline constexpr int kAttributePciBus = 33;
inline constexpr int kAttributePciDevice = 34;
inline constexpr int kAttributePciDomain = 50;
inline constexpr int kAttributeCapabilityMajor = 75;
inline constexpr int kAttributeCapabilityMinor = 76;
/// CUpointer_attribute
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerIsManaged = 8;
inline constexpr int kPointerDeviceOrdinal = 9;
/// CUmemorytype
inline constexpr unsigned kMemoryOfDevice = 2;
/// CUstream_flags and CUevent_flags
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
/// CU_MEMHOSTALLOC_*, CU_MEMHOSTREGISTER_*
inline constexpr unsigned kHostPortable = 1;
/// CUstreamCaptureStatus
inline constexpr int kCaptureNone = 0;
/// CUstreamWaitValue_flags
inline constexpr unsigned kWaitGreaterOrEqual = 0;
/// CUstreamWriteValue_flags
inline constexpr unsigned kWriteDefault = 0;
/// CUipcMem_flags
inline constexpr unsigned kIpcLazyPeerAccess = 1;

}  // namespace ddl::cuda

/// F(member, symbol of the library, parameters). The whole list: nothing else of the driver is called.
#define DDL_CUDA_DRIVER_FUNCTIONS(F)                                                                         \
  F(init, "cuInit", (unsigned flags))                                                                        \
  F(driver_version, "cuDriverGetVersion", (int* version))                                                    \
  F(error_name, "cuGetErrorName", (Status error, const char** text))                                         \
  F(error_text, "cuGetErrorString", (Status error, const char** text))                                       \
  F(device_count, "cuDeviceGetCount", (int* count))                                                          \
  F(device_get, "cuDeviceGet", (DeviceHandle * device, int ordinal))                                         \
  F(device_name, "cuDeviceGetName", (char* name, int capacity, DeviceHandle device))                         \
  F(device_uuid, "cuDeviceGetUuid_v2", (Uuid * uuid, DeviceHandle device))                                   \
  F(device_attribute, "cuDeviceGetAttribute", (int* value, int attribute, DeviceHandle device))              \
  F(primary_retain, "cuDevicePrimaryCtxRetain", (Context * context, DeviceHandle device))                    \
  F(primary_release, "cuDevicePrimaryCtxRelease_v2", (DeviceHandle device))                                  \
  F(context_get, "cuCtxGetCurrent", (Context * context))                                                     \
  F(context_set, "cuCtxSetCurrent", (Context context))                                                       \
  F(context_device, "cuCtxGetDevice", (DeviceHandle * device))                                               \
  F(pointer_attributes, "cuPointerGetAttributes",                                                            \
    (unsigned count, int* attributes, void** values, DeviceAddress address))                                 \
  F(address_range, "cuMemGetAddressRange_v2", (DeviceAddress * base, std::size_t * bytes, DeviceAddress at)) \
  F(device_allocate, "cuMemAlloc_v2", (DeviceAddress * address, std::size_t bytes))                          \
  F(device_free, "cuMemFree_v2", (DeviceAddress address))                                                    \
  F(host_allocate, "cuMemHostAlloc", (void** address, std::size_t bytes, unsigned flags))                    \
  F(host_free, "cuMemFreeHost", (void* address))                                                             \
  F(host_register, "cuMemHostRegister_v2", (void* address, std::size_t bytes, unsigned flags))               \
  F(host_unregister, "cuMemHostUnregister", (void* address))                                                 \
  F(copy_to_device, "cuMemcpyHtoDAsync_v2",                                                                  \
    (DeviceAddress to, const void* from, std::size_t bytes, Stream stream))                                  \
  F(copy_to_host, "cuMemcpyDtoHAsync_v2", (void* to, DeviceAddress from, std::size_t bytes, Stream stream))  \
  F(copy_within, "cuMemcpyDtoDAsync_v2",                                                                     \
    (DeviceAddress to, DeviceAddress from, std::size_t bytes, Stream stream))                                \
  F(stream_priorities, "cuCtxGetStreamPriorityRange", (int* least, int* greatest))                           \
  F(stream_create, "cuStreamCreateWithPriority", (Stream * stream, unsigned flags, int priority))            \
  F(stream_destroy, "cuStreamDestroy_v2", (Stream stream))                                                   \
  F(stream_query, "cuStreamQuery", (Stream stream))                                                          \
  F(stream_wait_event, "cuStreamWaitEvent", (Stream stream, Event event, unsigned flags))                    \
  F(stream_wait_value, "cuStreamWaitValue32_v2",                                                             \
    (Stream stream, DeviceAddress address, std::uint32_t value, unsigned flags))                             \
  F(stream_write_value, "cuStreamWriteValue32_v2",                                                           \
    (Stream stream, DeviceAddress address, std::uint32_t value, unsigned flags))                             \
  F(stream_capturing, "cuStreamIsCapturing", (Stream stream, int* status))                                   \
  F(event_create, "cuEventCreate", (Event * event, unsigned flags))                                          \
  F(event_destroy, "cuEventDestroy_v2", (Event event))                                                       \
  F(event_record, "cuEventRecord", (Event event, Stream stream))                                             \
  F(event_query, "cuEventQuery", (Event event))                                                              \
  F(ipc_handle, "cuIpcGetMemHandle", (IpcHandle * handle, DeviceAddress address))                            \
  F(ipc_open, "cuIpcOpenMemHandle_v2", (DeviceAddress * address, IpcHandle handle, unsigned flags))          \
  F(ipc_close, "cuIpcCloseMemHandle", (DeviceAddress address))                                               \
  F(module_load, "cuModuleLoadData", (Module * module, const void* image))                                   \
  F(module_unload, "cuModuleUnload", (Module module))                                                        \
  F(module_function, "cuModuleGetFunction", (Function * function, Module module, const char* name))          \
  F(launch, "cuLaunchKernel",                                                                                \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,                 \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters,            \
     void** extra))
