#include "cuda/nccl_ranks.hpp"

#include <chrono>
#include <cstring>
#include <ctime>

#include "support/error.hpp"
#include "support/stopwatch.hpp"

namespace ddl::cuda {

NcclRanks::~NcclRanks() { abort(); }

void NcclRanks::wait(const std::string& what, double limit_s) {
  const auto start = std::chrono::steady_clock::now();
  NcclStatus status = kNcclInProgress;
  while (true) {
    nccl_.check(nccl_.async_error(comm_, &status), comm_, what);
    if (status != kNcclInProgress) break;
    if (seconds_since(start) > limit_s) {
      throw Error(DDL_ERR_TIMEOUT, "NCCL has not come to an end of " + what + " within the time limit",
                  Error::kOnThisRank,
                  "set NCCL_DEBUG=INFO, look at what the others print, and at NCCL_SOCKET_IFNAME where hosts "
                  "have several networks");
    }
    const timespec pause{0, 200'000};
    nanosleep(&pause, nullptr);
  }
  nccl_.check(status, comm_, what);
}

void NcclRanks::connect(const TreeExchange& tree, int rank, double limit_s) {
  NcclId id{};
  std::string text;
  std::string problem;
  if (tree.is_root()) {
    const NcclStatus status = nccl_.unique_id(&id);
    if (status != kNcclSuccess) problem = nccl_.text_of(status, nullptr);
    text = problem.empty() ? std::string(id.internal, sizeof id.internal) : "";
  }
  text = tree.broadcast(std::move(text));
  if (text.size() != sizeof id.internal) {
    throw Error(DDL_ERR_DEVICE,
                "NCCL cannot begin" + (problem.empty() ? " on the first rank" : ": " + problem),
                "in the first call on GPUs", "NCCL_DEBUG=INFO makes NCCL say more");
  }
  std::memcpy(id.internal, text.data(), sizeof id.internal);
  NcclConfig config;
  config.blocking = 0;
  const std::string what = "joining " + std::to_string(size_) + " ranks";
  nccl_.check(nccl_.init_rank(&comm_, size_, id, rank, &config), comm_, what);
  wait(what, limit_s);
}

void NcclRanks::split(NcclRanks& all, int color, int key, double limit_s) {
  NcclConfig config;
  config.blocking = 0;
  const std::string what = "splitting " + std::to_string(all.size_) + " ranks";
  nccl_.check(nccl_.split(all.comm_, color, key, &comm_, &config), all.comm_, what);
  all.wait(what, limit_s);
  if (comm_ != nullptr) wait(what, limit_s);
}

bool NcclRanks::idle() {
  if (!in_progress_) return true;
  NcclStatus status = kNcclSuccess;
  nccl_.check(nccl_.async_error(comm_, &status), comm_, what_);
  if (status == kNcclInProgress) return false;
  in_progress_ = false;
  nccl_.check(status, comm_, what_);
  return true;
}

void NcclRanks::put(const std::string& what, const std::function<void()>& operations) {
  what_ = what;
  nccl_.check(nccl_.group_start(), comm_, what);
  try {
    operations();
  } catch (...) {
    // A group that was begun must be ended, whatever becomes of it.
    nccl_.group_end();
    in_progress_ = true;
    throw;
  }
  const NcclStatus status = nccl_.group_end();
  nccl_.check(status, comm_, what);
  in_progress_ = status == kNcclInProgress;
}

void NcclRanks::look() {
  NcclStatus status = kNcclSuccess;
  nccl_.check(nccl_.async_error(comm_, &status), comm_, what_);
  nccl_.check(status, comm_, what_);
}

void NcclRanks::abort() {
  if (comm_ != nullptr) nccl_.abort(comm_);
  comm_ = nullptr;
  in_progress_ = false;
}

void NcclRanks::finish(double limit_s) {
  if (comm_ == nullptr) return;
  try {
    nccl_.check(nccl_.finalize(comm_), comm_, "the end");
    wait("the end", limit_s);
    nccl_.check(nccl_.destroy(comm_), comm_, "the end");
    comm_ = nullptr;
  } catch (const Error&) {
    abort();
  }
}

}  // namespace ddl::cuda
