// The stand-in for NCCL: real ranks, as processes, on its results and on the mistakes that it does not
// forgive.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "child_process.hpp"
#include "loaded.hpp"

namespace {

using child_process::Environment;
using child_process::eventually;
using ddl::cuda::kNcclInProgress;
using ddl::cuda::NcclComm;
using ddl::cuda::NcclConfig;
using ddl::cuda::NcclId;
using ddl::cuda::NcclOp;
using ddl::cuda::NcclStatus;
using ddl::cuda::NcclType;
using ddl::cuda::Stream;
using loaded::Driver;
using loaded::Nccl;
using Address = Driver::DeviceAddress;

constexpr NcclStatus kUnhandledCudaError = 1;
constexpr NcclStatus kInvalidArgument = 4;
constexpr NcclStatus kInvalidUsage = 5;
constexpr int kDied = 86;

/// What the ranks of a test share.
struct Board {
  NcclId id;
  std::atomic<int> written;
  std::atomic<int> reached[8];  ///< points that tests make ranks wait at
};

struct Rank : Driver, Nccl {
  using Driver::Stream;

  Rank(Board* board, int rank, int ranks, bool blocking, int device = -1)
      : board(board), rank(rank), ranks(ranks) {
    EXPECT_EQ(Driver::init(0), 0);
    Driver::Context context = nullptr;
    EXPECT_EQ(primary_retain(&context, device < 0 ? rank : device), 0);
    EXPECT_EQ(context_set(context), 0);
    EXPECT_EQ(stream_create(&stream, ddl::cuda::kStreamNonBlocking, 0), 0);
    config.blocking = blocking ? 1 : 0;
  }

  /// ncclCommInitRankConfig, to its end.
  NcclStatus meet() {
    if (rank == 0) {
      EXPECT_EQ(unique_id(&board->id), 0);
      board->written = 1;
    } else {
      EXPECT_TRUE(eventually([&] { return board->written == 1; }));
    }
    const NcclStatus status = init_rank(&comm, ranks, board->id, rank, &config);
    return settled(status, comm);
  }
  /// Waits for everything that a non-blocking call leaves to do.
  NcclStatus settled(NcclStatus status, NcclComm of) {
    if (status != kNcclInProgress) return status;
    NcclStatus call = 0;
    EXPECT_TRUE(eventually([&] {
      call = async_error(of, &status);
      return call != 0 || status != kNcclInProgress;
    }));
    return call != 0 ? call : status;
  }
  NcclStatus settled(NcclStatus status) { return settled(status, comm); }
  bool done() {
    return eventually([&] { return stream_query(stream) == 0; });
  }
  bool stays_busy() {
    return !eventually([&] { return stream_query(stream) != ddl::cuda::kNotReady; }, 0.1);
  }
  /// All ranks have come to the point.
  void all_reach(int point) {
    ++board->reached[point];
    EXPECT_TRUE(eventually([&] { return board->reached[point] == ranks; }));
  }
  void leave() {
    EXPECT_EQ(settled(finalize(comm)), 0);
    EXPECT_EQ(destroy(comm), 0);
  }

  Address allocated(std::size_t bytes) {
    Address address = 0;
    EXPECT_EQ(device_allocate(&address, std::max<std::size_t>(bytes, 1)), 0);
    return address;
  }
  template <class T>
  Address put(const std::vector<T>& values) {
    const Address address = allocated(values.size() * sizeof(T));
    EXPECT_EQ(write(address, values.data(), values.size() * sizeof(T)), 0);
    return address;
  }
  template <class T>
  std::vector<T> get(Address address, std::size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(read(address, values.data(), count * sizeof(T)), 0);
    return values;
  }
  static void* at(Address address, std::size_t bytes = 0) { return reinterpret_cast<void*>(address + bytes); }

