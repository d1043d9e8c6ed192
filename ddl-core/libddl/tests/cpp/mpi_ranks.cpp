// ddl_allreduce_mpi beside a program's own MPI: communicators of several shapes, and their end.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "ddl_mpi.hpp"

namespace {

int rank_of(MPI_Comm comm) {
  int rank = -1;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = -1;
  MPI_Comm_size(comm, &size);
  return size;
}

/// Sums (and takes the maximum of) values that tell the communicator's rank.
void reduce_over(MPI_Comm comm, size_t count) {
  const int rank = rank_of(comm), size = size_of(comm);
  std::vector<float> sum(count, static_cast<float>(rank + 1));
  ASSERT_EQ(ddl_allreduce_mpi(nullptr, sum.data(), count, MPI_FLOAT, MPI_SUM, comm), DDL_SUCCESS)
      << ddl_last_error();
  for (const float value : sum) ASSERT_EQ(value, static_cast<float>(size * (size + 1) / 2));
  std::vector<std::int64_t> high(count, rank);
  ASSERT_EQ(ddl_allreduce_mpi(nullptr, high.data(), count, MPI_INT64_T, MPI_MAX, comm), DDL_SUCCESS);
  for (const std::int64_t value : high) ASSERT_EQ(value, size - 1);
}

TEST(Mpi, World) { reduce_over(MPI_COMM_WORLD, 100003); }

TEST(Mpi, Self) { reduce_over(MPI_COMM_SELF, 17); }

TEST(Mpi, SplitCommunicators) {
  for (int round = 0; round < 3; ++round) {
    MPI_Comm half = MPI_COMM_NULL;
    // Odd and even ranks; the second time in reverse order.
    MPI_Comm_split(MPI_COMM_WORLD, rank_of(MPI_COMM_WORLD) % 2, round == 1 ? -rank_of(MPI_COMM_WORLD) : 0,
                   &half);
    reduce_over(half, 70001);
    reduce_over(half, 1);
    MPI_Comm_free(&half);
  }
  reduce_over(MPI_COMM_WORLD, 1009);
}

TEST(Mpi, ADuplicateOfTheWorld) {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  reduce_over(copy, 1009);
  MPI_Comm_free(&copy);
}

/// Where MPI_RANKS_TIMELINE names the file of -timeline, without its end.
TEST(Mpi, TheTimelineIsTheWorlds) {
  const char* const file = std::getenv("MPI_RANKS_TIMELINE");
  if (file == nullptr) GTEST_SKIP() << "without a timeline";
  MPI_Comm half = MPI_COMM_NULL;
  const int rank = rank_of(MPI_COMM_WORLD);
  reduce_over(MPI_COMM_WORLD, 1013);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  reduce_over(half, 1019);
  MPI_Barrier(MPI_COMM_WORLD);
  std::ifstream in(std::string(file) + ".rank" + std::to_string(rank) + ".json");
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_NE(text.find("allreduce of 1013 float32"), std::string::npos) << text;
  EXPECT_EQ(text.find("allreduce of 1019 float32"), std::string::npos) << text;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Comm_free(&half);
}

/// Rank 0 is in a call of its half, which its partner comes to only when the world's is over.
TEST(Mpi, CallsOnTwoCommunicatorsDoNotWaitForEachOther) {
  MPI_Comm half = MPI_COMM_NULL;
  const int rank = rank_of(MPI_COMM_WORLD);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  // The first time it is made as well.
  for (int round = 0; round < 2; ++round) {
    std::thread other;
    if (rank < 2) {
      other = std::thread([half] { reduce_over(half, 1009); });
      // Not of importance for what is right, but for what is seen when it is wrong.
      for (int busy = 0, tries = 0; busy == 0 && tries < 1000; ++tries) {
        ASSERT_EQ(ddl_busy(&busy), DDL_SUCCESS) << ddl_last_error();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    reduce_over(MPI_COMM_WORLD, 1009);
    if (rank >= 2) reduce_over(half, 1009);
    if (other.joinable()) other.join();
  }
  MPI_Comm_free(&half);
}

/// Two of the same ranks, each used by a thread of its own: odd ranks begin with the one, even ranks with the
/// other. Nothing but the communicator tells their calls apart.
void use_from_two_threads(const std::vector<MPI_Comm>& comms) {
  const int rank = rank_of(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < comms.size(); ++i) {
    const size_t which = (i + static_cast<size_t>(rank)) % comms.size();
    threads.emplace_back([which, size, comm = comms[which]] {
      for (int call = 0; call < 50; ++call) {
        const double own = which == 0 ? 1.0 : 1000.0;
        std::vector<double> data(1000, own);
        ASSERT_EQ(ddl_allreduce_mpi(nullptr, data.data(), data.size(), MPI_DOUBLE, MPI_SUM, comm),
                  DDL_SUCCESS)
            << ddl_last_error();
        for (const double value : data) ASSERT_EQ(value, size * own) << "communicator " << which;
      }
    });
    // Not of importance for what is right, but for what is seen when it is wrong.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Mpi, CommunicatorsOfTheSameRanksHaveCallsOfTheirOwn) {
  const int rank = rank_of(MPI_COMM_WORLD);
  for (const bool backwards : {false, true}) {
    std::vector<MPI_Comm> comms(2, MPI_COMM_NULL);
    for (MPI_Comm& comm : comms) {
      if (backwards) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
      } else {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
      }
    }
    use_from_two_threads(comms);
    for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
  }
}

TEST(Mpi, OneThatIsStillThereAtTheEnd) {
  static MPI_Comm kept = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank_of(MPI_COMM_WORLD) == 0 ? 0 : 1, 0, &kept);
  reduce_over(kept, 1009);
}

TEST(Mpi, EveryDatatypeAndOp) {
  const auto check = [](auto value, MPI_Datatype datatype) {
    const int size = size_of(MPI_COMM_WORLD);
    value = 2;
    ASSERT_EQ(ddl_allreduce_mpi(nullptr, &value, 1, datatype, MPI_SUM, MPI_COMM_WORLD), DDL_SUCCESS);
    EXPECT_EQ(value, decltype(value)(2 * size));
    value = 2;
    ASSERT_EQ(ddl_allreduce_mpi(nullptr, &value, 1, datatype, MPI_PROD, MPI_COMM_WORLD), DDL_SUCCESS);
    EXPECT_EQ(value, decltype(value)(1 << size));
    value = static_cast<decltype(value)>(rank_of(MPI_COMM_WORLD) + 5);
    ASSERT_EQ(ddl_allreduce_mpi(nullptr, &value, 1, datatype, MPI_MIN, MPI_COMM_WORLD), DDL_SUCCESS);
    EXPECT_EQ(value, decltype(value)(5));
  };
  check(float{}, MPI_FLOAT);
  check(double{}, MPI_DOUBLE);
  check(int{}, MPI_INT);
  check(std::int32_t{}, MPI_INT32_T);
  check(long{}, MPI_LONG);
  check(static_cast<long long>(0), MPI_LONG_LONG);
  check(std::int64_t{}, MPI_INT64_T);
}

TEST(Mpi, UnsupportedArgumentsAreErrors) {
  short x = 0;
  EXPECT_EQ(ddl_allreduce_mpi(nullptr, &x, 1, MPI_SHORT, MPI_SUM, MPI_COMM_WORLD), DDL_ERR_ARGUMENT);
  float y = 0;
  EXPECT_EQ(ddl_allreduce_mpi(nullptr, &y, 1, MPI_FLOAT, MPI_LAND, MPI_COMM_WORLD), DDL_ERR_ARGUMENT);
  EXPECT_EQ(ddl_allreduce_mpi(nullptr, &y, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_NULL), DDL_ERR_ARGUMENT);
}

}  // namespace
