#include "support/number.hpp"

#include <locale.h>
#include <stdlib.h>

#include <cerrno>
#include <cmath>
#include <locale>
#include <sstream>

namespace ddl {
namespace {

locale_t c_locale() {
  static const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
  return locale;
}

}  // namespace

std::optional<ScannedNumber> scan_number(std::string_view text) {
  const std::string number(text.substr(0, text.find_first_not_of("0123456789.eE+-infatyINFATY")));
  if (number.empty() || number[0] == '+') return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const double value = strtod_l(number.c_str(), &end, c_locale());
  if (end == number.c_str() || (errno == ERANGE && std::isinf(value))) return std::nullopt;
  return ScannedNumber{value, static_cast<std::size_t>(end - number.c_str())};
}

std::string format_number(double value) {
  std::string shortest;
  for (int digits = 1; digits <= 17; ++digits) {  // 17 always read back as the same
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out.precision(digits);
    out << value;
    const std::string text = out.str();
    const auto again = scan_number(text);
    const bool same = again && again->value == value;
    if ((same || digits == 17) && (shortest.empty() || text.size() <= shortest.size())) shortest = text;
  }
  return shortest;
}

}  // namespace ddl
