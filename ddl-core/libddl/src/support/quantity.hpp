#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddl {

enum class Quantity { kBytes, kBytesPerSecond, kSeconds };

/// The number of bytes, bytes/s or seconds that a text such as "12.5 GB/s" or "5 us" says. Empty where it is
/// none, negative, or not finite.
std::optional<double> parse_quantity(std::string_view text, Quantity quantity);

/// The units that texts may have, for messages.
std::string units_of(Quantity quantity);

}  // namespace ddl
