#include <gtest/gtest.h>

#include <string>

#include "support/error.hpp"

namespace ddl {
namespace {

TEST(Error, JoinsItsPartsToTheTextForTheUser) {
  const Error error(DDL_ERR_DEVICE, "a copy failed: no memory; really", Error::kOnThisRank, "look at it");
  EXPECT_STREQ(error.what(), "[ERROR DDL-1-11] a copy failed: no memory; really; on this rank; look at it");
  EXPECT_EQ(error.problem(), "a copy failed: no memory; really");
  EXPECT_EQ(error.where(), "on this rank");
  EXPECT_EQ(error.remedy(), "look at it");
  EXPECT_EQ(error.message(), "a copy failed: no memory; really; on this rank; look at it");
}

TEST(Error, LeavesOutAPlaceThatTheProblemNames) {
  const Error error(DDL_ERR_INTERNAL, "8 bytes in 4", "", "please report this");
  EXPECT_STREQ(error.what(), "[ERROR DDL-1-10] 8 bytes in 4; please report this");
  EXPECT_EQ(error.where(), "");
  EXPECT_EQ(error.remedy(), "please report this");
}

TEST(Error, GetsAnotherPlaceWhereARankIsKnown) {
  const Error error =
      Error(DDL_ERR_DEVICE, "it failed", Error::kOnThisRank, "mend it").at("on rank 2 (host a)");
  EXPECT_STREQ(error.what(), "[ERROR DDL-1-11] it failed; on rank 2 (host a); mend it");
  EXPECT_EQ(error.code(), DDL_ERR_DEVICE);
}

TEST(Error, OfAnotherRankIsTakenAsItArrives) {
  const std::string text = "[ERROR DDL-1-11] it failed; on this rank; mend it [on rank 2]";
  const Error error = Error::received(DDL_ERR_DEVICE, text);
  EXPECT_EQ(error.what(), text);
  EXPECT_EQ(error.problem(), text);
  EXPECT_EQ(error.where(), "");
  EXPECT_EQ(error.remedy(), "");
}

TEST(Error, KeepsItsPartsInACopy) {
  Error copy = Error::received(DDL_ERR_MPI, "another");
  {
    const Error error(DDL_ERR_MPI, "it failed", "in a test", "mend it");
    copy = error;
  }
  EXPECT_EQ(copy.problem(), "it failed");
  EXPECT_EQ(copy.where(), "in a test");
  EXPECT_EQ(copy.remedy(), "mend it");
}

}  // namespace
}  // namespace ddl
