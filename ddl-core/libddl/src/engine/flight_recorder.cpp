#include "engine/flight_recorder.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/call_validation.hpp"
#include "support/error.hpp"
#include "support/json.hpp"
#include "support/types.hpp"

namespace ddl {
namespace {

constexpr std::chrono::seconds kFirstPause{5};

/// The process whose thread looks for `g_terminated`, 0 for none, and that thread.
std::atomic<pid_t> g_watching = 0;
std::atomic<TickingThread*> g_thread = nullptr;
std::atomic<bool> g_terminated = false;

/// Leaves the rest to the thread, which then ends the process; a forked copy has no such thread. Does
/// nothing but what is safe in a signal handler.
extern "C" void on_sigterm(int number) {
  TickingThread* const thread = g_thread.load();
  if (thread != nullptr && thread->running() && g_watching.load() == getpid() &&
      !g_terminated.exchange(true)) {
    thread->wake();
    return;
  }
  signal(number, SIG_DFL);
  raise(number);
}

/// "0-3,6"
std::string ranges(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(ranks[i]);
    if (last > i) text += '-' + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string seconds(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6f", value);
  return text;
}

[[noreturn]] void refuse(const std::string& path, int error) {
  throw Error(DDL_ERR_ARGUMENT, "the flight record cannot be written: " + std::string(std::strerror(error)),
              "in " + path, "name a file in a folder that exists and has room");
}

void write_file(const std::string& path, const std::string& text) {
  const std::string part = path + ".part" + std::to_string(getpid());
  // Not through a link that somebody else has put there.
  unlink(part.c_str());
  const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) refuse(path, errno);
  const char* from = text.data();
  std::size_t left = text.size();
  int error = 0;
  while (left > 0 && error == 0) {
    const ssize_t done = ::write(file, from, left);
    if (done < 0) {
      if (errno != EINTR) error = errno;
    } else {
      from += done;
      left -= static_cast<std::size_t>(done);
    }
  }
  if (close(file) != 0 && error == 0) error = errno;
  if (error == 0 && rename(part.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  unlink(part.c_str());
  refuse(path, error);
}

/// Makes the folder for this user alone, where it is not there; one of somebody else, or a link, is refused.
void make_folder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) == 0) return;
  const int error = errno;
  struct stat found {};
  if (error != EEXIST) refuse(folder, error);
  if (stat(folder.c_str(), &found) != 0) refuse(folder, errno);
  if (!S_ISDIR(found.st_mode)) refuse(folder, ENOTDIR);
  if (found.st_uid != geteuid()) refuse(folder, EACCES);
}

}  // namespace

FlightRecorder& FlightRecorder::instance() {
  static auto* const recorder = new FlightRecorder;
  return *recorder;
}

void FlightRecorder::configure(const char* folder, int rank, int size) {
  {
    const std::lock_guard one(writing_);
    const std::lock_guard lock(mutex_);
    folder_ = folder == nullptr ? "" : folder;
    rank_ = rank;
    size_ = size;
    last_change_ = Clock::now();
    next_pause_ = kFirstPause;
    active_ = !folder_.empty();
  }
  if (!active_) return;
  if (thread_ == nullptr) {
    auto thread = std::make_unique<TickingThread>("ddl-recorder", nullptr);
    thread->add([this] { tick(); });
    thread_ = thread.release();
    g_thread = thread_;
  }
  static const int registered = std::atexit([] { instance().at_exit(); });
  static_cast<void>(registered);
  watch_termination();
}

std::uint64_t FlightRecorder::add_communicator(std::vector<int> ranks) {
  const std::lock_guard lock(mutex_);
  forget_communicators();
  Communicator made;
  made.ranks = ranges(std::move(ranks));
  made.instance = ++instances_[made.ranks];
  communicators_.emplace(++last_communicator_, std::move(made));
  return last_communicator_;
}

void FlightRecorder::remove_communicator(std::uint64_t communicator) {
  const std::lock_guard lock(mutex_);
  const auto found = communicators_.find(communicator);
  if (found != communicators_.end()) found->second.gone = true;
}

std::uint64_t FlightRecorder::begin_forming(std::vector<int> ranks) {
  CallHeader header;
  header.kind = CallKind::kForm;
  header.buffers = 1;
  const std::lock_guard lock(mutex_);
  forget_communicators();
  Communicator forming;
  forming.ranks = ranges(std::move(ranks));
  const auto before = instances_.find(forming.ranks);
  forming.instance = before == instances_.end() ? 1 : before->second + 1;
  forming.gone = true;  // nobody takes it away: it stays as long as its call
  communicators_.emplace(++last_communicator_, std::move(forming));
  return begin_locked(last_communicator_, header, Clock::now());
}

void FlightRecorder::forget_communicators() {
  std::erase_if(communicators_, [this](const auto& entry) {
    return entry.second.gone && std::none_of(calls_.begin(), calls_.end(), [&](const Call& call) {
             return call.communicator == entry.first;
           });
  });
}

std::uint64_t FlightRecorder::begin(std::uint64_t communicator, const CallHeader& header,
                                    Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  return begin_locked(communicator, header, now);
}