  Board* board;
  int rank;
  int ranks;
  NcclConfig config;
  NcclComm comm = nullptr;
  Stream stream = nullptr;
};

class StandInNccl : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/stand-in-nccl-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    void* const at = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    board_ = new (at) Board{};
  }
  void TearDown() override {
    EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "a communicator's file is left";
    std::filesystem::remove_all(folder_);
    munmap(board_, sizeof(Board));
  }

  Environment environment() const {
    return {{"STAND_IN_DEVICES", "8"}, {"STAND_IN_NCCL_FOLDER", folder_}, {"STAND_IN_PATIENCE_S", "20"}};
  }
  /// The exit status of every rank.
  std::vector<int> run(int ranks, const std::function<void(int)>& body, const Environment& more = {}) {
    Environment all = environment();
    for (const auto& [name, value] : more) all[name] = value;
    std::vector<pid_t> processes;
    for (int rank = 0; rank < ranks; ++rank) {
      all["RANK"] = std::to_string(rank);
      processes.push_back(child_process::start(all, [&] { body(rank); }));
    }
    std::vector<int> statuses;
    for (const pid_t process : processes) statuses.push_back(child_process::finish(process));
    return statuses;
  }
  static std::vector<int> all(int ranks, int status) {
    return std::vector<int>(static_cast<std::size_t>(ranks), status);
  }

  Board* board_ = nullptr;
  std::string folder_;
};

template <class T>
std::vector<T> values(std::size_t count, int rank) {
  std::vector<T> made(count);
  for (std::size_t i = 0; i < count; ++i)
    made[i] = static_cast<T>(i % 7 + static_cast<std::size_t>(rank) + 1);
  return made;
}

/// Every collective, out of place and in place, against what its definition says.
void try_collectives(Rank& one, std::size_t count) {
  const int ranks = one.ranks;
  const auto many = static_cast<std::size_t>(ranks);
  const auto own = static_cast<std::size_t>(one.rank);
  const std::size_t bytes = count * sizeof(float);
  const auto all = values<float>(count * many, one.rank);
  const Address in = one.put(all);
  const Address out = one.allocated(bytes * many);
  const auto sum_at = [&](std::size_t i) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank)
      sum += static_cast<float>(i % 7 + static_cast<std::size_t>(rank) + 1);
    return sum;
  };
  const auto expect = [&](Address address, std::size_t elements,
                          const std::function<float(std::size_t)>& value) {
    ASSERT_TRUE(one.done());
    const auto got = one.get<float>(address, elements);
    for (std::size_t i = 0; i < elements; ++i) ASSERT_EQ(got[i], value(i)) << i;
  };
  const auto refill = [&] { ASSERT_EQ(one.write(in, all.data(), bytes * many), 0); };

  ASSERT_EQ(one.settled(one.all_reduce(Rank::at(in), Rank::at(out), count, NcclType::kFloat, NcclOp::kSum,
                                       one.comm, one.stream)),
            0);
  expect(out, count, sum_at);
  ASSERT_EQ(one.settled(one.all_reduce(Rank::at(in), Rank::at(in), count, NcclType::kFloat, NcclOp::kMax,
                                       one.comm, one.stream)),
            0);
  expect(in, count, [&](std::size_t i) { return static_cast<float>(i % 7 + many); });
  refill();
  ASSERT_EQ(one.settled(one.reduce_scatter(Rank::at(in), Rank::at(in, own * bytes), count, NcclType::kFloat,
                                           NcclOp::kSum, one.comm, one.stream)),
            0);
  expect(in + own * bytes, count, [&](std::size_t i) { return sum_at(i + own * count); });
  refill();
  ASSERT_EQ(one.write(out + own * bytes, all.data(), bytes), 0);
  ASSERT_EQ(one.settled(one.all_gather(Rank::at(out, own * bytes), Rank::at(out), count, NcclType::kFloat,
                                       one.comm, one.stream)),
            0);
  expect(out, count * many, [&](std::size_t i) { return static_cast<float>(i % count % 7 + i / count + 1); });
  ASSERT_EQ(one.settled(one.broadcast(one.rank == ranks - 1 ? Rank::at(in) : nullptr, Rank::at(out), count,
                                      NcclType::kFloat, ranks - 1, one.comm, one.stream)),
            0);
  expect(out, count, [&](std::size_t i) { return static_cast<float>(i % 7 + many); });
  // Sums of several roots at once, each of a part.
  ASSERT_EQ(one.group_start(), 0);
  for (int root = 0; root < ranks; ++root) {
    void* const to = root == one.rank ? Rank::at(out) : nullptr;
    ASSERT_EQ(one.reduce(Rank::at(in, static_cast<std::size_t>(root) * bytes), to, count, NcclType::kFloat,
                         NcclOp::kAverage, root, one.comm, one.stream),
              0);
  }
  ASSERT_EQ(one.settled(one.group_end()), 0);
  ASSERT_TRUE(one.done());
  const auto averages = one.get<float>(out, count);
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_NEAR(averages[i], sum_at(i + own * count) / static_cast<float>(ranks), 1e-4) << i;
  }
  // Messages from all to all.
  ASSERT_EQ(one.group_start(), 0);
  for (int peer = 0; peer < ranks; ++peer) {
    const std::size_t place = static_cast<std::size_t>(peer) * bytes;
    ASSERT_EQ(one.send(Rank::at(in, place), count, NcclType::kFloat, peer, one.comm, one.stream), 0);
    ASSERT_EQ(one.receive(Rank::at(out, place), count, NcclType::kFloat, peer, one.comm, one.stream), 0);
  }
  ASSERT_EQ(one.settled(one.group_end()), 0);
  expect(out, count * many,
         [&](std::size_t i) { return static_cast<float>((i % count + own * count) % 7 + i / count + 1); });
}

