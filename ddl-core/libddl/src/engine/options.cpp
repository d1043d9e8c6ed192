#include "engine/options.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>

#include "support/error.hpp"
#include "support/number.hpp"

namespace ddl {
namespace {

constexpr std::string_view kModes = "pbnrmc";
constexpr const char* kValid =
    "valid options are -mode L[:AxBxCxD], -topology FILE|JSON|none|measure, -deterministic "
    "run|placement|off, "
    "-wire full|fp16|bf16|q8, -timeout SECONDS, -late SECONDS, -patience SECONDS, -timeline FILE, -dump_iter "
    "N, -dev_sync 0|1|2, -rebind_iter "
    "N, "
    "-dbg_level 0|1|2";
constexpr int kMaxDim = 1 << 24;

[[noreturn]] void invalid(const std::string& what) {
  throw Error(DDL_ERR_OPTION, what, "in DDL_OPTIONS", kValid);
}

std::vector<std::string_view> split_words(std::string_view text) {
  constexpr std::string_view space = " \t\n\r\f\v";
  std::vector<std::string_view> words;
  for (std::size_t at = text.find_first_not_of(space); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(space, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(space, end);
  }
  return words;
}

int parse_int(std::string_view option, std::string_view value, int low, int high) {
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < low || number > high) {
    invalid("invalid value '" + std::string(value) + "' of -" + std::string(option) +
            ": expected an integer from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return number;
}

double parse_seconds(std::string_view option, std::string_view value) {
  const auto scanned = scan_number(value);
  const double number = scanned ? scanned->value : 0;
  if (!scanned || scanned->length != value.size() || !std::isfinite(number) || number <= 0 || number > 1e7) {
    invalid("invalid value '" + std::string(value) + "' of -" + std::string(option) +
            ": expected seconds, more than 0 and at most 1e7");
  }
  return number;
}

void parse_mode(std::string_view value, Options& options) {
  if (value.empty() || kModes.find(value[0]) == std::string_view::npos) {
    invalid("invalid mode '" + std::string(value) +
            "': the letter is one of p (best algorithm per tier), b (enhanced "
            "NCCL), n (NCCL), r (ring), m (MPI), c (recursive)");
  }
  options.mode = value[0];
  options.dims.clear();
  if (value.size() == 1) return;
  if (value[1] != ':' || value.size() == 2) {
    invalid("invalid mode '" + std::string(value) + "': the letter is followed by nothing or by :AxBxCxD");
  }
  std::string_view rest = value.substr(2);
  while (true) {
    const std::size_t end = std::min(rest.find('x'), rest.size());
    options.dims.push_back(parse_int("mode " + std::string(value), rest.substr(0, end), 1, kMaxDim));
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  if (options.dims.size() > 4) {
    invalid("invalid mode '" + std::string(value) +
            "': at most four sizes (ranks a host, hosts a rack, racks an "
            "aisle, aisles), got " +
            std::to_string(options.dims.size()));
  }
}

Determinism parse_determinism(std::string_view value) {
  if (value == "run") return Determinism::kRun;
  if (value == "placement") return Determinism::kPlacement;
  if (value == "off") return Determinism::kOff;
  invalid("invalid value '" + std::string(value) + "' of -deterministic: expected run, placement or off");
}

}  // namespace

Options parse_options(std::string_view text, const Options& base) {
  Options options = base;
  options.text = base.text.empty() ? text : text.empty() ? base.text : base.text + " " + std::string(text);
  bool names_topology = false;
  const auto words = split_words(text);
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string_view word = words[i];
    if (word[0] != '-') invalid("unexpected '" + std::string(word) + "': options start with a dash");
    std::string_view name = word.substr(word.starts_with("--") ? 2 : 1);
    std::string_view value;
    const std::size_t equals = name.find('=');
    const bool joined = equals != std::string_view::npos;
    if (joined) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    const bool known = name == "mode" || name == "timeout" || name == "dump_iter" || name == "dev_sync" ||
                       name == "rebind_iter" || name == "dbg_level" || name == "topology" ||
                       name == "deterministic" || name == "wire" || name == "timeline" || name == "late" ||
                       name == "patience";
    if (!known) invalid("unknown option '" + std::string(word) + "'");
    if (!joined) {
      if (i + 1 == words.size()) invalid("option -" + std::string(name) + " needs a value");
      value = words[++i];
    }
    if (name == "mode") parse_mode(value, options);
    if (name == "topology") {
      options.topology = value;
      names_topology = true;
    }
    if (name == "timeline") options.timeline = value;
    if (name == "wire") options.wire = parse_wire_format(value);
    if (name == "deterministic") options.determinism = parse_determinism(value);
    if (name == "timeout") options.limits.timeout_s = parse_seconds(name, value);
    if (name == "late") options.limits.late_s = parse_seconds(name, value);
    if (name == "patience") options.limits.patience_s = parse_seconds(name, value);
    if (name == "dump_iter") options.dump_iter = parse_int(name, value, 0, INT32_MAX);
    if (name == "dev_sync") options.dev_sync = parse_int(name, value, 0, 2);
    if (name == "rebind_iter") options.rebind_iter = parse_int(name, value, 0, INT32_MAX);
    if (name == "dbg_level") options.dbg_level = parse_int(name, value, 0, 2);
  }
  if (options.dims.empty() && !names_topology) options.dims = base.dims;
  return options;
}

bool same_effect(const Options& one, const Options& other) {
  const auto plain = [](Options options) {
    options.text.clear();
    options.known_racks.reset();
    return options;
  };
  return plain(one) == plain(other);
}

void check_dims(const Options& options, int size) {
  if (options.dims.empty()) return;
  std::int64_t product = 1;
  std::string dims;
  for (std::size_t i = 0; i < options.dims.size(); ++i) {
    // Saturating: sizes come from the user, and four of them can exceed 64 bits.
    product = product > INT64_MAX / options.dims[i] ? INT64_MAX : product * options.dims[i];
    dims += " dim[" + std::to_string(i) + "]=" + std::to_string(options.dims[i]);
  }
  if (product == size) return;
  throw Error(DDL_ERR_OPTION,
              "invalid dim size=" + std::to_string(size) + " usr_size=" + std::to_string(product) + dims,
              "in -mode of DDL_OPTIONS",
              "the product of the sizes must be the number of ranks (" + std::to_string(size) +
                  "), or leave the sizes out to have the topology discovered");
}

}  // namespace ddl
