// ddl-bootstrap: gives the ranks of one host what MPI needs to start, where they were started by something
// that knows no MPI (torchrun). The lowest rank of the host starts it, tells it the job (frames.hpp), and
// carries what it wants to exchange with its like on other hosts. It ends when no rank of this host is left
// to need it.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "frames.hpp"
#include "job.hpp"
#include "server.hpp"

namespace {

using namespace ddl::bootstrap;

constexpr int kLookEveryMs = 200;
constexpr int kRemovals = 5;

/// When a process began, in ticks since the machine did; empty when it has ended. Its number alone may belong
/// to another process later.
std::string start_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return "";
  const std::string rest = text.substr(name_end + 2);
  if (rest[0] == 'Z' || rest[0] == 'X') return "";
  std::size_t from = 0;
  for (int field = 0; field < 19; ++field) from = rest.find(' ', from) + 1;
  return rest.substr(from, rest.find(' ', from) - from);
}

/// The processes of this host's ranks, as they were at the start.
class Ranks {
 public:
  explicit Ranks(const Job& job) : processes_(job.processes) {
    for (const pid_t process : processes_) starts_.push_back(start_of(process));
  }

  bool gone(std::size_t index) const {
    return starts_[index].empty() || start_of(processes_[index]) != starts_[index];
  }
  /// Without the first, the owner: it says so by closing the pipe, and may wait for this process.
  bool others_need_no_server() const {
    for (std::size_t i = 1; i < processes_.size(); ++i) {
      if (!Server::finished(i) && !gone(i)) return false;
    }
    return true;
  }

 private:
  std::vector<pid_t> processes_;
  std::vector<std::string> starts_;
};

void serve(FramePipe& pipe, const Ranks& ranks, pid_t owner) {
  bool connected = true;
  while (connected || !ranks.others_need_no_server()) {
    pollfd input{connected ? pipe.input() : -1, POLLIN, 0};
    if (poll(&input, 1, kLookEveryMs) > 0) {
      if (const auto frame = pipe.read()) {
        Server::complete_exchange(frame->id, frame->kind == FrameKind::kData, frame->bytes);
        continue;
      }
      connected = false;
    }
    // The pipe alone does not tell: processes that the owner forked hold it open.
    if (connected && getppid() != owner) connected = false;
    if (!connected) Server::fail_exchanges();
  }
}

/// Ranks that have taken leave still tidy up in it: removing what has just been removed is an error.
void remove_folder(const std::string& folder) {
  for (int attempt = 0; attempt < kRemovals; ++attempt) {
    std::error_code error;
    std::filesystem::remove_all(folder, error);
    if (!error) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(kLookEveryMs));
  }
}

/// Returns the exit code.
int run(FramePipe& pipe) {
  const pid_t owner = getppid();
  const auto first = pipe.read();
  if (!first || first->kind != FrameKind::kJob) return 2;
  Job job;
  try {
    job = parse_job(first->bytes);
    job.folder = (std::filesystem::temp_directory_path() / "ddl-bootstrap.XXXXXX").string();
    if (mkdtemp(job.folder.data()) == nullptr) {
      pipe.write(
          {FrameKind::kError, 0, "cannot make the folder " + job.folder + ": " + std::strerror(errno)});
      return 1;
    }
  } catch (const std::exception& error) {
    pipe.write({FrameKind::kError, 0, error.what()});
    return 1;
  }
  int code = 0;
  try {
    const Ranks ranks(job);
    Server server(job, pipe);
    if (pipe.write({FrameKind::kReady, 0, nlohmann::json(server.environments()).dump()})) {
      serve(pipe, ranks, owner);
    }
  } catch (const std::exception& error) {
    pipe.write({FrameKind::kError, 0, error.what()});
    code = 1;
  }
  remove_folder(job.folder);
  return code;
}

}  // namespace

int main() {
  if (isatty(STDIN_FILENO) != 0) {
    std::fprintf(stderr,
                 "ddl-bootstrap is started by `import ddl` under torchrun; it is of no use by hand\n");
    return 2;
  }
  // Signals to the process group mean the ranks. This process ends after them: one that has lost its server
  // would complain about that and not about what ended it.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) std::signal(signal, SIG_IGN);
  FramePipe pipe(STDIN_FILENO, STDOUT_FILENO);
  return run(pipe);
}
