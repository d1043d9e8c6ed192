/**
 * @file ddl.h
 * C interface of DDL, an all-reduce that knows the shape of the cluster.
 *
 * One process is one rank. Every function returns DDL_SUCCESS (0) or one of the DDL_ERR_* codes; the text of
 * the last failure on the calling thread is ddl_last_error(). A text reads
 * `[ERROR DDL-1-<code>] what; where; remedy`.
 *
 * **Collective calls** (init under a launcher, finalize, allreduce*, broadcast*, barrier) must be made by
 * every rank in the same order and with the same arguments (counts, type, op, root, name). DDL compares them
 * before it returns: a difference is DDL_ERR_MISMATCH on every rank and names the ranks and both sides. Calls
 * of up to 64 KiB are compared while their data is under way, so that the buffers may then hold anything;
 * those of larger ones are untouched. A rank whose process has ended is DDL_ERR_PEER_LOST on every other rank
 * and names it, where another rank of its host is left to see it. One that does not answer for the time limit
 * (option `-timeout SECONDS`, default 300) is DDL_ERR_TIMEOUT. A rank that answers but makes no call is late:
 * it is named in a warning after `-late` (60 s) and is DDL_ERR_TIMEOUT after `-patience` (1800 s) only. After
 * any of these three the library is in a failed state: later collective calls return the same error at once;
 * only ddl_finalize() is of use then.
 *
 * **Threads.** Every function may be called from any thread; collective calls of one process are serialised.
 * Which thread's call comes first must then be the same on all ranks, else it is a mismatch. Calls that were
 * started (ddl_*_start) are made by a thread of DDL's own, in an order that all ranks agree on. Calls of
 * different groups, and of different communicators (ddl_allreduce_mpi), may be under way at once.
 *
 * **Errors of one rank** reach all: where one cannot make a call for want of memory, or for another reason
 * that is found out after its arguments were checked, the others' calls end with the same error at once.
 * Arguments that are wrong in themselves (a null pointer, an unknown type) are the caller's own error,
 * DDL_ERR_ARGUMENT, after which the call may be made again; the others wait for it meanwhile.
 *
 * **Results** are bitwise equal on all ranks and, for the same placement, from run to run; with
 * `-deterministic placement` for any placement, topology and grouping. In a reduced wire format (`-wire`)
 * they are equal on all ranks, but may differ from call to call within the bounds of the format. What is no
 * number is so everywhere, but the bits of a NaN, which IEEE 754 leaves open, may differ. Averages of float16
 * are rounded between hosts: one within 0.2 % of the largest value, 65504, may become infinite.
 *
 * **After an error** the buffers of the failed call, and of others under way, may be freed: DDL's messages
 * use memory of its own, and what arrives late goes there. Their contents are undefined. Two calls hand the
 * buffers to MPI itself; after DDL_ERR_TIMEOUT and DDL_ERR_PEER_LOST of these keep them until the process
 * ends: messages of groups, and ddl_allreduce_plain.
 *
 * **GPUs.** Buffers of all collective calls but the messages of groups may lie in memory of a CUDA device,
 * all of one device and on all ranks; DDL finds out. Such a call works after what was put on its stream
 * before (DDL_Call::stream; of the other functions, the default stream), on streams of its own, without
 * holding up the caller's; when it returns, or ddl_wait does, the results are in memory, for all streams. Let
 * the host wait: ddl_stream_wait() lets a stream wait instead, which deadlocks easily. A call cannot be
 * captured into a CUDA graph. Each rank uses one device. Where every rank has its own and NCCL is there, NCCL
 * reduces among all ranks or within the hosts, whichever is predicted to be faster; 16-bit types are then
 * rounded at each of its steps. Otherwise (ranks that share a device, minima and maxima of floating point
 * numbers, averages of integers) the buffers are staged in the host's memory. DDL_NCCL_LIBRARY names another
 * NCCL than the process's own, DDL_NVRTC_LIBRARY another NVRTC.
 *
 * **Memory.** Beyond the buffers at most 32 MiB a rank, however large they are and however many are grouped;
 * with `-wire q8` also one float for each element of the named tensors that are reduced in that format again
 * and again, and at most 64 MiB of such that are not.
 */
