// How one rank's failure reaches another of its host.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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
      : segment_(SharedSegment::create(SharedSegment::name_for(static_cast<std::uint64_t>(getpid()), 2), 2)),
        topology_(Topology::build({{"a", "a"}, {"a", "a"}}, {})) {
    segment_.reserve_control();
    segment_.reserve_stage(0);
    segment_.reserve_stage(1);
  }

  FailureDetector detector(int rank, const WaitLimits& limits = {}, bool threads = true) {
    return {topology_, rank, {{0, 1}}, 0, segment_, nullptr, limits, threads};
  }
  static std::string call() { return "barrier"; }
  static void fail(FailureDetector& detector) {
    detector.fail(Error(DDL_ERR_MISMATCH, "ranks differ", "", "mend it"), true);
  }

  SharedSegment segment_;
  const Topology topology_;
};

/// The hosts that a failure reaches where one of them is gone.
std::vector<bool> reached(std::size_t hosts, std::size_t root, std::size_t gone) {
  std::vector<bool> knows(hosts, false);
  std::vector<std::size_t> next{root};
  while (!next.empty()) {
    const std::size_t host = next.back();
    next.pop_back();
    if (host == gone || knows[host]) continue;
    knows[host] = true;
    for (const std::size_t told : hosts_told_by(host, root, hosts)) next.push_back(told);
  }
  return knows;
}

TEST(FailureTree, ReachesEveryHostByFewMessagesThoughOneIsGone) {
  for (std::size_t hosts = 1; hosts <= 130; ++hosts) {
    for (const std::size_t root : {std::size_t{0}, hosts / 3, hosts - 1}) {
      for (std::size_t host = 0; host < hosts; ++host) {
        const auto told = hosts_told_by(host, root, hosts);
        EXPECT_LE(told.size(), 20U);
        EXPECT_EQ(std::count(told.begin(), told.end(), root), 0);
      }
      // The number of hosts: none is gone.
      for (std::size_t gone = 0; gone <= hosts; ++gone) {
        if (gone == root) continue;
        const std::vector<bool> knows = reached(hosts, root, gone);
        for (std::size_t host = 0; host < hosts; ++host) {
          ASSERT_EQ(knows[host], host != gone) << hosts << " hosts, root " << root << ", without " << gone;
        }
      }
    }
  }
}

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
  EXPECT_EQ(thrown_by([&] { other.fail(Error(DDL_ERR_MPI, "something else", "", "mend it"), false); }), text);
}

/// Waits in a call until it is an error, and tells after how many seconds.
std::pair<std::string, double> wait_for_error(FailureDetector& detector) {
  const auto start = Clock::now();
  const auto waited = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::string text;
  while (text.empty() && waited() < 30) {
    text = thrown_by([&] { detector.watch(start); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {text, waited()};
}

TEST_F(FailureDetectorTest, LateIsNotDead) {
  const WaitLimits limits{0.3, 0.2, 2};
  FailureDetector one = detector(0, limits);
  FailureDetector other = detector(1, limits);
  // The other one has made call 1, and now computes.
  segment_.cell(0).arrived = 2;
  segment_.cell(1).arrived = 1;
  one.begin_call(2, call);
  testing::internal::CaptureStderr();
  const auto [text, seconds] = wait_for_error(one);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_GE(seconds, 2) << text;
  EXPECT_EQ(
      text.find(
          "[ERROR DDL-1-8] Timed out after 2 s: rank 1 (host a) (its last call was number 1) did not arrive"),
      0u)
      << text;
  EXPECT_NE(text.find("-patience"), std::string::npos) << text;
  EXPECT_NE(said.find("[WARN DDL-1-8] waited 0."), std::string::npos) << said;
  EXPECT_NE(said.find(" s for rank 1 (host a) (its last call was number 1), whose process is alive; in "
                      "barrier (call 2); "),
            std::string::npos)
      << said;
  EXPECT_LE(std::count(said.begin(), said.end(), '\n'), 4) << "ever more rarely: " << said;
}

TEST_F(FailureDetectorTest, WhoDoesNotAnswerIsLostAfterTheTimeout) {
  const WaitLimits limits{1, 60, 1800};
  FailureDetector one = detector(0, limits);
  {
    // Its signs of life end with it.
    const FailureDetector other = detector(1, limits);
  }
  segment_.cell(0).arrived = 2;
  one.begin_call(2, call);
  const auto [text, seconds] = wait_for_error(one);
  EXPECT_NE(text.find("rank 1 (host a"), std::string::npos) << text;
  EXPECT_NE(text.find("did not arrive and does not answer"), std::string::npos) << text;
  EXPECT_NE(text.find("-timeout"), std::string::npos) << text;
}

TEST_F(FailureDetectorTest, OnlyWhoAnswersIsWaitedForForLonger) {
  const WaitLimits limits{0.5, 0.2, 0.6};
  FailureDetector one = detector(0, limits);
  segment_.cell(0).arrived = 2;
  segment_.cell(1).arrived = 1;
  {
    const FailureDetector other = detector(1, limits);
    one.begin_call(2, call, 4);
    testing::internal::CaptureStderr();
    const std::string text = wait_for_error(one).first;
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find("Timed out after 2.4 s: rank 1 (host a)"), std::string::npos) << text;
    EXPECT_NE(said.find("[WARN DDL-1-8] waited 0."), std::string::npos) << said;
  }
}

TEST_F(FailureDetectorTest, WhoDoesNotAnswerIsNotWaitedForForLonger) {
  const WaitLimits limits{1, 60, 1800};
  FailureDetector one = detector(0, limits);
  segment_.cell(0).arrived = 2;
  one.begin_call(2, call, 10);
  const std::string text = wait_for_error(one).first;
  EXPECT_EQ(text.find("[ERROR DDL-1-8] Timed out after 1 s: rank 1 (host a"), 0u) << text;
}

TEST_F(FailureDetectorTest, NothingMovesAlthoughAllAreThere) {
  const WaitLimits limits{0.5, 60, 1800};
  FailureDetector one = detector(0, limits);
  FailureDetector other = detector(1, limits);
  segment_.cell(0).arrived = segment_.cell(1).arrived = 2;
  one.begin_call(2, call);
  EXPECT_NE(
      wait_for_error(one).first.find("Timed out after 0.5 s: nothing has moved although every rank waits"),
      std::string::npos);
}

}  // namespace
}  // namespace ddl
