#include "support/json_reader.hpp"

#include <cstdio>
#include <optional>
#include <vector>

#include "support/error.hpp"

namespace ddl {

void JsonReader::refuse(const std::string& what, const std::string& where, const std::string& remedy) const {
  throw Error(code_, what, "in " + subject_ + (where.empty() ? std::string() : " at " + where), remedy);
}

std::string JsonReader::kind(const Json& json) {
  return json.is_object() || json.is_array() ? std::string("an ") + json.type_name()
                                             : std::string("a ") + json.type_name();
}

std::string JsonReader::shown(const Json& json) {
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  constexpr std::size_t longest = 60;
  if (text.size() > longest) text = text.substr(0, longest) + "...";
  return text;
}

Json JsonReader::parse(const std::string& text, int deepest, const std::string& too_deep,
                       const std::string& remedy) const {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > deepest) refuse(too_deep, "", remedy);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      refuse("an object has the key " + shown(parsed) + " twice", "", "leave one of the two out");
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& error) {
    std::string what = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
    if (const std::size_t end = what.find("] "); end != std::string::npos) what.erase(0, end + 2);
    // It quotes the last word, however long that is.
    constexpr std::size_t longest = 300;
    if (what.size() > longest) what = what.substr(0, longest) + "...";
    refuse("it is no JSON: " + what, "", "mend it there");
  }
}

void JsonReader::check_keys(const Json& object, const std::string& where,
                            const std::set<std::string>& known) const {
  for (const auto& [key, value] : object.items()) {
    if (known.contains(key)) continue;
    std::string valid;
    for (const std::string& name : known) valid += (valid.empty() ? "" : ", ") + name;
    refuse("unknown key " + shown(Json(key)), where, "valid are " + valid + "; " + see_);
  }
}

std::string JsonReader::text_of(const Json& json, const std::string& where) const {
  if (!json.is_string()) refuse("a text is expected, not " + kind(json), where, "put it in quotes");
  return json.get<std::string>();
}

const Json& JsonReader::array_of(const Json& json, const std::string& where) const {
  if (!json.is_array()) {
    refuse("a list is expected, not " + kind(json), where, "put it in square brackets");
  }
  if (json.empty()) refuse("the list is empty", where, "fill it, or leave it out");
  return json;
}

double JsonReader::quantity_of(const Json& object, const char* key, const std::string& where,
                               Quantity quantity, double least, double most) const {
  if (!object.contains(key)) {
    refuse('\'' + std::string(key) + "' is missing", where, std::string("add \"") + key + '"');
  }
  const Json& value = object[key];
  std::optional<double> number;
  if (value.is_number()) number = value.get<double>();
  if (value.is_string()) number = parse_quantity(value.get_ref<const std::string&>(), quantity);
  if (!number || !(*number >= least) || !(*number <= most)) {
    char range[80];
    std::snprintf(range, sizeof range, "write a number from %g to %g, ", least, most);
    refuse(std::string(key) + " is " + shown(value), where + '/' + key,
           range + std::string("or a text with one of the units ") + units_of(quantity));
  }
  return *number;
}

}  // namespace ddl