#ifndef DDL_H
#define DDL_H

#include <stddef.h>

#if defined(__GNUC__)
#define DDL_API __attribute__((visibility("default")))
#else
#define DDL_API
#endif

/** The release that this header belongs to; ddl_version() tells that of the library. */
#define DDL_VERSION_MAJOR 2
#define DDL_VERSION_MINOR 0
#define DDL_VERSION_PATCH 0
/** Grows with every release: for comparisons such as `#if DDL_VERSION_NUMBER >= 20100`. */
#define DDL_VERSION_NUMBER (DDL_VERSION_MAJOR * 10000 + DDL_VERSION_MINOR * 100 + DDL_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/** Element types. A count is always a number of elements of one of these, never of bytes. */
typedef enum {
  DDL_TYPE_FLOAT = 0,    /**< IEEE binary32 */
  DDL_TYPE_HALF = 1,     /**< IEEE binary16; reduced in binary32, rounded to nearest even once per tier */
  DDL_TYPE_DOUBLE = 2,   /**< IEEE binary64 */
  DDL_TYPE_BFLOAT16 = 3, /**< bfloat16; reduced in binary32, rounded to nearest even once per tier */
  DDL_TYPE_INT32 = 4,    /**< 32-bit two's complement; sums and products wrap modulo 2^32 */
  DDL_TYPE_INT64 = 5     /**< 64-bit two's complement; sums and products wrap modulo 2^64 */
} DDL_Type;

/** Reductions, applied element by element over all ranks. */
typedef enum {
  DDL_OP_SUM = 0,
  DDL_OP_MIN = 1, /**< a NaN in any rank's element makes the result NaN */
  DDL_OP_MAX = 2, /**< a NaN in any rank's element makes the result NaN */
  DDL_OP_PRODUCT = 3,
  DDL_OP_AVG =
      4 /**< sum divided by the number of ranks; integers: the (wrapping) sum, divided towards zero */
} DDL_Op;

/** Codes that the functions return; the number is the <code> in `[ERROR DDL-1-<code>]`. */
typedef enum {
  DDL_SUCCESS = 0,
  DDL_ERR_ARGUMENT = 1,  /**< an argument is invalid: null pointer, unknown type or op, root out of range */
  DDL_ERR_OPTION = 2,    /**< DDL_OPTIONS or the options of ddl_init are invalid */
  DDL_ERR_STATE = 3,     /**< not initialised, already finalised, or other options */
  DDL_ERR_MPI = 4,       /**< MPI reported an error */
  DDL_ERR_LAUNCH = 5,    /**< the launcher's environment and MPI disagree about the number of ranks */
  DDL_ERR_MEMORY = 6,    /**< no memory, or the host's shared memory is full or not usable */
  DDL_ERR_MISMATCH = 7,  /**< ranks made different calls, or one makes no further call */
  DDL_ERR_TIMEOUT = 8,   /**< a rank did not arrive within the time limit */
  DDL_ERR_PEER_LOST = 9, /**< the process of a rank has ended, or its program ends with an error */
  DDL_ERR_INTERNAL = 10, /**< a defect of DDL itself */
  DDL_ERR_DEVICE = 11    /**< a GPU, its driver or NCCL: missing, too old, or failing */
} DDL_Status;

