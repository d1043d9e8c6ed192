#include <cstdint>
#include <string>

#include "api/guard.hpp"

namespace ddl::api {

void check_type(const char* function, int type) {
  if (valid_type(type)) return;
  throw Error(DDL_ERR_ARGUMENT, "unknown element type " + std::to_string(type), std::string("in ") + function,
              "use one of the DDL_TYPE_ values of ddl.h");
}

void check_op(const char* function, int op) {
  if (valid_op(op)) return;
  throw Error(DDL_ERR_ARGUMENT, "unknown op " + std::to_string(op), std::string("in ") + function,
              "use one of the DDL_OP_ values of ddl.h");
}

void check_pointer(const char* function, const void* pointer, const char* what, bool needed) {
  if (pointer != nullptr || !needed) return;
  throw Error(DDL_ERR_ARGUMENT, std::string(what) + " is a null pointer", std::string("in ") + function,
              "pass valid memory");
}

void check_buffers(const char* function, void* const* bufs, const size_t* counts, size_t n, int type) {
  check_type(function, type);
  check_pointer(function, bufs, "bufs", n > 0);
  check_pointer(function, counts, "counts", n > 0);
  size_t total = 0;
  for (size_t i = 0; i < n; ++i) {
    if (bufs[i] == nullptr && counts[i] > 0) {
      check_pointer(function, nullptr, ("bufs[" + std::to_string(i) + "]").c_str());
    }
    if (counts[i] > SIZE_MAX / 16 - total) {
      throw Error(DDL_ERR_ARGUMENT, "the counts add up to more elements than fit in memory",
                  std::string("in ") + function, "counts are elements, not bytes");
    }
    total += counts[i];
  }
}

void check_blocks(const char* function, const void* in, const void* out, size_t count, int type, int ranks) {
  check_type(function, type);
  check_pointer(function, in, "in", count > 0);
  check_pointer(function, out, "out", count > 0);
  if (count > SIZE_MAX / 16 / static_cast<size_t>(ranks)) {
    throw Error(DDL_ERR_ARGUMENT,
                "count " + std::to_string(count) + " for each rank is more than fits in memory",
                std::string("in ") + function, "counts are elements, not bytes");
  }
}

}  // namespace ddl::api
