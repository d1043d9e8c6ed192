#pragma once

#include <string>
#include <string_view>

namespace ddl {

/// A JSON string literal, quotes included. Host names and options are other people's text. Bytes that are not
/// ASCII are written as \u00XX, so that the output is valid UTF-8 whatever the input was.
inline std::string json_string(std::string_view text) {
  constexpr char hex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      out += "\\u00";
      out += hex[byte >> 4];
      out += hex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace ddl
