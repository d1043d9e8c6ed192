// The wire formats where they are used: DDL's all-reduce over hosts and racks, with the format that -wire in
// DDL_OPTIONS names, against sums in float64 and the bounds that docs/reference/wire-formats.md
// gives for a whole all-reduce.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "ddl.hpp"
#include "wire_inputs.hpp"

namespace ddl {
namespace {

constexpr std::size_t kCount = 70000;  // more than one chunk, and no whole number of blocks

WireFormat format_of_options() {
  const std::map<std::string, WireFormat> formats = {
      {"-wire fp16", WireFormat::kFp16}, {"-wire bf16", WireFormat::kBf16}, {"-wire q8", WireFormat::kQ8}};
  const char* const options = std::getenv("DDL_OPTIONS");
  return options == nullptr ? WireFormat::kFull : formats.at(options);
}

/// Tiers of links between the emulated hosts: each encodes a partial sum once on its way up.
double tiers() {
  const std::string hosts = std::getenv("DDL_EMULATE_HOSTS");
  return hosts.find('/') != std::string::npos ? 2 : 1;
}

struct Unit {
  double relative;  ///< of the element (16 bits) or of the largest of its block (q8)
  double absolute;  ///< below the range where `relative` holds
};

Unit unit_of(WireFormat format) {
  switch (format) {
    case WireFormat::kFull:
      return {0, 0};
    case WireFormat::kFp16:
      return {std::ldexp(1, -11), std::ldexp(1, -25)};
    case WireFormat::kBf16:
      return {std::ldexp(1, -8), std::ldexp(1, -134)};
    case WireFormat::kQ8:
      break;
  }
  return {(1 + std::ldexp(1, -14)) / 254, std::ldexp(1.001, -126)};
}

/// Sum over the ranks of |x|, or of the largest |x| of the element's block.
double size_of_inputs(WireFormat format, const std::vector<std::vector<float>>& inputs, std::size_t i) {
  double size = 0;
  for (const auto& input : inputs) {
    size += format == WireFormat::kQ8 ? BlockOf(input, i).largest : std::fabs(static_cast<double>(input[i]));
  }
  return size;
}

int rank() {
  int value = -1;
  EXPECT_EQ(ddl_rank(&value), DDL_SUCCESS);
  return value;
}

int size() {
  int value = -1;
  EXPECT_EQ(ddl_size(&value), DDL_SUCCESS);
  return value;
}

/// The sum, which all ranks have to see alike.
std::vector<float> reduced(std::vector<float> values, const char* name = nullptr) {
  void* const buffer = values.data();
  const std::size_t count = values.size();
  EXPECT_EQ(ddl_allreduce_n(&buffer, &count, 1, DDL_TYPE_FLOAT, DDL_OP_SUM, name), DDL_SUCCESS)
      << ddl_last_error();
  std::vector<float> of_first = values;
  EXPECT_EQ(ddl_broadcast(of_first.data(), of_first.size(), DDL_TYPE_FLOAT, 0, nullptr), DDL_SUCCESS);
  EXPECT_TRUE(same_bits(values, of_first)) << "ranks differ";
  return values;
}

TEST(WireAllreduce, TheErrorIsWithinTheBoundOfTheWhole) {
  const WireFormat format = format_of_options();
  const Unit unit = unit_of(format);
  for (const std::size_t kind : {std::size_t{0}, std::size_t{1}, std::size_t{10}, std::size_t{11}}) {
    std::vector<std::vector<float>> inputs;
    std::string name;
    for (int other = 0; other < size(); ++other) {
      const WireInput input = finite_inputs(kCount, static_cast<unsigned>(100 + other))[kind];
      inputs.push_back(input.values);
      name = input.name;
    }
    SCOPED_TRACE(name);
    const std::vector<float> result = reduced(inputs[static_cast<std::size_t>(rank())]);
    double worst = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      double exact = 0;
      for (const auto& input : inputs) exact += input[i];
      const double all = size_of_inputs(format, inputs, i);
      const double bound = (std::pow(1 + unit.relative, tiers() + 1) - 1) * all +
                           (size() * unit.absolute + (size() - 1) * std::ldexp(all, -24)) * 1.1;
      const double error = std::fabs(result[i] - exact);
      ASSERT_LE(error, bound) << i;
      if (all > 0) worst = std::max(worst, error / all);
    }
    if (kind == 0) {
      EXPECT_GT(worst, unit.relative / 20) << "the format was not used";
    }
  }
}

/// An average is no larger than the inputs, and neither is what hosts send each other of it.
TEST(WireAllreduce, AveragesOfWhatTheFormatHoldsAreFinite) {
  const Unit unit = unit_of(format_of_options());
  for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, kCount}) {
    std::vector<float> mine(count);
    std::vector<double> exact(count, 0);
    for (int other = 0; other < size(); ++other) {
      for (std::size_t i = 0; i < count; ++i) {
        const float value =
            64000.0F - static_cast<float>((i * 31 + static_cast<std::size_t>(other) * 7) % 999);
        exact[i] += value / static_cast<double>(size());
        if (other == rank()) mine[i] = value;
      }
    }
    ASSERT_EQ(ddl_allreduce(mine.data(), count, DDL_TYPE_FLOAT, DDL_OP_AVG), DDL_SUCCESS) << ddl_last_error();
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_NEAR(mine[i], exact[i], 64000 * ((tiers() + 1) * unit.relative * 1.05 + std::ldexp(size(), -24)))
          << i << " of " << count;
    }
  }
}