/**
 * Initialises DDL, and MPI (MPI_THREAD_MULTIPLE) where the process has not done so itself. Collective over
 * all ranks of MPI_COMM_WORLD. May be called on a background thread. A second call succeeds and changes
 * nothing.
 *
 * Without a launcher (no OMPI_COMM_WORLD_SIZE, PMIX_RANK or PMI_RANK in the environment, and MPI not
 * initialised) the process becomes the only rank of a world of size 1 and MPI is never touched.
 *
 * @param options  as in the environment variable DDL_OPTIONS, for example "-mode p:2x2 -timeout 60"; NULL
 *                 takes DDL_OPTIONS. All ranks need the same. Options:
 *                 - `-mode L[:AxBxCxD]`: L one of p b n r m c; A ranks a host, B hosts a rack, C racks an
 *                   aisle, D aisles; the last ones may be left out
 *                 - `-topology FILE|JSON|none|measure`
 *                 - `-wire full|fp16|bf16|q8`
 *                 - `-deterministic run|placement|off`
 *                 - `-timeout SECONDS`, `-late SECONDS`, `-patience SECONDS`: more than 0, also fractions
 *                 - `-timeline FILE`
 *                 - `-dump_iter N`
 *                 - `-dbg_level 0|1|2`
 *                 - `-dev_sync 0|1|2`
 *                 - `-rebind_iter N`
 * @return DDL_ERR_OPTION, DDL_ERR_LAUNCH, DDL_ERR_MPI, DDL_ERR_MEMORY, DDL_ERR_TIMEOUT.
 *
 * Options prevail over those of DDL_OPTIONS, which give the rest. Where DDL is initialised already, NULL and
 * options that change nothing have no effect; others are obeyed before the first call, and are
 * DDL_ERR_STATE after it.
 *
 * Environment: DDL_OPTIONS; DDL_PLAN=explain prints what is planned; DDL_CACHE_DIR, where the measured
 * figures of the links are kept; DDL_HOST_ORDER, the order of the hosts for -mode; DDL_EMULATE_HOSTS="3,2/1",
 * a test aid: the first 3 ranks act as one host, the next 2 as another of the same rack, the last one as a
 * host of a second rack, on one machine (then by MPI only); DDL_EMULATE_DOMAINS=2: every two are on a socket.
 */
DDL_API int ddl_init(const char* options);

/**
 * As ddl_init, over the ranks of a communicator instead of MPI_COMM_WORLD's; rank and size are those in it.
 * For languages without MPI's C types; C++ has ddl_init_mpi(). Collective over the communicator, of which DDL
 * keeps a duplicate. A second call succeeds and changes nothing where its communicator has the same ranks in
 * the same order.
 *
 * @param comm     Fortran handle of the communicator (MPI_Comm_c2f, or py2f of mpi4py)
 * @param library  what the caller's MPI_Get_library_version says, to be compared with DDL's MPI: the handles
 * of two MPI libraries mean nothing to each other. NULL: not compared.
 * @return as ddl_init, and DDL_ERR_STATE where MPI is not initialised, or DDL is, over other ranks;
 *         DDL_ERR_ARGUMENT where comm is no communicator.
 */
DDL_API int ddl_init_comm_f(const char* options, int comm, const char* library);

/**
 * Waits for all ranks, releases everything, and finalises MPI where ddl_init initialised it. Collective. A
 * rank that answers, but does not come, is waited for for ten times -patience, with warnings after -late; one
 * that does not answer is DDL_ERR_TIMEOUT after -timeout. DDL is finalised after an error, too, but MPI is
 * not where a rank is missing: the process should then end. In the failed state it does not wait for anybody.
 * DDL cannot be initialised again after MPI was finalised.
 */
DDL_API int ddl_finalize(void);

/**
 * Lets the other ranks know at once that this rank's program ends with an error: calls that are under way end
 * with DDL_ERR_PEER_LOST, which names it and gives the reason, on all ranks and in all groups, and so do
 * later ones. For programs that end without ddl_finalize, which would wait for the others. Waits for nobody;
 * then let the process end. Local, at any time, also while another thread makes a call.
 * @param reason  a few words; may be NULL
 */
DDL_API int ddl_abort(const char* reason);

/** *flag = 1 while a call of this rank is under way, or was started and is not complete, in any group; else
 * 0. Local, at any time. */
DDL_API int ddl_busy(int* flag);

/** *flag = 1 between a successful ddl_init and ddl_finalize, else 0. */
DDL_API int ddl_initialized(int* flag);

/** Rank of this process, 0 … size-1; in a process that was forked from a rank, that rank's. DDL_ERR_STATE
 * before ddl_init, as for the next five. */
