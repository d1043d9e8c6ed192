// What calls cost, counted and not timed: heap allocations, system calls and instructions of the calling
// thread, messages and bytes. tests/costs/test_call_costs.py starts it and compares with what is recorded
// there.
//
// Each line of rank 0 is one case: a call, its bytes, the way it was made, and what it cost. Allocations,
// system calls and instructions within MPI are MPI's. A call is made several times, as the first of a kind
// plans and takes memory; the least of what a rank counted is what the call needs, and the most of all ranks
// is told.
#include <mpi.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddl.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#endif

namespace {

constexpr std::size_t kMostCalls = 512;  // system calls are told apart by number
constexpr int kTiers = 2;                // within a host, between hosts

struct Counts {
  std::uint64_t allocations = 0;
  std::uint64_t instructions = 0;
  std::uint64_t switches = 0;  ///< of the thread, by its own will
  std::array<std::uint64_t, kTiers> messages{};
  std::array<std::uint64_t, kTiers> bytes{};
  std::uint64_t collectives = 0;  ///< of MPI
  std::array<std::uint32_t, kMostCalls> system_calls{};
};

thread_local bool g_counting = false;
thread_local int g_in_mpi = 0;
Counts g_counts;
std::vector<int> g_host_of;             ///< by rank of the world
volatile char g_trap_system_calls = 0;  ///< the kernel's selector: 0 lets them through

bool counts() { return g_counting && g_in_mpi == 0; }

class InMpi {
 public:
  InMpi() { ++g_in_mpi; }
  ~InMpi() { --g_in_mpi; }
  InMpi(const InMpi&) = delete;
  InMpi& operator=(const InMpi&) = delete;
};

void note_message(int count, MPI_Datatype type, int peer, MPI_Comm comm) {
  if (!g_counting) return;
  int width = 0;
  PMPI_Type_size(type, &width);
  MPI_Group some = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  PMPI_Comm_group(comm, &some);
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  int to = 0;
  int own = 0;
  PMPI_Group_translate_ranks(some, 1, &peer, world, &to);
  PMPI_Group_rank(world, &own);
  PMPI_Group_free(&some);
  PMPI_Group_free(&world);
  const bool near = g_host_of[static_cast<std::size_t>(to)] == g_host_of[static_cast<std::size_t>(own)];
  ++g_counts.messages[near ? 0 : 1];
  g_counts.bytes[near ? 0 : 1] += static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(width);
}

}  // namespace

// What DDL and MPI's users call: the definitions here come before MPI's own.
extern "C" {
int MPI_Isend(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const InMpi within;
  note_message(count, type, to, comm);
  return PMPI_Isend(from, count, type, to, tag, comm, request);
}
int MPI_Send(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  const InMpi within;
  note_message(count, type, to, comm);
  return PMPI_Send(from, count, type, to, tag, comm);
}
int MPI_Irecv(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const InMpi within;
  return PMPI_Irecv(to, count, type, from, tag, comm, request);
}
int MPI_Testall(int count, MPI_Request requests[], int* done, MPI_Status statuses[]) {
  const InMpi within;
  return PMPI_Testall(count, requests, done, statuses);
}
int MPI_Testsome(int count, MPI_Request requests[], int* done, int which[], MPI_Status statuses[]) {
  const InMpi within;
  return PMPI_Testsome(count, requests, done, which, statuses);
}
int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* found, MPI_Status* status) {
  const InMpi within;
  return PMPI_Iprobe(from, tag, comm, found, status);
}
int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  const InMpi within;
  if (g_counting) ++g_counts.collectives;
  return PMPI_Iallreduce(from, to, count, type, op, comm, request);
}

// glibc's malloc under its other name. Whatever allocates comes by here, operator new too.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  if (counts()) ++g_counts.allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  if (counts()) ++g_counts.allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  if (counts()) ++g_counts.allocations;
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  if (counts()) ++g_counts.allocations;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** to, size_t alignment, size_t bytes) {
  if (counts()) ++g_counts.allocations;
  *to = __libc_memalign(alignment, bytes);
  return *to == nullptr ? ENOMEM : 0;
}
}

#if defined(__x86_64__) && defined(__linux__)

