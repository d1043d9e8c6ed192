#include "api/collective_calls.hpp"

#include <string>

#include "api/guard.hpp"
#include "support/hash.hpp"

namespace ddl::api {

Caller::Caller(std::optional<DDL_Group> group) {
  if (group) group_ = Runtime::instance().group(*group);
}

void Caller::call(const std::function<void(Communicator&)>& action) const {
  if (group_) {
    group_->call(action);
  } else {
    Runtime::instance().engine().call(action);
  }
}

void Caller::check_root(const char* function, int root) const {
  if (root >= 0 && root < size()) return;
  throw Error(DDL_ERR_ARGUMENT, "root " + std::to_string(root) + " is no rank" +
                                    (group_ ? " of the group" : "") + "; in " + function + "; pass 0 to " +
                                    std::to_string(size() - 1));
}

int allreduce(const char* function, std::optional<DDL_Group> group, void* const* bufs, const size_t* counts,
              size_t n, int type, int op, const char* name) {
  return guard([&] {
    const BufferList buffers = buffer_list(function, bufs, counts, n, type);
    check_op(function, op);
    Caller(group).call([&](Communicator& ranks) {
      ranks.allreduce(buffers, {n, hash_bytes(counts, n * sizeof *counts), name}, static_cast<DDL_Type>(type),
                      static_cast<DDL_Op>(op));
    });
  });
}

int broadcast(const char* function, std::optional<DDL_Group> group, void* const* bufs, const size_t* counts,
              size_t n, int type, int root, const char* name) {
  return guard([&] {
    const BufferList buffers = buffer_list(function, bufs, counts, n, type);
    const Caller caller(group);
    caller.check_root(function, root);
    caller.call([&](Communicator& ranks) {
      ranks.broadcast(buffers, {n, hash_bytes(counts, n * sizeof *counts), name}, static_cast<DDL_Type>(type),
                      root);
    });
  });
}

int reduce(const char* function, std::optional<DDL_Group> group, void* buf, size_t count, int type, int op,
           int root, const char* name) {
  return guard([&] {
    const BufferList buffers = buffer_list(function, &buf, &count, 1, type);
    check_op(function, op);
    const Caller caller(group);
    caller.check_root(function, root);
    caller.call([&](Communicator& ranks) {
      ranks.reduce(buffers, {1, hash_bytes(&count, sizeof count), name}, static_cast<DDL_Type>(type),
                   static_cast<DDL_Op>(op), root);
    });
  });
}

int reduce_scatter(const char* function, std::optional<DDL_Group> group, const void* in, void* out,
                   size_t count, int type, int op, const char* name) {
  return guard([&] {
    const Caller caller(group);
    check_blocks(function, in, out, count, type, caller.size());
    check_op(function, op);
    caller.call([&](Communicator& ranks) {
      ranks.reduce_scatter(in, out, count, static_cast<DDL_Type>(type), static_cast<DDL_Op>(op), name);
    });
  });
}

int all_gather(const char* function, std::optional<DDL_Group> group, const void* in, void* out, size_t count,
               int type, const char* name) {
  return guard([&] {
    const Caller caller(group);
    check_blocks(function, in, out, count, type, caller.size());
    caller.call(
        [&](Communicator& ranks) { ranks.all_gather(in, out, count, static_cast<DDL_Type>(type), name); });
  });
}

int all_to_all(const char* function, std::optional<DDL_Group> group, const void* in, void* out, size_t count,
               int type, const char* name) {
  return guard([&] {
    const Caller caller(group);
    check_blocks(function, in, out, count, type, caller.size());
    caller.call(
        [&](Communicator& ranks) { ranks.all_to_all(in, out, count, static_cast<DDL_Type>(type), name); });
  });
}

int barrier(std::optional<DDL_Group> group) {
  return guard([&] { Caller(group).call([](Communicator& ranks) { ranks.barrier(); }); });
}

}  // namespace ddl::api
