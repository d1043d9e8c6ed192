// The kernels of the wire formats, compiled once per instruction set: the including file defines
// DDL_WIRE_NAMESPACE and is compiled with the flags of that instruction set. Nothing here may be an inline
// function or template of another header: the linker would be free to keep the copy with the newer
// instructions for everybody. Every instruction set gives the same bits.
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "collective/wire/wire_kernels.hpp"

#if defined(__clang__)
#define DDL_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#define DDL_REDUCTION_LOOP _Pragma("clang loop vectorize(enable)")
#else
#define DDL_VECTOR_LOOP _Pragma("GCC ivdep")
#define DDL_REDUCTION_LOOP _Pragma("GCC ivdep")
#endif

#include "collective/wire/bits_impl.hpp"
#include "collective/wire/q8_impl.hpp"
#include "collective/wire/sixteen_bit_impl.hpp"

namespace ddl::DDL_WIRE_NAMESPACE {
namespace {

struct Full {
  static size_t bytes(size_t count) { return count * sizeof(float); }
  static void encode(const float* from, size_t count, char* to) { memcpy(to, from, bytes(count)); }
  static void decode(const char* from, size_t count, float* to) { memcpy(to, from, bytes(count)); }
};

size_t block_at(size_t at, size_t count) { return count - at < kBlock ? count - at : kBlock; }

template <class Format>
void encode(const float* from, size_t count, void* to, float* residual) {
  char* wire = static_cast<char*>(to);
  float wanted[kBlock];
  float decoded[kBlock];
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t size = block_at(at, count);
    if (residual == nullptr) {
      Format::encode(from + at, size, wire);
    } else {
      float* const lost = residual + at;
      DDL_VECTOR_LOOP
      for (size_t i = 0; i < size; ++i) wanted[i] = from[at + i] + lost[i];
      Format::encode(wanted, size, wire);
      Format::decode(wire, size, decoded);
      DDL_VECTOR_LOOP
      for (size_t i = 0; i < size; ++i) {
        const uint32_t difference = bits_of(wanted[i] - decoded[i]);
        lost[i] = float_of((bits_of(decoded[i]) & kInfinity) == kInfinity ? 0 : difference);
      }
    }
    wire += Format::bytes(size);
  }
}

template <class Format>
void decode(const void* from, size_t count, float* to) {
  const char* wire = static_cast<const char*>(from);
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t size = block_at(at, count);
    Format::decode(wire, size, to + at);
    wire += Format::bytes(size);
  }
}

template <class Format>
void decode_add(const void* from, size_t count, float* accumulator) {
  const char* wire = static_cast<const char*>(from);
  float decoded[kBlock];
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t size = block_at(at, count);
    Format::decode(wire, size, decoded);
    float* const sum = accumulator + at;
    DDL_VECTOR_LOOP
    for (size_t i = 0; i < size; ++i) sum[i] = sum[i] + decoded[i];
    wire += Format::bytes(size);
  }
}

template <class Format>
constexpr WireKernels kernels_for = {encode<Format>, decode<Format>, decode_add<Format>};

constexpr WireKernelSet kSet = {kernels_for<Full>, kernels_for<Fp16>, kernels_for<Bf16>, kernels_for<Q8>};

}  // namespace

const WireKernelSet& kernels() { return kSet; }

}  // namespace ddl::DDL_WIRE_NAMESPACE
