// Several threads of every rank call at once. All make the same call, so that any order is the same on all
// ranks.
#include <gtest/gtest.h>

#include <atomic>
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
