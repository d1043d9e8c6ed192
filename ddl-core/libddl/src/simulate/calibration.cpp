#include "simulate/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "simulate/forecast.hpp"
#include "support/error.hpp"
#include "support/json_reader.hpp"

namespace ddl {
namespace {

constexpr std::size_t kMostSteps = 1000;
constexpr double kLeastEfficiency = 1e-4;

class StepsReader : private JsonReader {
 public:
  StepsReader() : JsonReader(DDL_ERR_ARGUMENT, "the step times", kSimulatePage) {}

  StepTimes read(const std::string& text, const DescribedCluster& cluster) const {
    if (text.size() > kMaxClusterFileBytes) {
      refuse("there are " + std::to_string(text.size()) + " bytes", "",
             "at most " + std::to_string(kMaxClusterFileBytes) + " are read");
    }
    const Json json = parse(text, 5, "the nesting is deeper than that of step times", kSimulatePage);
    if (!json.is_object()) refuse("it is no object but " + kind(json), "", "write {\"version\": 1, …}");
    check_keys(json, "", {"version", "name", "description", "source", "bytes", "steps"});
    if (!json.contains("version") || !json["version"].is_number_integer() || json["version"] != 1) {
      refuse("'version' is not 1", "/version", "write \"version\": 1");
    }
    for (const char* key : {"name", "description", "source"}) {
      if (json.contains(key)) static_cast<void>(text_of(json[key], std::string("/") + key));
    }
    StepTimes times;
    times.bytes =
        static_cast<std::size_t>(std::llround(quantity_of(json, "bytes", "", Quantity::kBytes, 1, 1e15)));
    if (!json.contains("steps")) refuse("'steps' is missing", "", "list {\"ranks\": …, \"time\": …}");
    const Json& list = array_of(json["steps"], "/steps");
    if (list.size() > kMostSteps) refuse("there are too many steps", "/steps", "write at most 1000");
    std::set<std::size_t> seen;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string where = "/steps/" + std::to_string(i);
      times.steps.push_back(step_of(list[i], where, cluster));
      if (!seen.insert(times.steps.back().ranks).second) {
        refuse("the number of ranks is there twice", where + "/ranks", "give one time for each");
      }
    }
    const bool alone = std::any_of(times.steps.begin(), times.steps.end(),
                                   [](const MeasuredStep& step) { return step.fit && step.ranks == 1; });
    if (!alone) {
      refuse("no step of one rank is there to be fitted", "/steps",
             "add {\"ranks\": 1, \"time\": …}: it tells the computation");
    }
    return times;
  }

 private:
  MeasuredStep step_of(const Json& entry, const std::string& where, const DescribedCluster& cluster) const {
    if (!entry.is_object()) refuse("a step is an object, not " + kind(entry), where, "write {\"ranks\": …}");
    check_keys(entry, where, {"ranks", "time", "fit"});
    if (!entry.contains("ranks")) refuse("'ranks' is missing", where, "add \"ranks\"");
    const Json& ranks = entry["ranks"];
    if (!ranks.is_number_integer() || ranks < 1 || ranks > cluster.ranks()) {
      refuse("ranks is " + shown(ranks), where + "/ranks",
             "write a whole number from 1 to the cluster's " + std::to_string(cluster.ranks()));
    }
    MeasuredStep step{ranks.get<std::size_t>(),
                      quantity_of(entry, "time", where, Quantity::kSeconds, 1e-9, 1e6), true};
    if (entry.contains("fit")) {
      if (!entry["fit"].is_boolean())
        refuse("fit is " + shown(entry["fit"]), where + "/fit", "write true or false");
      step.fit = entry["fit"].get<bool>();
    }
    return step;
  }
};

/// Finds the efficiency of the tiers [first, last) that brings the steps closest, by golden section over its
/// logarithm.
double fit(DescribedCluster& cluster, std::size_t bytes, const std::vector<MeasuredStep>& steps,
           std::size_t first, std::size_t last) {
  const auto deviation = [&](double logarithm) {
    for (std::size_t t = first; t < last; ++t) cluster.tiers[t].efficiency = std::exp(logarithm);
    double sum = 0;
    for (const MeasuredStep& step : steps) {
      const Forecast predicted = forecast(cluster, bytes, step.ranks, Method::kPlanned);
      const double off = std::log(step_seconds(cluster, predicted) / step.seconds);
      sum += off * off;
    }
    return sum;
  };
  const double golden = (std::sqrt(5.0) - 1) / 2;
  double low = std::log(kLeastEfficiency);
  double high = 0;
  double left = high - golden * (high - low);
  double right = low + golden * (high - low);
  double at_left = deviation(left);
  double at_right = deviation(right);
  while (high - low > 1e-7) {
    if (at_left < at_right) {
      high = right;
      right = left;
      at_right = at_left;
      left = high - golden * (high - low);
      at_left = deviation(left);
    } else {
      low = left;
      left = right;
      at_left = at_right;
      right = low + golden * (high - low);
      at_right = deviation(right);
    }
  }
  const double best = (low + high) / 2;
  deviation(best);
  return std::exp(best);
}

}  // namespace

StepTimes StepTimes::parse(const std::string& text, const DescribedCluster& cluster) {
  return StepsReader().read(text, cluster);
}

Calibration calibrate(DescribedCluster& cluster, const StepTimes& times) {
  Calibration calibration;
  std::vector<MeasuredStep> inside;
  std::vector<MeasuredStep> network;
  for (const MeasuredStep& step : times.steps) {
    if (!step.fit) continue;
    if (step.ranks == 1) {
      calibration.step_s = step.seconds;
    } else {
      (cluster.job(step.ranks).hosts == 1 ? inside : network).push_back(step);
    }
  }
  cluster.step_s = calibration.step_s;
  const std::size_t host_end = cluster.host_tier + 1;
  if (!inside.empty()) calibration.inside_efficiency = fit(cluster, times.bytes, inside, 0, host_end);
  if (!network.empty()) {
    calibration.network_efficiency = fit(cluster, times.bytes, network, host_end, cluster.tiers.size());
  }
  return calibration;
}

}  // namespace ddl
