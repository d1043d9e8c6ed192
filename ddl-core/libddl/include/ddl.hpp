/**
 * @file ddl.hpp
 * C++ view of ddl.h: the same functions with the default arguments that C++ clients of DDL rely on.
 * Meaning, units and errors are described in ddl.h.
 */
#ifndef DDL_HPP
#define DDL_HPP

#include "ddl.h"

extern "C" {

DDL_API int ddl_init(const char* options = nullptr);

DDL_API int ddl_allreduce(void* buf, size_t count, DDL_Type type = DDL_TYPE_FLOAT, DDL_Op op = DDL_OP_SUM);

DDL_API int ddl_allreduce_n(void* const* bufs, const size_t* counts, size_t n, DDL_Type type = DDL_TYPE_FLOAT,
                            DDL_Op op = DDL_OP_SUM, const char* name = nullptr);

DDL_API int ddl_broadcast(void* buf, size_t count, DDL_Type type = DDL_TYPE_FLOAT, int root = 0,
                          const char* name = nullptr);

DDL_API int ddl_broadcast_n(void* const* bufs, const size_t* counts, size_t n, DDL_Type type = DDL_TYPE_FLOAT,
                            int root = 0, const char* name = nullptr);

DDL_API int ddl_reduce(void* buf, size_t count, DDL_Type type = DDL_TYPE_FLOAT, DDL_Op op = DDL_OP_SUM,
                       int root = 0, const char* name = nullptr);

DDL_API int ddl_reduce_scatter(const void* in, void* out, size_t count, DDL_Type type = DDL_TYPE_FLOAT,
                               DDL_Op op = DDL_OP_SUM, const char* name = nullptr);

DDL_API int ddl_all_gather(const void* in, void* out, size_t count, DDL_Type type = DDL_TYPE_FLOAT,
                           const char* name = nullptr);

DDL_API int ddl_all_to_all(const void* in, void* out, size_t count, DDL_Type type = DDL_TYPE_FLOAT,
                           const char* name = nullptr);

DDL_API int ddl_allreduce_plain(void* buf, size_t count, DDL_Type type = DDL_TYPE_FLOAT,
                                DDL_Op op = DDL_OP_SUM);

}  // extern "C"

#endif
