#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "collective/buffer_list.hpp"

namespace ddl {

/**
 * What the encodings of -wire q8 have lost, for each tensor: "Error feedback" in
 * docs/reference/wire-formats.md.
 *
 * A tensor is known by its name and size, whichever others are reduced in one call with it. Of those that do
 * not come back, such as tensors whose name tells the step, no more is kept than a limit: the ones used last.
 * One that comes back although it was given up raises the limit by its size, so all tensors of a model find a
 * place in its first two steps.
 */
class WireResiduals {
 public:
  static constexpr std::size_t kLeastFloats = std::size_t{16} << 20;

  /// Those of a call's buffers, zero where a tensor is new. The list is valid until the next call.
  /// @param name  of the call, not empty: a line for each buffer, or one for all
  const BufferList& of(std::string_view name, const BufferList& buffers);
  /// Floats that are kept.
  std::size_t floats() const { return floats_; }

 private:
  struct Kept {
    std::uint64_t key;
    std::uint64_t call;  ///< that used it last
    std::vector<float> values;
  };

  std::vector<float>& find(std::uint64_t key, std::size_t count);
  void give_up_old();

  std::list<Kept> kept_;  ///< the one used last comes first
  std::unordered_map<std::uint64_t, std::list<Kept>::iterator> by_key_;
  std::unordered_set<std::uint64_t> given_up_;
  std::size_t floats_ = 0;
  std::size_t limit_ = kLeastFloats;
  std::uint64_t calls_ = 0;
  std::optional<BufferList> list_;
};

}  // namespace ddl