DDL_API int ddl_rank(int* rank);
/** Number of ranks. */
DDL_API int ddl_size(int* size);
/** Rank of this process among those of its host, in the order of their ranks; selects the device of a
 * process. */
DDL_API int ddl_local_rank(int* local_rank);
/** Number of ranks on the host of this process. */
DDL_API int ddl_local_size(int* local_size);
/** Number of hosts. */
DDL_API int ddl_num_hosts(int* num_hosts);
/** Index of the host of this process, hosts being numbered in the order of their lowest rank. */
DDL_API int ddl_host_index(int* host_index);

/**
 * Reduces over all ranks, in place; complete on return. Collective.
 * @param buf    count elements of type, of any alignment that suits the type; may be NULL when count is 0
 * @param count  elements, not bytes; the same on all ranks; 0 is allowed (and still synchronises the
 * arguments)
 */
DDL_API int ddl_allreduce(void* buf, size_t count, DDL_Type type, DDL_Op op);

/**
 * Reduces n buffers as if they were one, in place; complete on return. Collective. The buffers are never
 * copied into one: beyond them at most a few MiB of staging memory are used, however large they are.
 * @param bufs    n pointers; bufs[i] has counts[i] elements
 * @param counts  the same on all ranks, element by element
 * @param name    NULL or a text that all ranks must agree on: it makes different tensors of equal size in
 * different order an error instead of a wrong sum. At most the first 127 bytes are shown in errors; all are
 *                compared. It may have a line for each buffer: `-wire q8` then knows a tensor by its line,
 *                whichever others are reduced with it.
 */
DDL_API int ddl_allreduce_n(void* const* bufs, const size_t* counts, size_t n, DDL_Type type, DDL_Op op,
                            const char* name);

/** Copies rank root's count elements to all ranks, in place. Collective. @param name as in ddl_allreduce_n.
 */
DDL_API int ddl_broadcast(void* buf, size_t count, DDL_Type type, int root, const char* name);

/** Broadcasts n buffers as if they were one. Collective. Arguments as in ddl_allreduce_n. */
DDL_API int ddl_broadcast_n(void* const* bufs, const size_t* counts, size_t n, DDL_Type type, int root,
                            const char* name);

/**
 * Reduces over all ranks; the result is in rank root's buffer, those of the other ranks are only read.
 * Collective. Arguments as in ddl_allreduce and ddl_allreduce_n.
 */
DDL_API int ddl_reduce(void* buf, size_t count, DDL_Type type, DDL_Op op, int root, const char* name);

/**
 * Reduces over all ranks and gives every rank one block of the result. Collective.
 * @param in   count elements for each rank, in the order of the ranks; only read
 * @param out  this rank's block, count elements; must not overlap in
 */
DDL_API int ddl_reduce_scatter(const void* in, void* out, size_t count, DDL_Type type, DDL_Op op,
                               const char* name);

/**
 * Gives every rank the blocks of all ranks. Collective.
 * @param in   this rank's block, count elements; only read
 * @param out  count elements from each rank, in the order of the ranks; must not overlap in
 */
DDL_API int ddl_all_gather(const void* in, void* out, size_t count, DDL_Type type, const char* name);

/**
 * Block b of rank r becomes block r of rank b. Collective.
 * @param in   count elements for each rank, in the order of the ranks; only read
 * @param out  count elements from each rank, in the order of the ranks; must not overlap in
 */
DDL_API int ddl_all_to_all(const void* in, void* out, size_t count, DDL_Type type, const char* name);

/** A call that was started and not waited for. */
typedef unsigned long long DDL_Handle;

/** Some of the ranks, or all of them, that make calls among themselves. */
typedef unsigned long long DDL_Group;

/** Kinds of memory that the buffers of a call may lie in. All but host memory must be registered. */
typedef enum {
  DDL_MEMORY_HOST = 0,  /**< the processor reads and writes it */
  DDL_MEMORY_CUDA = 1,  /**< of CUDA devices; DDL knows it where there is an NVIDIA driver */
  DDL_MEMORY_FIRST = 64 /**< the first of the numbers, up to 127, that programs may use for kinds of theirs */
} DDL_MemoryKind;

