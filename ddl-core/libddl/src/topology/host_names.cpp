#include "topology/host_names.hpp"

#include <algorithm>

namespace ddl {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

int natural_compare(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a;
  const std::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (!digit(a[0]) || !digit(b[0])) {
      if (a[0] != b[0]) return static_cast<unsigned char>(a[0]) < static_cast<unsigned char>(b[0]) ? -1 : 1;
      a.remove_prefix(1);
      b.remove_prefix(1);
      continue;
    }
    const auto take = [](std::string_view& text) {
      std::size_t end = 0;
      while (end < text.size() && digit(text[end])) ++end;
      std::string_view number = text.substr(0, end);
      text.remove_prefix(end);
      number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
      return number;
    };
    // Without leading zeros the longer number is the greater one, however long both are.
    const std::string_view number_a = take(a);
    const std::string_view number_b = take(b);
    if (number_a.size() != number_b.size()) return number_a.size() < number_b.size() ? -1 : 1;
    if (const int order = number_a.compare(number_b); order != 0) return order;
  }
  if (a.empty() != b.empty()) return a.empty() ? -1 : 1;
  if (whole_a.size() != whole_b.size()) return whole_a.size() < whole_b.size() ? -1 : 1;
  return whole_a.compare(whole_b);
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

std::string short_name(std::string_view name) { return lower_case(name.substr(0, name.find('.'))); }

bool valid_host_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && std::all_of(name.begin(), name.end(), [](char c) {
    return digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') || c == '.' || c == '-' || c == '_';
  });
}

bool HostIndex::add(std::string_view name, int value) {
  const std::string whole = lower_case(name);
  if (!whole_.emplace(whole, value).second) return false;
  Short& entry = short_[short_name(name)];
  entry.values.push_back(value);
  if (whole.find('.') == std::string::npos) entry.without_domain = value;
  return true;
}

int HostIndex::find(std::string_view name) const {
  const std::string whole = lower_case(name);
  if (const auto found = whole_.find(whole); found != whole_.end()) return found->second;
  const auto found = short_.find(short_name(name));
  if (found == short_.end()) return kNone;
  // Names of two domains are two hosts.
  if (whole.find('.') != std::string::npos) return found->second.without_domain;
  return found->second.values.size() == 1 ? found->second.values.front() : kAmbiguous;
}

}  // namespace ddl
