// What the tests of the wire formats share: every instruction set this processor has, and inputs that are
// hard on them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "collective/kernels.hpp"
#include "collective/wire/wire_format.hpp"
#include "collective/wire/wire_kernels.hpp"

namespace ddl {

inline const std::vector<WireFormat> kAllFormats = {WireFormat::kFull, WireFormat::kFp16, WireFormat::kBf16,
                                                    WireFormat::kQ8};

struct WireIsa {
  std::string name;
  const WireKernelSet* set;

  const WireKernels& of(WireFormat format) const {
    switch (format) {
      case WireFormat::kFull:
        return set->full;
      case WireFormat::kFp16:
        return set->fp16;
      case WireFormat::kBf16:
        return set->bf16;
      case WireFormat::kQ8:
        break;
    }
    return set->q8;
  }
};

inline std::vector<WireIsa> wire_isas() {
  std::vector<WireIsa> all{{"baseline", &wire_baseline::kernels()}};
#ifdef DDL_HAVE_AVX2_KERNELS
  if (std::string_view(kernel_isa()) == "avx2") all.push_back({"avx2", &wire_avx2::kernels()});
#endif
  return all;
}

inline std::vector<char> encoded(const WireIsa& isa, WireFormat format, const std::vector<float>& values,
                                 float* residual = nullptr) {
  std::vector<char> wire(wire_bytes(format, values.size()));
  isa.of(format).encode(values.data(), values.size(), wire.data(), residual);
  return wire;
}

inline std::vector<float> decoded(const WireIsa& isa, WireFormat format, const std::vector<char>& wire,
                                  std::size_t count) {
  std::vector<float> values(count, -1);
  isa.of(format).decode(wire.data(), count, values.data());
  return values;
}

/// Equal bits; NaN equals itself.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline float from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Largest finite magnitude of the block of kQ8 that element i is in; special says whether it holds a NaN or
/// an infinity.
struct BlockOf {
  double largest = 0;
  bool special = false;

  BlockOf(const std::vector<float>& values, std::size_t i) {
    const std::size_t begin = i / kWireBlockElements * kWireBlockElements;
    for (std::size_t k = begin; k < std::min(values.size(), begin + kWireBlockElements); ++k) {
      if (!std::isfinite(values[k])) {
        special = true;
      } else {
        largest = std::max(largest, std::fabs(static_cast<double>(values[k])));
      }
    }
  }
};

struct WireInput {
  std::string name;
  std::vector<float> values;
};

/// `count` elements of each kind. "finite" kinds come first; those from "infinities" on hold other values.
inline std::vector<WireInput> finite_inputs(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<WireInput> all;
  const auto add = [&](const char* name, auto&& value) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(value(i));
    all.push_back({name, values});
  };
  const auto sign = [&] { return random() % 2 == 0 ? -1.0f : 1.0f; };
  add("normal", [&](std::size_t) { return normal(random); });
  add("small gradients", [&](std::size_t) { return normal(random) * 1e-6f; });
  add("every exponent", [&](std::size_t) {
    return std::ldexp(sign() * (1 + static_cast<float>(random() % 1000) / 1000),
                      static_cast<int>(random() % 276) - 149);
  });
  add("range of binary16", [&](std::size_t) {
    return std::ldexp(sign() * (1 + static_cast<float>(random() % 4096) / 4096),
                      static_cast<int>(random() % 44) - 28);
  });
  add("random bits", [&](std::size_t) {
    const auto bits = static_cast<std::uint32_t>(random());
    return from_bits((bits & 0x7f800000u) == 0x7f800000u ? bits & ~0x00800000u : bits);
  });
  add("zeros", [](std::size_t) { return 0.0f; });
  add("minus zeros", [](std::size_t) { return -0.0f; });
  add("subnormals",
      [&](std::size_t) { return from_bits(static_cast<std::uint32_t>(random()) & 0x807fffffu); });
  add("about the least scale",
      [&](std::size_t) { return std::ldexp(normal(random), -125 + static_cast<int>(random() % 9)); });
  add("largest floats", [&](std::size_t) { return sign() * std::numeric_limits<float>::max(); });
  add("one large element in each block",
      [&](std::size_t i) { return i % kWireBlockElements == 5 ? 1000.0f : normal(random) * 1e-3f; });
  // The scale of a block whose largest element is 127 is 1: these are all ties.
  add("ties of q8", [&](std::size_t i) {
    return i % kWireBlockElements == 0 ? 127.0f : static_cast<float>(i % 127) * (i % 2 == 0 ? 1 : -1) + 0.5f;
  });
  add("ties of bfloat16", [&](std::size_t) { return from_bits((random() & 0xbfff0000u) | 0x8000u); });
  add("ties of binary16", [&](std::size_t) {
    return sign() * std::ldexp(static_cast<float>(2 * (1024 + random() % 1024) + 1),
                               static_cast<int>(random() % 28) - 25);
  });
  add("one constant", [](std::size_t) { return 0.1f; });
  return all;
}

inline std::vector<WireInput> all_inputs(std::size_t count, unsigned seed) {
  std::vector<WireInput> all = finite_inputs(count, seed);
  std::mt19937 random(seed + 1);
  std::normal_distribution<float> normal;
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> others = {infinity,
                                     -infinity,
                                     from_bits(0x7fc00000),
                                     from_bits(0xffc12345),
                                     from_bits(0x7f800001),
                                     from_bits(0xff812345)};
  std::vector<float> rare(count), only(count), bits(count);
  for (std::size_t i = 0; i < count; ++i) {
    rare[i] = i % 400 == 7 ? others[random() % others.size()] : normal(random);
    only[i] = others[random() % others.size()];
    bits[i] = from_bits(static_cast<std::uint32_t>(random()));
    if (random() % 3 == 0) bits[i] = from_bits(0x7f800000u | static_cast<std::uint32_t>(random()));
  }
  all.push_back({"a few infinities and NaNs", rare});
  all.push_back({"nothing but infinities and NaNs", only});
  all.push_back({"any bits", bits});
  return all;
}

/// Sizes around every boundary that the kernels have: vectors of 4, 8, 16, 32 and blocks of 256.
inline const std::vector<std::size_t> kWireCounts = {0,  1,  2,   3,   7,   8,   9,   15,  17,   31,
                                                     33, 63, 100, 255, 256, 257, 511, 513, 1024, 4103};

}  // namespace ddl