/** What a copy has on its two sides. */
typedef enum {
  DDL_COPY_TO_HOST = 0,   /**< from the kind to host memory */
  DDL_COPY_FROM_HOST = 1, /**< from host memory to the kind */
  DDL_COPY_WITHIN = 2     /**< both sides are of the kind */
} DDL_CopyDirection;

/**
 * How bytes get into and out of a kind of memory. DDL touches such memory by these functions alone, from the
 * thread that makes a call. They return 0, or anything else for a failure.
 */
typedef struct {
  size_t size;      /**< sizeof(DDL_MemoryOperations) of the header that the program was compiled with */
  const char* name; /**< for texts: "CUDA"; copied */
  void* context;    /**< passed to the functions */
  /**
   * Starts to copy, after what was put on `stream` before, and returns at once. Copies may complete in any
   * order. @param copy  receives a number for test_copy
   */
  int (*post_copy)(void* context, void* to, const void* from, size_t bytes, DDL_CopyDirection direction,
                   void* stream, unsigned long long* copy);
  /** *done = 1 when the copy is complete, else 0; its number is void after 1 and after a failure. Must not
   * block. */
  int (*test_copy)(void* context, unsigned long long copy, int* done);
  /** What the last failure was, in words; may be NULL. */
  const char* (*last_error)(void* context);
} DDL_MemoryOperations;

/** Makes a kind of memory known; before ddl_init or later, once for each process and kind. Local. */
DDL_API int ddl_memory_register(DDL_MemoryKind kind, const DDL_MemoryOperations* operations);

/** Collective calls as a value. */
typedef enum {
  DDL_ALLREDUCE = 0, /**< bufs, counts, n, type, op: as ddl_allreduce_n */
  DDL_BROADCAST = 1, /**< bufs, counts, n, type, root: as ddl_broadcast_n */
  DDL_REDUCE = 2,    /**< bufs, counts, n, type, op, root: as ddl_reduce, of n buffers as if they were one */
  DDL_REDUCE_SCATTER = 3, /**< in, out, count, type, op: as ddl_reduce_scatter */
  DDL_ALL_GATHER = 4,     /**< in, out, count, type: as ddl_all_gather */
  DDL_ALL_TO_ALL = 5,     /**< in, out, count, type: as ddl_all_to_all */
  DDL_BARRIER = 6         /**< nothing: as ddl_barrier */
} DDL_Collective;

/** A collective call of all ranks or of a group, with buffers in any kind of memory. What a collective does
 * not use is ignored. */
typedef struct {
  size_t size; /**< sizeof(DDL_Call) of the header that the program was compiled with */
  DDL_Collective collective;
  DDL_MemoryKind memory; /**< of all buffers; the same on all ranks, else DDL_ERR_MISMATCH */
  void* stream;          /**< for post_copy: what puts the input there, and takes the result */
  void* const* bufs;
  const size_t* counts;
  size_t n;
  const void* in;
  void* out;
  size_t count;
  DDL_Type type;
  DDL_Op op;
  int root;         /**< a rank of the group */
  int priority;     /**< of ddl_call_start, as in ddl_allreduce_start */
  const char* name; /**< as in ddl_allreduce_n; may be NULL */
  DDL_Group group;  /**< 0: all ranks */
} DDL_Call;

/** Makes a call; complete on return: the results are in the buffers. Collective. */
DDL_API int ddl_call(const DDL_Call* call);

/**
 * Starts a call of all ranks (group 0) and returns, as ddl_allreduce_start. What `call` points to may be
 * reused on return; the buffers, and the stream, must stay until ddl_wait returns.
 * @param completion  receives the handle for ddl_test and ddl_wait
 */
DDL_API int ddl_call_start(const DDL_Call* call, DDL_Handle* completion);

