#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "support/types.hpp"

namespace ddl {

/// Buffers of one element type, addressed as if they were one behind the other. Owns nothing and copies
/// nothing.
class BufferList {
 public:
  BufferList(void* const* bufs, const std::size_t* counts, std::size_t n, DDL_Type type)
      : width_(size_of(type)) {
    offsets_.push_back(0);
    for (std::size_t i = 0; i < n; ++i) {
      if (counts[i] == 0) continue;
      buffers_.push_back(static_cast<char*>(bufs[i]));
      offsets_.push_back(offsets_.back() + counts[i]);
    }
  }

  std::size_t count() const { return offsets_.back(); }
  std::size_t buffers() const { return buffers_.size(); }
  char* buffer(std::size_t i) const { return buffers_[i]; }

  /// Calls visit(address, elements, offset of the piece in `range`) for every contiguous piece of `range`.
  template <class Visit>
  void for_each_piece(Interval range, Visit visit) const {
    if (range.empty()) return;
    auto i = static_cast<std::size_t>(std::upper_bound(offsets_.begin(), offsets_.end(), range.begin) -
                                      offsets_.begin() - 1);
    for (std::size_t at = range.begin; at < range.end; ++i) {
      const std::size_t end = std::min(range.end, offsets_[i + 1]);
      visit(buffers_[i] + (at - offsets_[i]) * width_, end - at, at - range.begin);
      at = end;
    }
  }

  void copy_out(Interval range, char* to) const {
    for_each_piece(range, [&](const char* piece, std::size_t elements, std::size_t offset) {
      std::memcpy(to + offset * width_, piece, elements * width_);
    });
  }

  void copy_in(Interval range, const char* from) const {
    for_each_piece(range, [&](char* piece, std::size_t elements, std::size_t offset) {
      std::memcpy(piece, from + offset * width_, elements * width_);
    });
  }

 private:
  std::size_t width_;
  std::vector<char*> buffers_;
  std::vector<std::size_t> offsets_;  ///< in elements; strictly increasing, as empty buffers are left out
};

}  // namespace ddl
