// How one rank's failure reaches another of its host.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

#include "engine/failure_detector.hpp"

namespace ddl {
namespace {

std::string thrown_by(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Two ranks of one host.
class FailureDetectorTest : public testing::Test {
 protected:
  FailureDetectorTest()
      : segment_(SharedSegment::create(2)), topology_(Topology::build({{"a", "a"}, {"a", "a"}}, {})) {
    segment_.reserve(0);
    segment_.reserve(1);
  }

  FailureDetector detector(int rank) { return {topology_, rank, {0, 1}, segment_, nullptr, 300}; }
  static std::string call() { return "barrier"; }
  static void fail(FailureDetector& detector) {
    detector.fail(Error(DDL_ERR_MISMATCH, "ranks differ; mend it"), true);
  }

  SharedSegment segment_;
  const Topology topology_;
};

TEST_F(FailureDetectorTest, TheSameTextEverywhere) {
  FailureDetector one = detector(0);
  FailureDetector other = detector(1);
  one.begin_call(1, call);
  other.begin_call(1, call);
  EXPECT_NO_THROW(other.watch(Clock::now()));
  const std::string text = thrown_by([&] { fail(one); });
  EXPECT_NE(text.find("ranks differ"), std::string::npos) << text;
  EXPECT_EQ(thrown_by([&] { other.watch(Clock::now()); }), text);
  EXPECT_EQ(other.failure()->code(), DDL_ERR_MISMATCH);
  EXPECT_TRUE(other.all_alive());
}

TEST_F(FailureDetectorTest, AnEarlierCallMayBeFinished) {
  FailureDetector one = detector(0);
  FailureDetector other = detector(1);
  one.begin_call(2, call);
  other.begin_call(1, call);
  const std::string text = thrown_by([&] { fail(one); });
  EXPECT_NO_THROW(other.watch(Clock::now()));
  EXPECT_FALSE(other.failure());
  other.begin_call(2, call);
  EXPECT_EQ(thrown_by([&] { other.watch(Clock::now()); }), text);
}

TEST_F(FailureDetectorTest, ButNotForEver) {
  FailureDetector one = detector(0);
  FailureDetector other = detector(1);
  one.begin_call(2, call);
  other.begin_call(1, call);
  const std::string text = thrown_by([&] { fail(one); });
  const auto start = Clock::now();
  std::string told;
  while (told.empty() && Clock::now() - start < std::chrono::seconds(20)) {
    told = thrown_by([&] { other.watch(start); });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(told, text);
}

TEST_F(FailureDetectorTest, TheFirstFailureIsTheOneThatAllReport) {
  FailureDetector one = detector(0);
  FailureDetector other = detector(1);
  one.begin_call(3, call);
  other.begin_call(2, call);
  const std::string text = thrown_by([&] { fail(one); });
  EXPECT_EQ(thrown_by([&] { other.fail(Error(DDL_ERR_MPI, "something else; mend it"), false); }), text);
}

}  // namespace
}  // namespace ddl
