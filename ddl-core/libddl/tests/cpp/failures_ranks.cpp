// One rank fails within a call: each allocation of it in turn. All ranks get one error, which names it.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "ddl.hpp"
#include "group_calls.hpp"

namespace {

/// Which allocation fails while something lives; 0: none does.
long wanted = 0;
std::atomic<long> fails_at{0};
std::atomic<long> allocations{0};

/// Its ticks serve every call, and are no part of any.
bool on_liveness_thread() {
  thread_local int known = -1;
  if (known < 0) {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    known = std::strcmp(name, "ddl-liveness") == 0 ? 1 : 0;
  }
  return known == 1;
}

void* allocate(std::size_t bytes) {
  const long at = fails_at.load(std::memory_order_relaxed);
  if (at > 0 && !on_liveness_thread() && ++allocations == at) throw std::bad_alloc();
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// libddl.so's are these, too.
void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

struct Failing {
  Failing() {
    allocations = 0;
    fails_at = wanted;
  }
  ~Failing() { fails_at = 0; }
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;
};

int get(int (*what)(int*)) {
  int value = -1;
  EXPECT_EQ(what(&value), DDL_SUCCESS) << ddl_last_error();
  return value;
}

/// Groups of several hosts take a while to make: there not every allocation has its turn.
long stride() {
  const char* const text = std::getenv("FAILURES_STRIDE");
  return text == nullptr ? 1 : std::atol(text);
}

/// Of all ranks, by the world, which goes on when a group has failed.
double over_all(double value, DDL_Op op) {
  EXPECT_EQ(ddl_allreduce(&value, 1, DDL_TYPE_DOUBLE, op), DDL_SUCCESS) << ddl_last_error();
  return value;
}

double number_of(const std::string& text) {
  return static_cast<double>(std::hash<std::string>{}(text) % (std::size_t{1} << 50));
}

/// A call in a group of all ranks, in another order than the world's, so that it has a communicator of its
/// own.
struct Case {
  const char* name;
  std::function<int(DDL_Group, std::vector<float>&)> call;
  std::size_t elements;
};

const std::vector<Case>& cases() {
  static const auto allreduce = [](DDL_Group group, std::vector<float>& data) {
    void* buffers[] = {data.data(), data.data() + data.size() / 2};
    const std::size_t counts[] = {data.size() / 2, data.size() - data.size() / 2};
    const Failing here;
    return group_calls::buffers_in(group, DDL_ALLREDUCE, buffers, counts, 2, DDL_TYPE_FLOAT, DDL_OP_SUM, 0,
                                   "weights\nbias");
  };
  static const std::vector<Case> all = {
      {"small allreduce", allreduce, 10},
      {"large allreduce", allreduce, 400'000},
      {"broadcast",
       [](DDL_Group group, std::vector<float>& data) {
         void* buffer = data.data();
         const std::size_t count = data.size();
         const Failing here;
         return group_calls::buffers_in(group, DDL_BROADCAST, &buffer, &count, 1, DDL_TYPE_FLOAT, DDL_OP_SUM,
                                        0);
       },
       100'000},
      {"all_gather",
       [](DDL_Group group, std::vector<float>& data) {
         std::vector<float> out(data.size() * static_cast<std::size_t>(get(ddl_size)));
         const Failing here;
         return group_calls::blocks_in(group, DDL_ALL_GATHER, data.data(), out.data(), data.size(),
                                       DDL_TYPE_FLOAT);
       },
       5'000},
      {"exchange",
       [](DDL_Group group, std::vector<float>& data) {
         const auto ranks = static_cast<std::size_t>(get(ddl_size));
         std::vector<float> out(data.size());
         std::vector<const void*> from(ranks, data.data());
         std::vector<void*> to;
         for (std::size_t i = 0; i < ranks; ++i) to.push_back(out.data() + i * (data.size() / ranks));
         const std::vector<std::size_t> bytes(ranks, data.size() / ranks * sizeof(float));
         const Failing here;
         return ddl_group_exchange(group, from.data(), bytes.data(), to.data(), bytes.data(), nullptr);
       },
       6'000},
  };
  return all;
}

class AllocationFailure : public testing::TestWithParam<std::size_t> {};

TEST_P(AllocationFailure, IsTheErrorOfAllRanks) {
  const Case& tried = cases()[GetParam()];
  const int rank = get(ddl_rank), size = get(ddl_size);
  const int victim = size - 1;
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.rbegin(), ranks.rend(), 0);
  const std::string named = "rank " + std::to_string(size - 1 - victim) + " (";
  int failures = 0;
  for (long at = 1;; at += stride()) {
    DDL_Group group = 0;
    ASSERT_EQ(ddl_group_create(ranks.data(), ranks.size(), 0, &group), DDL_SUCCESS) << ddl_last_error();
    std::vector<float> data(tried.elements, 1.0F);
    wanted = rank == victim ? at : 0;
    const int code = tried.call(group, data);
    const std::string text = ddl_last_error();
    // Where the call was over for the others, it is the next one's.
    const int next = group_calls::barrier_in(group);
    const std::string error = ddl_last_error();
    const bool failed = over_all(next == DDL_SUCCESS ? 0 : 1, DDL_OP_MAX) > 0;
    const bool reached = over_all(rank == victim && allocations.load() >= at ? 1 : 0, DDL_OP_MAX) > 0;
    const std::string what = std::string(tried.name) + ", allocation " + std::to_string(at);
    if (failed) {
      ++failures;
      EXPECT_EQ(next, DDL_ERR_MEMORY) << what << ": " << error;
      EXPECT_NE(error.find(named), std::string::npos) << what << ": " << error;
      EXPECT_NE(error.find("out of memory"), std::string::npos) << what << ": " << error;
      EXPECT_EQ(over_all(number_of(error), DDL_OP_MAX), over_all(number_of(error), DDL_OP_MIN))
          << what << ": " << error;
      if (code != DDL_SUCCESS) {
        EXPECT_EQ(text, error) << what;
      }
    } else {
      EXPECT_EQ(code, DDL_SUCCESS) << what << ": " << text;
    }
    EXPECT_EQ(ddl_group_free(group), DDL_SUCCESS) << ddl_last_error();
    if (!reached) {
      if (rank == 0) std::printf("%s: %ld allocations\n", tried.name, at - 1);
      break;
    }
  }
  EXPECT_GT(failures, 0) << tried.name;
}

INSTANTIATE_TEST_SUITE_P(Calls, AllocationFailure, testing::Range(std::size_t{0}, std::size_t{5}));

/// A started call: its parts are made on the caller's thread and on DDL's.
TEST(AllocationFailureOfTheWorld, OfAStartedCallIsTheErrorOfAllRanks) {
  const int rank = get(ddl_rank);
  // Before anything is submitted, and of a call that all others submit: the last test, as the world is done
  // for.
  std::vector<float> data(1000, 1.0F);
  void* buffer = data.data();
  const std::size_t count = data.size();
  DDL_Handle handle = 0;
  wanted = rank == 0 ? 2 : 0;
  int code = DDL_SUCCESS;
  {
    const Failing here;
    code = ddl_allreduce_start(&buffer, &count, 1, DDL_TYPE_FLOAT, DDL_OP_SUM, "x", 0, &handle);
  }
  if (code == DDL_SUCCESS) code = ddl_wait(handle);
  EXPECT_EQ(code, DDL_ERR_MEMORY) << ddl_last_error();
  EXPECT_NE(std::string(ddl_last_error()).find("out of memory; on rank 0 ("), std::string::npos)
      << ddl_last_error();
}

/// There is no room for the stack of DDL's thread, which makes started calls: in a run of its own, too.
TEST(ThreadFailureOfTheWorld, IsTheErrorOfAllRanks) {
  const bool victim = get(ddl_rank) == 0;
  // Stacks of threads that have ended would be used again.
  std::mutex open;
  std::vector<std::thread> others;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::vector<float> data(1000, 1.0F);
  void* buffer = data.data();
  const std::size_t count = data.size();
  DDL_Handle handle = 0;
  int code = DDL_SUCCESS;
  {
    const std::lock_guard<std::mutex> closed(open);
    for (int i = 0; i < 16; ++i) {
      others.emplace_back([&open] { const std::lock_guard<std::mutex> wait(open); });
    }
    if (victim) {
      std::ifstream statm("/proc/self/statm");
      rlim_t pages = 0;
      ASSERT_TRUE(statm >> pages);
      const rlimit limit{pages * static_cast<rlim_t>(getpagesize()) + (rlim_t{1} << 20), before.rlim_max};
      ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    }
    code = ddl_allreduce_start(&buffer, &count, 1, DDL_TYPE_FLOAT, DDL_OP_SUM, "x", 0, &handle);
    setrlimit(RLIMIT_AS, &before);
  }
  for (std::thread& other : others) other.join();
  if (code == DDL_SUCCESS) code = ddl_wait(handle);
  EXPECT_EQ(code, DDL_ERR_MEMORY) << ddl_last_error();
  const std::string error = ddl_last_error();
  EXPECT_NE(error.find("cannot start a thread: "), std::string::npos) << error;
  EXPECT_NE(error.find("; on rank 0 ("), std::string::npos) << error;
  EXPECT_NE(error.find("(ulimit -u) or of address space (ulimit -v)"), std::string::npos) << error;
}

}  // namespace
