#pragma once

#include <cstdint>

#define STAND_IN_EXPORT __attribute__((visibility("default")))

/**
 * What the environment says to both stand-ins, and what they count. S(member, name, value if unset, least,
 * most); the environment's name is STAND_IN_ and the name in capitals.
 */
#define STAND_IN_SETTINGS(S)                                      \
  S(kDevices, "devices", 1, 0, 64)                                \
  S(kCapacity, "capacity", 16LL << 30, 1 << 16, 1LL << 40)        \
  S(kSeed, "seed", 1, 0, INT64_MAX)                               \
  S(kDelayUs, "delay_us", 200, 0, 10'000'000)                     \
  S(kPatienceS, "patience_s", 120, 1, 86'400)                     \
  S(kDriverVersion, "driver_version", 12080, 0, 1'000'000)        \
  S(kInitStatus, "init_status", 0, 0, 999)                        \
  S(kNoStreamValues, "no_stream_values", 0, 0, 1)                 \
  S(kNoIpc, "no_ipc", 0, 0, 1)                                    \
  S(kFailCopy, "fail_copy", 0, 0, INT64_MAX)                      \
  S(kFailCopyLate, "fail_copy_late", 0, 0, INT64_MAX)             \
  S(kFailAllocation, "fail_allocation", 0, 0, INT64_MAX)          \
  S(kFailHostAllocation, "fail_host_allocation", 0, 0, INT64_MAX) \
  S(kFailRegistration, "fail_registration", 0, 0, INT64_MAX)      \
  S(kAllocationsWait, "allocations_wait", 0, 0, 1)                \
  S(kStickAt, "stick_at", 0, 0, INT64_MAX)                        \
  S(kNoPeers, "no_peers", 0, 0, 1)                                \
  S(kCapability, "capability", 90, 50, 200)                       \
  S(kFailIpcOpen, "fail_ipc_open", 0, 0, INT64_MAX)               \
  S(kFailModule, "fail_module", 0, 0, INT64_MAX)                  \
  S(kFailLaunch, "fail_launch", 0, 0, INT64_MAX)                  \
  S(kFailLaunchLate, "fail_launch_late", 0, 0, INT64_MAX)         \
  S(kNvrtcLeast, "nvrtc_least", 50, 50, 200)                      \
  S(kNvrtcNewest, "nvrtc_newest", 120, 50, 200)                   \
  S(kNvrtcFail, "nvrtc_fail", 0, 0, INT64_MAX)                    \
  S(kNcclVersion, "nccl_version", 22602, 0, 10'000'000)           \
  S(kNcclSerial, "nccl_serial", 0, 0, 1)                          \
  S(kNcclHold, "nccl_hold", 0, 0, 1)                              \
  S(kNcclFail, "nccl_fail", 0, 0, INT64_MAX)                      \
  S(kNcclNever, "nccl_never", 0, 0, INT64_MAX)                    \
  S(kNcclAsyncError, "nccl_async_error", 0, 0, INT64_MAX)         \
  S(kNcclInitStatus, "nccl_init_status", 0, 0, 6)

/// C(member, name)
#define STAND_IN_COUNTS(C)                     \
  C(kOperations, "operations")                 \
  C(kOutOfOrder, "completed_out_of_order")     \
  C(kCopiesToDevice, "copies_to_device")       \
  C(kCopiesToHost, "copies_to_host")           \
  C(kCopiesWithin, "copies_within")            \
  C(kUnpinnedCopies, "unpinned_copies")        \
  C(kBytesToDevice, "bytes_to_device")         \
  C(kBytesToHost, "bytes_to_host")             \
  C(kBytesWithin, "bytes_within")              \
  C(kHostBlocks, "host_blocks")                \
  C(kLockedOut, "locked_out")                  \
  C(kAllocations, "allocations")               \
  C(kHostAllocations, "host_allocations")      \
  C(kRegistrations, "registrations")           \
  C(kStreams, "streams")                       \
  C(kEvents, "events")                         \
  C(kValueWaits, "value_waits")                \
  C(kValueWrites, "value_writes")              \
  C(kIpcOpened, "ipc_opened")                  \
  C(kLaunches, "launches")                     \
  C(kCompilations, "compilations")             \
  C(kLeftAtReset, "left_at_reset")             \
  C(kHeldMemory, "held_memory")                \
  C(kHeldBytes, "held_bytes")                  \
  C(kHeldHostMemory, "held_host_memory")       \
  C(kHeldRegistrations, "held_registrations")  \
  C(kHeldStreams, "held_streams")              \
  C(kHeldEvents, "held_events")                \
  C(kHeldIpc, "held_ipc")                      \
  C(kHeldModules, "held_modules")              \
  C(kHeldPrograms, "held_programs")            \
  C(kHeldContexts, "held_contexts")            \
  C(kHeldCommunicators, "held_communicators")  \
  C(kNcclCommunicators, "nccl_communicators")  \
  C(kNcclSplits, "nccl_splits")                \
  C(kNcclBegun, "nccl_begun_launches")         \
  C(kNcclLaunches, "nccl_launches")            \
  C(kNcclAllReduce, "nccl_all_reduce")         \
  C(kNcclReduceScatter, "nccl_reduce_scatter") \
  C(kNcclAllGather, "nccl_all_gather")         \
  C(kNcclReduce, "nccl_reduce")                \
  C(kNcclBroadcast, "nccl_broadcast")          \
  C(kNcclSend, "nccl_send")                    \
  C(kNcclReceive, "nccl_receive")              \
  C(kNcclBytes, "nccl_bytes")                  \
  C(kNcclAborted, "nccl_aborted_launches")

namespace stand_in {

enum class Setting {
#define S(member, name, unset, least, most) member,
  STAND_IN_SETTINGS(S)
#undef S
      kEnd
};
enum class Count {
#define C(member, name) member,
  STAND_IN_COUNTS(C)
#undef C
      kEnd
};

STAND_IN_EXPORT long long setting(Setting which);
/// A setting that counts down, as in "the n-th copy fails": whether this is the one.
STAND_IN_EXPORT bool comes_due(Setting which);
STAND_IN_EXPORT void count(Count which, std::uint64_t more = 1);
STAND_IN_EXPORT void count_back(Count which, std::uint64_t less = 1);

/// Ends the process as a test's failure, without a signal: the caller has done what would hang or corrupt on
/// a real device.
[[noreturn]] STAND_IN_EXPORT void die(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// This process's rank as its launcher has it; -1 where there is none.
STAND_IN_EXPORT int launched_rank();

}  // namespace stand_in
