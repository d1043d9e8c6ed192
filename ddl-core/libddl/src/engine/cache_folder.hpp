#pragma once

#include <string>

namespace ddl {

/// Where what was measured is kept: $DDL_CACHE_DIR, $XDG_CACHE_HOME/ddl or $HOME/.cache/ddl; "" where there
/// is no such place.
std::string cache_folder();

/// Sixteen hexadecimal digits that stand for what a file is about.
std::string fingerprint_of(const std::string& text);

/// Writes a file as a whole, and the folders that it lies in, where that is possible: another job may read it
/// at any time.
void write_cached(const std::string& path, const std::string& text);

/// The whole file, at most `most` bytes; "" where there is none.
std::string read_cached(const std::string& path, std::size_t most);

}  // namespace ddl
