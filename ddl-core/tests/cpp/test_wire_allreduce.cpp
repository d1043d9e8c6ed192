// The wire formats where they are used: an all-reduce over tiers, its messages passed by hand. What is
// checked is the bound of docs/wire-formats.md for the whole.

#include <gtest/gtest.h>

#include <numeric>

#include "wire_inputs.hpp"

namespace ddl {
namespace {

/// Ranks in a tree: sizes[t] members in each group of tier t, innermost first. One interval of the buffer,
/// whose owner is the first member of every group.
class Tree {
 public:
  Tree(WireFormat format, std::vector<std::size_t> sizes, std::size_t count, bool feedback)
      : format_(format), sizes_(std::move(sizes)), count_(count) {
    if (feedback) residuals_.assign(ranks() + 1, std::vector<float>(count));
  }

  std::size_t ranks() const {
    return std::accumulate(sizes_.begin(), sizes_.end(), std::size_t{1}, std::multiplies<>());
  }

  /// The sum as every rank sees it.
  std::vector<float> reduce(const std::vector<std::vector<float>>& inputs) {
    std::vector<std::vector<float>> partial = inputs;
    std::vector<char> wire(wire_bytes(format_, count_));
    std::size_t stride = 1;
    for (const std::size_t size : sizes_) {
      for (std::size_t owner = 0; owner < ranks(); owner += stride * size) {
        for (std::size_t k = 1; k < size; ++k) {
          const std::size_t sender = owner + k * stride;
          encode(format_, partial[sender].data(), count_, wire.data(), residual(sender));
          decode_add(format_, wire.data(), count_, partial[owner].data());
        }
      }
      stride *= size;
    }
    // The way down; the owner takes what the others get. Encoded again for the next tier, it is the same.
    encode(format_, partial[0].data(), count_, wire.data(), residual(ranks()));
    std::vector<float> result(count_), again(count_);
    decode(format_, wire.data(), count_, result.data());
    for (std::size_t tier = 1; tier < sizes_.size(); ++tier) {
      encode(format_, result.data(), count_, wire.data(), nullptr);
      decode(format_, wire.data(), count_, again.data());
      EXPECT_TRUE(same_bits(result, again));
    }
    return result;
  }

 private:
  float* residual(std::size_t encoder) { return residuals_.empty() ? nullptr : residuals_[encoder].data(); }

  WireFormat format_;
  std::vector<std::size_t> sizes_;
  std::size_t count_;
  std::vector<std::vector<float>> residuals_;
};

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

const std::vector<std::vector<std::size_t>> kTrees = {{2}, {5}, {2, 2}, {4, 3}, {2, 3, 2}, {2, 2, 2, 2}};

TEST(WireAllreduce, TheErrorIsWithinTheBoundOfTheWhole) {
  constexpr std::size_t count = 700;
  for (const WireFormat format : kAllFormats) {
    for (const auto& sizes : kTrees) {
      Tree tree(format, sizes, count, false);
      for (const std::size_t kind : {std::size_t{0}, std::size_t{1}, std::size_t{10}, std::size_t{11}}) {
        std::vector<std::vector<float>> inputs;
        std::string name;
        for (std::size_t rank = 0; rank < tree.ranks(); ++rank) {
          const WireInput input = finite_inputs(count, static_cast<unsigned>(100 + rank))[kind];
          inputs.push_back(input.values);
          name = input.name;
        }
        SCOPED_TRACE(std::string(name_of(format)) + " " + name + ", tiers: " + std::to_string(sizes.size()) +
                     ", ranks: " + std::to_string(tree.ranks()));
        const std::vector<float> result = tree.reduce(inputs);
        const auto ranks = static_cast<double>(tree.ranks());
        const auto tiers = static_cast<double>(sizes.size());
        for (std::size_t i = 0; i < count; ++i) {
          double exact = 0;
          for (const auto& input : inputs) exact += input[i];
          const double all = size_of_inputs(format, inputs, i);
          const Unit unit = unit_of(format);
          const double bound = (std::pow(1 + unit.relative, tiers + 1) - 1) * all +
                               (ranks * unit.absolute + (ranks - 1) * std::ldexp(all, -24)) * 1.1;
          ASSERT_LE(std::fabs(result[i] - exact), bound) << i;
        }
      }
    }
  }
}

/// With a residual at every encoder the mean of many all-reduces is right, tiers or not.
TEST(WireAllreduce, TheMeanConvergesWithResidualsAtEveryEncoder) {
  constexpr std::size_t count = 300;
  constexpr int kSteps = 200;
  for (const WireFormat format : {WireFormat::kFp16, WireFormat::kBf16, WireFormat::kQ8}) {
    double worst[2] = {0, 0};
    double all = 0;
    const std::vector<std::size_t> sizes = {2, 3};
    for (const bool feedback : {false, true}) {
      Tree tree(format, sizes, count, feedback);
      std::vector<std::vector<float>> inputs;
      for (std::size_t rank = 0; rank < tree.ranks(); ++rank) {
        inputs.push_back(finite_inputs(count, static_cast<unsigned>(200 + rank))[0].values);
      }
      std::vector<double> mean(count);
      for (int step = 0; step < kSteps; ++step) {
        const std::vector<float> result = tree.reduce(inputs);
        for (std::size_t i = 0; i < count; ++i) mean[i] += result[i] / static_cast<double>(kSteps);
      }
      for (std::size_t i = 0; i < count; ++i) {
        double exact = 0;
        for (const auto& input : inputs) exact += input[i];
        worst[feedback] = std::max(worst[feedback], std::fabs(mean[i] - exact));
        all = std::max(all, size_of_inputs(format, inputs, i));
      }
    }
    // Each encoder keeps one residual back; (1 + relative)^(tiers + 1) of slack for what they add to the
    // sums.
    const double tiers = static_cast<double>(sizes.size());
    const double bound = (std::pow(1 + unit_of(format).relative, tiers + 1) - 1) * all * 1.05 / kSteps +
                         6 * std::ldexp(all, -24) * 2;
    EXPECT_LE(worst[1], bound) << name_of(format);
    EXPECT_GT(worst[0], 20 * worst[1]) << name_of(format);
  }
}

/// NaN and infinity arrive at all ranks, from any rank, at their place only.
TEST(WireAllreduce, NaNAndInfinityArrive) {
  constexpr std::size_t count = 600;
  for (const WireFormat format : kAllFormats) {
    Tree tree(format, {2, 3}, count, true);
    for (std::size_t rank = 0; rank < tree.ranks(); ++rank) {
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        std::vector<std::vector<float>> inputs(tree.ranks(), std::vector<float>(count, 1.0f));
        inputs[rank][321] = bad;
        const std::vector<float> result = tree.reduce(inputs);
        for (std::size_t i = 0; i < count; ++i) {
          if (i != 321) {
            ASSERT_NEAR(result[i], 6, 6 * 0.05) << name_of(format);
          } else {
            ASSERT_TRUE(std::isnan(bad) ? std::isnan(result[i]) : result[i] == bad) << name_of(format);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ddl