// The kernel hands system calls of the thread to a signal handler (syscall user dispatch, Linux 5.11), but
// for those of this code, by which the handler makes them.
extern "C" long call_costs_system_call(long number, long a, long b, long c, long d, long e, long f);
extern "C" void call_costs_return();
extern "C" const char call_costs_end;
asm(R"(
  .text
  .globl call_costs_system_call, call_costs_return, call_costs_end
call_costs_system_call:
  mov %rdi, %rax
  mov %rsi, %rdi
  mov %rdx, %rsi
  mov %rcx, %rdx
  mov %r8, %r10
  mov %r9, %r8
  mov 8(%rsp), %r9
  syscall
  ret
call_costs_return:
  mov $15, %eax
  syscall
  ud2
call_costs_end:
)");

namespace {

std::uint64_t g_last_step = 0;

extern "C" void on_system_call(int, siginfo_t* info, void* context) {
  auto* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto number = static_cast<std::size_t>(info->si_syscall);
  if (g_in_mpi == 0 && number < kMostCalls) ++g_counts.system_calls[number];
  registers[REG_RAX] =
      call_costs_system_call(static_cast<long>(number), registers[REG_RDI], registers[REG_RSI],
                             registers[REG_RDX], registers[REG_R10], registers[REG_R8], registers[REG_R9]);
}

extern "C" void on_step(int, siginfo_t*, void* context) {
  const auto at = static_cast<std::uint64_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  // One that repeats itself, such as a copy, is one.
  if (g_in_mpi == 0 && at != g_last_step) ++g_counts.instructions;
  g_last_step = at;
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*)) {
  // As the kernel knows it: the return from the handler is a system call of the code above.
  struct {
    void (*handler)(int, siginfo_t*, void*);
    unsigned long flags;
    void (*restorer)();
    unsigned long mask;
  } action{handler, SA_SIGINFO | SA_NODEFER | 0x04000000UL, call_costs_return, 0};
  syscall(SYS_rt_sigaction, signal, &action, nullptr, 8);
}

/// Whether system calls can be counted here.
bool trap_system_calls() {
  handle(SIGSYS, on_system_call);
  const auto begin = reinterpret_cast<std::uintptr_t>(&call_costs_system_call);
  const auto end = reinterpret_cast<std::uintptr_t>(&call_costs_end);
  return prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, begin, end - begin, &g_trap_system_calls) ==
         0;
}

void step(bool on) {
  if (on) {
    handle(SIGTRAP, on_step);
    asm volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "cc", "memory");
  } else {
    asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "cc", "memory");
  }
}

constexpr bool kSteps = true;

}  // namespace

#else
namespace {
bool trap_system_calls() { return false; }
void step(bool) {}
constexpr bool kSteps = false;
}  // namespace
#endif

