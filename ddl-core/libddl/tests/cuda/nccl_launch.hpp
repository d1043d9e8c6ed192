#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "cuda/nccl_functions.hpp"
#include "nccl_meeting.hpp"
#include "streams.hpp"

namespace stand_in {

class Launch;

/// One rank of a communicator.
struct Communicator {
  std::string name;
  int rank = 0;
  int ranks = 1;
  int device = 0;
  bool blocking = true;
  std::unique_ptr<Meeting> meeting;

  std::atomic<int> error{0};  ///< asynchronous
  std::atomic<bool> aborted{false};

  std::mutex mutex;  ///< of what follows; the driver is not called while it is held
  /// Launches in the order of their calls: each begins when the one before it has ended, whatever its stream.
  std::deque<Launch*> order;
  std::uint64_t collectives = 0;
  std::uint64_t collective_launches = 0;
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> received;
};

struct Collective {
  Signature signature;
  char* in = nullptr;  ///< as the stand-in sees it
  Source source;
  char* out = nullptr;
};

struct Message {
  bool sends = false;
  int peer = 0;
  int type = 0;
  std::uint64_t count = 0;
  char* at = nullptr;
  Source source;
};

/// The operations of one group call on one communicator: an operation of a stream.
class Launch : public Operation {
 public:
  Launch(std::shared_ptr<Communicator> communicator, std::vector<Collective> collectives,
         std::vector<Message> messages, bool never_ends);
  ~Launch() override;

  Progress advance() override;

 private:
  enum class Stage { kArriving, kWriting, kWaitingForOthers, kReading, kDone };
  /// Bytes of the result that a rank has written, and where they go.
  struct Piece {
    int rank;
    std::size_t bytes;
    std::size_t out;
  };
  struct Running {
    Collective call;
    std::uint64_t number = 0;
    std::uint64_t scratch = 0;
    Stage stage = Stage::kArriving;
    std::vector<bool> seen;
    std::vector<std::unique_ptr<OpenSource>> sources;  ///< of all ranks, for reductions
    std::vector<Piece> pieces;
    std::size_t first = 0;  ///< of the elements of which this rank writes the result
    std::size_t last = 0;
    std::size_t at = 0;  ///< how far it is with its stage
    std::size_t piece = 0;
  };
  struct Travelling {
    Message message;
    std::uint64_t number = 0;
    bool published = false;
    bool done = false;
  };

  bool may_begin();
  void begin();
  Part& part(const Running& one, int rank) const;
  bool arrive(Running& one);
  bool step(Running& one);
  bool write_share(Running& one);
  bool reduce_block(Running& one, std::size_t count);
  bool read_result(Running& one);
  bool step(Travelling& one);
  void plan(Running& one) const;
  void spoil();
  std::string described(const Signature& signature) const;

  std::shared_ptr<Communicator> communicator_;
  std::vector<Running> running_;
  std::vector<Travelling> travelling_;
  bool never_ends_;
  bool begun_ = false;
  std::mt19937 random_;
};

const char* name_of_kind(Kind kind);

}  // namespace stand_in
