#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "transport/mpi_transport.hpp"

namespace ddl {

/// What a rank waits for where no failure detector runs yet, for the error when it does not come.
struct Awaited {
  std::string whom;              ///< such as "rank 3"
  std::string where;             ///< such as "in ddl_init"
  std::string remedy;            ///< what to do
  std::function<void()> look{};  ///< called again and again, ends the wait where it throws; may be null
};

/// While it lives, waits of its thread call `look` again and again, which ends them where it throws.
class WatchedWaits {
 public:
  explicit WatchedWaits(std::function<void()> look);
  ~WatchedWaits();
  WatchedWaits(const WatchedWaits&) = delete;
  WatchedWaits& operator=(const WatchedWaits&) = delete;

  /// For waits of other kinds. @throws what the watch throws
  static void look();

 private:
  const std::function<void()> look_;
  const std::function<void()>* const before_;
};

/// Returns when all requests are complete. Ranks may outnumber cores, so waiting yields, and then sleeps.
/// @throws Error (DDL_ERR_TIMEOUT) after limit_s: memory that the requests use must then stay; DDL_ERR_MPI
void wait_for(std::span<MPI_Request> requests, double limit_s, const Awaited& awaited);
/// As above. @param said_s  the limit as the error says it
void wait_for(std::span<MPI_Request> requests, double limit_s, double said_s, const Awaited& awaited);

/// A duplicate of a communicator, whose ranks must all come within the limit. The caller frees it.
/// @throws Error (DDL_ERR_TIMEOUT) where they have not: comm is then of no more use; DDL_ERR_MPI
MPI_Comm duplicate_within(MPI_Comm comm, double limit_s, const Awaited& awaited);

/// communicator_of() within a limit, where MPI has MPI_THREAD_MULTIPLE. Does not count as a collective of
/// `all`. @throws Error as above
MPI_Comm communicator_within(MPI_Comm all, const std::vector<int>& ranks, int tag, double limit_s,
                             const Awaited& awaited);

}  // namespace ddl
