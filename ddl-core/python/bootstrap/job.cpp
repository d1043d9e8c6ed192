#include "job.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

namespace ddl::bootstrap {

std::uint32_t Job::size() const {
  std::size_t ranks = 0;
  for (const Host& host : hosts) ranks += host.ranks.size();
  return static_cast<std::uint32_t>(ranks);
}

Job parse_job(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  Job job;
  json.at("namespace").get_to(job.name_space);
  for (const auto& host : json.at("hosts")) {
    job.hosts.push_back(
        {host.at("name").get<std::string>(), host.at("ranks").get<std::vector<std::uint32_t>>()});
  }
  json.at("here").get_to(job.here);
  json.at("processes").get_to(job.processes);
  json.at("oversubscribed").get_to(job.oversubscribed);
  std::set<std::uint32_t> ranks;
  for (const Host& host : job.hosts) ranks.insert(host.ranks.begin(), host.ranks.end());
  const bool all_ranks = ranks.size() == job.size() && !ranks.empty() && *ranks.rbegin() == ranks.size() - 1;
  if (!all_ranks) throw std::invalid_argument("the ranks are not 0 to the size of the job");
  if (job.here >= job.hosts.size()) throw std::invalid_argument("this host is none of the job's");
  if (job.processes.size() != job.hosts[job.here].ranks.size()) {
    throw std::invalid_argument("not one process for each rank of this host");
  }
  return job;
}

}  // namespace ddl::bootstrap
