#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "support/error.hpp"

namespace ddl {

/// A thread that runs body(). @throws Error (DDL_ERR_MEMORY) where the system gives none
template <class Body>
std::thread start_thread(Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw Error(DDL_ERR_MEMORY, "cannot start a thread: " + error.code().message(), "in this process",
                "raise the limit of processes (ulimit -u) or of address space (ulimit -v), or free memory");
  }
}

}  // namespace ddl
