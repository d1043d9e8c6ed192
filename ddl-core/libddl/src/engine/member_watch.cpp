#include "engine/member_watch.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>

#include "support/number.hpp"
#include "support/stopwatch.hpp"

namespace ddl {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{50};

}  // namespace

MemberWatch::MemberWatch(Communicator& world, const std::vector<int>& ranks, std::string where,
                         double limit_s)
    : world_(world),
      detector_(world.detector()),
      where_(std::move(where)),
      limit_s_(limit_s),
      next_question_s_(std::min(world.limits().timeout_s, limit_s)),
      waits_([this] { look(); }) {
  if (detector_ == nullptr) return;
  for (const int rank : ranks) {
    if (rank != world.rank()) members_.push_back({rank, detector_->process_of(rank)});
  }
}

double MemberWatch::waited() const { return seconds_since(began_); }

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
    if (const auto given_up = inquiry.given_up(late_since_)) warn(*given_up);
  }
  const double waited_s = waited();
  if (!asked_ && waited_s < next_question_s_) return;
  if (!asked_) asked_ = now;
  const auto given_up = inquiry.given_up(*asked_);
  if (!given_up) return;
  asked_.reset();
  refuse(*given_up, std::min(world_.limits().timeout_s, limit_s_));
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

void MemberWatch::warn(const std::vector<AbsentRank>& given_up) {
  std::string names;
  for (const int rank : late_) {
    if (std::any_of(given_up.begin(), given_up.end(), [&](const AbsentRank& r) { return r.rank == rank; })) {
      continue;
    }
    names += (names.empty() ? "" : ", ") + world_.topology().describe_rank(rank);
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

void MemberWatch::refuse(const std::vector<AbsentRank>& given_up, double waited_s) {
  const auto names_of = [&](bool ending) {
    std::string names;
    for (const AbsentRank& absent : given_up) {
      const bool member = std::any_of(members_.begin(), members_.end(),
                                      [&](const Member& other) { return other.rank == absent.rank; });
      if (!member || (absent.alive == AbsentRank::kEnds) != ending) continue;
      names += (names.empty() ? "" : ", ") + world_.topology().describe_rank(absent.rank);
    }
    return names;
  };
  if (const std::string names = names_of(false); !names.empty()) {
    refused_ = true;
    const bool by_timeout = waited_s >= world_.limits().timeout_s;
    throw Error(DDL_ERR_TIMEOUT,
                "Timed out after " + format_number(waited_s) + " s: " + names + " does not answer", where_,
                by_timeout
                    ? "stopped, dead or unreachable: look at its output, or raise -timeout in DDL_OPTIONS"
                    : "stopped, dead or unreachable: look at its output");
  }
  if (const std::string names = names_of(true); !names.empty()) {
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
    if (const auto given_up = detector_->inquiry().given_up(since)) {
      refuse(*given_up, waited_s);
      return;
    }
    detector_->inquiry().serve();
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace ddl