TEST_F(StandInNccl, CollectivesDoWhatTheySay) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const bool blocking : {true, false}) {
      board_->written = 0;
      const auto body = [&](int rank) {
        Rank one(board_, rank, ranks, blocking);
        ASSERT_EQ(one.meet(), 0) << one.last_error(nullptr);
        for (const std::size_t count : {1, 13, 5003}) try_collectives(one, count);
        EXPECT_EQ(one.settled(one.all_reduce(nullptr, nullptr, 0, NcclType::kFloat, NcclOp::kSum, one.comm,
                                             one.stream)),
                  0);
        one.leave();
        EXPECT_EQ(one.counted("held_communicators"), 0U);
        EXPECT_EQ(one.counted("nccl_reduce"), 3U * static_cast<unsigned>(ranks));
      };
      EXPECT_EQ(run(ranks, body), all(ranks, 0)) << ranks << (blocking ? " blocking" : "");
    }
  }
}

/// One type and operation: the values of all ranks reduced to `expected`, at every place.
template <class T>
void try_type(Rank& one, NcclType type, NcclOp op, T value, T expected) {
  constexpr std::size_t kCount = 9001;
  const Address at = one.put(std::vector<T>(kCount, value));
  ASSERT_EQ(one.settled(one.all_reduce(Rank::at(at), Rank::at(at), kCount, type, op, one.comm, one.stream)),
            0);
  ASSERT_TRUE(one.done());
  const auto got = one.get<T>(at, kCount);
  EXPECT_EQ(std::count(got.begin(), got.end(), expected), static_cast<std::ptrdiff_t>(kCount))
      << static_cast<int>(type) << " " << static_cast<int>(op) << ": " << +got.front() << " is not "
      << +expected;
}

