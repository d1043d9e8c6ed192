// Collective calls in groups, for tests.
#pragma once

#include <cstddef>

#include "ddl.h"

namespace group_calls {

/// Makes a call among the ranks of `group`. @return what ddl_call returns
inline int call_in(DDL_Group group, DDL_Call call) {
  call.size = sizeof call;
  call.group = group;
  return ddl_call(&call);
}

/// An all-reduce, a reduce or a broadcast of n buffers.
inline int buffers_in(DDL_Group group, DDL_Collective collective, void* const* bufs,
                      const std::size_t* counts, std::size_t n, DDL_Type type, DDL_Op op = DDL_OP_SUM,
                      int root = 0, const char* name = nullptr) {
  DDL_Call call{};
  call.collective = collective;
  call.bufs = bufs;
  call.counts = counts;
  call.n = n;
  call.type = type;
  call.op = op;
  call.root = root;
  call.name = name;
  return call_in(group, call);
}

/// A reduce-scatter, an all-gather or an all-to-all of blocks of `count` elements.
inline int blocks_in(DDL_Group group, DDL_Collective collective, const void* in, void* out, std::size_t count,
                     DDL_Type type) {
  DDL_Call call{};
  call.collective = collective;
  call.in = in;
  call.out = out;
  call.count = count;
  call.type = type;
  call.op = DDL_OP_SUM;
  return call_in(group, call);
}

inline int barrier_in(DDL_Group group) {
  DDL_Call call{};
  call.collective = DDL_BARRIER;
  return call_in(group, call);
}

}  // namespace group_calls
