#pragma once

#include <string>
#include <string_view>

namespace ddl {

/// Other people's text in a message: in quotes, of readable length, without control characters.
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string out = "'";
  for (const char c : text.substr(0, longest)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out + (text.size() > longest ? "...'" : "'");
}

}  // namespace ddl