TEST_F(StandInNccl, TypesAndOperations) {
  const auto body = [&](int rank) {
    Rank one(board_, rank, 3, true);
    ASSERT_EQ(one.meet(), 0);
    const bool last = rank == 2;
    try_type<std::int32_t>(one, NcclType::kInt32, NcclOp::kProduct, rank + 2, 24);
    try_type<std::int32_t>(one, NcclType::kInt32, NcclOp::kAverage, last ? 6 : 1, 2);
    try_type<std::int64_t>(one, NcclType::kInt64, NcclOp::kMin, -rank, -2);
    try_type<std::int64_t>(one, NcclType::kInt64, NcclOp::kSum, INT64_C(1) << 40, INT64_C(3) << 40);
    try_type<double>(one, NcclType::kDouble, NcclOp::kAverage, 3.0, 3.0);
    try_type<double>(one, NcclType::kDouble, NcclOp::kMax, rank * 0.5, 1.0);
    try_type<float>(one, NcclType::kFloat, NcclOp::kProduct, 1.5F, 3.375F);
    try_type<std::int8_t>(one, NcclType::kBytes, NcclOp::kSum, 3, 9);
    // half: 2048 and ones that are lost, in whatever order, as 2049 is not a half; 2 ^ -24 is the smallest
    try_type<std::uint16_t>(one, NcclType::kHalf, NcclOp::kMax, last ? 0x6800 : 0x3c00, 0x6800);
    try_type<std::uint16_t>(one, NcclType::kHalf, NcclOp::kSum, 0x3c00, 0x4200);
    try_type<std::uint16_t>(one, NcclType::kHalf, NcclOp::kSum, 0x0001, 0x0003);
    try_type<std::uint16_t>(one, NcclType::kHalf, NcclOp::kSum, 0x7bff, 0x7c00);
    try_type<std::uint16_t>(one, NcclType::kBfloat16, NcclOp::kSum, 0x3f80, 0x4040);
    try_type<std::uint16_t>(one, NcclType::kBfloat16, NcclOp::kMin, last ? 0xbf80 : 0x3f80, 0xbf80);
    one.leave();
  };
  EXPECT_EQ(run(3, body), all(3, 0));
}

TEST_F(StandInNccl, TheOrderOfASumDependsOnTheElement) {
  const auto body = [&](int rank) {
    Rank one(board_, rank, 3, true);
    ASSERT_EQ(one.meet(), 0);
    constexpr std::size_t kCount = 30000;
    const float parts[] = {1.0F, 0x1p24F, -0x1p24F};
    const Address at = one.put(std::vector<float>(kCount, parts[rank]));
    ASSERT_EQ(one.all_reduce(Rank::at(at), Rank::at(at), kCount, NcclType::kFloat, NcclOp::kSum, one.comm,
                             one.stream),
              0);
    ASSERT_TRUE(one.done());
    const auto got = one.get<float>(at, kCount);
    // 1 + 2^24 - 2^24 is 0, and 2^24 - 2^24 + 1 is 1.
    EXPECT_GT(std::count(got.begin(), got.end(), 0.0F), 5000);
    EXPECT_GT(std::count(got.begin(), got.end(), 1.0F), 5000);
    one.leave();
  };
  EXPECT_EQ(run(3, body), all(3, 0));
}

TEST_F(StandInNccl, OperationsBeginWithTheirStreamAndEndWithTheLastRank) {
  const auto body = [&](int rank) {
    Rank one(board_, rank, 2, true);
    ASSERT_EQ(one.meet(), 0);
    const Address at = one.put(std::vector<float>(100, 1));
    const Address gate = one.put(std::vector<std::uint32_t>(1, 0));
    if (rank == 1) {
      ASSERT_EQ(one.stream_wait_value(one.stream, gate, 1, 0), 0);
    }
    ASSERT_EQ(
        one.all_reduce(Rank::at(at), Rank::at(at), 100, NcclType::kFloat, NcclOp::kSum, one.comm, one.stream),
        0);
    EXPECT_TRUE(one.stays_busy());
    one.all_reach(0);
    // What is written before the stream comes to the operation counts.
    const std::vector<float> fives(100, 5);
    if (rank == 1) {
      EXPECT_EQ(one.write(at, fives.data(), 400), 0);
      const std::uint32_t open = 1;
      EXPECT_EQ(one.write(gate, &open, sizeof open), 0);
    }
    EXPECT_TRUE(one.done());
    EXPECT_EQ(one.get<float>(at, 100)[99], 6.0F);
    one.leave();
  };
  EXPECT_EQ(run(2, body), all(2, 0));
}

