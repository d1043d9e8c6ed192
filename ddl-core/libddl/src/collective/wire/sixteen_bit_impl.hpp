// Part of wire_kernels_impl.hpp: binary16 and bfloat16. Element i is the two bytes at 2 * i, in the
// processor's byte order, of any alignment.

namespace ddl::DDL_WIRE_NAMESPACE {
namespace {

uint16_t load16(const char* from, size_t i) {
  uint16_t bits;
  memcpy(&bits, from + 2 * i, sizeof bits);
  return bits;
}

void store16(char* to, size_t i, uint32_t bits) {
  const uint16_t low = static_cast<uint16_t>(bits);
  memcpy(to + 2 * i, &low, sizeof low);
}

struct Fp16 {
  static size_t bytes(size_t count) { return count * 2; }

  static void encode(const float* from, size_t count, char* to) {
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i),
                       _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    DDL_VECTOR_LOOP
    for (size_t k = i; k < count; ++k) store16(to, k, half_of(bits_of(from[k])));
  }

  static void decode(const char* from, size_t count, float* to) {
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i));
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
    }
#endif
    DDL_VECTOR_LOOP
    for (size_t k = i; k < count; ++k) to[k] = value_of(load16(from, k));
  }

 private:
  /// What VCVTPS2PH does, NaN included: quiet, the upper bits of its payload kept.
  static uint32_t half_of(uint32_t bits) {
    const uint32_t magnitude = bits & kMagnitude;
    // Adding 0.5 leaves a float whose last bit is binary16's last subnormal bit: the addition rounds.
    const uint32_t half = 126u << 23;
    const uint32_t subnormal = bits_of(float_of(magnitude) + float_of(half)) - half;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    const uint32_t special = magnitude > kInfinity ? nan : 0x7c00u;
    const uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
    return ((bits & kSign) >> 16) | (magnitude >= (143u << 23) ? special : finite);
  }

  /// What VCVTPH2PS does. Subtracting a power of two turns a subnormal half into a normal float without ever
  /// making a subnormal float, which the caller's flush-to-zero mode would lose.
  static float value_of(uint32_t half) {
    const uint32_t exponent = half & 0x7c00u;
    const uint32_t magnitude = (half & 0x7fffu) << 13;
    const uint32_t normal = magnitude + (112u << 23);
    const uint32_t subnormal = bits_of(float_of(magnitude + (113u << 23)) - float_of(113u << 23));
    const uint32_t quiet = (half & 0x3ffu) != 0 ? kQuietNan : kInfinity;
    const uint32_t finite = exponent == 0 ? subnormal : normal;
    return float_of((exponent == 0x7c00u ? magnitude | quiet : finite) | ((half & 0x8000u) << 16));
  }
};

struct Bf16 {
  static size_t bytes(size_t count) { return count * 2; }

  static void encode(const float* from, size_t count, char* to) {
    DDL_VECTOR_LOOP
    for (size_t i = 0; i < count; ++i) {
      const uint32_t bits = bits_of(from[i]);
      const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
      const uint32_t nan = (bits >> 16) | 0x40u;
      store16(to, i, (bits & kMagnitude) > kInfinity ? nan : rounded);
    }
  }

  static void decode(const char* from, size_t count, float* to) {
    DDL_VECTOR_LOOP
    for (size_t i = 0; i < count; ++i) to[i] = float_of(static_cast<uint32_t>(load16(from, i)) << 16);
  }
};

}  // namespace
}  // namespace ddl::DDL_WIRE_NAMESPACE
