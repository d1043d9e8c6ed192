#include "settings.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "stand_in.hpp"

extern char** environ;

namespace stand_in {
namespace {

struct Known {
  const char* name;
  long long unset;
  long long least;
  long long most;
};
constexpr Known kKnown[] = {
#define S(member, name, unset, least, most) {name, unset, least, most},
    STAND_IN_SETTINGS(S)
#undef S
};
constexpr const char* kCountNames[] = {
#define C(member, name) name,
    STAND_IN_COUNTS(C)
#undef C
};
constexpr std::size_t kSettings = static_cast<std::size_t>(Setting::kEnd);
constexpr std::size_t kCounts = static_cast<std::size_t>(Count::kEnd);
/// Variables that are texts.
constexpr const char* kTexts[] = {"STAND_IN_NCCL_FOLDER", "STAND_IN_REPORT"};
constexpr int kDied = 86;

std::string variable_of(const Known& known) {
  std::string name = "STAND_IN_";
  for (const char* at = known.name; *at != 0; ++at) name += static_cast<char>(std::toupper(*at));
  return name;
}

bool parse(std::string_view text, long long* number) {
  const std::string own(text);
  char* end = nullptr;
  *number = std::strtoll(own.c_str(), &end, 10);
  return !own.empty() && *end == 0;
}

/// "5": everywhere; "5@1,7@2": 5 on rank 1, 7 on rank 2, and as if it were unset elsewhere.
long long value_of(const Known& known, const std::string& variable, std::string_view text) {
  const int rank = launched_rank();
  long long value = known.unset;
  bool found = false;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(part.size() < text.size() ? part.size() + 1 : part.size());
    const std::size_t at = part.find('@');
    long long number = 0;
    long long of_rank = rank;
    const bool good = parse(part.substr(0, at), &number) && number >= known.least && number <= known.most &&
                      (at == std::string_view::npos || parse(part.substr(at + 1), &of_rank));
    if (!good) {
      die("%s: \"%.*s\" is not a number from %lld to %lld, or NUMBER@RANK", variable.c_str(),
          static_cast<int>(part.size()), part.data(), known.least, known.most);
    }
    if (!found && of_rank == rank) {
      value = number;
      found = true;
    }
  }
  return value;
}

class Settings {
 public:
  Settings() {
    for (std::size_t i = 0; i < kSettings; ++i) {
      const std::string variable = variable_of(kKnown[i]);
      const char* text = std::getenv(variable.c_str());
      values_[i] = text == nullptr ? kKnown[i].unset : value_of(kKnown[i], variable, text);
    }
    for (char** entry = environ; *entry != nullptr; ++entry) check_name(*entry);
  }

  static Settings& instance() {
    static auto* const settings = new Settings;  // also there for what runs at exit
    return *settings;
  }

  std::atomic<long long>& operator[](Setting which) { return values_[static_cast<std::size_t>(which)]; }

 private:
  /// A misspelt variable would make a test pass that tests nothing.
  static void check_name(std::string_view entry) {
    if (entry.substr(0, 9) != "STAND_IN_") return;
    const std::string_view name = entry.substr(0, entry.find('='));
    for (const Known& known : kKnown) {
      if (variable_of(known) == name) return;
    }
    for (const char* text : kTexts) {
      if (text == name) return;
    }
    die("%.*s is no variable of the stand-ins: see their README.md", static_cast<int>(name.size()),
        name.data());
  }

  std::array<std::atomic<long long>, kSettings> values_{};
};

std::array<std::atomic<std::uint64_t>, kCounts> counts{};

/// STAND_IN_REPORT: a folder that gets a file of counts from every process that ends in order.
void report() {
  const char* folder = std::getenv("STAND_IN_REPORT");
  if (folder == nullptr || *folder == 0) return;
  std::string text = "{\"rank\": " + std::to_string(launched_rank());
  for (std::size_t i = 0; i < kCounts; ++i) {
    text += std::string(", \"") + kCountNames[i] + "\": " + std::to_string(counts[i].load());
  }
  text += "}\n";
  const std::string path = std::string(folder) + "/" + std::to_string(getpid()) + ".json";
  const int file = open((path + ".new").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    die("STAND_IN_REPORT: %s cannot be written: %s", path.c_str(), std::strerror(errno));
  }
  close(file);
  std::rename((path + ".new").c_str(), path.c_str());
}

/// Reads the environment when the library is loaded, and reports when it goes.
struct AtLoad {
  AtLoad() { Settings::instance(); }
  ~AtLoad() { report(); }
} at_load;

}  // namespace

long long setting(Setting which) { return Settings::instance()[which].load(); }

bool comes_due(Setting which) {
  std::atomic<long long>& left = Settings::instance()[which];
  long long seen = left.load();
  while (seen > 0) {
    if (left.compare_exchange_weak(seen, seen - 1)) return seen == 1;
  }
  return false;
}

void count(Count which, std::uint64_t more) { counts[static_cast<std::size_t>(which)] += more; }
void count_back(Count which, std::uint64_t less) { counts[static_cast<std::size_t>(which)] -= less; }

void die(const char* format, ...) {
  char text[1024];
  int length =
      std::snprintf(text, sizeof text, "stand-in (process %d, rank %d): ", getpid(), launched_rank());
  va_list list;
  va_start(list, format);
  length += std::vsnprintf(text + length, sizeof text - static_cast<std::size_t>(length) - 1, format, list);
  va_end(list);
  if (length > static_cast<int>(sizeof text) - 2) length = sizeof text - 2;
  text[length++] = '\n';
  if (write(2, text, static_cast<std::size_t>(length)) < 0) _exit(kDied);
  _exit(kDied);
}

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK"}) {
    const char* text = std::getenv(name);
    long long rank = 0;
    if (text != nullptr && parse(text, &rank)) return static_cast<int>(rank);
  }
  return -1;
}

}  // namespace stand_in

extern "C" {

STAND_IN_EXPORT std::uint64_t stand_in_count(const char* name) {
  for (std::size_t i = 0; i < stand_in::kCounts; ++i) {
    if (std::strcmp(stand_in::kCountNames[i], name) == 0) return stand_in::counts[i].load();
  }
  return UINT64_MAX;
}

STAND_IN_EXPORT std::uint64_t stand_in_held(char* text, std::size_t capacity) {
  std::uint64_t held = 0;
  std::string lines;
  for (std::size_t i = 0; i < stand_in::kCounts; ++i) {
    const std::uint64_t one = stand_in::counts[i].load();
    const std::string_view name = stand_in::kCountNames[i];
    if (one == 0 || name.substr(0, 5) != "held_" || name == "held_bytes") continue;
    held += one;
    lines += std::string(name) + ": " + std::to_string(one) + "\n";
  }
  if (text != nullptr && capacity > 0) std::snprintf(text, capacity, "%s", lines.c_str());
  return held;
}

STAND_IN_EXPORT int stand_in_set(const char* name, long long value) {
  for (std::size_t i = 0; i < stand_in::kSettings; ++i) {
    const stand_in::Known& known = stand_in::kKnown[i];
    if (std::strcmp(known.name, name) != 0) continue;
    if (value < known.least || value > known.most) return 1;
    stand_in::Settings::instance()[static_cast<stand_in::Setting>(i)] = value;
    return 0;
  }
  return 1;
}
}
