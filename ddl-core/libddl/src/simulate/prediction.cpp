#include "simulate/prediction.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "simulate/calibration.hpp"
#include "simulate/described_cluster.hpp"
#include "simulate/forecast.hpp"
#include "support/error.hpp"

namespace ddl {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::vector<std::size_t> usual_counts(const DescribedCluster& cluster) {
  const std::vector<std::size_t> hosts = cluster.host_ranks();
  std::vector<std::size_t> counts;
  for (std::size_t ranks = 1; ranks < hosts.front(); ranks *= 2) counts.push_back(ranks);
  std::size_t sum = 0;
  for (std::size_t i = 0, next = 1; i < hosts.size(); ++i) {
    sum += hosts[i];
    if (i + 1 < next) continue;
    counts.push_back(sum);
    next *= 2;
  }
  counts.push_back(cluster.ranks());
  return counts;
}

OrderedJson optional_number(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson json_of(const Forecast& forecast, const DescribedCluster& cluster) {
  OrderedJson parts = {{"reduction", forecast.cost.memory_s}};
  OrderedJson tiers = OrderedJson::object();
  for (std::size_t i = 0; i < forecast.tiers.size(); ++i) {
    tiers[forecast.tiers[i]] = forecast.cost.tiers_s[i];
  }
  parts["tiers"] = std::move(tiers);
  parts["processor"] = forecast.cost.work_s;
  parts["latency"] = forecast.cost.latency_s;
  OrderedJson entry = {
      {"algorithm", name_of(forecast.method)},
      {"ranks", forecast.ranks},
      {"hosts", forecast.hosts},
      {"allreduce_s", forecast.cost.seconds},
      {"step_s", nullptr},
      {"efficiency", nullptr},
      {"bound_by", forecast.bound.empty() ? OrderedJson(nullptr) : OrderedJson(forecast.bound)},
      {"seconds", std::move(parts)}};
  if (cluster.step_s) {
    const double step = step_seconds(cluster, forecast);
    entry["step_s"] = step;
    if (step > 0) entry["efficiency"] = *cluster.step_s / step;
  }
  if (!forecast.plan.empty()) entry["plan"] = forecast.plan;
  return entry;
}

OrderedJson json_of(const Calibration& calibration, const StepTimes& times, const DescribedCluster& cluster) {
  OrderedJson steps = OrderedJson::array();
  for (const MeasuredStep& step : times.steps) {
    const double predicted =
        step_seconds(cluster, forecast(cluster, times.bytes, step.ranks, Method::kPlanned));
    steps.push_back({{"ranks", step.ranks},
                     {"measured_s", step.seconds},
                     {"predicted_s", predicted},
                     {"fitted", step.fit},
                     {"off", predicted / step.seconds - 1}});
  }
  return {{"step_s", calibration.step_s},
          {"inside_efficiency", optional_number(calibration.inside_efficiency)},
          {"network_efficiency", optional_number(calibration.network_efficiency)},
          {"bytes", times.bytes},
          {"steps", std::move(steps)}};
}

}  // namespace

std::string predict_json(const std::string& cluster_text, const std::string& steps_text, std::size_t bytes,
                         std::vector<std::size_t> ranks) {
  DescribedCluster cluster = DescribedCluster::parse(cluster_text);
  std::optional<StepTimes> times;
  OrderedJson calibrated = nullptr;
  if (!steps_text.empty()) {
    times = StepTimes::parse(steps_text, cluster);
    const Calibration calibration = calibrate(cluster, *times);
    calibrated = json_of(calibration, *times, cluster);
  }
  if (bytes == 0) bytes = times ? times->bytes : cluster.bytes.value_or(0);
  if (bytes == 0) {
    throw Error(DDL_ERR_ARGUMENT, "the number of bytes is not known",
                "in the cluster description at /step/bytes", "give it there, or with the call");
  }
  if (ranks.empty()) {
    ranks = usual_counts(cluster);
    if (times) {
      for (const MeasuredStep& step : times->steps) ranks.push_back(step.ranks);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  }
  if (ranks.size() > kMaxPredictedCounts) {
    throw Error(DDL_ERR_ARGUMENT, std::to_string(ranks.size()) + " numbers of ranks are asked for",
                "in the call", "ask for at most " + std::to_string(kMaxPredictedCounts));
  }
  for (const std::size_t count : ranks) {
    if (count >= 1 && count <= cluster.ranks()) continue;
    throw Error(DDL_ERR_ARGUMENT, "a job of " + std::to_string(count) + " ranks does not fit", "in the call",
                "the cluster has " + std::to_string(cluster.ranks()) + ": ask for 1 to as many");
  }

  OrderedJson tiers = OrderedJson::array();
  for (const DescribedTier& tier : cluster.tiers) {
    tiers.push_back({{"name", tier.name},
                     {"bytes_per_s", tier.bytes_per_s},
                     {"efficiency", tier.efficiency},
                     {"latency_s", tier.latency_s}});
  }
  OrderedJson algorithms = OrderedJson::object();
  for (const Method method : kMethods) algorithms[name_of(method)] = meaning_of(method);
  OrderedJson predictions = OrderedJson::array();
  for (const Method method : kMethods) {
    for (const std::size_t count : ranks) {
      predictions.push_back(json_of(forecast(cluster, bytes, count, method), cluster));
    }
  }
  const OrderedJson result = {{"cluster",
                               {{"name", cluster.name},
                                {"description", cluster.description},
                                {"ranks", cluster.ranks()},
                                {"host_ranks", cluster.host_ranks()},
                                {"tiers", std::move(tiers)}}},
                              {"bytes", bytes},
                              {"step_s", optional_number(cluster.step_s)},
                              {"fixed_s", cluster.fixed_s},
                              {"calibration", std::move(calibrated)},
                              {"algorithms", std::move(algorithms)},
                              {"predictions", std::move(predictions)}};
  // Names are other people's text, and may be no UTF-8.
  return result.dump(-1, ' ', true, OrderedJson::error_handler_t::replace);
}

}  // namespace ddl
