#include "simulate/forecast.hpp"

#include <algorithm>

#include "plan/planner.hpp"

namespace ddl {
namespace {

/// To one rank and back: in every tier the whole vector goes along a binomial tree, one rank of each group at
/// a time.
Cost tree_cost(double bytes, const JobShape& job) {
  const LinkModel& model = job.model;
  Cost cost;
  // Received and added up in one rank after the other.
  double added = rounds_of_halving(job.cluster.ranks_a_host);
  for (std::size_t t = 0; t < job.cluster.tiers.size(); ++t) {
    const LinkFigures& link = model.tiers[t];
    const double rounds = rounds_of_halving(job.cluster.tiers[t].groups);
    cost.tiers_s.push_back(2 * rounds * bytes / (link.bytes_per_s * link.to_one_peer * link.by_one_rank));
    cost.latency_s += 2 * rounds * link.latency_s;
    added += rounds;
  }
  cost.memory_s = added * (bytes / model.memory.bytes_per_s + model.memory.latency_s);
  cost.seconds = cost.memory_s + cost.latency_s;
  for (const double seconds : cost.tiers_s) cost.seconds += seconds;
  return cost;
}

/// Over all ranks, without chunks and without regard to tiers. A ring keeps all links busy at once; the
/// rounds of the recursive algorithm go over one tier after the other.
Cost flat_cost(double bytes, const JobShape& job, bool ring) {
  const LinkModel& model = job.model;
  const auto all = static_cast<double>(job.cluster.ranks);
  const double rounds = ring ? 2 * (all - 1) : 2 * rounds_of_halving(job.cluster.ranks);
  Cost cost;
  double longest = 0;
  double sum = 0;
  double latency = 0;
  for (std::size_t t = 0; t < job.cluster.tiers.size(); ++t) {
    const LinkFigures& link = model.tiers[t];
    const auto groups = static_cast<double>(job.cluster.tiers[t].groups);
    // Of the recursive algorithm's rounds those within a tier halve what is left of the vector, for every
    // rank below a link.
    const double link_bytes = 2 * bytes * (ring ? (all - 1) / all : (groups - 1) / groups);
    const double seconds = link_bytes / (link.bytes_per_s * link.to_one_peer * (ring ? link.by_one_rank : 1));
    cost.tiers_s.push_back(seconds);
    longest = std::max(longest, seconds);
    sum += seconds;
    latency = std::max(latency, link.latency_s);
  }
  if (job.cluster.tiers.empty()) longest = sum = 2 * (all - 1) / all * bytes / model.memory.bytes_per_s;
  cost.memory_s = (all - 1) / all * bytes / model.memory.bytes_per_s;
  cost.work_s = rounds * model.message_s;
  cost.latency_s = rounds * latency;
  cost.seconds =
      (ring ? std::max(longest, cost.memory_s) : sum + cost.memory_s) + cost.work_s + cost.latency_s;
  return cost;
}

std::string bound_of(const Forecast& forecast) {
  const Cost& cost = forecast.cost;
  std::string bound = "reduction";
  double most = cost.memory_s;
  const auto consider = [&](double seconds, const std::string& what) {
    if (seconds <= most) return;
    most = seconds;
    bound = what;
  };
  for (std::size_t i = 0; i < cost.tiers_s.size(); ++i) consider(cost.tiers_s[i], forecast.tiers[i]);
  consider(cost.work_s, "processor");
  consider(cost.latency_s, "latency");
  return bound;
}

}  // namespace

const char* name_of(Method method) {
  switch (method) {
    case Method::kPlanned:
      return "planned";
    case Method::kRing:
      return "ring";
    case Method::kRecursive:
      return "recursive";
    case Method::kTree:
      return "tree";
    case Method::kRingByTier:
      return "ring-by-tier";
    case Method::kRecursiveByTier:
      return "recursive-by-tier";
    case Method::kMpi:
      return "mpi";
  }
  return "unknown";
}

const char* meaning_of(Method method) {
  switch (method) {
    case Method::kPlanned:
      return "what DDL plans by itself (-mode p), tier by tier";
    case Method::kRing:
      return "one ring over all ranks";
    case Method::kRecursive:
      return "recursive halving and doubling over all ranks, nearest ranks first";
    case Method::kTree:
      return "to one rank and back, by a binomial tree in every tier";
    case Method::kRingByTier:
      return "DDL with a ring in every tier (-mode r)";
    case Method::kRecursiveByTier:
      return "DDL with recursive halving and doubling in every tier (-mode c)";
    case Method::kMpi:
      return "MPI_Allreduce: a ring over all ranks, or recursive doubling";
  }
  return "unknown";
}

Forecast forecast(const DescribedCluster& cluster, std::size_t bytes, std::size_t ranks, Method method) {
  const JobShape job = cluster.job(ranks);
  Forecast result;
  result.method = method;
  result.ranks = ranks;
  result.hosts = job.hosts;
  for (const std::size_t tier : job.tiers) result.tiers.push_back(cluster.tiers[tier].name);
  result.cost.tiers_s.assign(job.tiers.size(), 0);
  if (ranks == 1) return result;

  AllreduceShape shape;
  shape.elements = (bytes + shape.width - 1) / shape.width;
  shape.one_buffer = false;
  PlannerRules rules;
  if (method == Method::kRingByTier) rules.mode = 'r';
  if (method == Method::kRecursiveByTier) rules.mode = 'c';
  const Planner planner(job.cluster, rules, job.model);
  const auto take = [&](const Plan& plan) {
    result.cost = cost_of(plan, shape, job.cluster, job.model);
    result.cost.tiers_s.resize(job.tiers.size());
  };
  switch (method) {
    case Method::kPlanned:
    case Method::kRingByTier:
    case Method::kRecursiveByTier: {
      const Plan plan = planner.candidates(shape).front();
      take(plan);
      if (method == Method::kPlanned) result.plan = plan.to_text();
      break;
    }
    case Method::kRing:
      result.cost = flat_cost(static_cast<double>(bytes), job, true);
      break;
    case Method::kRecursive:
      result.cost = flat_cost(static_cast<double>(bytes), job, false);
      break;
    case Method::kTree:
      result.cost = tree_cost(static_cast<double>(bytes), job);
      break;
    case Method::kMpi: {
      Plan plan;
      plan.plain_mpi = true;
      take(plan);
    }
  }
  result.bound = bound_of(result);
  return result;
}

double step_seconds(const DescribedCluster& cluster, const Forecast& forecast) {
  return cluster.step_s.value_or(0) + (forecast.ranks > 1 ? cluster.fixed_s : 0) + forecast.cost.seconds;
}

}  // namespace ddl
