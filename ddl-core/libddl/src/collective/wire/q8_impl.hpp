// Part of wire_kernels_impl.hpp: signed 8-bit codes in blocks of kBlock elements.
//
// A block of n elements (n = kBlock, less in the last one) is 4 + n bytes: a float32 scale, then n codes of
// one signed byte, without padding. Element = code * scale.
//   scale   largest magnitude of the block / 127, at least 2^-125, cut to 17 significant bits
//   codes   -127 … 127
// A block that holds a NaN or an infinity has the sign of its scale set and 126 in place of 127 levels: the
// codes are -126 … 126, 127 (infinity), -127 (minus infinity) and -128 (NaN), and only its finite elements
// count for the largest magnitude.
//
// 17 bits times a code of 7 are the 24 bits of a float: code * scale is exact, and so is what an element
// minus it leaves as the residual (the two are equal to within a factor of two, or the code is zero). The
// least scale is so large that no product and no inverse leaves the normal range: bytes and decoded values do
// not depend on a caller's flush-to-zero mode, and a subnormal element is always less than half a step.

namespace ddl::DDL_WIRE_NAMESPACE {
namespace {

struct Q8 {
  static size_t bytes(size_t count) { return sizeof(float) + count; }

  static void encode(const float* from, size_t count, char* to) {
    // As integers, magnitudes are ordered like the values, and NaN is above all of them.
    int32_t largest = 0;
    DDL_REDUCTION_LOOP
    for (size_t i = 0; i < count; ++i) {
      const int32_t magnitude = static_cast<int32_t>(bits_of(from[i]) & kMagnitude);
      largest = magnitude > largest ? magnitude : largest;
    }
    if (largest >= static_cast<int32_t>(kInfinity)) return encode_special(from, count, to);
    const float scale = scale_of(float_of(static_cast<uint32_t>(largest)), 127.0f);
    memcpy(to, &scale, sizeof scale);
    signed char* const codes = reinterpret_cast<signed char*>(to + sizeof scale);
    const float inverse = 1.0f / scale;
    DDL_VECTOR_LOOP
    for (size_t i = 0; i < count; ++i) codes[i] = static_cast<signed char>(code_of(from[i] * inverse));
  }

  static void decode(const char* from, size_t count, float* to) {
    float scale;
    memcpy(&scale, from, sizeof scale);
    const signed char* const codes = reinterpret_cast<const signed char*>(from + sizeof scale);
    if ((bits_of(scale) & kSign) != 0) return decode_special(codes, count, -scale, to);
    DDL_VECTOR_LOOP
    for (size_t i = 0; i < count; ++i) to[i] = static_cast<float>(codes[i]) * scale;
  }

 private:
  static constexpr int32_t kPlusInfinity = 127;
  static constexpr int32_t kMinusInfinity = -127;
  static constexpr int32_t kNan = -128;

  static float scale_of(float largest, float levels) {
    const float least = float_of(2u << 23);
    const float exact = largest / levels;
    return exact < least ? least : float_of(bits_of(exact) & ~0x7fu);
  }

  /// Rounds to the nearest integer, ties to even, by adding 1.5 * 2^23: the sum's last bit is worth 1.
  static int32_t code_of(float steps) {
    const float magic = 12582912.0f;
    return static_cast<int32_t>(bits_of(steps + magic) - bits_of(magic));
  }

  static void encode_special(const float* from, size_t count, char* to) {
    int32_t largest = 0;
    DDL_REDUCTION_LOOP
    for (size_t i = 0; i < count; ++i) {
      const int32_t magnitude = static_cast<int32_t>(bits_of(from[i]) & kMagnitude);
      const int32_t finite = magnitude < static_cast<int32_t>(kInfinity) ? magnitude : 0;
      largest = finite > largest ? finite : largest;
    }
    const float scale = scale_of(float_of(static_cast<uint32_t>(largest)), 126.0f);
    const float marked = -scale;
    memcpy(to, &marked, sizeof marked);
    signed char* const codes = reinterpret_cast<signed char*>(to + sizeof marked);
    const float inverse = 1.0f / scale;
    DDL_VECTOR_LOOP
    for (size_t i = 0; i < count; ++i) {
      const uint32_t bits = bits_of(from[i]);
      const int32_t infinity = (bits & kSign) != 0 ? kMinusInfinity : kPlusInfinity;
      const int32_t special = (bits & kMagnitude) > kInfinity ? kNan : infinity;
      const int32_t finite = code_of(from[i] * inverse);
      codes[i] = static_cast<signed char>((bits & kMagnitude) >= kInfinity ? special : finite);
    }
  }

  static void decode_special(const signed char* codes, size_t count, float scale, float* to) {
    DDL_VECTOR_LOOP
    for (size_t i = 0; i < count; ++i) {
      const int32_t code = codes[i];
      const uint32_t finite = bits_of(static_cast<float>(code) * scale);
      const uint32_t infinity = code < 0 ? kInfinity | kSign : kInfinity;
      const uint32_t special = code == kNan ? kQuietNan : infinity;
      to[i] = float_of(code > -127 && code < 127 ? finite : special);
    }
  }
};

}  // namespace
}  // namespace ddl::DDL_WIRE_NAMESPACE
