#include "engine/member_watch.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>

#include "engine/call_validation.hpp"
#include "engine/callers.hpp"
#include "support/number.hpp"
#include "support/stopwatch.hpp"

namespace ddl {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{50};
/// The first look for members that wait in another call; the next ones after twice the time each.
constexpr double kFirstRoll_s = 2;

/// "5 of all ranks (broadcast)"
std::string call_of(const AbsentRank& absent) {
  return std::to_string(absent.arrived) + " of all ranks (" + name_of(absent.kind) + ")";
}

bool gone(const AbsentRank& absent) {
  return absent.alive == AbsentRank::kNoAnswer || absent.alive == AbsentRank::kEnds;
}

}  // namespace

MemberWatch::MemberWatch(Communicator& world, const std::vector<int>& ranks, std::string where,
                         double limit_s, std::function<bool()> idle)
    : world_(world),
      detector_(world.detector()),
      where_(std::move(where)),
      limit_s_(limit_s),
      next_question_s_(std::min(world.limits().timeout_s, limit_s)),
      next_roll_s_(kFirstRoll_s),
      idle_(std::move(idle)),
      waits_([this] { look(); }) {
  if (detector_ == nullptr) return;
  detector_->note_forming(true);
  for (const int rank : ranks) {
    if (rank != world.rank()) members_.push_back({rank, detector_->process_of(rank)});
  }
}

MemberWatch::~MemberWatch() {
  if (detector_ != nullptr) detector_->note_forming(false);
}

double MemberWatch::waited() const { return seconds_since(began_); }

bool MemberWatch::is_member(const AbsentRank& absent) const {
  return std::any_of(members_.begin(), members_.end(),
                     [&](const Member& member) { return member.rank == absent.rank; });
}

void MemberWatch::look() {
  const auto now = Clock::now();
  if (detector_ == nullptr || now - looked_ < kBetweenLooks) return;
  looked_ = now;
  if (const auto known = detector_->known_end()) throw Error(*known);
  look_for_ended();
  if (!detector_->asks()) return;
  Inquiry& inquiry = detector_->inquiry();
  inquiry.serve();
  if (!late_.empty()) {
    if (const auto roll = inquiry.call_roll(late_since_)) warn(*roll);
  }
  const double waited_s = waited();
  if (!roll_called_ && waited_s >= next_roll_s_) roll_called_ = now;
  if (roll_called_) {
    if (const auto roll = inquiry.call_roll(*roll_called_)) {
      roll_called_.reset();
      next_roll_s_ = 2 * waited_s;
      refuse_other_call(*roll);
    }
  }
  if (!asked_ && waited_s < next_question_s_) return;
  if (!asked_) asked_ = now;
  const auto roll = inquiry.call_roll(*asked_);
  if (!roll) return;
  asked_.reset();
  refuse(*roll, std::min(world_.limits().timeout_s, limit_s_));
  // Whoever is late may stop meanwhile.
  next_question_s_ = waited_s + std::max(world_.limits().timeout_s / 2, 1.0);
}

void MemberWatch::look_for_ended() {
  for (Member& member : members_) {
    if (!member.process || !member.process->ended()) continue;
    // Its last message may still lie there.
    if (!std::exchange(member.ended, true)) continue;
    const Error error(DDL_ERR_PEER_LOST,
                      "the process of " + world_.topology().describe_rank(member.rank) + " has ended", where_,
                      "look at its output for the reason");
    world_.announce(error, false);
    throw Error(detector_->known_end().value_or(error));
  }
}

void MemberWatch::note_late(const std::vector<int>& missing) {
  late_ = missing;
  late_since_ = Clock::now();
}

void MemberWatch::warn(const std::vector<AbsentRank>& roll) {
  std::string names;
  for (const int rank : late_) {
    const auto absent =
        std::find_if(roll.begin(), roll.end(), [&](const AbsentRank& other) { return other.rank == rank; });
    if (absent != roll.end() && gone(*absent)) continue;
    names += (names.empty() ? "" : ", ") + world_.topology().describe_rank(rank);
    if (absent != roll.end()) names += " (it is in call " + call_of(*absent) + ")";
  }
  late_.clear();
  if (names.empty()) return;
  std::fprintf(
      stderr,
      "[WARN DDL-1-8] waited %s s for %s, whose process is alive; %s; busy with something else? It is "
      "an error after %s s (-patience in DDL_OPTIONS, or the group's own time limit)\n",
      format_number(std::round(waited() * 10) / 10).c_str(), names.c_str(), where_.c_str(),
      format_number(limit_s_).c_str());
}

void MemberWatch::refuse_other_call(const std::vector<AbsentRank>& roll) {
  // Calls that other threads make, or that were started, may yet come to that one.
  if (!Callers::only_this() || !idle_() || world_.failed()) return;
  const auto blocked = std::find_if(roll.begin(), roll.end(), [&](const AbsentRank& absent) {
    return absent.alive == AbsentRank::kBlocked && absent.arrived > detector_->arrived() && is_member(absent);
  });
  if (blocked == roll.end()) return;
  const Topology& topology = world_.topology();
  const Error error(
      DDL_ERR_MISMATCH,
      topology.describe_rank(blocked->rank) + " waits in call " + call_of(*blocked) + ", and so never comes",
      where_ + " on " + topology.describe_rank(world_.rank()),
      "every rank must make the same calls in the same order");
  world_.announce(error, true);
  throw Error(error);
}

void MemberWatch::refuse(const std::vector<AbsentRank>& roll, double waited_s) {
  const auto names_of = [&](std::int32_t alive) {
    std::string names;
    for (const AbsentRank& absent : roll) {
      if (absent.alive != alive || !is_member(absent)) continue;
      names += (names.empty() ? "" : ", ") + world_.topology().describe_rank(absent.rank);
    }
    return names;
  };
  if (const std::string names = names_of(AbsentRank::kNoAnswer); !names.empty()) {
    refused_ = true;
    const bool by_timeout = waited_s >= world_.limits().timeout_s;
    throw Error(DDL_ERR_TIMEOUT,
                "Timed out after " + format_number(waited_s) + " s: " + names + " does not answer", where_,
                by_timeout
                    ? "stopped, dead or unreachable: look at its output, or raise -timeout in DDL_OPTIONS"
                    : "stopped, dead or unreachable: look at its output");
  }
  if (const std::string names = names_of(AbsentRank::kEnds); !names.empty()) {
    refused_ = true;
    throw Error(DDL_ERR_MISMATCH,
                names + " makes no further call: it is in ddl_finalize, or at the end of its program", where_,
                "every rank must make the same calls: look at its output for the reason");
  }
}

void MemberWatch::name_given_up(double waited_s) {
  if (refused_ || detector_ == nullptr || !detector_->asks()) return;
  const auto since = Clock::now();
  while (true) {
    if (const auto roll = detector_->inquiry().call_roll(since)) {
      refuse(*roll, waited_s);
      return;
    }
    detector_->inquiry().serve();
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace ddl
