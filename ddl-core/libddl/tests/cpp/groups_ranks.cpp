// ddl_group_*: some ranks among themselves, in any order, several groups at once; and messages.
#include <gtest/gtest.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "ddl.hpp"
#include "group_calls.hpp"

namespace {

int world_rank() {
  int rank = -1;
  EXPECT_EQ(ddl_rank(&rank), DDL_SUCCESS);
  return rank;
}

int world_size() {
  int size = 0;
  EXPECT_EQ(ddl_size(&size), DDL_SUCCESS);
  return size;
}

/// Every rank's contribution to element i: small integers, so that sums are exact in any order.
double value(int rank, size_t i) { return static_cast<double>((static_cast<size_t>(rank) * 7 + i * 3) % 11); }

/// 1, 2, 3, 4 and 5 as DDL_TYPE_HALF.
constexpr std::uint16_t kHalves[] = {0x3c00, 0x4000, 0x4200, 0x4400, 0x4500};

/// A group, and what this rank is in it.
struct Group {
  explicit Group(const std::vector<int>& of) : ranks(of) {
    EXPECT_EQ(ddl_group_create(ranks.data(), ranks.size(), 0, &handle), DDL_SUCCESS) << ddl_last_error();
    me = static_cast<int>(std::find(ranks.begin(), ranks.end(), world_rank()) - ranks.begin());
  }
  ~Group() { EXPECT_EQ(ddl_group_free(handle), DDL_SUCCESS) << ddl_last_error(); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int size() const { return static_cast<int>(ranks.size()); }
  double sum(size_t i) const {
    return std::accumulate(ranks.begin(), ranks.end(), 0.0,
                           [i](double so_far, int rank) { return so_far + value(rank, i); });
  }

  std::vector<int> ranks;
  DDL_Group handle = 0;
  int me = 0;
};

std::vector<int> everyone_backwards() {
  std::vector<int> ranks(static_cast<size_t>(world_size()));
  std::iota(ranks.rbegin(), ranks.rend(), 0);
  return ranks;
}

/// Even or odd ranks: those that this rank is one of.
std::vector<int> every_other() {
  std::vector<int> ranks;
  for (int rank = world_rank() % 2; rank < world_size(); rank += 2) ranks.push_back(rank);
  return ranks;
}

std::vector<double> own(size_t count) {
  std::vector<double> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = value(world_rank(), i);
  return data;
}

void reduce_in(const Group& group, size_t count) {
  std::vector<double> one = own(count);
  std::vector<double> two = own(count / 2);
  void* bufs[] = {one.data(), two.data()};
  const size_t counts[] = {one.size(), two.size()};
  ASSERT_EQ(
      group_calls::buffers_in(group.handle, DDL_ALLREDUCE, bufs, counts, 2, DDL_TYPE_DOUBLE, DDL_OP_SUM),
      DDL_SUCCESS)
      << ddl_last_error();
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(one[i], group.sum(i)) << i;
  for (size_t i = 0; i < count / 2; ++i) ASSERT_EQ(two[i], group.sum(i)) << i;
}

TEST(Groups, EveryCollective) {
  for (const auto& ranks : {everyone_backwards(), every_other()}) {
    const Group group(ranks);
    const size_t n = ranks.size();
    const size_t count = 1003;
    reduce_in(group, 50'001);
    const int root = group.size() - 1;

    std::vector<double> data = own(count);
    void* bufs[] = {data.data()};
    ASSERT_EQ(group_calls::buffers_in(group.handle, DDL_BROADCAST, bufs, &count, 1, DDL_TYPE_DOUBLE,
                                      DDL_OP_SUM, root),
              DDL_SUCCESS)
        << ddl_last_error();
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], value(ranks.back(), i));

    data = own(count);
    bufs[0] = data.data();
    ASSERT_EQ(
        group_calls::buffers_in(group.handle, DDL_REDUCE, bufs, &count, 1, DDL_TYPE_DOUBLE, DDL_OP_SUM, root),
        DDL_SUCCESS)
        << ddl_last_error();
    for (size_t i = 0; group.me == root && i < count; ++i) ASSERT_EQ(data[i], group.sum(i));

    std::vector<double> wide = own(n * count);
    std::vector<double> part(count);
    ASSERT_EQ(group_calls::blocks_in(group.handle, DDL_REDUCE_SCATTER, wide.data(), part.data(), count,
                                     DDL_TYPE_DOUBLE),
              DDL_SUCCESS)
        << ddl_last_error();
    const size_t mine = static_cast<size_t>(group.me) * count;
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(part[i], group.sum(mine + i));

    std::vector<double> all(n * count);
    data = own(count);
    ASSERT_EQ(
        group_calls::blocks_in(group.handle, DDL_ALL_GATHER, data.data(), all.data(), count, DDL_TYPE_DOUBLE),
        DDL_SUCCESS)
        << ddl_last_error();
    for (size_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(all[r * count + i], value(ranks[r], i));
    }

    ASSERT_EQ(
        group_calls::blocks_in(group.handle, DDL_ALL_TO_ALL, wide.data(), all.data(), count, DDL_TYPE_DOUBLE),
        DDL_SUCCESS)
        << ddl_last_error();
    for (size_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(all[r * count + i], value(ranks[r], mine + i));
    }
    ASSERT_EQ(group_calls::barrier_in(group.handle), DDL_SUCCESS) << ddl_last_error();
  }
}

TEST(Groups, BlocksOfAnySize) {
  const Group group(everyone_backwards());
  const auto n = static_cast<size_t>(group.size());
  const auto me = static_cast<size_t>(group.me);
  // Rank a sends rank b a block of a * 1000 + b bytes, all of value a; nothing to itself.
  const auto bytes = [](size_t from, size_t to) { return from == to ? 0 : from * 1000 + to; };
  std::vector<std::vector<unsigned char>> out_blocks(n), in_blocks(n);
  std::vector<const void*> in(n);
  std::vector<void*> out(n);
  std::vector<size_t> in_bytes(n), out_bytes(n);
  for (size_t r = 0; r < n; ++r) {
    in_blocks[r].assign(bytes(me, r), static_cast<unsigned char>(me));
    out_blocks[r].assign(bytes(r, me), 255);
    in[r] = in_blocks[r].data();
    out[r] = out_blocks[r].data();
    in_bytes[r] = in_blocks[r].size();
    out_bytes[r] = out_blocks[r].size();
  }
  ASSERT_EQ(
      ddl_group_exchange(group.handle, in.data(), in_bytes.data(), out.data(), out_bytes.data(), "blocks"),
      DDL_SUCCESS)
      << ddl_last_error();
  for (size_t r = 0; r < n; ++r) {
    for (const unsigned char byte : out_blocks[r]) ASSERT_EQ(byte, r);
  }
}

TEST(Groups, TwoAtOnceInDifferentOrders) {
  const Group all(everyone_backwards());
  const Group some(every_other());
  // Each thread keeps its group's order; between the two there is none.
  std::thread first([&] {
    for (size_t i = 0; i < 20; ++i) reduce_in(all, 1000 + i);
  });
  for (size_t i = 0; i < 20; ++i) reduce_in(some, 2000 - i);
  first.join();
}

/// With -mode m both may be the first to need MPI's operation and type for 16-bit numbers.
TEST(Groups, TwoAtOnceBeginWithTheSameOperation) {
  const Group all(everyone_backwards());
  const Group some(every_other());
  const auto least = [](const Group& group) {
    std::vector<std::uint16_t> data(1000, kHalves[world_rank()]);
    void* bufs[] = {data.data()};
    const size_t counts[] = {data.size()};
    ASSERT_EQ(
        group_calls::buffers_in(group.handle, DDL_ALLREDUCE, bufs, counts, 1, DDL_TYPE_HALF, DDL_OP_MIN),
        DDL_SUCCESS)
        << ddl_last_error();
    const int first = *std::min_element(group.ranks.begin(), group.ranks.end());
    for (const std::uint16_t one : data) ASSERT_EQ(one, kHalves[first]);
  };
  std::thread first([&] { least(all); });
  least(some);
  first.join();
}

TEST(Groups, TheGroupOfAllSharesTheWorldsOrder) {
  DDL_Group group = 0;
  ASSERT_EQ(ddl_group_create(nullptr, 0, 0, &group), DDL_SUCCESS) << ddl_last_error();
  std::vector<float> data(5001, 1.0F);
  for (int i = 0; i < 3; ++i) {
    std::fill(data.begin(), data.end(), 1.0F);
    void* bufs[] = {data.data()};
    const size_t count = data.size();
    ASSERT_EQ(group_calls::buffers_in(group, DDL_ALLREDUCE, bufs, &count, 1, DDL_TYPE_FLOAT, DDL_OP_SUM),
              DDL_SUCCESS)
        << ddl_last_error();
    ASSERT_EQ(ddl_allreduce(data.data(), data.size()), DDL_SUCCESS) << ddl_last_error();
    for (const float one : data) ASSERT_EQ(one, static_cast<float>(world_size() * world_size()));
  }
  EXPECT_EQ(ddl_group_free(group), DDL_SUCCESS);
}

TEST(Groups, MessagesInARing) {
  const Group group(everyone_backwards());
  const int next = (group.me + 1) % group.size();
  const int before = (group.me + group.size() - 1) % group.size();
  if (group.size() == 1) {
    DDL_Handle handle = 0;
    char byte = 0;
    EXPECT_EQ(ddl_group_send_start(group.handle, &byte, 1, 0, 0, &handle), DDL_ERR_ARGUMENT);
    return;
  }
  const auto finish = [&](DDL_Handle handle, int* source) {
    int done = 0;
    while (done == 0)
      ASSERT_EQ(ddl_group_test(group.handle, handle, &done, source), DDL_SUCCESS) << ddl_last_error();
  };
  for (const size_t count : {size_t{1}, size_t{300'000}}) {
    // Two tags, received the other way round; the second from any rank.
    const std::vector<double> low = own(count);
    std::vector<double> high(low);
    for (double& one : high) one += 100;
    DDL_Handle sent[2], received[2];
    const size_t bytes = count * sizeof(double);
    ASSERT_EQ(ddl_group_send_start(group.handle, low.data(), bytes, next, 3, &sent[0]), DDL_SUCCESS);
    ASSERT_EQ(ddl_group_send_start(group.handle, high.data(), bytes, next, 4, &sent[1]), DDL_SUCCESS);
    std::vector<double> got_low(count), got_high(count);
    ASSERT_EQ(ddl_group_receive_start(group.handle, got_high.data(), bytes, before, 4, &received[0]),
              DDL_SUCCESS);
    ASSERT_EQ(ddl_group_receive_start(group.handle, got_low.data(), bytes, -1, 3, &received[1]), DDL_SUCCESS);
    int source = -1;
    finish(received[0], &source);
    EXPECT_EQ(source, before);
    source = -1;
    finish(received[1], &source);
    EXPECT_EQ(source, before);
    finish(sent[0], nullptr);
    finish(sent[1], nullptr);
    const int sender = group.ranks[static_cast<size_t>(before)];
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(got_low[i], value(sender, i));
      ASSERT_EQ(got_high[i], value(sender, i) + 100);
    }
  }
}

TEST(Groups, AMessageThatIsGivenUp) {
  if (world_size() == 1) GTEST_SKIP() << "a group of one has no messages";
  const Group group(everyone_backwards());
  char byte = 0;
  DDL_Handle handle = 0;
  ASSERT_EQ(ddl_group_receive_start(group.handle, &byte, 1, -1, 9, &handle), DDL_SUCCESS);
  int done = 1;
  ASSERT_EQ(ddl_group_test(group.handle, handle, &done, nullptr), DDL_SUCCESS);
  EXPECT_EQ(done, 0);
  ASSERT_EQ(ddl_group_cancel(group.handle, handle), DDL_SUCCESS);
  EXPECT_EQ(ddl_group_test(group.handle, handle, &done, nullptr), DDL_ERR_ARGUMENT);
}

TEST(Groups, ARankThatHasGivenUpIsNotCountedOn) {
  if (world_size() < 2) GTEST_SKIP() << "needs two ranks";
  const int me = world_rank();
  const int both[] = {0, 1};
  DDL_Group group = 0;
  // Rank 1 comes first and gives up; then comes rank 0, for which rank 1's message still lies there.
  if (me == 1) {
    EXPECT_EQ(ddl_group_create(both, 2, 0.3, &group), DDL_ERR_TIMEOUT);
  }
  ASSERT_EQ(ddl_barrier(), DDL_SUCCESS) << ddl_last_error();
  if (me == 0) {
    EXPECT_EQ(ddl_group_create(both, 2, 0.3, &group), DDL_ERR_TIMEOUT);
    EXPECT_NE(std::string(ddl_last_error()).find("rank 1 did not come"), std::string::npos)
        << ddl_last_error();
  }
  ASSERT_EQ(ddl_barrier(), DDL_SUCCESS) << ddl_last_error();
  if (me < 2) {
    // Both at last, in spite of what the others have left.
    const Group together({0, 1});
    double sum = me + 1;
    void* const buffer = &sum;
    const size_t count = 1;
    EXPECT_EQ(group_calls::buffers_in(together.handle, DDL_ALLREDUCE, &buffer, &count, 1, DDL_TYPE_DOUBLE,
                                      DDL_OP_SUM),
              DDL_SUCCESS)
        << ddl_last_error();
    EXPECT_EQ(sum, 3);
  }
}

TEST(Groups, WrongOnesAreRefused) {
  const int me = world_rank();
  const int size = world_size();
  DDL_Group group = 0;
  const auto refused = [&](const std::vector<int>& ranks, double limit, const std::string& words) {
    EXPECT_EQ(ddl_group_create(ranks.data(), ranks.size(), limit, &group), DDL_ERR_ARGUMENT);
    EXPECT_NE(std::string(ddl_last_error()).find(words), std::string::npos) << ddl_last_error();
  };
  refused({me, size}, 0, "is no rank");
  refused({-1, me}, 0, "is no rank");
  refused({me, me}, 0, "twice");
  if (size > 1) refused({(me + 1) % size}, 0, "not in the group");
  refused({me}, -1, "time limit");
  const std::vector<int> alone{me};
  EXPECT_EQ(ddl_group_create(alone.data(), 1, 0, nullptr), DDL_ERR_ARGUMENT);
  EXPECT_EQ(group_calls::barrier_in(987654), DDL_ERR_ARGUMENT);
  EXPECT_EQ(ddl_group_free(987654), DDL_ERR_ARGUMENT);
  EXPECT_EQ(ddl_group_set_timeout(987654, 1), DDL_ERR_ARGUMENT);
  const Group one(alone);
  for (const double limit : {0.0, -1.0, 1e10, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(ddl_group_set_timeout(one.handle, limit), DDL_ERR_ARGUMENT) << limit;
    EXPECT_NE(std::string(ddl_last_error()).find("time limit"), std::string::npos) << ddl_last_error();
  }
  reduce_in(one, 100);
}

TEST(Groups, OneThatIsStillThereAtTheEnd) {
  DDL_Group group = 0;
  const std::vector<int> ranks = everyone_backwards();
  EXPECT_EQ(ddl_group_create(ranks.data(), ranks.size(), 0, &group), DDL_SUCCESS) << ddl_last_error();
}

// One rank, the first or the last one, does not come to the making of a group. In a run of their own, with
// -timeout 4 -late 1.

bool in_run_of_lost_ranks() {
  const char* const options = std::getenv("DDL_OPTIONS");
  return options != nullptr && std::string(options).find("-late 1") != std::string::npos;
}

std::string name_of(int rank) { return "rank " + std::to_string(rank) + " ("; }

void pause_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

std::vector<int> everyone() {
  std::vector<int> ranks = everyone_backwards();
  std::reverse(ranks.begin(), ranks.end());
  return ranks;
}

TEST(LostRanks, OneThatIsLateIsNamedWhileOthersWait) {
  if (!in_run_of_lost_ranks()) GTEST_SKIP() << "needs -late 1 in DDL_OPTIONS";
  for (const int late : {0, world_size() - 1}) {
    for (const bool all : {false, true}) {
      const std::vector<int> ranks = everyone();
      DDL_Group group = 0;
      ASSERT_EQ(ddl_barrier(), DDL_SUCCESS) << ddl_last_error();
      testing::internal::CaptureStderr();
      if (world_rank() == late) pause_for(5);
      EXPECT_EQ(ddl_group_create(ranks.data(), all ? 0 : ranks.size(), 0, &group), DDL_SUCCESS)
          << ddl_last_error();
      const std::string said = testing::internal::GetCapturedStderr();
      if (world_rank() == (late == 0 ? 1 : 0)) {
        EXPECT_NE(said.find(" s for " + name_of(late)), std::string::npos) << said;
        EXPECT_NE(said.find("whose process is alive; in the making of a group"), std::string::npos) << said;
      } else {
        EXPECT_EQ(said, "");
      }
      EXPECT_EQ(ddl_group_free(group), DDL_SUCCESS) << ddl_last_error();
    }
  }
}

TEST(LostRanks, OneThatIsStoppedIsNamedAfterTheTimeout) {
  if (!in_run_of_lost_ranks()) GTEST_SKIP() << "needs -late 1 in DDL_OPTIONS";
  for (const int stopped : {0, world_size() - 1}) {
    for (const double limit_s : {2.0, 1000.0}) {
      const std::vector<int> ranks = everyone();
      DDL_Group group = 0;
      ASSERT_EQ(ddl_barrier(), DDL_SUCCESS) << ddl_last_error();
      const auto began = std::chrono::steady_clock::now();
      if (world_rank() == stopped) {
        const pid_t self = getpid();
        const pid_t child = fork();
        if (child == 0) {
          sleep(12);
          kill(self, SIGCONT);
          _exit(0);
        }
        raise(SIGSTOP);
      } else {
        EXPECT_EQ(ddl_group_create(ranks.data(), ranks.size(), limit_s, &group), DDL_ERR_TIMEOUT);
        const std::string error = ddl_last_error();
        EXPECT_NE(error.find(name_of(stopped)), std::string::npos) << error;
        EXPECT_NE(error.find("does not answer; in the making of a group; stopped, dead or unreachable"),
                  std::string::npos)
            << error;
        EXPECT_EQ(error.find("allow more time"), std::string::npos) << error;
        std::this_thread::sleep_until(began + std::chrono::seconds(10));
      }
      ASSERT_EQ(ddl_barrier(), DDL_SUCCESS) << ddl_last_error();
    }
  }
}

// One rank is in a call of the world, and the others make a group with it. In a run of their own, as the
// world is done for.

bool in_run_of_other_calls() {
  const char* const options = std::getenv("DDL_OPTIONS");
  return options != nullptr && std::string(options).find("-patience 60") != std::string::npos;
}

int sum_of_all(float& number) {
  void* buffer = &number;
  const std::size_t count = 1;
  return ddl_allreduce_n(&buffer, &count, 1, DDL_TYPE_FLOAT, DDL_OP_SUM, "loss");
}

/// Longer than the first look at the others takes.
constexpr double kSeveralLooks_s = 8;

TEST(OtherCalls, OnesThatWereStartedAreWaitedFor) {
  if (!in_run_of_other_calls()) GTEST_SKIP() << "needs -patience 60 in DDL_OPTIONS";
  ASSERT_EQ(ddl_barrier(), DDL_SUCCESS) << ddl_last_error();
  float number = 1;
  const bool starts = world_rank() != world_size() - 1;
  DDL_Handle handle = 0;
  if (starts) {
    void* buffer = &number;
    const std::size_t count = 1;
    ASSERT_EQ(ddl_allreduce_start(&buffer, &count, 1, DDL_TYPE_FLOAT, DDL_OP_SUM, "loss", 0, &handle),
              DDL_SUCCESS)
        << ddl_last_error();
  } else {
    pause_for(1);
    ASSERT_EQ(sum_of_all(number), DDL_SUCCESS) << ddl_last_error();
    pause_for(kSeveralLooks_s);
  }
  { const Group group(everyone()); }
  if (starts) {
    ASSERT_EQ(ddl_wait(handle), DDL_SUCCESS) << ddl_last_error();
  }
  EXPECT_EQ(number, static_cast<float>(world_size()));
}

/// In a run of its own, as from now on several threads make calls.
TEST(OtherThreads, MayYetMakeTheCallThatARankWaitsIn) {
  if (!in_run_of_other_calls()) GTEST_SKIP() << "needs -patience 60 in DDL_OPTIONS";
  std::thread([&] { EXPECT_EQ(ddl_barrier(), DDL_SUCCESS) << ddl_last_error(); }).join();
  float number = 1;
  if (world_rank() == world_size() - 1) {
    ASSERT_EQ(sum_of_all(number), DDL_SUCCESS) << ddl_last_error();
    const Group group(everyone());
  } else {
    std::thread later([&] {
      pause_for(kSeveralLooks_s);
      EXPECT_EQ(sum_of_all(number), DDL_SUCCESS) << ddl_last_error();
    });
    { const Group group(everyone()); }
    later.join();
  }
  EXPECT_EQ(number, static_cast<float>(world_size()));
}

TEST(OtherCalls, OneThatCannotEndIsAnErrorOfAll) {
  if (!in_run_of_other_calls()) GTEST_SKIP() << "needs -patience 60 in DDL_OPTIONS";
  const int last = world_size() - 1;
  if (world_rank() == last) {
    float number = 1;
    EXPECT_EQ(sum_of_all(number), DDL_ERR_MISMATCH);
  } else {
    DDL_Group group = 0;
    const std::vector<int> ranks = everyone();
    EXPECT_EQ(ddl_group_create(ranks.data(), ranks.size(), 0, &group), DDL_ERR_MISMATCH);
  }
  const std::string error = ddl_last_error();
  EXPECT_NE(error.find(name_of(last)), std::string::npos) << error;
  EXPECT_NE(error.find(") waits in call "), std::string::npos) << error;
  EXPECT_NE(error.find(" of all ranks (allreduce), and so never comes; in the making of a group on rank "),
            std::string::npos)
      << error;
  EXPECT_EQ(ddl_barrier(), DDL_ERR_MISMATCH);
}

/// Without a limit that would end it. The last one, as the world is done for.
TEST(LostRanks, OneThatAbortsEndsTheMakingAtOnce) {
  if (!in_run_of_lost_ranks()) GTEST_SKIP() << "needs -late 1 in DDL_OPTIONS";
  const int last = world_size() - 1;
  const auto refused = [&](const std::vector<int>& ranks) {
    DDL_Group group = 0;
    EXPECT_EQ(ddl_group_create(ranks.data(), ranks.size(), 1000, &group), DDL_ERR_PEER_LOST);
    const std::string error = ddl_last_error();
    EXPECT_NE(error.find(name_of(last)), std::string::npos) << error;
    EXPECT_NE(error.find("ends with an error: the reason"), std::string::npos) << error;
  };
  if (world_rank() == last) {
    pause_for(0.5);
    EXPECT_EQ(ddl_abort("the reason"), DDL_SUCCESS) << ddl_last_error();
  } else {
    refused(everyone());
    refused(everyone_backwards());
    refused({});
  }
  EXPECT_EQ(ddl_barrier(), DDL_ERR_PEER_LOST);
  ddl_finalize();
  // DDL leaves it, lest it waits for a rank that is gone; here none is.
  MPI_Finalize();
}

}  // namespace
