#include "transport/tree_exchange.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "support/error.hpp"
#include "support/kept_on_error.hpp"
#include "support/stopwatch.hpp"

namespace ddl {
namespace {

constexpr int kTreeTag = 8;
/// A message begins with the length of the text; what of it does not fit here follows in a second one.
constexpr std::size_t kFirstBytes = 4096;
using First = std::array<char, kFirstBytes>;

/// Children of member i are i + 1, i + 2, i + 4, … below this power of two, as long as there are members.
std::size_t span_of(std::size_t member, std::size_t members) {
  return member == 0 ? std::bit_ceil(members) : member & (~member + 1);
}

/// In the length: what follows is not a text, but the code and the text of an error.
constexpr std::uint64_t kFailed = std::uint64_t{1} << 63;

std::string framed(const std::string& text) {
  const std::uint64_t length = text.size();
  std::string frame(sizeof length, 0);
  std::memcpy(frame.data(), &length, sizeof length);
  return frame + text;
}

std::shared_ptr<const std::string> shared(std::string frame) {
  return std::make_shared<const std::string>(std::move(frame));
}

std::string framed(const Error& failure) {
  const std::int32_t code = failure.code();
  std::string text(sizeof code, 0);
  std::memcpy(text.data(), &code, sizeof code);
  text += failure.what();
  // All of it goes with the first message.
  text.resize(std::min(text.size(), kFirstBytes - sizeof(std::uint64_t)));
  std::string frame = framed(text);
  const std::uint64_t length = text.size() | kFailed;
  std::memcpy(frame.data(), &length, sizeof length);
  return frame;
}

}  // namespace

TreeExchange::TreeExchange(MPI_Comm comm, std::vector<int> members, double limit_s, std::string where,
                           std::string remedy)
    : comm_(comm),
      members_(std::move(members)),
      limit_s_(limit_s),
      where_(std::move(where)),
      remedy_(std::move(remedy)),
      step_s_(std::min(limit_s / 4, 5.0)) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  const auto own = std::find(members_.begin(), members_.end(), rank);
  if (own == members_.end()) {
    throw Error(DDL_ERR_INTERNAL, "rank " + std::to_string(rank) + " is no member", where_,
                "please report this defect");
  }
  self_ = static_cast<std::size_t>(own - members_.begin());
  // The root hears of a loss after as many steps as the tree has levels; one that has lost its parent waits
  // in vain, and then tells those below it, who wait for longer.
  const auto steps = 2 * std::bit_width(members_.size()) + std::popcount(self_);
  limit_of_all_s_ = limit_s_ + step_s_ * static_cast<double>(steps);
}

Awaited TreeExchange::awaited(std::size_t member) const {
  return {"rank " + std::to_string(members_[member]), where_, remedy_};
}

std::vector<std::size_t> TreeExchange::children() const {
  std::vector<std::size_t> found;
  for (std::size_t step = 1; step < span_of(self_, members_.size()) && self_ + step < members_.size();
       step *= 2) {
    found.push_back(self_ + step);
  }
  return found;
}

std::size_t TreeExchange::parent() const { return self_ - span_of(self_, members_.size()); }

TreeExchange::Sending TreeExchange::start(std::shared_ptr<const std::string> frame,
                                          std::size_t member) const {
  if (frame->size() > INT_MAX) {
    throw Error(DDL_ERR_MEMORY, std::to_string(frame->size()) + " bytes in one message", where_,
                "start fewer ranks");
  }
  Sending sending{std::move(frame)};
  const std::string& all = *sending.frame;
  const std::size_t first = std::min(all.size(), kFirstBytes);
  check_mpi(MPI_Isend(all.data(), static_cast<int>(first), MPI_BYTE, members_[member], kTreeTag, comm_,
                      &sending.requests[0]),
            "MPI_Isend");
  if (first < all.size()) {
    check_mpi(MPI_Isend(all.data() + first, static_cast<int>(all.size() - first), MPI_BYTE, members_[member],
                        kTreeTag, comm_, &sending.requests[1]),
              "MPI_Isend");
  }
  return sending;
}

void TreeExchange::finish(Sending sending, std::size_t member, double limit_s) const {
  // MPI may read it for good.
  const KeptOnError<std::shared_ptr<const std::string>> kept(std::move(sending.frame));
  wait_for(sending.requests, limit_s, limit_s_, awaited(member));
}

