#pragma once

#include <cstddef>

namespace stand_in {

/// Of ncclDataType_t: those of NCCL 2.18, from ncclInt8 to ncclBfloat16.
inline constexpr int kTypes = 10;
std::size_t size_of(int type);
const char* name_of_type(int type);
const char* name_of_op(int op);

/// Where in the order of an element's sum its value of one rank comes.
struct Turn {
  bool first = false;
  bool last = false;
};

/// What one more rank does to `count` elements of the result: every step rounds to the type, as on a device.
void reduce(int type, int op, int ranks, Turn turn, void* result, const void* in, std::size_t count);

}  // namespace stand_in
