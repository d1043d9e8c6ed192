#pragma once

#include <cstddef>
#include <new>
#include <string>
#include <utility>

#include "collective/buffer_list.hpp"
#include "support/error.hpp"

namespace ddl::api {

/// Text of the last failure on this thread. Where there is no memory for a text, it is one that needs none.
class LastError {
 public:
  void clear() noexcept {
    text_.clear();
    fixed_ = nullptr;
  }
  void set(const char* before, const char* what, const char* after) noexcept {
    try {
      text_ = std::string(before) + what + after;
      fixed_ = nullptr;
    } catch (const std::bad_alloc&) {
      no_memory();
    }
  }
  void no_memory() noexcept {
    fixed_ = "[ERROR DDL-1-6] out of memory; in this process; free memory or raise its limit";
  }
  const char* c_str() const noexcept { return fixed_ != nullptr ? fixed_ : text_.c_str(); }

 private:
  std::string text_;
  const char* fixed_ = nullptr;
};

LastError& last_error();

/// Runs action at the C boundary: exceptions become codes, their texts the thread's last error.
template <class Action>
int guard(Action&& action) noexcept {
  try {
    last_error().clear();
    std::forward<Action>(action)();
    return DDL_SUCCESS;
  } catch (const Error& error) {
    last_error().set("", error.what(), "");
    return error.code();
  } catch (const std::bad_alloc&) {
    last_error().no_memory();
    return DDL_ERR_MEMORY;
  } catch (const std::exception& error) {
    last_error().set("[ERROR DDL-1-10] ", error.what(), "; inside DDL; please report this");
    return DDL_ERR_INTERNAL;
  }
}

// Types and ops stay ints until they are checked: a C++ enumeration must not hold any other value.

void check_type(const char* function, int type);
void check_op(const char* function, int op);
/// A null pointer is an error unless there is nothing behind it.
void check_pointer(const char* function, const void* pointer, const char* what, bool needed = true);

/// For calls with `count` elements of every one of `ranks` ranks.
void check_blocks(const char* function, const void* in, const void* out, std::size_t count, int type,
                  int ranks);
/// For calls with n buffers of counts[i] elements each.
void check_buffers(const char* function, void* const* bufs, const std::size_t* counts, std::size_t n,
                   int type);

}  // namespace ddl::api
