#pragma once

#include <exception>
#include <memory>
#include <utility>

namespace ddl {

/// Memory that messages use. It stays for good when an exception ends the scope: what is under way then may
/// still be written to it, or read from it, as long as the process lives.
template <class T>
class KeptOnError {
 public:
  template <class... Arguments>
  explicit KeptOnError(Arguments&&... arguments)
      : value_(std::make_unique<T>(std::forward<Arguments>(arguments)...)) {}
  ~KeptOnError() {
    if (std::uncaught_exceptions() > before_) static_cast<void>(value_.release());
  }
  KeptOnError(const KeptOnError&) = delete;
  KeptOnError& operator=(const KeptOnError&) = delete;

  T& operator*() const { return *value_; }
  T* operator->() const { return value_.get(); }

 private:
  const int before_ = std::uncaught_exceptions();
  std::unique_ptr<T> value_;
};

}  // namespace ddl
