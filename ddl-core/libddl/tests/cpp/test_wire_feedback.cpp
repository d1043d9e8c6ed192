#include <gtest/gtest.h>

#include "reference.hpp"
#include "wire_inputs.hpp"

namespace ddl {
namespace {

const std::vector<WireFormat> kReduced = {WireFormat::kFp16, WireFormat::kBf16, WireFormat::kQ8};

/// decoded + residual is what was to be encoded, to the last bit.
TEST(WireFeedback, TheResidualIsExactlyWhatWasLost) {
  for (const WireIsa& isa : wire_isas()) {
    for (const WireFormat format : kAllFormats) {
      for (const std::size_t count : {1u, 255u, 257u, 2050u}) {
        for (const WireInput& input : all_inputs(count, 21)) {
          SCOPED_TRACE(isa.name + " " + name_of(format) + " " + input.name);
          std::vector<float> residual(count);
          for (int step = 0; step < 5; ++step) {
            std::vector<float> wanted(count);
            for (std::size_t i = 0; i < count; ++i) wanted[i] = input.values[i] + residual[i];
            const std::vector<char> wire = encoded(isa, format, input.values, residual.data());
            ASSERT_EQ(wire, encoded(isa, format, wanted)) << "not the encoding of value + residual";
            const std::vector<float> values = decoded(isa, format, wire, count);
            for (std::size_t i = 0; i < count; ++i) {
              if (std::isfinite(values[i])) {
                ASSERT_EQ(static_cast<double>(values[i]) + static_cast<double>(residual[i]), wanted[i]) << i;
              } else {
                ASSERT_EQ(residual[i], 0) << i << ": " << input.values[i];
              }
            }
          }
        }
      }
    }
  }
}

/// An overflow passes: the steps after it are as good as any.
TEST(WireFeedback, NothingIsLeftOfANaN) {
  for (const WireIsa& isa : wire_isas()) {
    for (const WireFormat format : kReduced) {
      std::vector<float> residual(600);
      for (const float bad : {NAN, INFINITY, -INFINITY, 1e6f}) {
        std::vector<float> values(600, 0.3f);
        values[300] = bad;
        encoded(isa, format, values, residual.data());
        values[300] = 0.3f;
        for (int step = 0; step < 3; ++step) {
          const auto out = decoded(isa, format, encoded(isa, format, values, residual.data()), 600);
          for (std::size_t i = 0; i < out.size(); ++i) {
            ASSERT_TRUE(std::isfinite(out[i]) && std::isfinite(residual[i])) << name_of(format) << " " << i;
          }
        }
      }
    }
  }
}

/// Mean over 200 steps of what arrives, and the true mean, of one element.
struct Means {
  std::vector<double> arrived;
  std::vector<double> exact;

