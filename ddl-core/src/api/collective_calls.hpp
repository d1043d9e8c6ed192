#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "ddl.h"
#include "engine/runtime.hpp"

namespace ddl::api {

/// Whose ranks make a call: all of the world's, or those of a group.
class Caller {
 public:
  /// @param group  none: the world. @throws Error when there is none of this number, or DDL is not
  /// initialised
  explicit Caller(std::optional<DDL_Group> group);

  const Communicator& view() const { return group_ ? group_->view() : Runtime::instance().view(); }
  int rank() const { return view().rank(); }
  int size() const { return view().size(); }
  /// Null for the world.
  const std::shared_ptr<RankGroup>& group() const { return group_; }
  /// Makes a call, when those that were submitted before are made. @throws Error
  void call(const std::function<void(Communicator&)>& action) const;
  /// @throws Error unless root is one of the ranks
  void check_root(const char* function, int root) const;

 private:
  std::shared_ptr<RankGroup> group_;
};

// The collective calls of ddl.h, each for the world (no group) and for a group; `function` is the name that
// errors tell. They return what the C functions return.

int allreduce(const char* function, std::optional<DDL_Group> group, void* const* bufs, const size_t* counts,
              size_t n, int type, int op, const char* name);
int broadcast(const char* function, std::optional<DDL_Group> group, void* const* bufs, const size_t* counts,
              size_t n, int type, int root, const char* name);
int reduce(const char* function, std::optional<DDL_Group> group, void* buf, size_t count, int type, int op,
           int root, const char* name);
int reduce_scatter(const char* function, std::optional<DDL_Group> group, const void* in, void* out,
                   size_t count, int type, int op, const char* name);
int all_gather(const char* function, std::optional<DDL_Group> group, const void* in, void* out, size_t count,
               int type, const char* name);
int all_to_all(const char* function, std::optional<DDL_Group> group, const void* in, void* out, size_t count,
               int type, const char* name);
int barrier(std::optional<DDL_Group> group);

}  // namespace ddl::api