TEST_F(StandInNccl, NonBlockingCallsTakeAWhile) {
  const auto body = [&](int rank) {
    Rank one(board_, rank, 2, false);
    if (rank == 0) {
      ASSERT_EQ(one.unique_id(&board_->id), 0);
      board_->written = 1;
    }
    ASSERT_TRUE(eventually([&] { return board_->written == 1; }));
    EXPECT_EQ(one.set("nccl_hold", 1), 0);
    ASSERT_EQ(one.init_rank(&one.comm, 2, board_->id, rank, &one.config), kNcclInProgress);
    const Address at = one.put(std::vector<float>(100, 1));
    const auto all_reduce = [&] {
      return one.all_reduce(Rank::at(at), Rank::at(at), 100, NcclType::kFloat, NcclOp::kSum, one.comm,
                            one.stream);
    };
    EXPECT_EQ(all_reduce(), kInvalidArgument);  // too early
    EXPECT_NE(std::strstr(one.last_error(nullptr), "before the previous operation"), nullptr);
    EXPECT_EQ(one.set("nccl_hold", 0), 0);
    ASSERT_EQ(one.settled(kNcclInProgress), 0);
    EXPECT_EQ(one.set("nccl_hold", 1), 0);
    ASSERT_EQ(all_reduce(), kNcclInProgress);
    // The operation is not on the stream yet.
    EXPECT_EQ(one.stream_query(one.stream), 0);
    EXPECT_EQ(one.set("nccl_hold", 0), 0);
    ASSERT_EQ(one.settled(kNcclInProgress), 0);
    EXPECT_TRUE(one.done());
    EXPECT_EQ(one.get<float>(at, 1)[0], 2.0F);
    NcclComm half = reinterpret_cast<NcclComm>(8);
    ASSERT_EQ(one.split(one.comm, 0, -rank, &half, nullptr), kNcclInProgress);
    EXPECT_EQ(half, nullptr);  // until the split is done
    ASSERT_EQ(one.settled(kNcclInProgress), 0);
    ASSERT_NE(half, nullptr);
    EXPECT_EQ(one.settled(one.finalize(half), half), 0);
    EXPECT_EQ(one.destroy(half), 0);
    one.leave();
    EXPECT_EQ(one.counted("host_blocks"), 0U);
  };
  EXPECT_EQ(run(2, body), all(2, 0));
}

TEST_F(StandInNccl, SplitsOrderTheirRanksByKey) {
  const auto body = [&](int rank) {
    Rank one(board_, rank, 5, true);
    ASSERT_EQ(one.meet(), 0);
    const int color = rank == 4 ? ddl::cuda::kNcclNoColor : rank % 2;
    NcclComm half = nullptr;
    ASSERT_EQ(one.split(one.comm, color, -rank, &half, nullptr), 0);
    EXPECT_EQ(half == nullptr, rank == 4);
    if (half != nullptr) {
      // By their keys rank 2 comes before rank 0, and 3 before 1.
      const Address in = one.put(std::vector<float>(1, static_cast<float>(rank)));
      const Address out = one.allocated(8);
      ASSERT_EQ(one.all_gather(Rank::at(in), Rank::at(out), 1, NcclType::kFloat, half, one.stream), 0);
      EXPECT_TRUE(one.done());
      EXPECT_EQ(one.get<float>(out, 2), (std::vector<float>{rank % 2 + 2.0F, rank % 2 + 0.0F}));
      EXPECT_EQ(one.destroy(half), 0);
    }
    one.leave();
  };
  EXPECT_EQ(run(5, body), all(5, 0));
}

TEST_F(StandInNccl, RanksThatDisagreeEnd) {
  // what rank 1 does otherwise than rank 0
  const std::vector<std::function<void(Rank&, Address)>> wrong = {
      [](Rank& one, Address at) {
        one.all_reduce(Rank::at(at), Rank::at(at), 9, NcclType::kFloat, NcclOp::kSum, one.comm, one.stream);
      },
      [](Rank& one, Address at) {
        one.all_reduce(Rank::at(at), Rank::at(at), 10, NcclType::kInt32, NcclOp::kSum, one.comm, one.stream);
      },
      [](Rank& one, Address at) {
        one.all_reduce(Rank::at(at), Rank::at(at), 10, NcclType::kFloat, NcclOp::kMax, one.comm, one.stream);
      },
      [](Rank& one, Address at) {
        one.broadcast(Rank::at(at), Rank::at(at), 10, NcclType::kFloat, 0, one.comm, one.stream);
      },
      [](Rank& one, Address at) {
        one.group_start();
        for (int i = 0; i < 2; ++i) {
          one.all_reduce(Rank::at(at), Rank::at(at), 10, NcclType::kFloat, NcclOp::kSum, one.comm,
                         one.stream);
        }
        one.group_end();
      }};
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    board_->written = 0;
    const auto body = [&](int rank) {
      Rank one(board_, rank, 2, true);
      ASSERT_EQ(one.meet(), 0);
      const Address at = one.put(std::vector<float>(10, 1));
      if (rank == 1) {
        wrong[i](one, at);
      } else {
        one.all_reduce(Rank::at(at), Rank::at(at), 10, NcclType::kFloat, NcclOp::kSum, one.comm, one.stream);
      }
      one.done();
    };
    const auto statuses = run(2, body);
    EXPECT_NE(std::count(statuses.begin(), statuses.end(), kDied), 0) << i;
  }
}

