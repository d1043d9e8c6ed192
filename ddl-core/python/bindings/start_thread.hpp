// Threads of the bindings.
#pragma once

#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "ddl.h"

namespace ddl_bindings {

// Starts a thread that nobody joins. Where the system gives none it throws std::runtime_error, in DDL's
// words, and the other ranks are told, who would wait for the calls of this one.
template <class Body>
void StartThread(Body&& body) {
  std::string what;
  try {
    std::thread(std::forward<Body>(body)).detach();
    return;
  } catch (const std::system_error& error) {
    what = "cannot start a thread: " + error.code().message();
  }
  ddl_abort(what.c_str());
  throw std::runtime_error("[ERROR DDL-1-6] " + what +
                           "; in this process; raise the limit of processes (ulimit -u) or of address space "
                           "(ulimit -v), or free memory");
}

}  // namespace ddl_bindings
