#pragma once

#include <stdexcept>
#include <string>

#include "ddl.h"

namespace ddl {

/// A failure on its way to the C interface. The text is complete: `[ERROR DDL-1-<code>] what; where; remedy`.
class Error : public std::runtime_error {
 public:
  Error(DDL_Status code, const std::string& message)
      : std::runtime_error("[ERROR DDL-1-" + std::to_string(static_cast<int>(code)) + "] " + message),
        code_(code) {}

  /// For a text that already carries its prefix, such as one that arrived from another rank.
  static Error verbatim(DDL_Status code, const std::string& text) { return Error(code, text, 0); }

  DDL_Status code() const { return code_; }

 private:
  Error(DDL_Status code, const std::string& text, int) : std::runtime_error(text), code_(code) {}
  DDL_Status code_;
};

}  // namespace ddl
