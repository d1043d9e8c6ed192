#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddl.h"
#include "engine/runtime.hpp"
#include "memory/executor.hpp"

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
  /// Does what comes before a call that all ranks make: an error here must not leave them waiting. @throws
  /// Error
  template <class Action>
  void prepare(const Action& action) const {
    try {
      action();
    } catch (...) {
      refuse_call();
    }
  }

 private:
  [[noreturn]] void refuse_call() const;

  std::shared_ptr<RankGroup> group_;
};

/// A collective call of ddl.h as its caller asked for it. Owns nothing but its executor. What would be
/// enumerations are numbers until they are checked: a C++ enumeration must not hold any other value.
struct CollectiveCall {
  const char* function = "";  ///< that errors name
  int collective = DDL_ALLREDUCE;
  std::optional<DDL_Group> group{};  ///< none: the world
  void* const* bufs = nullptr;       ///< all-reduce, broadcast, reduce
  const std::size_t* counts = nullptr;
  std::size_t n = 0;
  const void* in = nullptr;  ///< reduce-scatter, all-gather, all-to-all
  void* out = nullptr;
  std::size_t count = 0;
  int type = 0;
  int op = 0;
  int root = 0;
  const char* name = nullptr;
  void* stream = nullptr;                ///< of buffers that find_memory() finds to be a GPU's
  std::shared_ptr<Executor> executor{};  ///< null: the host's
};

/// @throws Error unless the call can be made by these ranks
void check(const CollectiveCall& call, const Caller& caller);
/// Gives a checked call without an executor that of the memory its buffers lie in. @throws Error where they
/// lie in several
void find_memory(CollectiveCall& call, const Caller& caller);
/// For a call on a GPU. @param device  its ordinal. @throws Error
std::shared_ptr<Executor> cuda_executor(int device, void* stream, const Caller& caller);
/// Makes a call that was checked. @throws Error
void make(Communicator& ranks, const CollectiveCall& call);
/// Checks and makes a call; what a C function returns.
int make_call(CollectiveCall call);

/// A call that was checked, to be made when its caller's arrays and name may be gone. The buffers must stay.
class StartedCall {
 public:
  explicit StartedCall(const CollectiveCall& call);
  StartedCall(const StartedCall&) = delete;
  StartedCall& operator=(const StartedCall&) = delete;

  const CollectiveCall& call() const { return call_; }

 private:
  const std::vector<void*> bufs_;
  const std::vector<std::size_t> counts_;
  const std::string name_;
  CollectiveCall call_;
};

/// Checks a call of the world and submits it to the progress engine; what a C function returns.
int start_call(CollectiveCall call, int priority, DDL_Handle* handle);

}  // namespace ddl::api
