#include <gtest/gtest.h>

#include "collective/wire/wire_format.hpp"
#include "support/error.hpp"
#include "wire_inputs.hpp"

namespace ddl {
namespace {

TEST(WireFormat, NamesAndValuesGoTogether) {
  EXPECT_EQ(kAllFormats.size(), static_cast<std::size_t>(kWireFormatCount));
  EXPECT_STREQ(name_of(WireFormat::kFull), "full");
  EXPECT_STREQ(name_of(WireFormat::kFp16), "fp16");
  EXPECT_STREQ(name_of(WireFormat::kBf16), "bf16");
  EXPECT_STREQ(name_of(WireFormat::kQ8), "q8");
  for (const WireFormat format : kAllFormats) EXPECT_EQ(parse_wire_format(name_of(format)), format);
}

TEST(WireFormat, AnUnknownNameIsAnErrorThatListsTheNames) {
  for (const std::string_view name : {"", "FP16", "fp16 ", "q", "q88", "float32", "\xff", "none"}) {
    try {
      parse_wire_format(name);
      ADD_FAILURE() << "'" << name << "' was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), DDL_ERR_OPTION);
      const std::string text = error.what();
      EXPECT_NE(text.find("'" + std::string(name) + "'"), std::string::npos) << text;
      EXPECT_NE(text.find("full, fp16, bf16, q8"), std::string::npos) << text;
      EXPECT_NE(text.find("-wire"), std::string::npos) << text;
    }
  }
}

TEST(WireFormat, BytesOnTheWire) {
  for (const std::size_t count : kWireCounts) {
    EXPECT_EQ(wire_bytes(WireFormat::kFull, count), 4 * count);
    EXPECT_EQ(wire_bytes(WireFormat::kFp16, count), 2 * count);
    EXPECT_EQ(wire_bytes(WireFormat::kBf16, count), 2 * count);
    std::size_t q8 = 0;
    for (std::size_t left = count; left > 0; left -= std::min(left, kWireBlockElements)) {
      q8 += 4 + std::min(left, kWireBlockElements);
    }
    EXPECT_EQ(wire_bytes(WireFormat::kQ8, count), q8);
  }
  // 64 MiB of float32: the ratio that the documentation promises.
  EXPECT_NEAR(4.0 * (16 << 20) / static_cast<double>(wire_bytes(WireFormat::kQ8, 16 << 20)), 3.94, 0.005);
}

/// What callers use is one of the kernels that the other tests look at.
TEST(WireFormat, DispatchesToTheProcessorsKernels) {
  const WireIsa isa = wire_isas().back();
  EXPECT_EQ(isa.name, kernel_isa());
  for (const WireFormat format : kAllFormats) {
    for (const WireInput& input : all_inputs(1000, 1)) {
      SCOPED_TRACE(std::string(name_of(format)) + " " + input.name);
      const std::size_t count = input.values.size();
      std::vector<float> residual(count, 0.25f), expected_residual(count, 0.25f);
      std::vector<char> wire(wire_bytes(format, count));
      encode(format, input.values.data(), count, wire.data(), residual.data());
      EXPECT_EQ(wire, encoded(isa, format, input.values, expected_residual.data()));
      EXPECT_TRUE(same_bits(residual, expected_residual));
      std::vector<float> values(count), sums(count, 1.5f), expected_sums(count, 1.5f);
      decode(format, wire.data(), count, values.data());
      EXPECT_TRUE(same_bits(values, decoded(isa, format, wire, count)));
      decode_add(format, wire.data(), count, sums.data());
      isa.of(format).decode_add(wire.data(), count, expected_sums.data());
      EXPECT_TRUE(same_bits(sums, expected_sums));
    }
  }
}

}  // namespace
}  // namespace ddl
