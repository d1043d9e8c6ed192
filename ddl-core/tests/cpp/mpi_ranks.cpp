// ddl_allreduce_mpi beside a program's own MPI: communicators of several shapes, and their end.
#include <gtest/gtest.h>

#include <cstdint>
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

TEST(Mpi, ADuplicateOfTheWorldIsTheWorld) {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  reduce_over(copy, 1009);
  MPI_Comm_free(&copy);
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
