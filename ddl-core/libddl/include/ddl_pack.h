/**
 * @file ddl_pack.h
 * libddl_pack: many buffers to one and back, for callers that want one contiguous message.
 * ddl_allreduce_n does not need it. The library depends on libddl, so linking it alone brings both.
 */
#ifndef DDL_PACK_H
#define DDL_PACK_H

#include "ddl.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Elements of all n buffers together. @return DDL_ERR_ARGUMENT for a null pointer or when the bytes
 * overflow. */
DDL_API int ddl_pack_count(const size_t* counts, size_t n, DDL_Type type, size_t* total);

/** Copies bufs[0..n) one after the other to dst, which holds ddl_pack_count elements and overlaps none of
 * them. */
DDL_API int ddl_pack(void* dst, const void* const* bufs, const size_t* counts, size_t n, DDL_Type type);

/** The inverse of ddl_pack. */
DDL_API int ddl_unpack(void* const* bufs, const size_t* counts, size_t n, DDL_Type type, const void* src);

#ifdef __cplusplus
}
#endif

#endif
