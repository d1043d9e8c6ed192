// Which process an object belongs to.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <utility>

namespace ddl_torch {

// Threads do not live on in a forked process: there nothing of them may be waited for.
class OwnProcess {
 public:
  bool Forked() const { return getpid() != pid_; }

 private:
  const pid_t pid_ = getpid();
};

// Leaves an object to the end of the process. For those whose locks a thread held, or waited for, when the
// process was forked: to destroy them might never return.
template <class T>
void Leave(std::shared_ptr<T> object) {
  static_cast<void>(new std::shared_ptr<T>(std::move(object)));
}

}  // namespace ddl_torch
