#include "plan/link_model.hpp"

#include <cmath>
#include <cstdio>
#include <sstream>

namespace ddl {
namespace {

constexpr const char* kHeader = "ddl-links 1";

bool usable(const LinkFigures& link) {
  return std::isfinite(link.latency_s) && std::isfinite(link.bytes_per_s) && link.latency_s >= 0 &&
         link.latency_s < 100 && link.bytes_per_s > 1 && link.bytes_per_s < 1e15;
}

std::string line(const char* name, const LinkFigures& link) {
  char text[120];
  std::snprintf(text, sizeof text, "%s %.9g %.9g\n", name, link.latency_s, link.bytes_per_s);
  return text;
}

}  // namespace

LinkModel LinkModel::assumed(std::size_t tiers) {
  LinkModel model;
  model.memory = {2e-6, 4e9};
  model.tiers.assign(tiers, {30e-6, 1.2e9});
  model.origin = "assumed";
  return model;
}

std::string LinkModel::to_text() const {
  std::string text = std::string(kHeader) + "\n" + line("memory", memory);
  for (const LinkFigures& link : tiers) text += line("tier", link);
  return text;
}

bool LinkModel::from_text(const std::string& text, std::size_t count) {
  std::istringstream in(text);
  std::string first;
  if (!std::getline(in, first) || first != kHeader) return false;
  LinkModel read;
  std::string name;
  LinkFigures link;
  while (in >> name >> link.latency_s >> link.bytes_per_s) {
    if (!usable(link)) return false;
    if (name == "memory") {
      read.memory = link;
    } else if (name == "tier") {
      read.tiers.push_back(link);
    } else {
      return false;
    }
  }
  if (!in.eof() || read.tiers.size() != count || read.memory.bytes_per_s <= 0) return false;
  memory = read.memory;
  tiers = std::move(read.tiers);
  return true;
}

}  // namespace ddl
