#include "engine/cache_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "support/hash.hpp"

namespace ddl {
namespace {

void make_folders(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    mkdir(path.substr(0, at).c_str(), 0777);
  }
}

}  // namespace

std::string cache_folder() {
  const auto value = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  if (const std::string own = value("DDL_CACHE_DIR"); !own.empty()) return own;
  if (const std::string cache = value("XDG_CACHE_HOME"); !cache.empty()) return cache + "/ddl";
  // Of an account without a home nothing is made.
  struct stat found {};
  const std::string home = value("HOME");
  if (!home.empty() && stat(home.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) return home + "/.cache/ddl";
  return "";
}

std::string fingerprint_of(const std::string& text) {
  std::array<char, 20> hex{};
  std::snprintf(hex.data(), hex.size(), "%016llx",
                static_cast<unsigned long long>(hash_bytes(text.data(), text.size())));
  return hex.data();
}

void write_cached(const std::string& path, const std::string& text) {
  make_folders(path);
  const std::string partial = path + "." + std::to_string(getpid());
  std::ofstream out(partial);
  out << text;
  out.close();
  if (!out || std::rename(partial.c_str(), path.c_str()) != 0) std::remove(partial.c_str());
}

std::string read_cached(const std::string& path, std::size_t most) {
  std::string text(most, 0);
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(most));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace ddl
