#include <gtest/gtest.h>

#include <clocale>
#include <limits>
#include <string>

#include "support/number.hpp"

namespace ddl {
namespace {

TEST(Number, ScansWhatStandsAtTheStart) {
  const auto found = scan_number("12.5MiB");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->value, 12.5);
  EXPECT_EQ(found->length, 4u);
  EXPECT_EQ(scan_number("1e3")->value, 1000);
  EXPECT_EQ(scan_number("-2")->value, -2);
  EXPECT_EQ(scan_number("10 s")->length, 2u);
}

TEST(Number, RefusesWhatIsNone) {
  for (const char* text : {"", " 1", "+1", "x1", "MiB", ".", "-", "1e999"})
    EXPECT_FALSE(scan_number(text)) << text;
  EXPECT_EQ(scan_number("0x10")->length, 1u) << "no hexadecimal digits";
}

TEST(Number, ReadsBackAsItWas) {
  for (const double value : {0.0, 1.0, 1000.0, 1e6, 123456.0, 0.1, 1.0 / 3, 2.5e-7, 1e300, 62.5, -7.25,
                             std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max()}) {
    EXPECT_EQ(scan_number(format_number(value))->value, value) << format_number(value);
  }
  EXPECT_EQ(format_number(1000), "1000");
  EXPECT_EQ(format_number(80000), "80000") << "as long as 8e+04, and what people write";
  EXPECT_EQ(format_number(1e6), "1e+06");
  EXPECT_EQ(format_number(0.1), "0.1");
  EXPECT_EQ(format_number(62.5), "62.5");
}

TEST(Number, DoesNotDependOnTheProcessLocale) {
  const char* before = std::setlocale(LC_ALL, nullptr);
  const std::string kept = before ? before : "C";
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"}) {
    if (std::setlocale(LC_ALL, name)) break;
  }
  EXPECT_EQ(scan_number("2.5")->value, 2.5);
  EXPECT_EQ(format_number(2.5), "2.5");
  std::setlocale(LC_ALL, kept.c_str());
}

}  // namespace
}  // namespace ddl