  double worst() const {
    double largest = 0;
    for (std::size_t i = 0; i < exact.size(); ++i)
      largest = std::max(largest, std::fabs(arrived[i] - exact[i]));
    return largest;
  }
};

constexpr int kSteps = 200;

template <class Gradient>
Means means_of(const WireIsa& isa, WireFormat format, bool feedback, std::size_t count, Gradient&& gradient) {
  Means means{std::vector<double>(count), std::vector<double>(count)};
  std::vector<float> residual(count), values(count);
  for (int step = 0; step < kSteps; ++step) {
    gradient(step, values);
    const auto wire = encoded(isa, format, values, feedback ? residual.data() : nullptr);
    const std::vector<float> out = decoded(isa, format, wire, count);
    for (std::size_t i = 0; i < count; ++i) {
      means.arrived[i] += out[i] / static_cast<double>(kSteps);
      means.exact[i] += values[i] / static_cast<double>(kSteps);
    }
  }
  return means;
}

/// Largest error of one encoding of elements up to `largest`, a residual of the step before included.
double bound_of(WireFormat format, double largest) {
  if (format == WireFormat::kFp16) return std::max(std::ldexp(largest, -11), std::ldexp(1, -25)) * 1.001;
  if (format == WireFormat::kBf16) return std::ldexp(largest, -8) * 1.01;
  return largest / 253 * 1.001;
}

/// What is still under way after n steps is one residual: the mean is off by at most a residual / n, and what
/// float32 loses when it adds the residual.
double feedback_bound(WireFormat format, double largest) {
  return bound_of(format, largest) / kSteps + std::ldexp(largest, -24) * 1.01;
}

TEST(WireFeedback, MeanOfAConstantGradientConvergesOnlyWithTheResidual) {
  for (const WireIsa& isa : wire_isas()) {
    for (const WireFormat format : kReduced) {
      const WireInput normal = finite_inputs(1031, 22)[0];
      // Most elements are less than half a step of q8 then.
      WireInput outlier{"normal beside something large", normal.values};
      for (std::size_t i = 0; i < outlier.values.size(); ++i) {
        if (i % kWireBlockElements == 3) outlier.values[i] = 200;
      }
      for (const WireInput& input : {normal, outlier}) {
        SCOPED_TRACE(isa.name + " " + name_of(format) + " " + input.name);
        double largest = 0;
        for (const float value : input.values)
          largest = std::max(largest, std::fabs(static_cast<double>(value)));
        const auto constant = [&](int, std::vector<float>& values) { values = input.values; };
        const double with = means_of(isa, format, true, 1031, constant).worst();
        const double without = means_of(isa, format, false, 1031, constant).worst();
        EXPECT_LE(with, feedback_bound(format, largest));
        // Without it every step makes the same error; some element's is near the bound of its own size.
        const auto once = decoded(isa, format, encoded(isa, format, input.values), 1031);
        double one_error = 0;
        for (std::size_t i = 0; i < once.size(); ++i) {
          one_error = std::max(one_error, std::fabs(static_cast<double>(once[i]) - input.values[i]));
        }
        EXPECT_NEAR(without, one_error, one_error * 1e-6);
        EXPECT_GT(without, 20 * with);
      }
    }
  }
}

/// Random gradients whose mean is far below the step of their block: without the residual nothing of it ever
/// arrives.
TEST(WireFeedback, MeanOfRandomGradientsConvergesOnlyWithTheResidual) {
  for (const WireIsa& isa : wire_isas()) {
    std::mt19937 random(23);
    std::normal_distribution<float> normal;
    const auto gradient = [&](int, std::vector<float>& values) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float own = 0.01f * static_cast<float>(static_cast<int>(i % 41) - 20);
        values[i] = i % kWireBlockElements == 3 ? 127.0f : own + 0.05f * normal(random);
      }
    };
    const Means with = means_of(isa, WireFormat::kQ8, true, 1031, gradient);
    EXPECT_LE(with.worst(), feedback_bound(WireFormat::kQ8, 127));
    const Means without = means_of(isa, WireFormat::kQ8, false, 1031, gradient);
    EXPECT_GT(without.worst(), 0.15);
    EXPECT_GT(without.worst(), 50 * with.worst());
  }
}

/// Rounding errors of unlike gradients average out by themselves, slowly; the residual is still far ahead.
TEST(WireFeedback, MeanOfNoiseConvergesFaster) {
  for (const WireIsa& isa : wire_isas()) {
    for (const WireFormat format : kReduced) {
      std::mt19937 random(24);
      std::normal_distribution<float> normal;
      const auto gradient = [&](int, std::vector<float>& values) {
        for (float& value : values) value = std::fmin(std::fmax(normal(random), -4.0f), 4.0f);
      };
      const double with = means_of(isa, format, true, 1031, gradient).worst();
      const double without = means_of(isa, format, false, 1031, gradient).worst();
      EXPECT_LE(with, feedback_bound(format, 4)) << name_of(format);
      EXPECT_GT(without, 2 * with) << name_of(format);
    }
  }
}

}  // namespace
}  // namespace ddl
