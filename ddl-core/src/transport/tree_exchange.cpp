#include "transport/tree_exchange.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "support/error.hpp"
#include "support/kept_on_error.hpp"

namespace ddl {
namespace {

constexpr int kTag = 8;
/// A message begins with the length of the text; what of it does not fit here follows in a second one.
constexpr std::size_t kFirstBytes = 4096;
using First = std::array<char, kFirstBytes>;

/// Children of member i are i + 1, i + 2, i + 4, … below this power of two, as long as there are members.
std::size_t span_of(std::size_t member, std::size_t members) {
  return member == 0 ? std::bit_ceil(members) : member & (~member + 1);
}

std::string framed(const std::string& text) {
  const std::uint64_t length = text.size();
  std::string frame(sizeof length, 0);
  std::memcpy(frame.data(), &length, sizeof length);
  return frame + text;
}

}  // namespace

TreeExchange::TreeExchange(MPI_Comm comm, std::vector<int> members, double limit_s, std::string where,
                           std::string remedy)
    : comm_(comm),
      members_(std::move(members)),
      limit_s_(limit_s),
      where_(std::move(where)),
      remedy_(std::move(remedy)) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  const auto own = std::find(members_.begin(), members_.end(), rank);
  if (own == members_.end()) {
    throw Error(DDL_ERR_INTERNAL,
                "rank " + std::to_string(rank) + " is no member; " + where_ + "; please report this defect");
  }
  self_ = static_cast<std::size_t>(own - members_.begin());
}

Awaited TreeExchange::awaited(std::size_t member) const {
  return {"rank " + std::to_string(members_[member]), where_, remedy_};
}

void TreeExchange::send(const std::string& text, std::size_t member) const {
  if (text.size() > INT_MAX - kFirstBytes) {
    throw Error(DDL_ERR_MEMORY,
                std::to_string(text.size()) + " bytes in one message; " + where_ + "; start fewer ranks");
  }
  const KeptOnError<std::string> kept(framed(text));
  const std::size_t first = std::min(kept->size(), kFirstBytes);
  std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  check_mpi(
      MPI_Isend(kept->data(), static_cast<int>(first), MPI_BYTE, members_[member], kTag, comm_, &requests[0]),
      "MPI_Isend");
  if (first < kept->size()) {
    check_mpi(MPI_Isend(kept->data() + first, static_cast<int>(kept->size() - first), MPI_BYTE,
                        members_[member], kTag, comm_, &requests[1]),
              "MPI_Isend");
  }
  wait_for(requests, limit_s_, awaited(member));
}

std::string TreeExchange::receive(std::size_t member) const {
  const KeptOnError<First> first;
  const KeptOnError<std::string> text;
  std::array<MPI_Request, 1> request{MPI_REQUEST_NULL};
  check_mpi(MPI_Irecv(first->data(), static_cast<int>(kFirstBytes), MPI_BYTE, members_[member], kTag, comm_,
                      request.data()),
            "MPI_Irecv");
  wait_for(request, limit_s_, awaited(member));
  std::uint64_t length = 0;
  std::memcpy(&length, first->data(), sizeof length);
  text->resize(length);
  const std::size_t here = std::min<std::size_t>(length, kFirstBytes - sizeof length);
  std::memcpy(text->data(), first->data() + sizeof length, here);
  if (here < length) {
    check_mpi(MPI_Irecv(text->data() + here, static_cast<int>(length - here), MPI_BYTE, members_[member],
                        kTag, comm_, request.data()),
              "MPI_Irecv");
    wait_for(request, limit_s_, awaited(member));
  }
  return std::move(*text);
}

std::string TreeExchange::reduce(std::string mine, const Merge& merge) const {
  const std::size_t span = span_of(self_, members_.size());
  for (std::size_t step = 1; step < span; step *= 2) {
    if (self_ + step < members_.size()) mine = merge(std::move(mine), receive(self_ + step));
  }
  if (self_ == 0) return mine;
  send(mine, self_ - span);
  return "";
}

std::string TreeExchange::broadcast(std::string text) const {
  const std::size_t span = span_of(self_, members_.size());
  if (self_ != 0) text = receive(self_ - span);
  for (std::size_t step = span / 2; step > 0; step /= 2) {
    if (self_ + step < members_.size()) send(text, self_ + step);
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
