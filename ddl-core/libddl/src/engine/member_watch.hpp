#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/communicator.hpp"
#include "support/process_handle.hpp"
#include "transport/bounded_wait.hpp"

namespace ddl {

/**
 * Watches over what some ranks do together beside the calls of all, such as the making of a group, by the
 * world's failure detector. While it lives, waits of its thread end as soon as it is known that a rank is
 * gone.
 */
class MemberWatch {
 public:
  /// @param ranks    of the world
  /// @param where    such as "in the making of a group"
  /// @param limit_s  how long ranks that answer are waited for
  /// @param idle     whether this rank has no calls of the world under way, nor to be made
  MemberWatch(Communicator& world, const std::vector<int>& ranks, std::string where, double limit_s,
              std::function<bool()> idle);
  ~MemberWatch();
  MemberWatch(const MemberWatch&) = delete;
  MemberWatch& operator=(const MemberWatch&) = delete;

  /// To be called again and again while waiting. @throws Error for a rank that has ended, does not answer,
  /// finalizes, or waits for this one in a call
  void look();
  /// Warns of ranks that have been waited for, if they answer.
  void note_late(const std::vector<int>& missing);
  /// The wait has timed out by itself. @throws Error that names who does not answer, or finalizes; nothing
  /// where all others may still come
  void name_given_up(double waited_s);
  double late_s() const { return world_.limits().late_s; }

 private:
  struct Member {
    int rank;
    std::shared_ptr<const ProcessHandle> process;
    bool ended = false;
  };

  void look_for_ended();
  void warn(const std::vector<AbsentRank>& roll);
  /// @throws Error (DDL_ERR_TIMEOUT) where members do not answer, (DDL_ERR_MISMATCH) where they finalize
  void refuse(const std::vector<AbsentRank>& roll, double waited_s);
  /// @throws Error (DDL_ERR_MISMATCH) where a member waits in a call that this rank cannot come to
  void refuse_other_call(const std::vector<AbsentRank>& roll);
  bool is_member(const AbsentRank& absent) const;
  double waited() const;

  Communicator& world_;
  FailureDetector* const detector_;
  const std::string where_;
  const double limit_s_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point looked_{};
  std::vector<Member> members_;
  double next_question_s_;
  std::optional<Clock::time_point> asked_;
  double next_roll_s_;  ///< whether members wait in another call
  std::optional<Clock::time_point> roll_called_;
  const std::function<bool()> idle_;
  bool refused_ = false;
  std::vector<int> late_;  ///< to be warned of once it is known that they answer
  Clock::time_point late_since_{};
  WatchedWaits waits_;  // last: it uses the others
};

}  // namespace ddl
