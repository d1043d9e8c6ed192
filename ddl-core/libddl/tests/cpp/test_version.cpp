#include <gtest/gtest.h>

#include <string>

#include "ddl.h"

namespace {

TEST(Version, OfHeaderAndLibrary) {
  const std::string of_header = std::to_string(DDL_VERSION_MAJOR) + "." + std::to_string(DDL_VERSION_MINOR) +
                                "." + std::to_string(DDL_VERSION_PATCH);
  EXPECT_EQ(of_header, ddl_version());
  EXPECT_EQ(DDL_VERSION_NUMBER, DDL_VERSION_MAJOR * 10000 + DDL_VERSION_MINOR * 100 + DDL_VERSION_PATCH);
}

}  // namespace
