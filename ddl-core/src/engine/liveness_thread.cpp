#include "engine/liveness_thread.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "transport/mpi_transport.hpp"

namespace ddl {
namespace {

constexpr std::chrono::milliseconds kBetweenTicks{100};

class Service {
 public:
  /// Never destroyed, as threads may still call in while the process exits.
  static Service& instance() {
    static auto* const service = new Service;
    return *service;
  }

  LivenessThread::Handle add(std::function<void()> tick) {
    const std::lock_guard lock(mutex_);
    const auto handle = ticks_.insert(ticks_.end(), std::move(tick));
    if (!thread_ && !over_) start();
    return handle;
  }

  void remove(LivenessThread::Handle handle) {
    const std::lock_guard lock(mutex_);
    ticks_.erase(handle);
  }

  void stop() {
    std::unique_ptr<std::thread> ended;
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      ended = std::move(thread_);
    }
    wake_.notify_all();
    if (ended) ended->join();
  }

 private:
  void start() {
    // Signals are for the program's threads.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::make_unique<std::thread>([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread_->native_handle(), "ddl-liveness");
    owner_ = getpid();
    std::atexit([] {
      Service& service = instance();
      if (service.owner_ == getpid()) service.stop();
    });
    stop_at_mpi_finalize();
  }

  /// MPI deletes the attributes of MPI_COMM_SELF before it does anything else in MPI_Finalize
  /// (MPI 4.1, 11.2.4).
  static void stop_at_mpi_finalize() {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0) return;
    int key = MPI_KEYVAL_INVALID;
    const auto ended = [](MPI_Comm, int, void*, void*) {
      Service& service = instance();
      if (service.owner_ == getpid()) service.stop();
      return MPI_SUCCESS;
    };
    check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, ended, &key, nullptr), "MPI_Comm_create_keyval");
    check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      for (const auto& tick : ticks_) tick();
      wake_.wait_for(lock, kBetweenTicks, [this] { return over_; });
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<std::function<void()>> ticks_;
  bool over_ = false;
  pid_t owner_ = 0;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace

LivenessThread::Handle LivenessThread::add(std::function<void()> tick) {
  return Service::instance().add(std::move(tick));
}

void LivenessThread::remove(Handle handle) { Service::instance().remove(handle); }

}  // namespace ddl
