#pragma once

#include <cstddef>
#include <string_view>

namespace ddl {

/**
 * How float32 data looks while it crosses a link. Sums are always made in float32.
 *
 * Error bounds, and what they come to in a whole all-reduce: docs/reference/wire-formats.md.
 */
enum class WireFormat {
  kFull,  ///< float32 as it is, 4 bytes an element, nothing lost
  kFp16,  ///< IEEE binary16, 2 bytes an element; beyond +-65504 (from +-65520 on) it becomes infinite
  kBf16,  ///< bfloat16, 2 bytes an element, float32's range
  kQ8,    ///< blocks of kWireBlockElements signed 8-bit codes with one float32 scale, 1.016 bytes an element
};

inline constexpr int kWireFormatCount = 4;

/// Elements of a block of kQ8, whose error depends on the largest of them. Where shards begin at multiples of
/// it, decoded data encodes to the same bytes again.
inline constexpr std::size_t kWireBlockElements = 256;

/// "full", "fp16", "bf16" or "q8".
const char* name_of(WireFormat format);

/// The opposite of name_of. Throws Error with DDL_ERR_OPTION, which lists the names, for any other text.
WireFormat parse_wire_format(std::string_view name);

/// Bytes of `count` float32 elements on the wire.
std::size_t wire_bytes(WireFormat format, std::size_t count);

/**
 * Encodes from[0 … count) into the wire_bytes(format, count) bytes at `to`; nothing behind them is touched.
 *
 * Rounds to nearest, ties to even, and writes the same bytes on every processor. NaN stays NaN and infinity
 * infinity, each at its place.
 *
 * @param to        of any alignment; must not overlap `from` or `residual`
 * @param residual  null, or `count` floats of error feedback, zero before the first call: what is encoded is
 *                  from + residual, and what the encoding lost of it is left here, exactly. Zero where the
 *                  encoded value is not finite, lest one overflow spoil all later calls. Must not overlap
 *                  `from`.
 */
void encode(WireFormat format, const float* from, std::size_t count, void* to, float* residual);

/// Decodes `count` elements into `to`. `from` may have any alignment, and may hold any bytes: there are none
/// that do not decode. Does not depend on the processor's treatment of subnormal numbers.
void decode(WireFormat format, const void* from, std::size_t count, float* to);

/// accumulator[i] += what decode() gives for element i, in float32.
void decode_add(WireFormat format, const void* from, std::size_t count, float* accumulator);

}  // namespace ddl
