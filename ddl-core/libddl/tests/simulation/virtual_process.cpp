// What a process asks the system and the clock for, of the rank that runs. Outside a cluster the system
// answers.
#include <dlfcn.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "ddl.h"
#include "engine/ticking_thread.hpp"
#include "support/process_handle.hpp"
#include "virtual_cluster.hpp"

namespace {

constexpr int kFirstPid = 1'000'000;

ddl::sim::Cluster* running() {
  ddl::sim::Cluster* const cluster = ddl::sim::Cluster::current();
  return cluster != nullptr && cluster->rank() >= 0 ? cluster : nullptr;
}

}  // namespace

#define DDL_SIM_PUBLIC __attribute__((visibility("default")))

namespace std {
/// Threads are fibers of the rank. DDL joins none of those that it starts in a communicator.
void thread::_M_start_thread(_State_ptr state, void (*)()) {
  auto* const kept = state.release();
  running()->start_thread([kept] {
    const _State_ptr owned(kept);
    owned->_M_run();
  });
  _M_id = id(1);
}
void thread::detach() { _M_id = id(); }
}  // namespace std

namespace std::chrono {
inline namespace _V2 {
steady_clock::time_point steady_clock::now() noexcept {
  if (ddl::sim::Cluster* const cluster = running()) {
    // Never 0, which stands for a time long ago.
    return time_point(nanoseconds(cluster->now() + 1000 * ddl::sim::kSecond));
  }
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time_point(seconds(time.tv_sec) + nanoseconds(time.tv_nsec));
}
}  // namespace _V2
}  // namespace std::chrono

extern "C" {

int sched_yield() noexcept {
  ddl::sim::Cluster* const cluster = running();
  if (cluster != nullptr && cluster->in_fiber()) cluster->pause(0, true);
  return 0;
}

int nanosleep(const timespec* wanted, timespec* left) {
  ddl::sim::Cluster* const cluster = running();
  if (cluster == nullptr || !cluster->in_fiber()) {
    return static_cast<int>(syscall(SYS_clock_nanosleep, CLOCK_REALTIME, 0, wanted, left));
  }
  cluster->pause(wanted->tv_sec * ddl::sim::kSecond + wanted->tv_nsec, false);
  cluster->throw_if_killed();
  return 0;
}

/// Of these only futexes are a rank's own: a wait for others of its host, or for a thread. The standard
/// library's come here, too.
DDL_SIM_PUBLIC long syscall(long number, ...) noexcept {
  using Function = long (*)(long, ...);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "syscall"));
  va_list list;
  va_start(list, number);
  long of[6];
  for (long& argument : of) argument = va_arg(list, long);
  va_end(list);
  ddl::sim::Cluster* const cluster = running();
  if (number != SYS_futex || cluster == nullptr)
    return real(number, of[0], of[1], of[2], of[3], of[4], of[5]);
  const auto operation = static_cast<int>(of[1]) & FUTEX_CMD_MASK;
  if (operation == FUTEX_WAKE || operation == FUTEX_WAKE_BITSET) {
    for (const int mate : cluster->ranks_of(cluster->host_of(cluster->rank()))) cluster->wake(mate);
    return 0;
  }
  const auto* const word = reinterpret_cast<const volatile std::uint32_t*>(of[0]);
  const auto* const limit = reinterpret_cast<const timespec*>(of[3]);
  errno = EAGAIN;
  if (*word != static_cast<std::uint32_t>(of[2]) || !cluster->in_fiber()) return -1;
  cluster->pause(0, false);
  // Of the waits with a bit set the limit is a time, else it is a duration.
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const bool over = limit != nullptr &&
                    (operation == FUTEX_WAIT ||
                     now >= std::chrono::seconds(limit->tv_sec) + std::chrono::nanoseconds(limit->tv_nsec));
  errno = over ? ETIMEDOUT : EAGAIN;
  return *word == static_cast<std::uint32_t>(of[2]) ? -1 : 0;
}

pid_t getpid() noexcept {
  ddl::sim::Cluster* const cluster = running();
  return cluster != nullptr ? kFirstPid + cluster->rank() : static_cast<pid_t>(syscall(SYS_getpid));
}

int gethostname(char* name, size_t bytes) noexcept {
  ddl::sim::Cluster* const cluster = running();
  const std::string text =
      cluster != nullptr ? ddl::sim::Cluster::host_name(cluster->host_of(cluster->rank())) : "outside";
  std::snprintf(name, bytes, "%s", text.c_str());
  return 0;
}

/// No processor: every rank shares its own, and thus never spins.
int sched_getaffinity(pid_t, size_t bytes, cpu_set_t* processors) noexcept {
  std::memset(processors, 0, bytes);
  return 0;
}

char* getenv(const char* name) noexcept {
  using Function = char* (*)(const char*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getenv"));
  ddl::sim::Cluster* const cluster = running();
  if (cluster == nullptr) return real(name);
  if (std::strcmp(name, "DDL_CACHE_DIR") == 0) return const_cast<char*>("/dev/null/none");
  if (cluster->hosts_a_rack == 0 || std::strncmp(name, "SLURM_TOPOLOGY_ADDR", 19) != 0) return nullptr;
  static std::string answer;
  const int host = cluster->host_of(cluster->rank());
  answer = name[19] != 0 ? "switch.switch.node"
                         : "core.rack" + std::to_string(host / cluster->hosts_a_rack) + "." +
                               ddl::sim::Cluster::host_name(host);
  return answer.data();
}

}  // extern "C"

/// Of the C interface, which the library's inside asks only for this.
const char* ddl_version(void) { return "simulated"; }

namespace ddl {

TickingThread::TickingThread(const char* name, void (*on_start)())
    : name_(name), on_start_(on_start), wake_(-1) {}

TickingThread::Handle TickingThread::add(std::function<void()> tick) {
  const auto handle = ticks_.insert(ticks_.end(), std::move(tick));
  sim::Cluster::current()->set_tick([this] { run(); });
  return handle;
}

void TickingThread::remove(Handle handle) { ticks_.erase(handle); }
void TickingThread::stop() {}
void TickingThread::begin() {}
void TickingThread::wake() const noexcept {}
void TickingThread::start() {}
void TickingThread::run() {
  for (const auto& tick : ticks_) tick();
}

/// One for each rank.
TickingThread& liveness_thread() {
  static auto* const threads = new std::vector<std::unique_ptr<TickingThread>>;
  const auto rank = static_cast<std::size_t>(sim::Cluster::current()->rank());
  if (threads->size() <= rank) threads->resize(rank + 1);
  if (!(*threads)[rank]) (*threads)[rank] = std::make_unique<TickingThread>("liveness", nullptr);
  return *(*threads)[rank];
}

std::shared_ptr<const ProcessHandle> ProcessHandle::of(std::int64_t pid) {
  return std::make_shared<const ProcessHandle>(static_cast<int>(pid));
}
ProcessHandle::~ProcessHandle() = default;
bool ProcessHandle::ended() const { return !sim::Cluster::current()->alive(descriptor_ - kFirstPid); }

}  // namespace ddl
