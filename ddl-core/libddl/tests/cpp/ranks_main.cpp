// main() of the tests that run as several ranks: gtest on every rank, and only what fails is printed by all.
#include <gtest/gtest.h>

#include <cstdio>

#include "ddl.hpp"

namespace {

class FailuresOnly : public testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}

 private:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank_, result.file_name(), result.line_number(),
                   result.message());
  }
  int rank_;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (ddl_init() != DDL_SUCCESS) {
    std::fprintf(stderr, "%s\n", ddl_last_error());
    return 2;
  }
  int rank = 0;
  ddl_rank(&rank);
  if (rank != 0) {
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly(rank));
  }
  const int failed = RUN_ALL_TESTS();
  if (ddl_finalize() != DDL_SUCCESS) {
    std::fprintf(stderr, "%s\n", ddl_last_error());
    return 3;
  }
  return failed;
}
