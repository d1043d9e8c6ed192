// A test that holds, and one that must be seen to fail.
#include <gtest/gtest.h>

TEST(Sum, Holds) { EXPECT_EQ(1 + 1, 2); }
TEST(Sum, Fails) { EXPECT_EQ(1 + 1, 3); }