TEST_F(StandInNccl, ArgumentsAreChecked) {
  const auto body = [&](int rank) {
    Rank one(board_, rank, 2, true);
    ASSERT_EQ(one.meet(), 0);
    const Address at = one.put(std::vector<float>(20, 1));
    const auto reduced = [&](void* in, void* out, std::size_t count, Stream stream) {
      return one.all_reduce(in, out, count, NcclType::kFloat, NcclOp::kSum, one.comm, stream);
    };
    std::vector<float> host(10);
    EXPECT_EQ(reduced(host.data(), Rank::at(at), 10, one.stream), kInvalidArgument);
    EXPECT_EQ(reduced(Rank::at(at), nullptr, 10, one.stream), kInvalidArgument);
    EXPECT_EQ(reduced(Rank::at(at), Rank::at(at, 4), 10, one.stream), kInvalidArgument);  // overlap
    EXPECT_EQ(reduced(Rank::at(at), Rank::at(at), 21, one.stream), kInvalidArgument);     // beyond the end
    EXPECT_EQ(reduced(Rank::at(at, 2), Rank::at(at, 2), 4, one.stream), kInvalidArgument);
    EXPECT_EQ(one.reduce_scatter(Rank::at(at), Rank::at(at, (1 - rank) * 40U), 10, NcclType::kFloat,
                                 NcclOp::kSum, one.comm, one.stream),
              kInvalidArgument);
    EXPECT_EQ(one.broadcast(Rank::at(at), Rank::at(at), 1, NcclType::kFloat, 2, one.comm, one.stream),
              kInvalidArgument);
    EXPECT_EQ(
        one.all_reduce(Rank::at(at), Rank::at(at), 1, NcclType::kFloat, NcclOp::kSum, nullptr, one.stream),
        kInvalidArgument);
    // memory and a stream of another device
    Driver::Context context = nullptr;
    EXPECT_EQ(one.primary_retain(&context, 7), 0);
    EXPECT_EQ(one.context_set(context), 0);
    const Address elsewhere = one.allocated(100);
    Stream stream = nullptr;
    EXPECT_EQ(one.stream_create(&stream, 1, 0), 0);
    EXPECT_EQ(reduced(Rank::at(elsewhere), Rank::at(elsewhere), 10, one.stream), kInvalidArgument);
    EXPECT_NE(std::strstr(one.last_error(nullptr), "allocated on device 7"), nullptr);
    EXPECT_EQ(reduced(Rank::at(at), Rank::at(at), 10, stream), kUnhandledCudaError);
    EXPECT_EQ(one.group_end(), kInvalidUsage);
    // An error in a group call takes all of it back.
    EXPECT_EQ(one.group_start(), 0);
    EXPECT_EQ(reduced(Rank::at(at), Rank::at(at), 10, one.stream), 0);
    EXPECT_EQ(reduced(host.data(), Rank::at(at), 10, one.stream), kInvalidArgument);
    EXPECT_EQ(one.group_end(), kInvalidArgument);
    EXPECT_EQ(one.context_set(nullptr), 0);
    EXPECT_EQ(one.counted("nccl_launches"), 0U);
    NcclConfig config;
    config.magic = 1;
    NcclComm other = nullptr;
    EXPECT_EQ(one.init_rank(&other, 2, board_->id, rank, &config), kInvalidArgument);
    EXPECT_EQ(one.init_rank(&other, 2, NcclId{}, rank, nullptr), kInvalidArgument);
    one.leave();
    EXPECT_EQ(one.destroy(one.comm), kInvalidArgument);
  };
  EXPECT_EQ(run(2, body), all(2, 0));
}

