#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "simulate/described_cluster.hpp"

namespace ddl {

/// How long a step took on a real cluster.
struct MeasuredStep {
  std::size_t ranks = 1;
  double seconds = 0;
  bool fit = true;  ///< false: only to compare with
};

/// Step times of one program on the cluster that a description describes.
struct StepTimes {
  std::size_t bytes = 0;  ///< of the program's gradients
  std::vector<MeasuredStep> steps;

  /// docs/cluster/simulate.md describes the file. @throws Error (DDL_ERR_ARGUMENT) that names the place
  static StepTimes parse(const std::string& text, const DescribedCluster& cluster);
};

/// What was fitted; empty where no step told.
struct Calibration {
  double step_s = 0;                         ///< computation
  std::optional<double> inside_efficiency;   ///< of the tiers up to the host
  std::optional<double> network_efficiency;  ///< of those above
};

/**
 * Fits a description to the steps that are to be fitted, and nothing else: the computation to the step of one
 * rank; then one efficiency for all tiers inside a host to the steps of several ranks on one host; then one
 * for all tiers above to the steps of several hosts. With one step of each kind the fit is exact.
 */
Calibration calibrate(DescribedCluster& cluster, const StepTimes& times);

}  // namespace ddl
