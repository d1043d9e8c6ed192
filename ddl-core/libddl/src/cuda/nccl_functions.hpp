#pragma once

#include <climits>
#include <cstddef>

#include "cuda/driver_functions.hpp"

/**
 * What DDL uses of NVIDIA's NCCL (libnccl.so.2), declared anew, as in driver_functions.hpp. Structures are
 * those of NCCL 2.18, which later releases take, as they carry their size and version.
 */
namespace ddl::cuda {

/// ncclResult_t
using NcclStatus = int;
using NcclComm = struct ncclComm*;
/// ncclUniqueId
struct NcclId {
  char internal[128];
};
/// ncclConfig_t of NCCL 2.18
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN;  ///< INT_MIN, and null: not set
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

inline constexpr NcclStatus kNcclSuccess = 0;
inline constexpr NcclStatus kNcclInProgress = 7;
/// The first release that has all that is called, and the major version it is called by.
inline constexpr int kNcclLeastVersion = 21800;
inline constexpr int kNcclMajor = 2;
/// color of ncclCommSplit for ranks that take no part
inline constexpr int kNcclNoColor = -1;

/// ncclDataType_t, ncclRedOp_t
enum class NcclType : int {
  kInt32 = 2,
  kInt64 = 4,
  kHalf = 6,
  kFloat = 7,
  kDouble = 8,
  kBfloat16 = 9,
  kBytes = 0
};
enum class NcclOp : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4 };

}  // namespace ddl::cuda

/// F(member, symbol of the library, parameters): all that is called of NCCL, but for ncclGetErrorString and
/// ncclGetLastError, which return texts.
#define DDL_NCCL_FUNCTIONS(F)                                                                               \
  F(version, "ncclGetVersion", (int* version))                                                              \
  F(unique_id, "ncclGetUniqueId", (NcclId * id))                                                            \
  F(init_rank, "ncclCommInitRankConfig",                                                                    \
    (NcclComm * comm, int ranks, NcclId id, int rank, NcclConfig* config))                                  \
  F(split, "ncclCommSplit", (NcclComm comm, int color, int key, NcclComm* made, NcclConfig* config))        \
  F(finalize, "ncclCommFinalize", (NcclComm comm))                                                          \
  F(destroy, "ncclCommDestroy", (NcclComm comm))                                                            \
  F(abort, "ncclCommAbort", (NcclComm comm))                                                                \
  F(async_error, "ncclCommGetAsyncError", (NcclComm comm, NcclStatus * error))                              \
  F(group_start, "ncclGroupStart", ())                                                                      \
  F(group_end, "ncclGroupEnd", ())                                                                          \
  F(all_reduce, "ncclAllReduce",                                                                            \
    (const void* in, void* out, std::size_t count, NcclType type, NcclOp op, NcclComm comm, Stream stream)) \
  F(reduce_scatter, "ncclReduceScatter",                                                                    \
    (const void* in, void* out, std::size_t count, NcclType type, NcclOp op, NcclComm comm, Stream stream)) \
  F(all_gather, "ncclAllGather",                                                                            \
    (const void* in, void* out, std::size_t count, NcclType type, NcclComm comm, Stream stream))            \
  F(reduce, "ncclReduce",                                                                                   \
    (const void* in, void* out, std::size_t count, NcclType type, NcclOp op, int root, NcclComm comm,       \
     Stream stream))                                                                                        \
  F(broadcast, "ncclBroadcast",                                                                             \
    (const void* in, void* out, std::size_t count, NcclType type, int root, NcclComm comm, Stream stream))  \
  F(send, "ncclSend",                                                                                       \
    (const void* from, std::size_t count, NcclType type, int peer, NcclComm comm, Stream stream))           \
  F(receive, "ncclRecv", (void* to, std::size_t count, NcclType type, int peer, NcclComm comm, Stream stream))