TEST_F(StandInNccl, RanksCannotShareADevice) {
  for (const bool blocking : {true, false}) {
    board_->written = 0;
    const auto body = [&](int rank) {
      Rank one(board_, rank, 3, blocking, rank / 2);
      EXPECT_EQ(one.meet(), kInvalidUsage);
      EXPECT_STREQ(one.last_error(nullptr),
                   "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 10000");
      EXPECT_EQ(one.abort(one.comm), 0);
      EXPECT_EQ(one.counted("held_communicators"), 0U);
    };
    EXPECT_EQ(run(3, body), all(3, 0));
  }
  // on hosts that NCCL takes for different ones they can
  board_->written = 0;
  const auto body = [&](int rank) {
    setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);
    Rank one(board_, rank, 2, true, 0);
    EXPECT_EQ(one.meet(), 0);
    one.leave();
  };
  EXPECT_EQ(run(2, body), all(2, 0));
}

TEST_F(StandInNccl, RanksNeedOneVersion) {
  const auto body = [&](int rank) {
    Rank one(board_, rank, 2, true);
    int version = 0;
    EXPECT_EQ(one.version(&version), 0);
    EXPECT_EQ(version, rank == 1 ? 21805 : 22602);
    EXPECT_EQ(one.meet(), kInvalidUsage);
    EXPECT_NE(std::strstr(one.last_error(nullptr), "Mismatched NCCL version"), nullptr);
    EXPECT_EQ(one.abort(one.comm), 0);
  };
  EXPECT_EQ(run(2, body, {{"STAND_IN_NCCL_VERSION", "21805@1"}}), all(2, 0));
}

TEST_F(StandInNccl, ALostRankLeavesTheOthersWaitingUntilTheyAbort) {
  const auto body = [&](int rank) {
    Rank one(board_, rank, 3, false);
    ASSERT_EQ(one.meet(), 0);
    one.all_reach(0);
    if (rank == 1) _exit(0);
    const Address at = one.put(std::vector<float>(1000, 1));
    ASSERT_EQ(one.settled(one.all_reduce(Rank::at(at), Rank::at(at), 1000, NcclType::kFloat, NcclOp::kSum,
                                         one.comm, one.stream)),
              0);
    EXPECT_TRUE(one.stays_busy());
    NcclStatus status = 77;
    EXPECT_EQ(one.async_error(one.comm, &status), 0);
    EXPECT_EQ(status, 0);  // NCCL does not notice
    EXPECT_EQ(one.abort(one.comm), 0);
    EXPECT_TRUE(one.done());
    EXPECT_EQ(one.device_free(at), 0);
    EXPECT_EQ(one.async_error(one.comm, &status), kInvalidArgument);
    EXPECT_EQ(one.counted("nccl_aborted_launches"), 1U);
  };
  EXPECT_EQ(run(3, body), all(3, 0));
}

