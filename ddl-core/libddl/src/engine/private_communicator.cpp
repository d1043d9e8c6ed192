#include "engine/private_communicator.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/error.hpp"
#include "transport/bounded_wait.hpp"

namespace ddl {
namespace {

using Clock = std::chrono::steady_clock;

/// Of the call that makes the communicator; groups are made on other communicators.
constexpr int kTag = 4242;
/// Of messages on the caller's communicator, which are sent only when ranks have not come: such as no program
/// uses.
constexpr int kRollTag = 31873;

/// Ranks answer at once, as they wait.
constexpr std::chrono::milliseconds kAnswer{1000};
/// Named in a text; the others are counted.
constexpr std::size_t kNamedMissing = 16;

/**
 * Finds out who has not come, when the time of one is over: it asks rank 0, which asks all, and tells all who
 * has not answered. A rank that fails tells all, in the same way. Nothing is sent before.
 */
class RollCall {
 public:
  /// Ends the waiting of a rank that has been told.
  struct Over {
    std::string missing;
  };

  explicit RollCall(MPI_Comm comm) : comm_(comm) {
    check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
    here_.insert(rank_);
  }
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  int size() const { return size_; }
  /// Whether another rank's error has ended the wait.
  bool told() const { return told_; }

  /// To be called again and again while waiting. @throws Over
  void serve() {
    int there = 1;
    MPI_Status status{};
    while (true) {
      check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kRollTag, comm_, &there, &status), "MPI_Iprobe");
      if (there == 0) break;
      int bytes = 0;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      std::string text(static_cast<std::size_t>(bytes), 0);
      check_mpi(MPI_Recv(text.data(), bytes, MPI_BYTE, status.MPI_SOURCE, kRollTag, comm_, MPI_STATUS_IGNORE),
                "MPI_Recv");
      read(status.MPI_SOURCE, text);
    }
    if (called_ && Clock::now() - *called_ > kAnswer) conclude();
  }

  /// This rank's time is over. @return who has not come, in words
  std::string missing() {
    try {
      if (rank_ == 0) {
        call();
      } else {
        send(0, kTimeOver);
      }
      const auto end = Clock::now() + 3 * kAnswer;
      while (Clock::now() < end) {
        serve();
        const timespec pause{0, 1'000'000};
        nanosleep(&pause, nullptr);
      }
    } catch (const Over& over) {
      return over.missing;
    }
    return "rank 0 is missing";
  }

  /// This rank cannot come: the others need not wait for it.
  void tell(const Error& error) {
    const std::string text = static_cast<char>(error.code()) + std::string(error.what()) + " [on rank " +
                             std::to_string(rank_) + "]";
    if (rank_ == 0) {
      send_all(kFailed, text);
    } else {
      send(0, kFailed, text);
    }
  }

 private:
  static constexpr char kTimeOver = 't';  ///< to rank 0: somebody has not come
  static constexpr char kWho = 'w';       ///< from rank 0: are you here?
  static constexpr char kHere = 'h';
  static constexpr char kMissing = 'm';  ///< from rank 0, and who it is
  static constexpr char kFailed = 'f';   ///< to rank 0, and from it to all: an error's code and text

  void read(int source, const std::string& text) {
    if (text.empty()) return;
    switch (text[0]) {
      case kTimeOver:
        here_.insert(source);
        if (rank_ == 0) call();
        return;
      case kHere:
        here_.insert(source);
        return;
      case kWho:
        send(0, kHere);
        return;
      case kMissing:
        throw Over{text.substr(1)};
      case kFailed:
        if (text.size() < 2) return;
        told_ = true;
        if (rank_ == 0) send_all(kFailed, text.substr(1));
        throw Error::received(static_cast<DDL_Status>(text[1]), text.substr(2));
      default:
        return;
    }
  }

  void call() {
    if (called_) return;
    called_ = Clock::now();
    send_all(kWho);
  }

  void send_all(char what, const std::string& text = "") {
    for (int rank = 1; rank < size_; ++rank) send(rank, what, text);
  }

  void conclude() {
    std::string names;
    std::size_t missing = 0;
    for (int rank = 0; rank < size_; ++rank) {
      if (here_.count(rank) != 0 || ++missing > kNamedMissing) continue;
      names += (names.empty() ? "rank " : ", rank ") + std::to_string(rank);
    }
    if (missing > kNamedMissing) names += " and " + std::to_string(missing - kNamedMissing) + " more";
    if (missing > 0) names += missing == 1 ? " is missing" : " are missing";
    send_all(kMissing, names);
    throw Over{names};
  }

  void send(int rank, char what, const std::string& text = "") {
    // MPI may read it for good.
    auto kept = std::make_unique<std::string>(what + text);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(
        MPI_Isend(kept->data(), static_cast<int>(kept->size()), MPI_BYTE, rank, kRollTag, comm_, &request),
        "MPI_Isend");
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    static_cast<void>(kept.release());
    MPI_Request_free(&request);
  }

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  std::set<int> here_;
  bool told_ = false;
  std::optional<Clock::time_point> called_;
};

Error not_all(MPI_Comm comm, double timeout_s, const std::string& missing) {
  std::array<char, 32> limit{};
  std::snprintf(limit.data(), limit.size(), "%g s", timeout_s);
  return Error(DDL_ERR_TIMEOUT,
               std::string("not all ranks called ddl_init within ") + limit.data() +
                   (missing.empty() ? "" : ": " + missing),
               "in ddl_init",
               std::string("every rank of ") +
                   (comm == MPI_COMM_WORLD ? "MPI_COMM_WORLD" : "the communicator") +
                   " must call it: look at the output of the others, or raise -timeout in DDL_OPTIONS");
}

}  // namespace

MPI_Comm private_communicator(MPI_Comm comm, double timeout_s) {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  RollCall roll(comm);
  Awaited awaited;
  awaited.look = [&roll] { roll.serve(); };
  try {
    // Without threads nothing else can be under way on comm, so that a collective of it may be used, and
    // given up.
    if (provided != MPI_THREAD_MULTIPLE) return duplicate_within(comm, timeout_s, awaited);
    std::vector<int> everyone(static_cast<std::size_t>(roll.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    return communicator_within(comm, everyone, kTag, timeout_s, awaited);
  } catch (const RollCall::Over& over) {
    throw not_all(comm, timeout_s, over.missing);
  } catch (const Error& error) {
    if (error.code() != DDL_ERR_TIMEOUT) {
      if (!roll.told()) roll.tell(error);
      throw;
    }
  }
  throw not_all(comm, timeout_s, roll.missing());
}

}  // namespace ddl
