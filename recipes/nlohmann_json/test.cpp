// Reads a text, changes it, writes it; refuses what is no JSON.
#include <nlohmann/json.hpp>

int main() {
  auto value = nlohmann::json::parse(R"({"ranks": [3, 2], "name": "h\u00e9"})");
  value["ranks"].push_back(4.5);
  if (value.dump() != "{\"name\":\"h\xc3\xa9\",\"ranks\":[3,2,4.5]}") return 1;
  try {
    value = nlohmann::json::parse("{\"ranks\": [3, 2}");
  } catch (const nlohmann::json::parse_error& error) {
    return error.byte == 16 ? 0 : 2;
  }
  return 3;
}
