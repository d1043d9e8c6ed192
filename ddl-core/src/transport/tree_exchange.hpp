#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "transport/bounded_wait.hpp"

namespace ddl {

/**
 * Exchanges among some ranks of a communicator along a binomial tree, for what must be agreed on before DDL
 * can run: P-1 connections and at most 2 ceil(log2 P) steps among P ranks, and every wait has a limit.
 * (MPI's own collectives take none, and connect each rank with log2 P or more others.)
 *
 * Every member must call the same functions in the same order. Messages have one tag: between two members of
 * several trees only one exchange may be under way at a time.
 *
 * All functions throw Error: DDL_ERR_TIMEOUT when a member does not answer (the others then learn of it as
 * their own times end, and the communicator is of no use any more), DDL_ERR_MPI.
 */
class TreeExchange {
 public:
  /// @param comm     of DDL's own, so that nobody else's messages are taken for these
  /// @param members  ranks of comm, the same on all of them; the first is the root. This rank is one.
  /// @param limit_s  for the answer of another member
  /// @param where, remedy  for errors, as in Awaited
  TreeExchange(MPI_Comm comm, std::vector<int> members, double limit_s, std::string where,
               std::string remedy);

  using Merge = std::function<std::string(std::string mine, std::string others)>;
  /// Texts of all members, joined by `merge` in the order of the members. Empty on all but the root.
  std::string reduce(std::string mine, const Merge& merge) const;
  /// The root's text, on all.
  std::string broadcast(std::string text) const;
  /// Every member's text, in the order of the members, on all.
  std::vector<std::string> all_gather(const std::string& mine) const;
  /// Returns when all members have called it.
  void barrier() const;

  bool is_root() const { return self_ == 0; }

 private:
  void send(const std::string& text, std::size_t member) const;
  std::string receive(std::size_t member) const;
  Awaited awaited(std::size_t member) const;

  const MPI_Comm comm_;
  const std::vector<int> members_;
  const double limit_s_;
  const std::string where_;
  const std::string remedy_;
  std::size_t self_ = 0;  ///< index in members_
};

}  // namespace ddl