std::uint64_t FlightRecorder::begin_locked(std::uint64_t communicator, const CallHeader& header,
                                           Clock::time_point now) {
  Call& call = calls_[++last_ % kCalls];
  call.number = last_;
  call.communicator = communicator;
  call.header = header;
  call.state = State::kRunning;
  call.began = now;
  last_change_ = now;
  next_pause_ = kFirstPause;
  return last_;
}

void FlightRecorder::end(std::uint64_t number, bool failed, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Call& call = calls_[number % kCalls];
  if (call.number != number) return;
  call.state = failed ? State::kFailed : State::kDone;
  call.ended = now;
  last_change_ = now;
  next_pause_ = kFirstPause;
}

std::string FlightRecorder::to_json(const std::string& reason) const {
  const auto steady = Clock::now();
  const double unix_now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const auto unix_time = [&](Clock::time_point at) {
    return seconds(unix_now - std::chrono::duration<double>(steady - at).count());
  };
  char host[256] = {};
  gethostname(host, sizeof host - 1);

  const std::lock_guard lock(mutex_);
  std::string out = "{\"format\":1,\"rank\":" + std::to_string(rank_) + ",\"size\":" + std::to_string(size_) +
                    ",\"host\":" + json_string(host) + ",\"pid\":" + std::to_string(getpid()) +
                    ",\"written\":" + seconds(unix_now) + ",\"reason\":" + json_string(reason) +
                    ",\"communicators\":{";
  bool first = true;
  for (const auto& [number, communicator] : communicators_) {
    out += (first ? "\"" : ",\"") + std::to_string(number) + "\":{\"ranks\":\"" + communicator.ranks +
           "\",\"instance\":" + std::to_string(communicator.instance) + "}";
    first = false;
  }
  out += "},\"calls\":[";
  first = true;
  const std::uint64_t oldest = last_ > kCalls ? last_ - kCalls + 1 : 1;
  for (std::uint64_t number = oldest; number <= last_; ++number) {
    const Call& call = calls_[number % kCalls];
    const CallHeader& header = call.header;
    const std::size_t width =
        header.kind == CallKind::kAllToAllv ? 0 : size_of(static_cast<DDL_Type>(header.type));
    out += std::string(first ? "" : ",") + "\n{\"communicator\":" + std::to_string(call.communicator) +
           ",\"number\":" + std::to_string(header.sequence) + ",\"kind\":\"" + name_of(header.kind) +
           "\",\"call\":" + json_string(describe_call(header)) +
           ",\"bytes\":" + std::to_string(header.count * width) + ",\"name\":" + json_string(header.name) +
           ",\"state\":\"" +
           (call.state == State::kRunning ? "running"
            : call.state == State::kDone  ? "done"
                                          : "failed") +
           "\",\"began\":" + unix_time(call.began) +
           ",\"ended\":" + (call.state == State::kRunning ? "null" : unix_time(call.ended)) + "}";
    first = false;
  }
  return out + "]}\n";
}

void FlightRecorder::write(const std::string& path, const std::string& reason) const {
  const std::lock_guard one(writing_);
  write_file(path, to_json(reason));
}

void FlightRecorder::note_failure(const std::string& reason, bool replace) {
  const std::lock_guard one(writing_);
  if (!active_ || (written_ && !replace)) return;
  written_ = true;
  try_to_write(reason);
}

std::string FlightRecorder::path() const { return folder_ + "/rank-" + std::to_string(rank_) + ".json"; }

void FlightRecorder::try_to_write(const std::string& reason) {
  try {
    make_folder(folder_);
    write_file(path(), to_json(reason));
  } catch (const std::exception& error) {
    // A record that is missing must not hide the failure that it is about.
    if (!warned_) std::fprintf(stderr, "[WARN DDL-1-1] %s\n", error.what());
    warned_ = true;
  }
}

void FlightRecorder::watch_termination() {
  struct sigaction found {};
  // A program that handles the signal ends in its own way.
  if (sigaction(SIGTERM, nullptr, &found) != 0 || (found.sa_flags & SA_SIGINFO) != 0) return;
  if (found.sa_handler != SIG_DFL && found.sa_handler != on_sigterm) return;
  struct sigaction ours {};
  ours.sa_handler = on_sigterm;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  g_watching = getpid();
  sigaction(SIGTERM, &ours, nullptr);
}

bool FlightRecorder::paused() {
  const std::lock_guard lock(mutex_);
  if (Clock::now() - last_change_ < next_pause_) return false;
  next_pause_ *= 2;
  return true;
}

void FlightRecorder::tick() {
  if (!g_terminated.load() || g_watching.load() != getpid()) {
    if (!paused()) return;
    const std::lock_guard one(writing_);
    if (!active_ || written_) return;
    provisional_ = true;
    try_to_write("no call has begun or ended for a while");
    return;
  }
  note_failure("ended by SIGTERM", false);
  signal(SIGTERM, SIG_DFL);
  kill(getpid(), SIGTERM);
}

void FlightRecorder::stop() {
  g_watching = 0;
  const std::lock_guard one(writing_);
  active_ = false;
  if (!provisional_ || written_) return;
  unlink(path().c_str());
  rmdir(folder_.c_str());  // by the last one
  provisional_ = false;
}

void FlightRecorder::at_exit() {
  // From now on no thread looks for the signal.
  const bool ours = g_watching.exchange(0) == getpid();
  if (ours) note_failure("the process exits without ddl_finalize", false);
}

}  // namespace ddl
