// Part of wire_kernels_impl.hpp: what the wire formats share.

namespace ddl::DDL_WIRE_NAMESPACE {
namespace {

/// Elements encoded and decoded at a time; what lies between two loops over them stays in the first-level
/// cache.
constexpr size_t kBlock = 256;

constexpr uint32_t kSign = 0x80000000u;
constexpr uint32_t kMagnitude = 0x7fffffffu;
constexpr uint32_t kInfinity = 0x7f800000u;
constexpr uint32_t kQuietNan = 0x7fc00000u;

uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace
}  // namespace ddl::DDL_WIRE_NAMESPACE
