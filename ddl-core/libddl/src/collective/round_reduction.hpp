#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/kernels.hpp"
#include "plan/schedule.hpp"

namespace ddl {

/// The elements that a round's reductions are of.
struct ReducedElements {
  DDL_Type type;
  DDL_Op op;
  ReduceKernel kernel;  ///< of both
  std::size_t count;
};

/**
 * Carries out one reduction of a round.
 *
 * @param divisor   of a reduction that completes a sum, else 1
 * @param operands  memory to be used, kept from call to call
 * @param place     of one of the reduction's places: where its elements lie, char*
 * @param wide      of a place of wide elements, float*
 */
template <class Place, class WidePlace>
void carry_out(const Reduction& reduction, const ReducedElements& elements, std::int64_t divisor,
               std::vector<const void*>& operands, Place place, WidePlace wide) {
  const auto [type, op, kernel, count] = elements;
  const std::size_t bottom = operands.size();
  switch (reduction.form) {
    case Reduction::Form::kSame:
      for (const std::size_t operand : reduction.operands) operands.push_back(place(operand));
      kernel(place(reduction.into), operands.data() + bottom, static_cast<int>(operands.size() - bottom),
             count, divisor);
      break;
    case Reduction::Form::kWiden:
      wide_kernels(type).widen(wide(reduction.into), place(reduction.operands[0]), count);
      break;
    case Reduction::Form::kWide:
      for (const std::size_t operand : reduction.operands) operands.push_back(wide(operand));
      reduce_kernel(DDL_TYPE_FLOAT, op)(wide(reduction.into), operands.data() + bottom,
                                        static_cast<int>(operands.size() - bottom), count, 1);
      break;
    case Reduction::Form::kNarrow:
      wide_kernels(type).narrow(place(reduction.into), wide(reduction.operands[0]), count, divisor);
      break;
  }
  operands.resize(bottom);
}

}  // namespace ddl
