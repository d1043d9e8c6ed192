#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/error.hpp"
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
 * All functions throw Error: DDL_ERR_TIMEOUT when a member does not answer, DDL_ERR_MPI. The others are told
 * along the tree, in this function or a later one, so that all name the same member; those whose way to the
 * root leads through the lost member name that one. The communicator is of no use any more then.
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
  struct Received {
    std::string text;
    std::optional<Error> failure;  ///< what the sender says instead
  };
  /// A frame under way to a member.
  struct Sending {
    std::shared_ptr<const std::string> frame;
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  };
  Sending start(std::shared_ptr<const std::string> frame, std::size_t member) const;
  void finish(Sending sending, std::size_t member, double limit_s) const;
  Received receive(std::size_t member, double limit_s) const;
  /// Members of this rank's part of the tree that receive from it, nearest first.
  std::vector<std::size_t> children() const;
  std::size_t parent() const;
  [[noreturn]] void pass_on(const Error& failure) const;
  [[noreturn]] void report(const Error& failure) const;
  Awaited awaited(std::size_t member) const;

  const MPI_Comm comm_;
  const std::vector<int> members_;
  const double limit_s_;
  const std::string where_;
  const std::string remedy_;
  std::size_t self_ = 0;  ///< index in members_
  /// A member waits so much longer than its child: thus what the child knows of a loss comes first.
  const double step_s_;
  double limit_of_all_s_ = 0;  ///< for what the root knows of all
  /// Children that did not take what was sent to them, of which the root has not been told yet.
  mutable std::map<std::size_t, Error> lost_;
};

}  // namespace ddl
