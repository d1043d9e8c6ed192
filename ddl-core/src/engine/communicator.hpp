#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "collective/allreduce.hpp"
#include "collective/broadcast.hpp"
#include "engine/agreement.hpp"
#include "engine/monitor.hpp"
#include "engine/options.hpp"

namespace ddl {

/**
 * The ranks of one MPI communicator (or a single rank without MPI) and all that they need for collective
 * calls. Not thread-safe: the runtime serialises.
 */
class Communicator {
 public:
  /// A world of one rank; never touches MPI.
  explicit Communicator(const Options& options);
  /// Collective over base, whose ranks must all be here already.
  Communicator(MPI_Comm base, const Options& options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const Topology& topology() const { return topology_; }
  int rank() const { return rank_; }
  int size() const { return topology_.size(); }

  /// name may be null. @throws Error
  void allreduce(const BufferList& buffers, std::uint64_t counts_hash, std::uint64_t n, DDL_Type type,
                 DDL_Op op, const char* name);
  void broadcast(const BufferList& buffers, std::uint64_t counts_hash, std::uint64_t n, DDL_Type type,
                 int root, const char* name);
  void barrier();
  void allreduce_plain(void* buf, std::size_t count, DDL_Type type, DDL_Op op);
  /// Waits for all ranks before anything is torn down. In the failed state it returns at once.
  void finalize();

  bool failed() const { return monitor_ && monitor_->failure(); }
  /// A rank is missing: MPI must not be finalised, since that would wait for it.
  bool ranks_missing() const;
  std::string to_json() const;

 private:
  void connect(MPI_Comm base);
  void agree_on_success(MPI_Comm base, const std::optional<Error>& error);
  CallHeader header_of(CallKind kind, DDL_Type type, int op, int root, std::uint64_t count, std::uint64_t n,
                       std::uint64_t counts_hash, const char* name);
  /// Runs one call: agreement and, at the same time, `collective` (may be null).
  template <class Collective>
  void run(const CallHeader& header, Collective* collective, double patience = 1.0);
  const Exchange& exchange_for(std::size_t elements, std::size_t grain);
  void account(const CallHeader& header, std::size_t bytes, const char* algorithm, double seconds);
  void abandon();
  void reduce_with_mpi(char* buf, std::size_t count, DDL_Type type, DDL_Op op);

  const Options options_;
  int rank_ = 0;
  Topology topology_;
  bool crowded_ = false;
  Counters counters_;
  std::string last_algorithm_ = "none";
  std::string last_call_ = "none";
  double last_seconds_ = 0;
  std::size_t last_chunks_ = 0;
  std::size_t last_chunk_bytes_ = 0;
  std::uint64_t sequence_ = 0;
  bool distributed_ = false;

  // In the order of their construction; all null in a world of one.
  std::optional<MpiLink> link_;
  std::optional<SharedSegment> segment_;
  std::optional<Monitor> monitor_;
  std::optional<Fabric> fabric_;
  std::optional<Agreement> agreement_;
  std::optional<Allreduce> allreduce_;
  std::optional<Broadcast> broadcast_;
  std::map<std::pair<std::size_t, std::size_t>, Exchange> exchanges_;
};

}  // namespace ddl
