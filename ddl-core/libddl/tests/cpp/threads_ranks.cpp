// Several threads of every rank call at once. All make the same call, so that any order is the same on all
// ranks.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "ddl.hpp"

namespace {

TEST(Threads, CallsAreSerialised) {
  int size = 0;
  ASSERT_EQ(ddl_size(&size), DDL_SUCCESS);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::vector<float> data(3001);
      for (int i = 0; i < 40; ++i) {
        std::fill(data.begin(), data.end(), 1.0F);
        if (ddl_allreduce(data.data(), data.size()) != DDL_SUCCESS) ++wrong;
        for (const float value : data) wrong += value != static_cast<float>(size) ? 1 : 0;
        int rank = -1;
        if (ddl_rank(&rank) != DDL_SUCCESS) ++wrong;
        size_t needed = 0;
        if (ddl_describe(nullptr, 0, &needed) != DDL_SUCCESS) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Threads, CallsGoOnWhileAnotherLoadsALibrary) {
  int begun[2];
  int end[2];
  ASSERT_EQ(pipe(begun), 0);
  ASSERT_EQ(pipe(end), 0);
  setenv("DDL_SLOW_BEGUN", std::to_string(begun[1]).c_str(), 1);
  setenv("DDL_SLOW_END", std::to_string(end[0]).c_str(), 1);
  void* library = nullptr;
  std::thread loading([&] { library = dlopen(DDL_SLOW_LIBRARY, RTLD_NOW); });
  char byte = 0;
  ASSERT_EQ(read(begun[0], &byte, 1), 1);
  // The loader's lock is held now, until the library is initialised.
  for (int i = 0; i < 3; ++i) {
    std::vector<float> data(100, 1.0F);
    EXPECT_EQ(ddl_allreduce(data.data(), data.size()), DDL_SUCCESS) << ddl_last_error();
  }
  ASSERT_EQ(write(end[1], &byte, 1), 1);
  loading.join();
  ASSERT_NE(library, nullptr) << dlerror();
  const auto told = reinterpret_cast<int (*)()>(dlsym(library, "slow_library_told"));
  ASSERT_NE(told, nullptr) << dlerror();
  EXPECT_EQ(told(), 1) << "the calls waited for the library";
  dlclose(library);
  for (const int file : {begun[0], begun[1], end[0], end[1]}) close(file);
}

TEST(Threads, WhoWaitsForItsHostSleeps) {
  int local_rank = 0;
  int host = 0;
  ASSERT_EQ(ddl_local_rank(&local_rank), DDL_SUCCESS);
  ASSERT_EQ(ddl_host_index(&host), DDL_SUCCESS);
  std::vector<float> data(100, 1.0F);
  // Connections are made, and plans.
  ASSERT_EQ(ddl_allreduce(data.data(), data.size()), DDL_SUCCESS);
  if (host == 0 && local_rank == 0) std::this_thread::sleep_for(std::chrono::seconds(2));
  const auto switches = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  };
  const long before = switches();
  ASSERT_EQ(ddl_allreduce(data.data(), data.size()), DDL_SUCCESS);
  // It looks for ended ranks about fifty times a second; whoever asked for messages would be some thousand
  // times.
  if (host == 0 && local_rank != 0) {
    EXPECT_LT(switches() - before, 400);
  }
}

TEST(Threads, HaveTheirOwnErrors) {
  std::thread other([] {
    EXPECT_EQ(ddl_allreduce(nullptr, 1), DDL_ERR_ARGUMENT);
    EXPECT_STRNE(ddl_last_error(), "");
  });
  other.join();
  int rank = -1;
  ASSERT_EQ(ddl_rank(&rank), DDL_SUCCESS);
  EXPECT_STREQ(ddl_last_error(), "");
}

}  // namespace
