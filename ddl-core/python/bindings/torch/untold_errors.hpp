// Errors of calls on a GPU that nobody has waited for.
#pragma once

#include <exception>
#include <map>
#include <mutex>

namespace ddl_torch {

// An error of the GPU need not be one of DDL, which would refuse all that follows. The next that the program
// asks of the group tells it.
class UntoldErrors {
 public:
  // `whose` tells calls apart.
  void Add(const void* whose, std::exception_ptr error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    errors_.emplace(whose, error);
  }
  // The program knows this one.
  void Told(const void* whose) {
    const std::lock_guard<std::mutex> lock(mutex_);
    errors_.erase(whose);
  }
  // Throws one of them, and forgets all.
  void Throw() {
    std::exception_ptr error;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (errors_.empty()) return;
      error = errors_.begin()->second;
      errors_.clear();
    }
    std::rethrow_exception(error);
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::exception_ptr> errors_;
};

}  // namespace ddl_torch