/**
 * What is put on `stream` from now on begins when a call that was started on a CUDA stream is complete;
 * returns at once, but for the first call on GPUs: it first waits until all ranks have come to that one and
 * are ready for calls on GPUs, since taking memory of a device may wait for all its streams. The handle stays
 * open: its error, if any, comes by ddl_test or ddl_wait, and the stream then goes on as well.
 *
 * The stream waits for the host: DDL's thread still calls CUDA's driver to make the call, and tells the
 * stream when it is over. Some calls of the driver hold a lock of the device's context, which all others
 * need, while they wait for a stream. While a stream waits here, no thread of the process may make such a
 * call that waits for that stream, or it, the stream and DDL wait for each other for ever:
 * - copies between a device and host memory that is not pinned (in PyTorch, tensor.cpu() and .item());
 * - a kernel's first launch, unless CUDA_MODULE_LOADING=EAGER: by default CUDA loads a kernel then, and may
 *   wait for all streams;
 * - taking and freeing memory of a device, and pinned memory;
 * - whatever is put on a stream when CUDA's queue is full.
 * Allowed are copies from and to pinned memory, kernels that have run before, and asking whether a stream or
 * an event is done. Where the program's libraries decide what is called, let a thread wait, by ddl_wait.
 * @param stream  CUstream or cudaStream_t, of the buffers' device; null: the default stream
 * @return DDL_ERR_STATE where the buffers do not lie in CUDA memory
 */
DDL_API int ddl_stream_wait(DDL_Handle handle, void* stream);

/**
 * Makes a stream of a CUDA device, of the highest priority, which does not wait for the default stream: for
 * programs that make calls on a thread of their own. It lives as long as the process.
 * @param device  as CUDA numbers those of this process. @param stream  receives a CUstream. Local, also
 * before ddl_init
 */
DDL_API int ddl_stream_create(int device, void** stream);

/**
 * Starts what ddl_allreduce_n does and returns; a thread of DDL goes on with it. Collective: all ranks must
 * start and call the same in the same order, but not at the same time.
 *
 * bufs and counts may be reused on return; the buffers themselves must stay valid and untouched until
 * ddl_wait returns. Small all-reduces of one type and op that all ranks have started are made together, in
 * one exchange and without being copied together.
 *
 * Where MPI was initialised without MPI_THREAD_MULTIPLE there is no such thread: the work is done within
 * ddl_test and ddl_wait.
 *
 * @param priority  among the calls that all ranks have started, those with the highest are made first
 * @param handle    receives the handle for ddl_wait
 */
DDL_API int ddl_allreduce_start(void* const* bufs, const size_t* counts, size_t n, DDL_Type type, DDL_Op op,
                                const char* name, int priority, DDL_Handle* handle);

/** Starts what ddl_broadcast_n does; as ddl_allreduce_start. */
DDL_API int ddl_broadcast_start(void* const* bufs, const size_t* counts, size_t n, DDL_Type type, int root,
                                const char* name, int priority, DDL_Handle* handle);

/** *done = 1 when the call is complete, else 0. Returns the call's error when it failed. The handle stays
 * open. */
DDL_API int ddl_test(DDL_Handle handle, int* done);

/** Returns when the call is complete, with its error when it failed, and closes the handle. */
DDL_API int ddl_wait(DDL_Handle handle);

/** Returns when all ranks have called it. Collective. */
DDL_API int ddl_barrier(void);

