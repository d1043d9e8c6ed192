// Compares what DDL declares of CUDA's driver, NCCL and NVRTC with NVIDIA's own headers. It is enough that it
// compiles.
#include <cuda.h>

// nccl.h wants three names of CUDA's runtime, whose headers come in parts from several packages.
#define __CUDA_RUNTIME_H__
#define __CUDA_FP16_H__
#define __CUDA_BF16_TYPES_EXIST__
typedef struct CUstream_st* cudaStream_t;
#include <nccl.h>
#include <nvrtc.h>

#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "cuda/driver_functions.hpp"
#include "cuda/nccl_functions.hpp"
#include "cuda/nvrtc_functions.hpp"

namespace {

/// The same for a call: pointers are pointers, numbers have the same size, structures as well.
template <class Own, class Theirs>
constexpr bool kPassedAlike = std::is_pointer_v<Own> == std::is_pointer_v<Theirs>&& std::is_class_v<Own> ==
                                  std::is_class_v<Theirs> &&
                              sizeof(Own) == sizeof(Theirs) && alignof(Own) == alignof(Theirs);

/// 0 for void and for structures that nobody sees inside.
template <class T, class = void>
struct SizeOf {
  static constexpr std::size_t value = 0;
};
template <class T>
struct SizeOf<T, std::void_t<decltype(sizeof(T))>> {
  static constexpr std::size_t value = sizeof(T);
};

template <class Own, class Theirs>
constexpr bool parameter_alike() {
  if constexpr (!kPassedAlike<Own, Theirs>) {
    return false;
  } else if constexpr (std::is_pointer_v<Own>) {
    using OwnTarget = std::remove_pointer_t<Own>;
    using TheirTarget = std::remove_pointer_t<Theirs>;
    // A structure may have grown at its end: it says its size itself.
    constexpr bool grows = std::is_same_v<std::remove_cv_t<OwnTarget>, ddl::cuda::NcclConfig>;
    return std::is_const_v<OwnTarget> == std::is_const_v<TheirTarget> &&
           (grows ? SizeOf<OwnTarget>::value <= SizeOf<TheirTarget>::value
                  : SizeOf<OwnTarget>::value == SizeOf<TheirTarget>::value);
  } else {
    return true;
  }
}

template <class Own, class Theirs>
struct Alike : std::false_type {};
template <class OwnResult, class... Own, class TheirResult, class... Theirs>
requires(sizeof...(Own) == sizeof...(Theirs)) struct Alike<OwnResult (*)(Own...), TheirResult (*)(Theirs...)>
    : std::bool_constant<sizeof(OwnResult) == sizeof(TheirResult) &&
                         (parameter_alike<Own, Theirs>() && ...)> {
};

// The headers' names, most of which are macros for the symbol that is linked.
#define HEADER_init cuInit
#define HEADER_driver_version cuDriverGetVersion
#define HEADER_error_name cuGetErrorName
#define HEADER_error_text cuGetErrorString
#define HEADER_device_count cuDeviceGetCount
#define HEADER_device_get cuDeviceGet
#define HEADER_device_name cuDeviceGetName
#define HEADER_device_uuid cuDeviceGetUuid_v2
#define HEADER_device_attribute cuDeviceGetAttribute
#define HEADER_primary_retain cuDevicePrimaryCtxRetain
#define HEADER_primary_release cuDevicePrimaryCtxRelease
#define HEADER_context_get cuCtxGetCurrent
#define HEADER_context_set cuCtxSetCurrent
#define HEADER_context_device cuCtxGetDevice
#define HEADER_pointer_attributes cuPointerGetAttributes
#define HEADER_address_range cuMemGetAddressRange
#define HEADER_device_allocate cuMemAlloc
#define HEADER_device_free cuMemFree
#define HEADER_host_allocate cuMemHostAlloc
#define HEADER_host_free cuMemFreeHost
#define HEADER_host_register cuMemHostRegister
#define HEADER_host_unregister cuMemHostUnregister
#define HEADER_copy_to_device cuMemcpyHtoDAsync
#define HEADER_copy_to_host cuMemcpyDtoHAsync
#define HEADER_copy_within cuMemcpyDtoDAsync
#define HEADER_stream_priorities cuCtxGetStreamPriorityRange
#define HEADER_stream_create cuStreamCreateWithPriority
#define HEADER_stream_destroy cuStreamDestroy
#define HEADER_stream_query cuStreamQuery
#define HEADER_stream_wait_event cuStreamWaitEvent
#define HEADER_stream_wait_value cuStreamWaitValue32
#define HEADER_stream_write_value cuStreamWriteValue32
#define HEADER_stream_capturing cuStreamIsCapturing
#define HEADER_event_create cuEventCreate
#define HEADER_event_destroy cuEventDestroy
#define HEADER_event_record cuEventRecord
#define HEADER_event_query cuEventQuery
#define HEADER_ipc_handle cuIpcGetMemHandle
#define HEADER_ipc_open cuIpcOpenMemHandle
#define HEADER_ipc_close cuIpcCloseMemHandle
#define HEADER_module_load cuModuleLoadData
#define HEADER_module_unload cuModuleUnload
#define HEADER_module_function cuModuleGetFunction
#define HEADER_launch cuLaunchKernel

#define HEADER_version ncclGetVersion
#define HEADER_unique_id ncclGetUniqueId
#define HEADER_init_rank ncclCommInitRankConfig
#define HEADER_split ncclCommSplit
#define HEADER_finalize ncclCommFinalize
#define HEADER_destroy ncclCommDestroy
#define HEADER_abort ncclCommAbort
#define HEADER_async_error ncclCommGetAsyncError
#define HEADER_group_start ncclGroupStart
#define HEADER_group_end ncclGroupEnd
#define HEADER_all_reduce ncclAllReduce
#define HEADER_reduce_scatter ncclReduceScatter
#define HEADER_all_gather ncclAllGather
#define HEADER_reduce ncclReduce
#define HEADER_broadcast ncclBroadcast
#define HEADER_send ncclSend
#define HEADER_receive ncclRecv

// Some of their names are others' above.
#define NVRTC_version nvrtcVersion
#define NVRTC_arch_count nvrtcGetNumSupportedArchs
#define NVRTC_archs nvrtcGetSupportedArchs
#define NVRTC_create nvrtcCreateProgram
#define NVRTC_destroy nvrtcDestroyProgram
#define NVRTC_compile nvrtcCompileProgram
#define NVRTC_cubin_size nvrtcGetCUBINSize
#define NVRTC_cubin nvrtcGetCUBIN
#define NVRTC_ptx_size nvrtcGetPTXSize
#define NVRTC_ptx nvrtcGetPTX
#define NVRTC_log_size nvrtcGetProgramLogSize
#define NVRTC_log nvrtcGetProgramLog

#define TEXT_OF(name) TEXT_OF_EXPANDED(name)
#define TEXT_OF_EXPANDED(name) #name

namespace declared {
using namespace ddl::cuda;
#define F(member, symbol, parameters) using Driver_##member = Status(*) parameters;
DDL_CUDA_DRIVER_FUNCTIONS(F)
#undef F
#define F(member, symbol, parameters) using Nccl_##member = NcclStatus(*) parameters;
DDL_NCCL_FUNCTIONS(F)
#undef F
#define F(member, symbol, parameters) using Nvrtc_##member = NvrtcStatus(*) parameters;
DDL_NVRTC_FUNCTIONS(F)
#undef F
}  // namespace declared

#define F(member, symbol, parameters)                                          \
  static_assert(std::string_view(TEXT_OF(HEADER_##member)) == symbol, symbol); \
  static_assert(Alike<declared::Driver_##member, decltype(&HEADER_##member)>::value, symbol);
DDL_CUDA_DRIVER_FUNCTIONS(F)
#undef F
#define F(member, symbol, parameters)                                          \
  static_assert(std::string_view(TEXT_OF(HEADER_##member)) == symbol, symbol); \
  static_assert(Alike<declared::Nccl_##member, decltype(&HEADER_##member)>::value, symbol);
DDL_NCCL_FUNCTIONS(F)
#undef F
#define F(member, symbol, parameters)                                         \
  static_assert(std::string_view(TEXT_OF(NVRTC_##member)) == symbol, symbol); \
  static_assert(Alike<declared::Nvrtc_##member, decltype(&NVRTC_##member)>::value, symbol);
DDL_NVRTC_FUNCTIONS(F)
#undef F
static_assert(Alike<const char* (*)(ddl::cuda::NvrtcStatus), decltype(&nvrtcGetErrorString)>::value);
static_assert(Alike<const char* (*)(ddl::cuda::NcclStatus), decltype(&ncclGetErrorString)>::value);
static_assert(Alike<const char* (*)(ddl::cuda::NcclComm), decltype(&ncclGetLastError)>::value);

#define SAME(own, theirs)                                                                 \
  static_assert(static_cast<long long>(ddl::cuda::own) == static_cast<long long>(theirs), \
                #own " is not " #theirs)
SAME(kSuccess, CUDA_SUCCESS);
SAME(kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
SAME(kDeinitialized, CUDA_ERROR_DEINITIALIZED);
SAME(kNoDevice, CUDA_ERROR_NO_DEVICE);
SAME(kNotReady, CUDA_ERROR_NOT_READY);
SAME(kAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
SAME(kAttributeMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(kAttributeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(kAttributeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(kIpcLazyPeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME(kNvrtcSuccess, NVRTC_SUCCESS);
SAME(kAttributePciBus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
SAME(kAttributePciDevice, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
SAME(kAttributePciDomain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
SAME(kPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(kPointerIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(kPointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(kMemoryOfDevice, CU_MEMORYTYPE_DEVICE);
SAME(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
SAME(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME(kHostPortable, CU_MEMHOSTALLOC_PORTABLE);
SAME(kHostPortable, CU_MEMHOSTREGISTER_PORTABLE);
SAME(kCaptureNone, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(kWaitGreaterOrEqual, CU_STREAM_WAIT_VALUE_GEQ);
SAME(kWriteDefault, CU_STREAM_WRITE_VALUE_DEFAULT);
SAME(kNcclSuccess, ncclSuccess);
SAME(kNcclInProgress, ncclInProgress);
SAME(kNcclNoColor, NCCL_SPLIT_NOCOLOR);
SAME(kNcclMajor, NCCL_MAJOR);
SAME(NcclType::kBytes, ncclInt8);
SAME(NcclType::kInt32, ncclInt32);
SAME(NcclType::kInt64, ncclInt64);
SAME(NcclType::kHalf, ncclFloat16);
SAME(NcclType::kFloat, ncclFloat32);
SAME(NcclType::kDouble, ncclFloat64);
SAME(NcclType::kBfloat16, ncclBfloat16);
SAME(NcclOp::kSum, ncclSum);
SAME(NcclOp::kProduct, ncclProd);
SAME(NcclOp::kMax, ncclMax);
SAME(NcclOp::kMin, ncclMin);
SAME(NcclOp::kAverage, ncclAvg);
static_assert(NCCL_VERSION_CODE >= ddl::cuda::kNcclLeastVersion);

#define SAME_PLACE(own, theirs)                                                           \
  static_assert(offsetof(ddl::cuda::NcclConfig, own) == offsetof(ncclConfig_t, theirs) && \
                    sizeof(ddl::cuda::NcclConfig::own) == sizeof(ncclConfig_t::theirs),   \
                "ncclConfig_t::" #theirs)
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cga_cluster_size, cgaClusterSize);
SAME_PLACE(min_ctas, minCTAs);
SAME_PLACE(max_ctas, maxCTAs);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);

constexpr ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
constexpr ddl::cuda::NcclConfig kOwn;
static_assert(kOwn.magic == kTheirs.magic && kOwn.blocking == kTheirs.blocking &&
              kOwn.cga_cluster_size == kTheirs.cgaClusterSize && kOwn.min_ctas == kTheirs.minCTAs &&
              kOwn.max_ctas == kTheirs.maxCTAs && kOwn.net_name == kTheirs.netName &&
              kOwn.split_share == kTheirs.splitShare);

}  // namespace
