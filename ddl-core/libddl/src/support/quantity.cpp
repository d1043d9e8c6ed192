#include "support/quantity.hpp"

#include <cmath>
#include <span>

#include "support/number.hpp"

namespace ddl {
namespace {

struct Unit {
  const char* name;
  double size;
};

constexpr double kKi = 1024;

constexpr Unit kBytes[] = {{"B", 1},     {"kB", 1e3},  {"KB", 1e3},       {"MB", 1e6},           {"GB", 1e9},
                           {"TB", 1e12}, {"KiB", kKi}, {"MiB", kKi* kKi}, {"GiB", kKi* kKi* kKi}};
constexpr Unit kRates[] = {{"B/s", 1},
                           {"kB/s", 1e3},
                           {"MB/s", 1e6},
                           {"GB/s", 1e9},
                           {"TB/s", 1e12},
                           {"MiB/s", kKi* kKi},
                           {"GiB/s", kKi* kKi* kKi},
                           {"bit/s", 0.125},
                           {"kbit/s", 125},
                           {"Mbit/s", 125e3},
                           {"Gbit/s", 125e6},
                           {"Tbit/s", 125e9}};
constexpr Unit kTimes[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"\xc2\xb5s", 1e-6}, {"ns", 1e-9}};

std::span<const Unit> units(Quantity quantity) {
  switch (quantity) {
    case Quantity::kBytes:
      return kBytes;
    case Quantity::kBytesPerSecond:
      return kRates;
    case Quantity::kSeconds:
      break;
  }
  return kTimes;
}

}  // namespace

std::optional<double> parse_quantity(std::string_view text, Quantity quantity) {
  const auto scanned = scan_number(text);
  if (!scanned || !std::isfinite(scanned->value) || scanned->value < 0) return std::nullopt;
  const double number = scanned->value;
  text.remove_prefix(scanned->length);
  while (text.starts_with(' ')) text.remove_prefix(1);
  for (const Unit& unit : units(quantity)) {
    if (text == unit.name) return number * unit.size;
  }
  return std::nullopt;
}

std::string units_of(Quantity quantity) {
  std::string names;
  for (const Unit& unit : units(quantity)) names += (names.empty() ? "" : ", ") + std::string(unit.name);
  return names;
}

}  // namespace ddl