/**
 * Makes a group, whose collective calls ddl_call makes. Collective over its ranks alone; those who do not
 * come in time are named in an error. It waits for them as a call does: one whose process ends, or a rank of
 * the job that ends with an error, is DDL_ERR_PEER_LOST at once; one that does not answer is DDL_ERR_TIMEOUT
 * after -timeout, one that is late after timeout_s. One that waits for this rank in a call of all ranks is
 * DDL_ERR_MISMATCH within seconds, on all ranks, where each of the two has called DDL from one thread only.
 *
 * Calls in a group of some ranks have no place in the order that all ranks share: calls of several groups may
 * be under way at once, from several threads, and a failure in one leaves the others usable. A group of all
 * ranks (n == 0) shares that order, the counters, and the failed state. Calls in groups are meant for threads
 * beside a computation: while they wait they leave the processor to others.
 *
 * Of `-mode` only the letter holds in a group of some ranks; `-timeline` shows the world only. Each group
 * has its own working memory, as under Memory above.
 *
 * @param ranks      n different ranks, this one among them; the i-th becomes rank i of the group. The same on
 *                   all of them
 * @param n          0: all ranks; ranks may then be NULL
 * @param timeout_s  in place of -patience for its calls and its making, in seconds; 0: as -patience
 * @param group      receives the group
 * @return DDL_ERR_STATE also where MPI was initialised without MPI_THREAD_MULTIPLE; DDL_ERR_TIMEOUT,
 *         DDL_ERR_PEER_LOST, DDL_ERR_MISMATCH
 */
DDL_API int ddl_group_create(const int* ranks, size_t n, double timeout_s, DDL_Group* group);

/** Changes the time limit of the group's calls that begin from now on. This rank's alone.
 * @param timeout_s  as in ddl_group_create, but more than 0
 */
DDL_API int ddl_group_set_timeout(DDL_Group group, double timeout_s);

/** Gives a group up, and messages in it that are not complete. Its ranks need not do so at the same time, but
 * not while calls in it are under way. ddl_finalize does so, too. */
DDL_API int ddl_group_free(DDL_Group group);

/**
 * Every rank sends every rank a block, of any size. Collective over the group. A gather or a scatter is the
 * case where most blocks are empty.
 * @param in         in[r] goes to rank r, in_bytes[r] bytes of it; only read; may be NULL when that is 0
 * @param out        out[r] comes from rank r, and must be out_bytes[r] long. What a rank sends and what the
 *                   other expects is compared: a difference is DDL_ERR_MISMATCH and names both
 */
DDL_API int ddl_group_exchange(DDL_Group group, const void* const* in, const size_t* in_bytes,
                               void* const* out, const size_t* out_bytes, const char* name);

/**
 * Starts sending a message to one rank of the group. Not collective, and in no order with collective calls.
 * @param tag     0 to 32767: a receive takes messages of its own tag, in the order of their sending
 * @param handle  for ddl_group_test; buf must stay as it is until that has found the message complete
 */
DDL_API int ddl_group_send_start(DDL_Group group, const void* buf, size_t bytes, int rank, int tag,
                                 DDL_Handle* handle);
/** Starts receiving. @param rank  the sender, or -1: any. A message of another size is DDL_ERR_MISMATCH. */
DDL_API int ddl_group_receive_start(DDL_Group group, void* buf, size_t bytes, int rank, int tag,
                                    DDL_Handle* handle);
/** *done = 1 when the message is complete, else 0. The handle is then closed; an error closes it, too.
 * @param source  receives the sender's rank; may be NULL */
DDL_API int ddl_group_test(DDL_Group group, DDL_Handle handle, int* done, int* source);
/** Gives a message up that is not complete, and closes its handle. */
DDL_API int ddl_group_cancel(DDL_Group group, DDL_Handle handle);

/**
 * The same result as ddl_allreduce up to rounding, by the MPI library's own MPI_Allreduce: the baseline to
 * compare with. Arguments are compared across the ranks first; within MPI_Allreduce itself no time limit
 * holds.
 */
DDL_API int ddl_allreduce_plain(void* buf, size_t count, DDL_Type type, DDL_Op op);

/**
 * Allocates host memory, also usable before ddl_init.
 * @param p      receives the address, or NULL on failure
 * @param align  in bytes, a power of two; 0 means 64
 * @return the number of usable bytes (>= bytes), 0 on failure
 */
DDL_API size_t ddl_malloc(void** p, size_t align, size_t bytes);
/** Frees memory of ddl_malloc; NULL is allowed. */
DDL_API int ddl_free(void* p);

