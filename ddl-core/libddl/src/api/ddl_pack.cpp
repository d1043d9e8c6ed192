#include "ddl_pack.h"

#include <cstdint>
#include <cstring>

extern "C" {

int ddl_pack_count(const size_t* counts, size_t n, DDL_Type type, size_t* total) {
  const size_t width = ddl_type_size(type);
  if (width == 0 || total == nullptr || (counts == nullptr && n > 0)) return DDL_ERR_ARGUMENT;
  size_t sum = 0;
  for (size_t i = 0; i < n; ++i) {
    if (counts[i] > SIZE_MAX / width - sum) return DDL_ERR_ARGUMENT;
    sum += counts[i];
  }
  *total = sum;
  return DDL_SUCCESS;
}

int ddl_pack(void* dst, const void* const* bufs, const size_t* counts, size_t n, DDL_Type type) {
  size_t total = 0;
  if (ddl_pack_count(counts, n, type, &total) != DDL_SUCCESS) return DDL_ERR_ARGUMENT;
  if (total > 0 && (dst == nullptr || bufs == nullptr)) return DDL_ERR_ARGUMENT;
  char* to = static_cast<char*>(dst);
  for (size_t i = 0; i < n; ++i) {
    if (counts[i] == 0) continue;
    if (bufs[i] == nullptr) return DDL_ERR_ARGUMENT;
    const size_t bytes = counts[i] * ddl_type_size(type);
    std::memcpy(to, bufs[i], bytes);
    to += bytes;
  }
  return DDL_SUCCESS;
}

int ddl_unpack(void* const* bufs, const size_t* counts, size_t n, DDL_Type type, const void* src) {
  size_t total = 0;
  if (ddl_pack_count(counts, n, type, &total) != DDL_SUCCESS) return DDL_ERR_ARGUMENT;
  if (total > 0 && (src == nullptr || bufs == nullptr)) return DDL_ERR_ARGUMENT;
  const char* from = static_cast<const char*>(src);
  for (size_t i = 0; i < n; ++i) {
    if (counts[i] == 0) continue;
    if (bufs[i] == nullptr) return DDL_ERR_ARGUMENT;
    const size_t bytes = counts[i] * ddl_type_size(type);
    std::memcpy(bufs[i], from, bytes);
    from += bytes;
  }
  return DDL_SUCCESS;
}

}  // extern "C"