TreeExchange::Received TreeExchange::receive(std::size_t member, double limit_s) const {
  const auto from = std::chrono::steady_clock::now();
  const KeptOnError<First> first;
  const KeptOnError<std::string> text;
  std::array<MPI_Request, 1> request{MPI_REQUEST_NULL};
  check_mpi(MPI_Irecv(first->data(), static_cast<int>(kFirstBytes), MPI_BYTE, members_[member], kTreeTag,
                      comm_, request.data()),
            "MPI_Irecv");
  wait_for(request, limit_s, limit_s_, awaited(member));
  std::uint64_t length = 0;
  std::memcpy(&length, first->data(), sizeof length);
  const bool failed = (length & kFailed) != 0;
  length &= ~kFailed;
  text->resize(length);
  const std::size_t here = std::min<std::size_t>(length, kFirstBytes - sizeof length);
  std::memcpy(text->data(), first->data() + sizeof length, here);
  if (here < length) {
    check_mpi(MPI_Irecv(text->data() + here, static_cast<int>(length - here), MPI_BYTE, members_[member],
                        kTreeTag, comm_, request.data()),
              "MPI_Irecv");
    wait_for(request, limit_s - seconds_since(from), limit_s_, awaited(member));
  }
  if (!failed) return {std::move(*text), {}};
  std::int32_t code = 0;
  std::memcpy(&code, text->data(), sizeof code);
  return {"", Error::received(static_cast<DDL_Status>(code), text->substr(sizeof code))};
}

void TreeExchange::pass_on(const Error& failure) const {
  for (const std::size_t child : children()) {
    try {
      finish(start(shared(framed(failure)), child), child, step_s_);
    } catch (const Error&) {
      // It is the one that is lost, or has left.
    }
  }
  throw Error(failure);
}

void TreeExchange::report(const Error& failure) const {
  if (self_ == 0) pass_on(failure);
  std::optional<Error> verdict;
  try {
    finish(start(shared(framed(failure)), parent()), parent(), step_s_);
    // Of several failures the root says which one counts.
    verdict = receive(parent(), limit_of_all_s_).failure;
  } catch (const Error&) {
    // It is lost, too.
  }
  pass_on(verdict.value_or(failure));
}

std::string TreeExchange::reduce(std::string mine, const Merge& merge) const {
  const auto from = std::chrono::steady_clock::now();
  std::optional<Error> failure;
  double limit_s = limit_s_;
  for (const std::size_t child : children()) {
    // Where one fails the others are still listened to, lest they wait for this rank.
    try {
      if (const auto lost = lost_.find(child); lost != lost_.end()) throw Error(lost->second);
      Received theirs = receive(child, limit_s - seconds_since(from));
      if (theirs.failure) throw Error(*theirs.failure);
      if (!failure) mine = merge(std::move(mine), std::move(theirs.text));
    } catch (const Error& error) {
      if (!failure) failure = error;
    }
    limit_s += step_s_;
  }
  if (failure) report(*failure);
  if (self_ == 0) return mine;
  try {
    finish(start(shared(framed(mine)), parent()), parent(), limit_of_all_s_);
  } catch (const Error& error) {
    pass_on(error);
  }
  return "";
}

std::string TreeExchange::broadcast(std::string text) const {
  if (self_ != 0) {
    std::optional<Error> failure;
    try {
      Received told = receive(parent(), limit_of_all_s_);
      text = std::move(told.text);
      failure = std::move(told.failure);
    } catch (const Error& error) {
      failure = error;
    }
    if (failure) pass_on(*failure);
  }
  const std::vector<std::size_t> receivers = children();
  const auto from = std::chrono::steady_clock::now();
  std::vector<Sending> under_way;
  const auto frame = shared(framed(text));
  for (auto child = receivers.rbegin(); child != receivers.rend(); ++child) {
    under_way.push_back(start(frame, *child));
  }
  for (Sending& sending : under_way) {
    const std::size_t level = receivers.size() - 1 - static_cast<std::size_t>(&sending - under_way.data());
    const std::size_t child = receivers[level];
    const double limit_s = limit_s_ + step_s_ * static_cast<double>(level);
    try {
      finish(std::move(sending), child, limit_s - seconds_since(from));
    } catch (const Error& error) {
      // The others have the text and go on: they learn of it in what comes next.
      lost_.emplace(child, error);
    }
  }
  return text;
}

std::vector<std::string> TreeExchange::all_gather(const std::string& mine) const {
  const std::string all =
      broadcast(reduce(framed(mine), [](std::string a, std::string b) { return std::move(a.append(b)); }));
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, all.data() + at, sizeof length);
    at += sizeof length;
    texts.push_back(all.substr(at, length));
    at += length;
  }
  return texts;
}

void TreeExchange::barrier() const {
  broadcast(reduce("", [](std::string a, const std::string&) { return a; }));
}

}  // namespace ddl
