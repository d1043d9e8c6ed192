#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "memory/copies.hpp"
#include "support/types.hpp"

namespace ddl {

/// Buffers of one element type, addressed as if they were one behind the other. Owns nothing.
class BufferList {
 public:
  BufferList() = default;
  /// @param executor  of the memory that all buffers lie in; outlives the list
  BufferList(void* const* bufs, const std::size_t* counts, std::size_t n, DDL_Type type,
             Executor& executor = host_executor()) {
    assign(bufs, counts, n, type, executor);
  }

  /// Another list, in the memory that this one has taken: whoever keeps it allocates once.
  void assign(void* const* bufs, const std::size_t* counts, std::size_t n, DDL_Type type,
              Executor& executor = host_executor()) {
    begin(type, executor);
    for (std::size_t i = 0; i < n; ++i) add(bufs[i], counts[i]);
  }
  void begin(DDL_Type type, Executor& executor) {
    width_ = size_of(type);
    executor_ = &executor;
    buffers_.clear();
    offsets_.assign(1, 0);
  }
  void add(void* buffer, std::size_t count) {
    if (count == 0) return;
    buffers_.push_back(static_cast<char*>(buffer));
    offsets_.push_back(offsets_.back() + count);
  }

  std::size_t count() const { return offsets_.back(); }
  std::size_t buffers() const { return buffers_.size(); }
  char* buffer(std::size_t i) const { return buffers_[i]; }
  std::size_t count(std::size_t i) const { return offsets_[i + 1] - offsets_[i]; }

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

  /// Starts to copy elements to host memory, or where else the direction says.
  void copy_out(Interval range, char* to, Copies& copies,
                CopyDirection direction = CopyDirection::kToHost) const {
    for_each_piece(range, [&](const char* piece, std::size_t elements, std::size_t offset) {
      copies.add(*executor_, to + offset * width_, piece, elements * width_, direction);
    });
  }

  /// Starts to copy elements from host memory, or from where else the direction says.
  void copy_in(Interval range, const char* from, Copies& copies,
               CopyDirection direction = CopyDirection::kFromHost) const {
    for_each_piece(range, [&](char* piece, std::size_t elements, std::size_t offset) {
      copies.add(*executor_, piece, from + offset * width_, elements * width_, direction);
    });
  }

  Executor& executor() const { return *executor_; }
  /// Whether the processor may touch the buffers.
  bool on_host() const { return executor_->on_host(); }

 private:
  std::size_t width_ = 0;
  Executor* executor_ = nullptr;
  std::vector<char*> buffers_;
  std::vector<std::size_t> offsets_{0};  ///< in elements; strictly increasing, as empty buffers are left out
};

}  // namespace ddl
