#pragma once

#include <functional>
#include <list>

namespace ddl {

/**
 * A thread of this process that answers for it while its own threads compute, save or sleep: it calls every
 * registered function a few times a second, until MPI_Finalize or the end of the process.
 *
 * A forked copy of the process has no such thread, and ends as if there had never been one.
 */
class LivenessThread {
 public:
  using Handle = std::list<std::function<void()>>::iterator;

  /// Starts the thread at first use.
  /// @param tick  must not throw and not wait
  static Handle add(std::function<void()> tick);
  /// Once it returns, the function is not called any more.
  static void remove(Handle handle);
};

}  // namespace ddl