/// With error feedback the mean of many all-reduces of one name is right; without a name it is not.
TEST(WireAllreduce, TheMeanOfNamedSumsConverges) {
  if (format_of_options() != WireFormat::kQ8) return;  // the other formats keep no residual
  constexpr int kSteps = 100;
  std::vector<std::vector<float>> inputs;
  for (int other = 0; other < size(); ++other) {
    inputs.push_back(finite_inputs(3000, static_cast<unsigned>(200 + other))[0].values);
  }
  double worst[2] = {0, 0};
  double all = 0;
  for (const char* const name : {static_cast<const char*>(nullptr), "gradient"}) {
    std::vector<double> mean(inputs[0].size());
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<float> result = reduced(inputs[static_cast<std::size_t>(rank())], name);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += result[i] / static_cast<double>(kSteps);
    }
    for (std::size_t i = 0; i < mean.size(); ++i) {
      double exact = 0;
      for (const auto& input : inputs) exact += input[i];
      double& of_name = worst[name == nullptr ? 0 : 1];
      of_name = std::max(of_name, std::fabs(mean[i] - exact));
      all = std::max(all, size_of_inputs(WireFormat::kQ8, inputs, i));
    }
  }
  // Each encoder keeps one residual back.
  const double bound =
      (std::pow(1 + unit_of(WireFormat::kQ8).relative, tiers() + 1) - 1) * all * 1.05 / kSteps +
      2 * size() * std::ldexp(all, -24);
  EXPECT_LE(worst[1], bound);
  EXPECT_GT(worst[0], 10 * worst[1]);
}

/// NaN and infinity arrive at all ranks, from any rank, at their place only.
TEST(WireAllreduce, NaNAndInfinityArrive) {
  for (int culprit = 0; culprit < size(); ++culprit) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      std::vector<float> values(600, 1.0F);
      if (rank() == culprit) values[321] = bad;
      const std::vector<float> result = reduced(values);
      for (std::size_t i = 0; i < result.size(); ++i) {
        if (i != 321) {
          ASSERT_NEAR(result[i], size(), size() * 0.05);
        } else {
          ASSERT_TRUE(std::isnan(bad) ? std::isnan(result[i]) : result[i] == bad) << result[i];
        }
      }
    }
  }
}

}  // namespace
}  // namespace ddl
