#include "engine/messages.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "support/error.hpp"
#include "transport/bounded_wait.hpp"

namespace ddl {
namespace {

/// MPI counts in int.
constexpr std::size_t kPartBytes = std::size_t{1} << 30;

std::size_t parts_of(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kPartBytes - 1) / kPartBytes);
}

int part_bytes(std::size_t bytes, std::size_t part) {
  return static_cast<int>(std::min(kPartBytes, bytes - part * kPartBytes));
}

}  // namespace

Messages::Messages(MPI_Comm base, const Topology& topology, double limit_s) : topology_(topology) {
  comm_ = duplicate_within(base, limit_s,
                           {"a rank", "in the making of a group", "look at the output of the others"});
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
}

Messages::~Messages() {
  for (auto& [handle, message] : open_) give_up(message);
  if (!abandoned_) MPI_Comm_free(&comm_);
}

void Messages::give_up(Message& message) {
  for (MPI_Request& part : message.parts) {
    if (part == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&part);
    MPI_Request_free(&part);
  }
}

Messages::Handle Messages::add(Message message) {
  open_.emplace(++last_, std::move(message));
  return last_;
}

std::map<Messages::Handle, Messages::Message>::iterator Messages::find(Handle handle) {
  const auto found = open_.find(handle);
  if (found != open_.end()) return found;
  throw Error(DDL_ERR_ARGUMENT, "handle " + std::to_string(handle) + " is not open", "in a test of a message",
              "each is closed by the call that finds the message complete, or cancels it");
}

Messages::Handle Messages::isend(const void* from, std::size_t bytes, int rank, int tag) {
  const std::lock_guard lock(mutex_);
  Message message{false, bytes, {}};
  for (std::size_t i = 0; i < parts_of(bytes); ++i) {
    check_mpi(MPI_Isend(static_cast<const char*>(from) + i * kPartBytes, part_bytes(bytes, i), MPI_BYTE, rank,
                        tag, comm_, &message.parts.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Isend");
  }
  return add(std::move(message));
}

Messages::Handle Messages::irecv(void* to, std::size_t bytes, int rank, int tag) {
  const std::lock_guard lock(mutex_);
  if (rank == kAnyRank && parts_of(bytes) > 1) {
    throw Error(DDL_ERR_ARGUMENT, std::to_string(bytes) + " bytes from any rank", "in a receive",
                "name the rank, or receive at most " + std::to_string(kPartBytes) + " bytes");
  }
  Message message{true, bytes, {}};
  for (std::size_t i = 0; i < parts_of(bytes); ++i) {
    check_mpi(MPI_Irecv(static_cast<char*>(to) + i * kPartBytes, part_bytes(bytes, i), MPI_BYTE,
                        rank == kAnyRank ? MPI_ANY_SOURCE : rank, tag, comm_,
                        &message.parts.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Irecv");
  }
  return add(std::move(message));
}

std::optional<int> Messages::test(Handle handle) {
  const std::lock_guard lock(mutex_);
  const auto found = find(handle);
  Message& message = found->second;
  int done = 0;
  std::vector<MPI_Status> statuses(message.parts.size());
  const int result =
      MPI_Testall(static_cast<int>(message.parts.size()), message.parts.data(), &done, statuses.data());
  if (result == MPI_SUCCESS && done == 0) return std::nullopt;
  const Message finished = std::move(message);
  open_.erase(found);
  for (const MPI_Status& status : statuses) {
    if (result != MPI_ERR_IN_STATUS || status.MPI_ERROR != MPI_ERR_TRUNCATE) continue;
    throw Error(DDL_ERR_MISMATCH,
                topology_.describe_rank(status.MPI_SOURCE) + " sent more than the " +
                    std::to_string(finished.bytes) + " bytes that " + topology_.describe_rank(rank_) +
                    " expects",
                "in a receive", "make the sizes agree");
  }
  check_mpi(result, "MPI_Testall");
  if (!finished.receiving) return rank_;
  std::size_t received = 0;
  for (const MPI_Status& status : statuses) {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    received += static_cast<std::size_t>(count);
  }
  const int source = statuses.front().MPI_SOURCE;
  if (received != finished.bytes) {
    throw Error(DDL_ERR_MISMATCH,
                topology_.describe_rank(source) + " sent " + std::to_string(received) + " bytes, but " +
                    topology_.describe_rank(rank_) + " expects " + std::to_string(finished.bytes),
                "in a receive", "make the sizes agree");
  }
  return source;
}

void Messages::cancel(Handle handle) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(handle);
  if (found == open_.end()) return;
  give_up(found->second);
  open_.erase(found);
}

}  // namespace ddl