namespace {

/// Waiting: how often depends on time.
bool waits(long number) {
#ifdef SYS_poll
  if (number == SYS_poll) return true;
#endif
  return number == SYS_sched_yield || number == SYS_nanosleep || number == SYS_clock_nanosleep ||
         number == SYS_futex || number == SYS_ppoll;
}

const char* name_of(long number) {
  static const std::map<long, const char*> names = {{SYS_read, "read"},
                                                    {SYS_write, "write"},
                                                    {SYS_openat, "openat"},
                                                    {SYS_close, "close"},
                                                    {SYS_mmap, "mmap"},
                                                    {SYS_munmap, "munmap"},
                                                    {SYS_brk, "brk"},
                                                    {SYS_madvise, "madvise"},
                                                    {SYS_futex, "futex"},
                                                    {SYS_getpid, "getpid"},
                                                    {SYS_newfstatat, "newfstatat"},
                                                    {SYS_clock_gettime, "clock_gettime"}};
  static std::string text;
  const auto found = names.find(number);
  if (found != names.end()) return found->second;
  text = "system call " + std::to_string(number);
  return text.c_str();
}

/// The largest first: memory that is kept from call to call is then large enough for the others.
constexpr std::array<std::size_t, 5> kSizes{std::size_t{64} << 20, std::size_t{1} << 20,
                                            std::size_t{64} << 10, std::size_t{4} << 10, 4};
/// Up to this size the planner tries everything, for so many calls at most.
constexpr std::size_t kTried = std::size_t{128} << 10;
constexpr int kCallsOfAllWays = 100;
constexpr std::size_t kStepped = std::size_t{4} << 10;
constexpr std::size_t kLong = std::size_t{4} << 20;
/// It takes as many to notice that a prediction was wrong, upon which it tries other ways.
constexpr int kCalls = 4;
constexpr int kCallsOfLarge = 2;

int g_rank = 0;
int g_size = 1;
bool g_traps = false;

void fail(const char* what) {
  std::fprintf(stderr, "rank %d: %s: %s\n", g_rank, what, ddl_last_error());
  std::_Exit(1);
}

/// The way in which the last call was made, as ddl_describe tells it.
std::string way() {
  static std::vector<char> text(1 << 20);
  std::size_t needed = 0;
  if (ddl_describe(text.data(), text.size(), &needed) != DDL_SUCCESS) fail("ddl_describe");
  const char* const key = "\"algorithm\":\"";
  const char* const at = std::strstr(text.data(), key);
  if (at == nullptr) return "";
  const char* const begin = at + std::strlen(key);
  return std::string(begin, std::strchr(begin, '"'));
}

Counts counted(const std::function<int()>& call, bool steps) {
  rusage before{};
  rusage after{};
  g_counts = {};
  getrusage(RUSAGE_THREAD, &before);
  g_counting = true;
  if (g_traps && !steps) g_trap_system_calls = 1;
  if (steps) step(true);
  const int status = call();
  if (steps) step(false);
  g_trap_system_calls = 0;
  g_counting = false;
  getrusage(RUSAGE_THREAD, &after);
  if (status != DDL_SUCCESS) fail("the call");
  g_counts.switches = static_cast<std::uint64_t>(after.ru_nvcsw - before.ru_nvcsw);
  return g_counts;
}

/// What a rank needed at least of several calls that were made in one way.
struct Seen {
  int calls = 0;
  Counts least;
};

void merge(Seen& seen, const Counts& one) {
  if (seen.calls++ == 0) {
    seen.least = one;
    return;
  }
  Counts& least = seen.least;
  least.allocations = std::min(least.allocations, one.allocations);
  least.instructions = std::min(least.instructions, one.instructions);
  least.switches = std::min(least.switches, one.switches);
  for (std::size_t i = 0; i < kMostCalls; ++i) {
    least.system_calls[i] = std::min(least.system_calls[i], one.system_calls[i]);
  }
  for (int t = 0; t < kTiers; ++t) {
    least.messages[t] = std::min(least.messages[t], one.messages[t]);
    least.bytes[t] = std::min(least.bytes[t], one.bytes[t]);
  }
}

std::uint64_t over_ranks(std::uint64_t value, MPI_Op op) {
  std::uint64_t result = value;
  if (g_size > 1) PMPI_Allreduce(&value, &result, 1, MPI_UINT64_T, op, MPI_COMM_WORLD);
  return result;
}

std::uint64_t over_ranks(std::uint64_t value) { return over_ranks(value, MPI_MAX); }

void tell(const std::string& name, std::size_t bytes, const std::string& how, const Counts& counts,
          bool steps) {
  std::string text = "cost {\"call\": \"" + name + "\", \"bytes\": " + std::to_string(bytes) +
                     ", \"way\": \"" + how +
                     "\", \"allocations\": " + std::to_string(over_ranks(counts.allocations));
  std::string calls;
  for (std::size_t i = 0; i < kMostCalls; ++i) {
    if (waits(static_cast<long>(i))) continue;
    const std::uint64_t most = over_ranks(counts.system_calls[i]);
    if (most == 0) continue;
    calls += (calls.empty() ? "\"" : ", \"") + std::string(name_of(static_cast<long>(i))) +
             "\": " + std::to_string(most);
  }
  if (g_traps) text += ", \"system_calls\": {" + calls + "}";
  if (steps) text += ", \"instructions\": " + std::to_string(counts.instructions);
  if (steps || g_size == 1) text += ", \"context_switches\": " + std::to_string(over_ranks(counts.switches));
  const char* const tiers[kTiers] = {"within_hosts", "between_hosts"};
  for (int t = 0; t < kTiers; ++t) {
    const std::uint64_t messages = over_ranks(counts.messages[t], MPI_SUM);
    const std::uint64_t sent = over_ranks(counts.bytes[t], MPI_SUM);
    if (messages == 0) continue;
    text += ", \"messages_" + std::string(tiers[t]) + "\": " + std::to_string(messages) + ", \"bytes_" +
            tiers[t] + "\": " + std::to_string(sent);
  }
  if (g_rank == 0) std::printf("%s}\n", text.c_str());
  std::fflush(stdout);
}

/// Makes a call some times; what it cost in each way in which it was made.
/// @param steps  instructions are counted, too
std::map<std::string, Seen> make_calls(const std::function<int()>& call, int calls, bool steps) {
  std::map<std::string, Seen> seen;
  for (int i = 0; i < calls; ++i) {
    const Counts counts = counted(call, false);
    merge(seen[way()], counts);
  }
  if (!steps) return seen;
  std::uint64_t least = ~std::uint64_t{0};
  for (int i = 0; i < kCalls; ++i) {
    // The last rank to come waits for nobody: what it does does not depend on time.
    if (g_size > 1) PMPI_Barrier(MPI_COMM_WORLD);
    if (g_size > 1 && g_rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    least = std::min(least, counted(call, g_rank == 0).instructions);
  }
  seen[way()].least.instructions = least;
  return seen;
}

void learn_hosts() {
  if (g_size == 1) return;
  g_host_of.resize(static_cast<std::size_t>(g_size));
  int host = 0;
  if (ddl_host_index(&host) != DDL_SUCCESS) fail("ddl_host_index");
  PMPI_Allgather(&host, 1, MPI_INT, g_host_of.data(), 1, MPI_INT, MPI_COMM_WORLD);
}

}  // namespace

int main() {
  if (ddl_init(nullptr) != DDL_SUCCESS || ddl_rank(&g_rank) != DDL_SUCCESS ||
      ddl_size(&g_size) != DDL_SUCCESS) {
    fail("ddl_init");
  }
  learn_hosts();
  int hosts = 1;
  ddl_num_hosts(&hosts);
  g_traps = trap_system_calls();
  const auto ranks = static_cast<std::size_t>(g_size);
  std::vector<float> in(kSizes.front() / sizeof(float), 1.0F);
  std::vector<float> out(in.size());
  const auto count_calls = [&](const char* name, std::size_t bytes, const std::function<int()>& call,
                               int calls, bool steps) {
    for (const auto& [how, seen] : make_calls(call, calls, steps)) tell(name, bytes, how, seen.least, steps);
  };
  for (const std::size_t bytes : kSizes) {
    const std::size_t count = bytes / sizeof(float);
    const std::size_t block = std::max<std::size_t>(count / ranks, 1);
    const bool large = bytes == kSizes.front();
    const int calls = large ? kCallsOfLarge : kCalls;
    const bool steps = kSteps && hosts == 1 && g_size <= 2 && bytes <= kStepped;
    count_calls(
        "allreduce", bytes, [&] { return ddl_allreduce(in.data(), count, DDL_TYPE_FLOAT, DDL_OP_MAX); },
        hosts > 1 && bytes <= kTried ? kCallsOfAllWays : calls, steps);
    count_calls(
        "bcast", bytes, [&] { return ddl_broadcast(in.data(), count, DDL_TYPE_FLOAT, g_size - 1, "a name"); },
        calls, steps);
    count_calls(
        "all_gather", bytes,
        [&] { return ddl_all_gather(in.data(), out.data(), block, DDL_TYPE_FLOAT, nullptr); }, calls, false);
    count_calls(
        "reduce_scatter", bytes,
        [&] { return ddl_reduce_scatter(in.data(), out.data(), block, DDL_TYPE_FLOAT, DDL_OP_MAX, nullptr); },
        calls, false);
  }
  if (hosts > 1) {
    const auto call = [&](DDL_Type type, std::size_t width) {
      return [&, type, width] { return ddl_allreduce(in.data(), kLong / width, type, DDL_OP_MAX); };
    };
    count_calls("allreduce", kLong, call(DDL_TYPE_FLOAT, sizeof(float)), kCallsOfLarge, false);
    // From here on the ranks look what was submitted after each call as large as this.
    DDL_Handle started = 0;
    void* const buffer = in.data();
    const std::size_t one = 1;
    if (ddl_allreduce_start(&buffer, &one, 1, DDL_TYPE_FLOAT, DDL_OP_MAX, nullptr, 0, &started) !=
            DDL_SUCCESS ||
        ddl_wait(started) != DDL_SUCCESS) {
      fail("a call that is started");
    }
    count_calls("allreduce after a started call", kLong, call(DDL_TYPE_DOUBLE, sizeof(double)), kCallsOfLarge,
                false);
  }
  if (ddl_finalize() != DDL_SUCCESS) fail("ddl_finalize");
  return 0;
}
