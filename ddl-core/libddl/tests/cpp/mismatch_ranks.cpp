// One rank makes another call than the others, after any number of calls: between hosts their small messages
// differ by what the planner tries, and only the beginnings of their headers travel with them.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <cstdio>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "ddl.hpp"
#include "group_calls.hpp"

namespace {

class Mismatch : public testing::Test {
 protected:
  Mismatch() {
    EXPECT_EQ(ddl_rank(&rank_), DDL_SUCCESS);
    EXPECT_EQ(ddl_size(&size_), DDL_SUCCESS);
  }

  /// A group of all ranks, which may fail without the world.
  DDL_Group group() const {
    std::vector<int> ranks(static_cast<std::size_t>(size_));
    std::iota(ranks.begin(), ranks.end(), 0);
    DDL_Group made = 0;
    EXPECT_EQ(ddl_group_create(ranks.data(), ranks.size(), 20, &made), DDL_SUCCESS) << ddl_last_error();
    return made;
  }

  int sum(DDL_Group group, std::size_t count, const char* name = nullptr) {
    void* buffer = data_.data();
    return group_calls::buffers_in(group, DDL_ALLREDUCE, &buffer, &count, 1, DDL_TYPE_FLOAT, DDL_OP_SUM, 0,
                                   name);
  }

  /// This rank's last error, and whether it is that of all.
  std::string common_error() {
    std::array<char, 4096> own{};
    std::snprintf(own.data(), own.size(), "%s", ddl_last_error());
    std::vector<char> all(own.size() * static_cast<std::size_t>(size_));
    MPI_Allgather(own.data(), own.size(), MPI_CHAR, all.data(), own.size(), MPI_CHAR, MPI_COMM_WORLD);
    std::set<std::string> texts;
    for (int i = 0; i < size_; ++i) texts.insert(all.data() + own.size() * static_cast<std::size_t>(i));
    EXPECT_EQ(texts.size(), 1U) << *texts.begin() << "\n" << *texts.rbegin();
    return own.data();
  }

  bool culprit() const { return rank_ == size_ - 1; }

  int rank_ = 0;
  int size_ = 1;
  std::vector<float> data_ = std::vector<float>(40'000);
};

TEST_F(Mismatch, IsToldAlikeWhateverTheMessages) {
  // Seven calls of each way in which the planner makes small ones, from the second on.
  for (int before = 0; before < 64; before += 7) {
    const DDL_Group ranks = group();
    for (int i = 0; i < before; ++i) ASSERT_EQ(sum(ranks, 80), DDL_SUCCESS) << ddl_last_error();
    EXPECT_EQ(culprit() ? sum(ranks, 81, "other") : sum(ranks, 80, "usual"), DDL_ERR_MISMATCH)
        << ddl_last_error();
    const std::string text = common_error();
    const std::string last = "rank " + std::to_string(size_ - 1) + " (";
    EXPECT_NE(text.find(last), std::string::npos) << text;
    EXPECT_NE(text.find("called allreduce of 81 float32 elements (op sum, name 'other')"), std::string::npos)
        << text;
    EXPECT_NE(text.find("called allreduce of 80 float32 elements (op sum, name 'usual')"), std::string::npos)
        << text;
    EXPECT_NE(text.find("[differs in element count, name]"), std::string::npos) << text;
    EXPECT_EQ(ddl_group_free(ranks), DDL_SUCCESS);
  }
}

TEST_F(Mismatch, IsToldHoweverEachSideMakesItsCall) {
  // A size that nobody knows yet is made as predicted, and a known one in another way after every seven
  // calls: each side may wait for messages that the other never sends.
  for (int before = 1; before < 64; before += 7) {
    for (const std::size_t unknown : {std::size_t{900}, std::size_t{4096}, std::size_t{30'000}}) {
      const DDL_Group ranks = group();
      for (int i = 0; i < before; ++i) ASSERT_EQ(sum(ranks, 80), DDL_SUCCESS) << ddl_last_error();
      const bool other = rank_ == (before + 1) % size_;
      EXPECT_EQ(sum(ranks, other == (before % 2 == 0) ? 80 : unknown), DDL_ERR_MISMATCH) << ddl_last_error();
      const std::string text = common_error();
      EXPECT_NE(text.find("called allreduce of 80 float32 elements"), std::string::npos) << text;
      EXPECT_NE(text.find("called allreduce of " + std::to_string(unknown)), std::string::npos) << text;
      EXPECT_EQ(ddl_group_free(ranks), DDL_SUCCESS);
    }
  }
}

TEST_F(Mismatch, MayBeOfAnyKind) {
  using Call = std::function<int(DDL_Group)>;
  const Call barrier = [](DDL_Group ranks) { return group_calls::barrier_in(ranks); };
  const Call small = [this](DDL_Group ranks) { return sum(ranks, 8); };
  const Call large = [this](DDL_Group ranks) { return sum(ranks, 40'000); };
  struct Case {
    const Call& others;
    const Call& culprits;
    const char* text;
  };
  // Messages of other sizes, or none, meet those of a small call.
  const Case cases[] = {{small, barrier, "called barrier"},
                        {barrier, small, "called allreduce of 8 float32"},
                        {small, large, "called allreduce of 40000 float32"},
                        {large, small, "called allreduce of 8 float32"}};
  for (const Case& one : cases) {
    const DDL_Group ranks = group();
    EXPECT_EQ((culprit() ? one.culprits : one.others)(ranks), DDL_ERR_MISMATCH) << ddl_last_error();
    EXPECT_NE(common_error().find(one.text), std::string::npos) << ddl_last_error();
    EXPECT_EQ(ddl_group_free(ranks), DDL_SUCCESS);
  }
}

}  // namespace