/**
 * Writes a JSON object about the state: version, rank, size, hosts, tiers, options, bytes of this rank's
 * staging memory, the algorithm of the last call and counters (calls, bytes, seconds). Local.
 * @param json      receives at most capacity bytes including the terminating 0; may be NULL when capacity is
 * 0
 * @param needed    receives the bytes the whole text needs including the terminating 0; may be NULL
 * @return DDL_ERR_ARGUMENT when capacity is not 0 but too small (json then holds a terminated prefix)
 */
DDL_API int ddl_describe(char* json, size_t capacity, size_t* needed);

/**
 * Writes the counters alone as a JSON object: calls, bytes, messages, seconds by activity and tier, calls by
 * algorithm, and the call that is under way or failed (else null), its number and for how many seconds.
 * Local, and answered during a call of another thread, too. Arguments as in ddl_describe.
 * @return as ddl_describe, and DDL_ERR_STATE when the thread that makes a call is held up within MPI for 5 s
 */
DDL_API int ddl_stats(char* json, size_t capacity, size_t* needed);

/**
 * Writes the flight record of this rank to a file: its last 256 collective calls (kind, size, name, number,
 * when they began and ended), as JSON. Local, and possible at any time, during a call of another thread, too.
 * Where the environment variable DDL_FLIGHT_RECORDER names a folder when DDL is initialised, every rank that
 * lives writes `rank-<r>.json` there (r in MPI_COMM_WORLD) after a failure, when SIGTERM ends it, and when it
 * exits without ddl_finalize; ddlrun sets it, and makes one page of all.
 * @param path  the file, which is replaced as a whole
 * @return DDL_ERR_ARGUMENT when it cannot be written, with the reason, DDL_ERR_STATE outside ddl_init …
 *         ddl_finalize
 */
DDL_API int ddl_flight_record(const char* path);

/**
 * Writes the topology that DDL will find for a job that has not been started, as the JSON that ddl_describe
 * has under "topology". Neither MPI nor ddl_init is needed. ddlrun --show-topology asks so.
 * @param request   JSON: `{"options": "-mode p:2x2", "order": ["h1", "h2"], "ranks": [{"host": "h1",
 *                  "numa": 0, "package": 0, "gpu": "0000:1b:00.0/0"}, ...]}`: DDL_OPTIONS, DDL_HOST_ORDER
 *                  (may be left out), and by rank its host, the NUMA node and package of its processors
 *                  (-1: several, or not known), and its GPU as in DDL_RANK_GPU (may be left out).
 *                  `-topology measure` is taken for the hosts alone.
 * The other arguments as in ddl_describe.
 * @return DDL_ERR_OPTION where the start of the job would end so
 */
DDL_API int ddl_preview_topology(const char* request, char* json, size_t capacity, size_t* needed);

/**
 * Predicts how long an all-reduce, and a training step around it, take on a cluster that is only described:
 * by the model that plans all-reduces, at several sizes of a job, with several algorithms. Usable without
 * ddl_init; MPI is not touched. docs/cluster/simulate.md describes the texts that come in and the result.
 * @param cluster  a cluster description, JSON
 * @param steps    step times of a real run to calibrate the description with, JSON; or NULL
 * @param bytes    of an all-reduce; 0 takes those of steps, or of cluster
 * @param ranks    n sizes of jobs, each from 1 to the cluster's ranks; n == 0 takes usual ones
 * @param json     and capacity, needed: as in ddl_describe
 * @return DDL_ERR_ARGUMENT when a text is wrong, naming the place in it, or as in ddl_describe
 */
DDL_API int ddl_predict(const char* cluster, const char* steps, size_t bytes, const size_t* ranks, size_t n,
                        char* json, size_t capacity, size_t* needed);

/** Bytes of an element of type: 4, 2, 8, 2, 4, 8 in the order of DDL_Type; 0 for what is no type. */
DDL_API size_t ddl_type_size(DDL_Type type);

/** Text of the last failure on the calling thread, "" when there was none; valid until its next DDL call. */
DDL_API const char* ddl_last_error(void);

/** The release, for example "2.0.0". */
DDL_API const char* ddl_version(void);

#ifdef __cplusplus
}
#endif

#endif
