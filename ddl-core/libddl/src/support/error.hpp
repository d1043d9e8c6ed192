#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "ddl.h"

namespace ddl {

/// A failure on its way to the C interface: what is wrong, where, and the remedy. what() is the text for the
/// user, `[ERROR DDL-1-<code>] problem; where; remedy`, which is joined nowhere else.
class Error : public std::runtime_error {
 public:
  /// The place of what fails where ranks have no numbers: whoever knows the rank's puts it there.
  static constexpr std::string_view kOnThisRank = "on this rank";

  /// @param where  such as "in ddl_init"; "" where the problem says so
  Error(DDL_Status code, std::string_view problem, std::string_view where, std::string_view remedy)
      : Error(code, joined(code, problem, where, remedy), problem.size(), where.size(), remedy.size()) {}

  /// An error of another rank, of which the text has arrived: all of it is the problem.
  static Error received(DDL_Status code, const std::string& text) {
    return Error(code, text, text.size(), 0, 0);
  }

  DDL_Status code() const { return code_; }
  std::string_view problem() const { return part(0, problem_); }
  std::string_view where() const {
    return where_ == 0 ? std::string_view() : part(problem_ + kSeparator.size(), where_);
  }
  std::string_view remedy() const { return part(message_ - remedy_, remedy_); }
  /// All of the text but the number.
  std::string_view message() const { return part(0, message_); }

  /// The same at another place.
  Error at(std::string_view where) const { return Error(code_, problem(), where, remedy()); }

 private:
  static constexpr std::string_view kSeparator = "; ";

  static std::string joined(DDL_Status code, std::string_view problem, std::string_view where,
                            std::string_view remedy) {
    std::string text = "[ERROR DDL-1-" + std::to_string(static_cast<int>(code)) + "] ";
    text += problem;
    for (const std::string_view next : {where, remedy}) {
      if (!next.empty()) (text += kSeparator) += next;
    }
    return text;
  }

  Error(DDL_Status code, const std::string& text, std::size_t problem, std::size_t where, std::size_t remedy)
      : std::runtime_error(text),
        code_(code),
        problem_(problem),
        where_(where),
        remedy_(remedy),
        message_(problem + (where == 0 ? 0 : kSeparator.size() + where) +
                 (remedy == 0 ? 0 : kSeparator.size() + remedy)),
        begin_(text.size() - message_) {}

  std::string_view part(std::size_t at, std::size_t bytes) const { return {what() + begin_ + at, bytes}; }

  DDL_Status code_;
  // Of the text: the length of each part, and where the first begins. A copy needs no memory.
  std::size_t problem_;
  std::size_t where_;
  std::size_t remedy_;
  std::size_t message_;
  std::size_t begin_;
};

}  // namespace ddl
