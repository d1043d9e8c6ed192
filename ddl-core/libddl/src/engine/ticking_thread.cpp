#include "engine/ticking_thread.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "support/start_thread.hpp"
#include "transport/mpi_transport.hpp"

namespace ddl {
namespace {

constexpr int kBetweenTicksMs = 100;

/// All that were started. Never destroyed, like they themselves.
std::vector<TickingThread*>& started() {
  static auto* const threads = new std::vector<TickingThread*>;
  return *threads;
}
std::mutex g_started_mutex;

void stop_all() {
  std::vector<TickingThread*> all;
  {
    const std::lock_guard lock(g_started_mutex);
    all = started();
  }
  for (TickingThread* const thread : all) thread->stop();
}

/// MPI deletes the attributes of MPI_COMM_SELF before it does anything else in MPI_Finalize
/// (MPI 4.1, 11.2.4).
void stop_liveness_at_mpi_finalize() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) return;
  int key = MPI_KEYVAL_INVALID;
  const auto ended = [](MPI_Comm, int, void*, void*) {
    liveness_thread().stop();
    return MPI_SUCCESS;
  };
  check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, ended, &key, nullptr), "MPI_Comm_create_keyval");
  check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
}

}  // namespace

TickingThread::TickingThread(const char* name, void (*on_start)())
    : name_(name), on_start_(on_start), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void TickingThread::begin() {
  const std::lock_guard lock(mutex_);
  if (!thread_ && !over_) start();
}

TickingThread::Handle TickingThread::add(std::function<void()> tick) {
  begin();
  const std::lock_guard lock(mutex_);
  return ticks_.insert(ticks_.end(), std::move(tick));
}

void TickingThread::remove(Handle handle) {
  const std::lock_guard lock(mutex_);
  ticks_.erase(handle);
}

void TickingThread::stop() {
  // A forked copy has no thread to join.
  if (owner_ != getpid()) return;
  std::unique_ptr<std::thread> ended;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    ended = std::move(thread_);
  }
  wake();
  if (ended) ended->join();
}

void TickingThread::wake() const noexcept {
  const std::uint64_t one = 1;
  // A full counter wakes just as well.
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

void TickingThread::start() {
  // Signals are for the program's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  running_ = true;
  try {
    thread_ = std::make_unique<std::thread>(start_thread([this] { run(); }));
  } catch (...) {
    running_ = false;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_->native_handle(), name_);
  owner_ = getpid();
  {
    const std::lock_guard lock(g_started_mutex);
    started().push_back(this);
  }
  static const int registered = std::atexit(stop_all);
  static_cast<void>(registered);
  if (on_start_ != nullptr) on_start_();
}

void TickingThread::run() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    for (const auto& tick : ticks_) tick();
    lock.unlock();
    pollfd woken{wake_, POLLIN, 0};
    if (poll(&woken, 1, kBetweenTicksMs) == 1) {
      std::uint64_t times = 0;
      [[maybe_unused]] const ssize_t taken = read(wake_, &times, sizeof times);
    }
    lock.lock();
  }
  running_ = false;
  // What has come since.
  for (const auto& tick : ticks_) tick();
}

TickingThread& liveness_thread() {
  static auto* const thread = new TickingThread("ddl-liveness", stop_liveness_at_mpi_finalize);
  return *thread;
}

}  // namespace ddl
