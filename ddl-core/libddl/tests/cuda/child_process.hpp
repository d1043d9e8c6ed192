#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

/// Processes for tests of libraries that read their environment once, and that do not survive a fork.
namespace child_process {

using Environment = std::map<std::string, std::string>;

/// Runs the body in a process of its own, which has failed if one of its expectations has.
inline pid_t start(const Environment& environment, const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t process = fork();
  if (process != 0) return process;
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  body();
  std::exit(testing::Test::HasFailure() ? 1 : 0);
}

/// Its exit status; -1 if it is not done after that many seconds (it is killed), or ended by a signal.
inline int finish(pid_t process, double seconds = 60) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int status = 0;
  while (waitpid(process, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > limit) {
      kill(process, SIGKILL);
      waitpid(process, &status, 0);
      ADD_FAILURE() << "a process has not ended within " << seconds << " s";
      return -1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

inline int run(const Environment& environment, const std::function<void()>& body) {
  return finish(start(environment, body));
}

/// Polls until it holds: false after some seconds.
template <class Condition>
bool eventually(Condition condition, double seconds = 20) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

}  // namespace child_process
