// What is kept of encodings' errors: by tensor, whatever is reduced with it, and not without end.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/wire_residuals.hpp"

namespace ddl {
namespace {

/// Buffers of these sizes; only the residuals' contents matter.
BufferList list_of(const std::vector<std::size_t>& counts) {
  static float none = 0;
  const std::vector<void*> pointers(counts.size(), &none);
  return {pointers.data(), counts.data(), counts.size(), DDL_TYPE_FLOAT};
}

float& first_of(const BufferList& residuals, std::size_t buffer) {
  return *reinterpret_cast<float*>(residuals.buffer(buffer));
}

TEST(WireResiduals, ATensorIsKnownWhateverIsReducedWithIt) {
  WireResiduals kept;
  const BufferList& fused = kept.of("a\nb\nc", list_of({10, 20, 30}));
  EXPECT_EQ(fused.count(), 60U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(first_of(fused, i), 0.0F);
    first_of(fused, i) = static_cast<float>(i + 1);
  }
  EXPECT_EQ(first_of(kept.of("b", list_of({20})), 0), 2.0F);
  const BufferList& others = kept.of("c\na", list_of({30, 10}));
  EXPECT_EQ(first_of(others, 0), 3.0F);
  EXPECT_EQ(first_of(others, 1), 1.0F);
  EXPECT_EQ(first_of(kept.of("a", list_of({11})), 0), 0.0F) << "another size is another tensor";
  EXPECT_EQ(kept.floats(), 71U);
}

TEST(WireResiduals, OneNameForAllBuffers) {
  WireResiduals kept;
  const BufferList& call = kept.of("grads", list_of({5, 5}));
  first_of(call, 0) = 1;
  first_of(call, 1) = 2;
  const BufferList& again = kept.of("grads", list_of({5, 5}));
  EXPECT_EQ(first_of(again, 0), 1.0F);
  EXPECT_EQ(first_of(again, 1), 2.0F);
}

TEST(WireResiduals, NamesThatDoNotComeBackDoNotPileUp) {
  WireResiduals kept;
  constexpr std::size_t each = WireResiduals::kLeastFloats / 4;
  for (int step = 0; step < 20; ++step) {
    kept.of("step " + std::to_string(step), list_of({each}));
    EXPECT_LE(kept.floats(), WireResiduals::kLeastFloats);
  }
}

TEST(WireResiduals, ALargeModelFindsAPlace) {
  WireResiduals kept;
  constexpr std::size_t each = WireResiduals::kLeastFloats / 4;
  constexpr int layers = 7;
  for (int step = 0; step < 3; ++step) {
    for (int layer = 0; layer < layers; ++layer) {
      const BufferList& residuals = kept.of("layer " + std::to_string(layer), list_of({each}));
      if (step == 2) {
        EXPECT_EQ(first_of(residuals, 0), 1.0F) << layer;
      }
      first_of(residuals, 0) = 1;
    }
  }
  // One call that needs more than the limit has it.
  const BufferList& whole = kept.of("whole", list_of(std::vector<std::size_t>(5, each)));
  EXPECT_EQ(whole.count(), 5 * each);
}

}  // namespace
}  // namespace ddl
