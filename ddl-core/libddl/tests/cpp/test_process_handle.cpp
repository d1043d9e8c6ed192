#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <thread>

#include "support/process_handle.hpp"

namespace ddl {
namespace {

std::ptrdiff_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST(ProcessHandle, IsOneForAllThatAsk) {
  const auto before = descriptors();
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  auto handle = ProcessHandle::of(child);
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(ProcessHandle::of(child), handle);
  EXPECT_EQ(descriptors(), before + 1);
  EXPECT_FALSE(handle->ended());
  EXPECT_FALSE(ProcessHandle::of(getpid())->ended());

  kill(child, SIGKILL);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!handle->ended() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(handle->ended());
  waitpid(child, nullptr, 0);
  // The number is free; who is asked for now would be another process.
  EXPECT_EQ(ProcessHandle::of(child), nullptr);
  EXPECT_TRUE(handle->ended());
  handle.reset();
  EXPECT_EQ(descriptors(), before);
}

}  // namespace
}  // namespace ddl
