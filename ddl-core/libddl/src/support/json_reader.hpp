#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "ddl.h"
#include "support/quantity.hpp"

namespace ddl {

using Json = nlohmann::json;

/// Reads other people's JSON: whatever is wrong becomes an Error that names the place and the remedy.
class JsonReader {
 public:
  /// @param code     of the errors
  /// @param subject  what is read, as messages call it ("topology file site.json")
  /// @param see      where it is described
  JsonReader(DDL_Status code, std::string subject, std::string see)
      : code_(code), subject_(std::move(subject)), see_(std::move(see)) {}

  /// @param where  JSON pointer to the place; "" for the whole
  [[noreturn]] void refuse(const std::string& what, const std::string& where,
                           const std::string& remedy) const;
  /// @param deepest   objects and arrays in each other
  /// @param too_deep  what to say of more
  /// @param remedy    for more
  Json parse(const std::string& text, int deepest, const std::string& too_deep,
             const std::string& remedy) const;

  void check_keys(const Json& object, const std::string& where, const std::set<std::string>& known) const;
  std::string text_of(const Json& json, const std::string& where) const;
  /// A list that is not empty.
  const Json& array_of(const Json& json, const std::string& where) const;

  /// A member of an object: a number in the basic unit, or a text with a unit, from `least` to `most`.
  double quantity_of(const Json& object, const char* key, const std::string& where, Quantity quantity,
                     double least, double most) const;

  /// The type with its article.
  static std::string kind(const Json& json);
  /// A value as messages quote it.
  static std::string shown(const Json& json);

 private:
  const DDL_Status code_;
  const std::string subject_;
  const std::string see_;
};

}  // namespace ddl
