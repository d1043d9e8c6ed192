#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <utility>

namespace ddl::cuda {

/// A library that is opened when it is needed, and stays open: its functions, and what is wrong with it.
class DynamicLibrary {
 public:
  /// @param flags  of dlopen, beside RTLD_NOW
  DynamicLibrary(std::string name, int flags) : name_(std::move(name)) {
    handle_ = dlopen(name_.c_str(), RTLD_NOW | flags);
    if (handle_ != nullptr) return;
    const char* const why = dlerror();
    why_not_ = why == nullptr ? name_ : why;
  }

  /// The one that a variable of the environment names, else `name`.
  static DynamicLibrary chosen(const char* variable, const char* name) {
    const char* const asked = std::getenv(variable);
    return {asked != nullptr && *asked != 0 ? asked : name, RTLD_LOCAL};
  }

  bool open() const { return handle_ != nullptr; }
  const std::string& name() const { return name_; }
  /// What dlopen said.
  const std::string& why_not() const { return why_not_; }

  /// Sets a pointer to a function; to null, and notes the name, where there is none.
  template <class Function>
  bool find(Function& function, const char* symbol) {
    void* const found = dlsym(handle_, symbol);
    if (found == nullptr && missing_.empty()) missing_ = symbol;
    function = reinterpret_cast<Function>(found);
    return found != nullptr;
  }
  /// The first that was not found; empty where all were.
  const std::string& missing() const { return missing_; }

 private:
  std::string name_;
  void* handle_ = nullptr;
  std::string why_not_;
  std::string missing_;
};

}  // namespace ddl::cuda
