// Floating-point numbers as text, in the C locale whatever locale the process has. libstdc++ 10, which DDL is
// built with to run on old systems, has std::from_chars and std::to_chars for integers alone.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ddl {

/// A number at the start of a text: its value, and how many characters it has.
struct ScannedNumber {
  double value;
  std::size_t length;
};

/// Reads a decimal number as std::from_chars does: no blank, no '+', no hexadecimal digits before or in it.
/// Nothing where the text starts with no number, or with one that a double cannot hold.
std::optional<ScannedNumber> scan_number(std::string_view text);

/// The shortest text that reads back as the same number.
std::string format_number(double value);

}  // namespace ddl
