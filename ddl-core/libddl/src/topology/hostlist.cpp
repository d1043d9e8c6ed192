#include "topology/hostlist.hpp"

#include <charconv>
#include <cstdint>

#include "topology/in_quotes.hpp"

namespace ddl {
namespace {

[[noreturn]] void bad(const std::string& what) { throw HostlistError(what); }

std::uint64_t parse_number(std::string_view text, std::string_view range) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // 18 digits always fit.
  if (text.empty() || text.size() > 18 || error != std::errc() || end != text.data() + text.size()) {
    bad(in_quotes(range) + " is no number or range of numbers");
  }
  return number;
}

/// `1,3-5` or `001-010`.
std::vector<std::string> expand_brackets(std::string_view inside, std::size_t limit) {
  std::vector<std::string> numbers;
  while (true) {
    const std::string_view range = inside.substr(0, inside.find(','));
    const std::size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const std::uint64_t first = parse_number(low, range);
    const std::uint64_t last =
        dash == std::string_view::npos ? first : parse_number(range.substr(dash + 1), range);
    if (last < first) bad("the range " + in_quotes(range) + " runs backwards");
    if (last - first >= limit - numbers.size()) bad("more than " + std::to_string(limit) + " names");
    for (std::uint64_t n = first; n <= last; ++n) {
      std::string digits = std::to_string(n);
      if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
      numbers.push_back(std::move(digits));
    }
    if (range.size() == inside.size()) return numbers;
    inside.remove_prefix(range.size() + 1);
  }
}

/// One name with its brackets, which begins at text[0]; removes it from text.
std::vector<std::string> expand_name(std::string_view& text, std::size_t limit) {
  std::vector<std::string> names(1);
  while (!text.empty() && text[0] != ',') {
    if (text[0] == ']') bad("']' without '['");
    if (text[0] != '[') {
      const std::string_view plain = text.substr(0, text.find_first_of(",[]"));
      for (std::string& name : names) name += plain;
      text.remove_prefix(plain.size());
      continue;
    }
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) bad("'[' without ']'");
    const std::vector<std::string> choices = expand_brackets(text.substr(1, close - 1), limit);
    if (names.size() * choices.size() > limit) bad("more than " + std::to_string(limit) + " names");
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& choice : choices) longer.push_back(name + choice);
    }
    names = std::move(longer);
    text.remove_prefix(close + 1);
  }
  if (names.front().empty()) bad("a name is empty");
  return names;
}

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view text, std::size_t limit) {
  std::vector<std::string> names;
  while (true) {
    for (std::string& name : expand_name(text, limit)) {
      if (names.size() == limit) bad("more than " + std::to_string(limit) + " names");
      names.push_back(std::move(name));
    }
    if (text.empty()) return names;
    text.remove_prefix(1);
  }
}

}  // namespace ddl