TEST_F(StandInNccl, FailsOnDemand) {
  const auto body = [&](int rank) {
    Rank one(board_, rank, 2, true);
    ASSERT_EQ(one.meet(), 0);
    const Address at = one.put(std::vector<float>(10, 1));
    const auto all_reduce = [&] {
      return one.all_reduce(Rank::at(at), Rank::at(at), 10, NcclType::kFloat, NcclOp::kSum, one.comm,
                            one.stream);
    };
    EXPECT_EQ(all_reduce(), rank == 1 ? 3 : 0);  // the first call, on rank 1
    if (rank == 1) {
      EXPECT_EQ(all_reduce(), 0);
    }
    EXPECT_TRUE(one.done());
    // The next one ends on rank 1 only.
    EXPECT_EQ(all_reduce(), 0);
    EXPECT_EQ(rank == 0 ? one.stays_busy() : one.done(), true);
    NcclStatus status = 77;
    EXPECT_EQ(one.async_error(one.comm, &status), 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(one.break_communicator(one.comm, 6), 0);
    EXPECT_EQ(one.async_error(one.comm, &status), 0);
    EXPECT_EQ(status, 6);
    EXPECT_STREQ(one.status_text(status), "remote process exited or there was a network error");
    EXPECT_EQ(all_reduce(), 6);
    EXPECT_EQ(one.abort(one.comm), 0);
    EXPECT_TRUE(one.done());
  };
  EXPECT_EQ(run(2, body, {{"STAND_IN_NCCL_FAIL", "1@1"}, {"STAND_IN_NCCL_NEVER", "2@0"}}), all(2, 0));
}

TEST_F(StandInNccl, OneCommunicatorsOperationsKeepTheirOrderOnAllStreams) {
  const auto body = [&](int rank) {
    Rank one(board_, rank, 2, true);
    ASSERT_EQ(one.meet(), 0);
    Stream other = nullptr;
    ASSERT_EQ(one.stream_create(&other, 1, 0), 0);
    const Address at = one.put(std::vector<float>(10, 1));
    const Address gate = one.put(std::vector<std::uint32_t>(1, 0));
    ASSERT_EQ(one.stream_wait_value(one.stream, gate, 1, 0), 0);
    ASSERT_EQ(
        one.all_reduce(Rank::at(at), Rank::at(at), 10, NcclType::kFloat, NcclOp::kSum, one.comm, one.stream),
        0);
    ASSERT_EQ(
        one.all_reduce(Rank::at(at), Rank::at(at), 10, NcclType::kFloat, NcclOp::kProduct, one.comm, other),
        0);
    EXPECT_FALSE(eventually([&] { return one.stream_query(other) == 0; }, 0.1));
    const std::uint32_t open = 1;
    EXPECT_EQ(one.write(gate, &open, sizeof open), 0);
    EXPECT_TRUE(eventually([&] { return one.stream_query(other) == 0; }));
    EXPECT_EQ(one.get<float>(at, 1)[0], 4.0F);
    one.leave();
  };
  EXPECT_EQ(run(2, body), all(2, 0));
}

/// Two communicators whose operations the ranks start in different orders.
void start_crosswise(Rank& one, double seconds, bool* ended) {
  ASSERT_EQ(one.meet(), 0);
  NcclComm second = nullptr;
  ASSERT_EQ(one.split(one.comm, 0, one.rank, &second, nullptr), 0);
  Stream other = nullptr;
  ASSERT_EQ(one.stream_create(&other, 1, 0), 0);
  const Address at = one.put(std::vector<float>(10, 1));
  NcclComm comms[] = {one.comm, second};
  Stream streams[] = {one.stream, other};
  for (const int i : {one.rank, 1 - one.rank}) {
    ASSERT_EQ(
        one.all_reduce(Rank::at(at), Rank::at(at), 10, NcclType::kFloat, NcclOp::kSum, comms[i], streams[i]),
        0);
    if (i == one.rank)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it has filled the device
  }
  *ended =
      eventually([&] { return one.stream_query(one.stream) == 0 && one.stream_query(other) == 0; }, seconds);
  EXPECT_EQ(one.abort(second), 0);
  EXPECT_EQ(one.abort(one.comm), 0);
  one.synchronize(5);
}

TEST_F(StandInNccl, OperationsThatFillTheDeviceDeadlockInDifferentOrders) {
  for (const bool serial : {false, true}) {
    board_->written = 0;
    const auto body = [&](int rank) {
      Rank one(board_, rank, 2, true);
      bool ended = false;
      start_crosswise(one, serial ? 0.2 : 20, &ended);
      EXPECT_EQ(ended, !serial);
    };
    EXPECT_EQ(run(2, body, {{"STAND_IN_NCCL_SERIAL", serial ? "1" : "0"}}), all(2, 0));
  }
}

TEST_F(StandInNccl, ThreadsAreRanksToo) {
  const auto body = [&](int) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([this, rank] {
        Rank one(board_, rank, 3, rank % 2 == 0);
        ASSERT_EQ(one.meet(), 0);
        try_collectives(one, 1000);
        one.leave();
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  EXPECT_EQ(run(1, body), all(1, 0));
}

}  // namespace
