#include "collective/wire/wire_format.hpp"

#include <array>
#include <string>

#include "collective/kernels.hpp"
#include "collective/wire/wire_kernels.hpp"
#include "support/error.hpp"

namespace ddl {
namespace {

constexpr std::array<WireFormat, kWireFormatCount> kFormats = {WireFormat::kFull, WireFormat::kFp16,
                                                               WireFormat::kBf16, WireFormat::kQ8};

[[noreturn]] void unknown(WireFormat format) {
  throw Error(DDL_ERR_INTERNAL, "wire format " + std::to_string(static_cast<int>(format)) + " does not exist",
              "in the wire formats", "please report this");
}

const WireKernelSet& kernels_of_processor() {
#ifdef DDL_HAVE_AVX2_KERNELS
  static const bool avx2 = std::string_view(kernel_isa()) == "avx2";
  if (avx2) return wire_avx2::kernels();
#endif
  return wire_baseline::kernels();
}

const WireKernels& kernels_of(WireFormat format) {
  const WireKernelSet& set = kernels_of_processor();
  switch (format) {
    case WireFormat::kFull:
      return set.full;
    case WireFormat::kFp16:
      return set.fp16;
    case WireFormat::kBf16:
      return set.bf16;
    case WireFormat::kQ8:
      return set.q8;
  }
  unknown(format);
}

}  // namespace

const char* name_of(WireFormat format) {
  switch (format) {
    case WireFormat::kFull:
      return "full";
    case WireFormat::kFp16:
      return "fp16";
    case WireFormat::kBf16:
      return "bf16";
    case WireFormat::kQ8:
      return "q8";
  }
  unknown(format);
}

WireFormat parse_wire_format(std::string_view name) {
  std::string names;
  for (const WireFormat format : kFormats) {
    if (name == name_of(format)) return format;
    names += std::string(names.empty() ? "" : ", ") + name_of(format);
  }
  throw Error(DDL_ERR_OPTION, "unknown wire format '" + std::string(name) + "'", "in -wire of DDL_OPTIONS",
              "the formats are " + names);
}

std::size_t wire_bytes(WireFormat format, std::size_t count) {
  switch (format) {
    case WireFormat::kFull:
      return count * sizeof(float);
    case WireFormat::kFp16:
    case WireFormat::kBf16:
      return count * 2;
    case WireFormat::kQ8:
      return count + (count / kWireBlockElements + (count % kWireBlockElements != 0)) * sizeof(float);
  }
  unknown(format);
}

void encode(WireFormat format, const float* from, std::size_t count, void* to, float* residual) {
  kernels_of(format).encode(from, count, to, residual);
}

void decode(WireFormat format, const void* from, std::size_t count, float* to) {
  kernels_of(format).decode(from, count, to);
}

void decode_add(WireFormat format, const void* from, std::size_t count, float* accumulator) {
  kernels_of(format).decode_add(from, count, accumulator);
}

}  // namespace ddl
