#include "topology/gpu_place.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace ddl {
namespace {

/// The number at the beginning of `text`, of 1 to `most` digits, which `end` follows (0: the end of the
/// text). Takes both off the text.
std::optional<unsigned> take(std::string_view& text, std::size_t most, char end) {
  unsigned value = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  const auto digits = static_cast<std::size_t>(at - text.data());
  if (error != std::errc() || digits > most) return std::nullopt;
  if (end == 0 ? digits != text.size() : (digits == text.size() || text[digits] != end)) return std::nullopt;
  text.remove_prefix(digits + (end == 0 ? 0 : 1));
  return value;
}

}  // namespace

std::string normal_bus(std::string_view text) {
  const auto domain = take(text, 8, ':');
  const auto bus = domain ? take(text, 2, ':') : std::nullopt;
  // NVML may leave the function out, which is 0 for a GPU.
  const bool whole = text.find('.') != std::string_view::npos;
  const auto device = bus ? take(text, 2, whole ? '.' : '\0') : std::nullopt;
  const auto function = device && whole ? take(text, 1, '\0') : std::optional<unsigned>(0);
  if (!device || !function) return "";
  char made[32];
  std::snprintf(made, sizeof made, "%04x:%02x:%02x.%x", *domain, *bus, *device, *function);
  return made;
}

std::optional<GpuPlace> own_gpu() {
  const char* const told = std::getenv("DDL_RANK_GPU");
  return told == nullptr ? std::nullopt : parse_gpu_place(told);
}

std::optional<GpuPlace> parse_gpu_place(std::string_view text) {
  const std::size_t slash = text.find('/');
  GpuPlace place{normal_bus(text.substr(0, slash)), -1};
  if (place.bus.empty()) return std::nullopt;
  if (slash == std::string_view::npos) return place;
  const std::string_view island = text.substr(slash + 1);
  const auto [end, error] = std::from_chars(island.data(), island.data() + island.size(), place.island);
  if (error != std::errc() || end != island.data() + island.size() || place.island < 0) return std::nullopt;
  return place;
}

}  // namespace ddl
