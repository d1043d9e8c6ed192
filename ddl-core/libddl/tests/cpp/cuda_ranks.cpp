// Calls on memory of GPUs, on the stand-ins of CUDA's driver and NCCL: the host cannot read that memory,
// copies and NCCL's operations end late, and streams do not wait for each other unless they are told to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "../cuda/stand_in.hpp"
#include "cuda/driver_functions.hpp"
#include "ddl.hpp"
#include "reference.hpp"
#include "whole_numbers.hpp"

using namespace ddl::cuda;

extern "C" {
Status cuInit(unsigned flags);
Status cuDeviceGetCount(int* count);
Status cuDevicePrimaryCtxRetain(Context* context, DeviceHandle device);
Status cuCtxSetCurrent(Context context);
Status cuMemAlloc_v2(DeviceAddress* address, std::size_t bytes);
Status cuMemFree_v2(DeviceAddress address);
Status cuMemHostAlloc(void** address, std::size_t bytes, unsigned flags);
Status cuMemFreeHost(void* address);
Status cuMemcpyHtoDAsync_v2(DeviceAddress to, const void* from, std::size_t bytes, Stream stream);
Status cuMemcpyDtoHAsync_v2(void* to, DeviceAddress from, std::size_t bytes, Stream stream);
Status cuStreamCreateWithPriority(Stream* stream, unsigned flags, int priority);
Status cuStreamDestroy_v2(Stream stream);
}

namespace {

#define CUDA(call) ASSERT_EQ(call, kSuccess)

std::string environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

/// Memory of this rank's GPU.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes > 0) {
      EXPECT_EQ(cuMemAlloc_v2(&address_, bytes), kSuccess);
    }
  }
  ~Buffer() {
    if (address_ != 0) {
      EXPECT_EQ(cuMemFree_v2(address_), kSuccess);
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  DeviceAddress address() const { return address_; }
  void* pointer() const { return reinterpret_cast<void*>(address_); }
  template <class T>
  void put(const std::vector<T>& values) {
    if (!values.empty()) {
      EXPECT_EQ(stand_in_write(address_, values.data(), values.size() * sizeof(T)), 0);
    }
  }
  template <class T>
  std::vector<T> get() const {
    std::vector<T> values(bytes_ / sizeof(T));
    if (!values.empty()) {
      EXPECT_EQ(stand_in_read(address_, values.data(), values.size() * sizeof(T)), 0);
    }
    return values;
  }

 private:
  std::size_t bytes_;
  DeviceAddress address_ = 0;
};

class CudaRanks : public testing::Test {
 protected:
  void SetUp() override {
    ddl_rank(&rank_);
    ddl_size(&size_);
    ASSERT_EQ(cuInit(0), kSuccess);
    int devices = 0;
    ASSERT_EQ(cuDeviceGetCount(&devices), kSuccess);
    Context context = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, rank_ % devices), kSuccess);
    ASSERT_EQ(cuCtxSetCurrent(context), kSuccess);
  }

  static DDL_Call call_of(DDL_Collective collective, DDL_Type type) {
    DDL_Call call;
    std::memset(&call, 0, sizeof call);
    call.size = sizeof call;
    call.collective = collective;
    call.memory = DDL_MEMORY_CUDA;
    call.type = type;
    return call;
  }
  static void make(const DDL_Call& call) { ASSERT_EQ(ddl_call(&call), DDL_SUCCESS) << ddl_last_error(); }

  static std::string described() {
    std::size_t needed = 0;
    ddl_describe(nullptr, 0, &needed);
    std::string text(needed, 0);
    ddl_describe(text.data(), text.size(), nullptr);
    return text;
  }
  static std::string statistics() {
    std::size_t needed = 0;
    ddl_stats(nullptr, 0, &needed);
    std::string text(needed, 0);
    ddl_stats(text.data(), text.size(), nullptr);
    return text;
  }
  static std::string last_algorithm() {
    const std::string text = described();
    const std::string key = "\"algorithm\":\"";
    const std::size_t from = text.find(key) + key.size();
    return text.substr(from, text.find('"', from) - from);
  }

  /// An all-reduce of two buffers, as if they were one.
  template <class T>
  void check_all_reduce(DDL_Type type, DDL_Op op, std::size_t count) {
    const std::size_t counts[] = {count / 3, count - count / 3};
    Buffer first(counts[0] * sizeof(T));
    Buffer second(counts[1] * sizeof(T));
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = as<T>(type, value<double>(rank_, i));
    const auto cut = values.begin() + static_cast<std::ptrdiff_t>(counts[0]);
    first.put(std::vector<T>(values.begin(), cut));
    second.put(std::vector<T>(cut, values.end()));
    void* const buffers[] = {first.pointer(), second.pointer()};
    DDL_Call call = call_of(DDL_ALLREDUCE, type);
    call.bufs = buffers;
    call.counts = counts;
    call.n = 2;
    call.op = op;
    make(call);
    std::vector<T> got = first.template get<T>();
    const std::vector<T> rest = second.template get<T>();
    got.insert(got.end(), rest.begin(), rest.end());
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(got[i], as<T>(type, reduced(op, size_, i)))
          << "type " << type << ", op " << op << ", " << i << " of " << count << ", by " << last_algorithm();
    }
  }
  template <class T>
  void check_all_reduces(DDL_Type type) {
    for (const DDL_Op op : {DDL_OP_SUM, DDL_OP_MIN, DDL_OP_MAX, DDL_OP_PRODUCT}) {
      if (!exact(type, op)) continue;
      for (const std::size_t count : {0, 1, 2, 17, 1009, 70'001, 700'001})
        check_all_reduce<T>(type, op, count);
    }
  }

  int rank_ = 0;
  int size_ = 1;
};

TEST_F(CudaRanks, AllReducesOfAllTypes) {
  check_all_reduces<float>(DDL_TYPE_FLOAT);
  check_all_reduces<double>(DDL_TYPE_DOUBLE);
  check_all_reduces<std::int32_t>(DDL_TYPE_INT32);
  check_all_reduces<std::int64_t>(DDL_TYPE_INT64);
  check_all_reduces<std::uint16_t>(DDL_TYPE_HALF);
  check_all_reduces<std::uint16_t>(DDL_TYPE_BFLOAT16);
}

/// Whatever the way, an average of 16-bit numbers is finite where they are.
TEST_F(CudaRanks, AveragesOfTheLargestNumbersAreFinite) {
  for (const std::size_t count : {1, 1009, 70'001}) {
    std::vector<std::uint16_t> values(count);
    const auto number = [](int rank, std::size_t i) {
      return 65504.0 - 32.0 * static_cast<double>((i + 3 * static_cast<std::size_t>(rank)) % 50);
    };
    for (std::size_t i = 0; i < count; ++i)
      reference::write(values.data(), i, DDL_TYPE_HALF, number(rank_, i));
    Buffer buffer(count * 2);
    buffer.put(values);
    void* const pointer = buffer.pointer();
    DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_HALF);
    call.bufs = &pointer;
    call.counts = &count;
    call.n = 1;
    call.op = DDL_OP_AVG;
    make(call);
    const std::vector<std::uint16_t> got = buffer.get<std::uint16_t>();
    for (std::size_t i = 0; i < count; ++i) {
      double expected = 0;
      for (int rank = 0; rank < size_; ++rank) expected += number(rank, i) / size_;
      // NCCL rounds 1 / ranks and every step.
      const double tolerance = expected * (size_ + 3) * std::ldexp(1, -11);
      ASSERT_NEAR(reference::read(got.data(), i, DDL_TYPE_HALF), expected, tolerance)
          << i << " of " << count << ", by " << last_algorithm();
    }
  }
}

TEST_F(CudaRanks, TheWayIsTheOneThatIsExpected) {
  const std::string expected = environment("CUDA_RANKS_EXPECT");
  if (expected.empty() || size_ == 1) GTEST_SKIP() << "no way is expected";
  check_all_reduce<float>(DDL_TYPE_FLOAT, DDL_OP_SUM, 300'001);
  EXPECT_NE(last_algorithm().find(expected), std::string::npos) << last_algorithm() << "\n" << described();
  const std::string note = environment("CUDA_RANKS_NOTE");
  EXPECT_NE(described().find(note), std::string::npos) << described();
}

/// Numbers that a reduction rounds, and special ones.
template <class T>
std::vector<T> any_numbers([[maybe_unused]] DDL_Type type, std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(count);
  for (T& one : values) {
    if constexpr (std::is_floating_point_v<T>) {
      one = std::uniform_real_distribution<T>(-3, 3)(random);
    } else {
      one = static_cast<T>(random());
    }
    if constexpr (sizeof(T) == 2) {
      // Of all exponents but the one of infinities and NaN, whose bits are nobody's promise.
      const unsigned exponent = type == DDL_TYPE_HALF ? 0x7c00 : 0x7f80;
      if ((one & exponent) == exponent) one = static_cast<T>(one & ~(exponent / 2));
    }
  }
  return values;
}

/// Whether two 16-bit numbers are both NaN.
bool both_nan(DDL_Type type, std::uint64_t one, std::uint64_t other) {
  const std::uint64_t infinity = type == DDL_TYPE_HALF ? 0x7c00 : 0x7f80;
  return (type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16) && (one & 0x7fff) > infinity &&
         (other & 0x7fff) > infinity;
}

/// A GPU adds up in the processor's order, and rounds as it does.
TEST_F(CudaRanks, TheBitsOfIpcAreThoseOfTheHostsMemory) {
  if (environment("CUDA_RANKS_EXPECT").find("CUDA IPC") == std::string::npos) GTEST_SKIP() << "no CUDA IPC";
  if (!environment("DDL_EMULATE_HOSTS").empty()) GTEST_SKIP() << "-mode b is a ring for the host's memory";
  const auto check = [&]<class T>(DDL_Type type, const T&) {
    for (const DDL_Op op : {DDL_OP_SUM, DDL_OP_MIN, DDL_OP_MAX, DDL_OP_PRODUCT, DDL_OP_AVG}) {
      for (const std::size_t count : {1, 31, 20'011}) {
        std::vector<T> host = any_numbers<T>(type, count, 7 * static_cast<unsigned>(rank_) + 3);
        Buffer buffer(count * sizeof(T));
        buffer.put(host);
        void* const pointer = buffer.pointer();
        DDL_Call call = call_of(DDL_ALLREDUCE, type);
        call.bufs = &pointer;
        call.counts = &count;
        call.n = 1;
        call.op = op;
        make(call);
        EXPECT_NE(last_algorithm().find("CUDA IPC"), std::string::npos) << last_algorithm();
        ASSERT_EQ(ddl_allreduce(host.data(), count, type, op), DDL_SUCCESS) << ddl_last_error();
        const std::vector<T> got = buffer.get<T>();
        for (std::size_t i = 0; i < count; ++i) {
          if constexpr (sizeof(T) == 2) {
            if (both_nan(type, got[i], host[i])) continue;
          }
          ASSERT_EQ(std::memcmp(&got[i], &host[i], sizeof(T)), 0)
              << "type " << type << ", op " << op << ", " << i << " of " << count << ": " << +got[i]
              << ", not " << +host[i];
        }
      }
    }
  };
  check(DDL_TYPE_FLOAT, float{});
  check(DDL_TYPE_DOUBLE, double{});
  check(DDL_TYPE_INT32, std::int32_t{});
  check(DDL_TYPE_INT64, std::int64_t{});
  check(DDL_TYPE_HALF, std::uint16_t{});
  check(DDL_TYPE_BFLOAT16, std::uint16_t{});
}

/// What a timeline shows of a rank, lane by lane.
struct Span {
  std::string name;
  int lane = 0;
  double from_us = 0;
  double took_us = 0;
};
std::vector<Span> spans_of(const std::string& file) {
  std::ifstream in(file);
  EXPECT_TRUE(in) << file;
  std::vector<Span> spans;
  std::string line;
  while (std::getline(in, line)) {
    std::smatch found;
    static const std::regex span(
        R"re("name":"([^"]*)","ph":"X","pid":\d+,"tid":(\d+),"ts":([\d.]+),"dur":([-\d.]+))re");
    if (std::regex_search(line, found, span))
      spans.push_back({found[1], std::stoi(found[2]), std::stod(found[3]), std::stod(found[4])});
  }
  return spans;
}

/// The tiers' operations are in the timeline, each between its call's begin and end, none beside another of
/// its lane, and what they took is in the counters.
TEST_F(CudaRanks, ATimelineShowsTheTiers) {
  const std::string file = environment("CUDA_RANKS_TIMELINE");
  if (file.empty()) GTEST_SKIP() << "no timeline is written";
  const std::string options = environment("DDL_OPTIONS");
  const std::size_t known = spans_of(file + ".rank" + std::to_string(rank_) + ".json").size();
  check_all_reduce<float>(DDL_TYPE_FLOAT, DDL_OP_SUM, 3'000'001);
  std::vector<Span> spans = spans_of(file + ".rank" + std::to_string(rank_) + ".json");
  ASSERT_GT(spans.size(), known) << options;
  spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(known));
  const Span call = spans.back();
  ASSERT_EQ(call.lane, 0) << call.name;
  std::map<int, std::map<std::string, int>> seen;
  std::map<int, double> took_s;
  std::map<int, double> in_turn_s;
  std::map<int, double> ended_us;
  for (const Span& one : spans) {
    if (one.lane == 0) continue;
    ++seen[one.lane][one.name];
    took_s[one.lane] += one.took_us / 1e6;
    EXPECT_GE(one.took_us, 0);
    EXPECT_GE(one.from_us, call.from_us - 1) << one.name << " of lane " << one.lane;
    EXPECT_LE(one.from_us + one.took_us, call.from_us + call.took_us + 1) << one.name;
    // Operations of a stream follow each other; chunks between hosts are under way side by side, and the
    // processor reduces beside the GPU.
    if (one.name == "reduce-scatter" || one.name == "all-gather" || one.name == "reduce on the GPU") {
      // A number of that size is known to a quarter of a microsecond.
      EXPECT_GE(one.from_us, ended_us[one.lane] - 0.5) << one.name << " of lane " << one.lane;
      ended_us[one.lane] = one.from_us + one.took_us;
      in_turn_s[one.lane] += one.took_us / 1e6;
    }
  }
  // As many ranks of a host take part in the tiers above as the smallest host has: where that has one, each
  // host's last.
  int local_rank = 0;
  int local_size = 0;
  ASSERT_EQ(ddl_local_rank(&local_rank), DDL_SUCCESS);
  ASSERT_EQ(ddl_local_size(&local_size), DDL_SUCCESS);
  const bool a_host_of_one = environment("DDL_EMULATE_HOSTS").find('1') != std::string::npos;
  const bool takes_part = !a_host_of_one || local_rank + 1 == local_size;
  // Lane 1 is the host, those behind it are the tiers above.
  std::istringstream expected(environment("CUDA_RANKS_LANES"));
  int lane = 0;
  for (std::string names; expected >> names; ++lane) {
    std::istringstream each(names);
    if (names == "-") continue;
    if (lane > 0 && !takes_part) {
      EXPECT_TRUE(seen[lane + 1].empty()) << "lane " << lane + 1;
      continue;
    }
    for (std::string name; std::getline(each, name, ',');) {
      std::replace(name.begin(), name.end(), '_', ' ');
      EXPECT_GT(seen[lane + 1][name], 0) << name << " in lane " << lane + 1 << " by " << call.name;
    }
    EXPECT_GT(took_s[lane + 1], 0);
  }
  if (call.name.find("NCCL in every tier") != std::string::npos) {
    for (auto& [at, names] : seen) EXPECT_EQ(names["reduce-scatter"], names["all-gather"]) << "lane " << at;
  }
  const std::string stats = statistics();
  std::smatch found;
  double busy_s = 0;
  for (const char* key : {"reduce", "gather", "post"}) {
    ASSERT_TRUE(std::regex_search(stats, found, std::regex("\"" + std::string(key) + "\":([\\d.e+-]+)")));
    busy_s += std::stod(found[1]);
  }
  EXPECT_GE(busy_s, in_turn_s[1] * 0.99) << stats;
  static const std::regex tier(R"re("busy_s":([\d.e+-]+))re");
  int number = 2;
  for (std::sregex_iterator at(stats.begin(), stats.end(), tier), end; at != end; ++at, ++number)
    EXPECT_GE(std::stod((*at)[1]), in_turn_s[number] * 0.99) << "lane " << number << ": " << stats;
}

TEST_F(CudaRanks, MoreThanAllChunks) {
  constexpr std::size_t count = 64 * 1024 * 1024 / sizeof(float) + 1;
  Buffer buffer(count * sizeof(float));
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value<float>(rank_, i);
  buffer.put(values);
  void* const pointer = buffer.pointer();
  DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_FLOAT);
  call.bufs = &pointer;
  call.counts = &count;
  call.n = 1;
  make(call);
  const std::vector<float> got = buffer.get<float>();
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(got[i], static_cast<float>(reduced(DDL_OP_SUM, size_, i))) << i << ", by " << last_algorithm();
  }
}

TEST_F(CudaRanks, AveragesOfRandomNumbersAreClose) {
  for (const std::size_t count : {1, 1009, 300'001}) {
    std::vector<double> mean(count);
    std::vector<float> mine(count);
    for (int rank = 0; rank < size_; ++rank) {
      std::mt19937 random(static_cast<unsigned>(rank) + 7);
      std::uniform_real_distribution<float> numbers(-1, 1);
      for (std::size_t i = 0; i < count; ++i) {
        const float number = numbers(random);
        mean[i] += number / static_cast<double>(size_);
        if (rank == rank_) mine[i] = number;
      }
    }
    Buffer buffer(count * sizeof(float));
    buffer.put(mine);
    void* const pointer = buffer.pointer();
    DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_FLOAT);
    call.bufs = &pointer;
    call.counts = &count;
    call.n = 1;
    call.op = DDL_OP_AVG;
    make(call);
    const std::vector<float> got = buffer.get<float>();
    for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(got[i], mean[i], 1e-6) << i << " of " << count;
    // All ranks have the same bits.
    std::vector<float> first = got;
    ASSERT_EQ(ddl_broadcast(first.data(), count, DDL_TYPE_FLOAT, 0, nullptr), DDL_SUCCESS)
        << ddl_last_error();
    ASSERT_EQ(first, got);
    // The same call again gives them, too.
    buffer.put(mine);
    make(call);
    ASSERT_EQ(buffer.get<float>(), got);
  }
}

TEST_F(CudaRanks, WhatNcclDoesOtherwiseIsStaged) {
  const float nan = std::nanf("");
  Buffer buffer(2 * sizeof(float));
  buffer.put(std::vector<float>{rank_ == size_ - 1 ? nan : 1.0F, static_cast<float>(rank_)});
  void* const pointer = buffer.pointer();
  const std::size_t count = 2;
  DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_FLOAT);
  call.bufs = &pointer;
  call.counts = &count;
  call.n = 1;
  call.op = DDL_OP_MIN;
  make(call);
  EXPECT_TRUE(std::isnan(buffer.get<float>()[0]));
  EXPECT_EQ(buffer.get<float>()[1], 0);
  buffer.put(std::vector<std::int32_t>{-7, rank_});
  call.type = DDL_TYPE_INT32;
  call.op = DDL_OP_AVG;
  make(call);
  EXPECT_EQ(buffer.get<std::int32_t>()[0], -7);
  EXPECT_EQ(buffer.get<std::int32_t>()[1], size_ * (size_ - 1) / 2 / size_);
}

TEST_F(CudaRanks, BroadcastsAndReducesToEachRoot) {
  for (int root = 0; root < size_; ++root) {
    for (const std::size_t count : {0, 1, 17, 1009, 70'001}) {
      std::vector<std::int32_t> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = value<std::int32_t>(rank_, i);
      Buffer first(count * sizeof(std::int32_t));
      Buffer second(count * sizeof(std::int32_t));
      first.put(values);
      second.put(values);
      void* pointer = first.pointer();
      DDL_Call call = call_of(DDL_BROADCAST, DDL_TYPE_INT32);
      call.bufs = &pointer;
      call.counts = &count;
      call.n = 1;
      call.root = root;
      make(call);
      pointer = second.pointer();
      call.collective = DDL_REDUCE;
      make(call);
      const auto told = first.get<std::int32_t>();
      const auto sums = second.get<std::int32_t>();
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(told[i], value<std::int32_t>(root, i)) << i << " of " << count;
        const double sum = rank_ == root ? reduced(DDL_OP_SUM, size_, i) : value<double>(rank_, i);
        ASSERT_EQ(sums[i], static_cast<std::int32_t>(sum)) << i << " of " << count;
      }
    }
  }
}

TEST_F(CudaRanks, BlocksOfAllRanks) {
  const auto ranks = static_cast<std::size_t>(size_);
  for (const std::size_t count : {0, 1, 17, 1009, 70'001}) {
    std::vector<double> all(count * ranks);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = value<double>(rank_, i);
    Buffer in(all.size() * sizeof(double));
    Buffer out(all.size() * sizeof(double));
    in.put(all);
    const auto first = static_cast<std::size_t>(rank_) * count;
    DDL_Call call = call_of(DDL_REDUCE_SCATTER, DDL_TYPE_DOUBLE);
    call.in = in.pointer();
    call.out = out.pointer();
    call.count = count;
    make(call);
    auto got = out.get<double>();
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(got[i], reduced(DDL_OP_SUM, size_, first + i));
    call.collective = DDL_ALL_GATHER;
    make(call);
    got = out.get<double>();
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(got[i], value<double>(static_cast<int>(i / count), i % count)) << i << " of " << count;
    }
    call.collective = DDL_ALL_TO_ALL;
    make(call);
    got = out.get<double>();
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(got[i], value<double>(static_cast<int>(i / count), first + i % count))
          << i << " of " << count;
    }
  }
}

TEST_F(CudaRanks, FunctionsWithoutAMemoryKindFindOut) {
  Buffer buffer(3 * sizeof(float));
  buffer.put(std::vector<float>{1, 2, static_cast<float>(rank_)});
  ASSERT_EQ(ddl_allreduce(buffer.pointer(), 3, DDL_TYPE_FLOAT, DDL_OP_SUM), DDL_SUCCESS) << ddl_last_error();
  const auto ranks = static_cast<float>(size_);
  EXPECT_EQ(buffer.get<float>(), (std::vector<float>{ranks, 2 * ranks, ranks * (ranks - 1) / 2}));
  DDL_Handle handle = 0;
  void* const pointer = buffer.pointer();
  const std::size_t count = 3;
  ASSERT_EQ(ddl_allreduce_start(&pointer, &count, 1, DDL_TYPE_FLOAT, DDL_OP_AVG, nullptr, 0, &handle),
            DDL_SUCCESS)
      << ddl_last_error();
  ASSERT_EQ(ddl_wait(handle), DDL_SUCCESS) << ddl_last_error();
  EXPECT_EQ(buffer.get<float>(), (std::vector<float>{ranks, 2 * ranks, ranks * (ranks - 1) / 2}));
}

/// The caller's stream fills the buffer late, and reads it at once after the call: DDL's own streams come
/// between.
TEST_F(CudaRanks, ResultsAreOrderedOnTheCallersStream) {
  constexpr std::size_t count = 150'001;
  Stream stream = nullptr;
  CUDA(cuStreamCreateWithPriority(&stream, kStreamNonBlocking, 0));
  void* from = nullptr;
  void* to = nullptr;
  CUDA(cuMemHostAlloc(&from, count * sizeof(float), 0));
  CUDA(cuMemHostAlloc(&to, count * sizeof(float), 0));
  Buffer buffer(count * sizeof(float));
  for (int turn = 0; turn < 5; ++turn) {
    for (std::size_t i = 0; i < count; ++i) static_cast<float*>(from)[i] = value<float>(rank_ + turn, i);
    std::memset(to, 0, count * sizeof(float));
    buffer.put(std::vector<float>(count, -1));
    const std::uint64_t blocks = stand_in_count("host_blocks");
    CUDA(cuMemcpyHtoDAsync_v2(buffer.address(), from, count * sizeof(float), stream));
    void* const pointer = buffer.pointer();
    const std::size_t counts[] = {count};
    DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_FLOAT);
    call.stream = stream;
    call.bufs = &pointer;
    call.counts = counts;
    call.n = 1;
    DDL_Handle handle = 0;
    ASSERT_EQ(ddl_call_start(&call, &handle), DDL_SUCCESS) << ddl_last_error();
    ASSERT_EQ(ddl_stream_wait(handle, stream), DDL_SUCCESS) << ddl_last_error();
    CUDA(cuMemcpyDtoHAsync_v2(to, buffer.address(), count * sizeof(float), stream));
    ASSERT_EQ(ddl_wait(handle), DDL_SUCCESS) << ddl_last_error();
    EXPECT_EQ(stand_in_count("host_blocks"), blocks) << "a call of CUDA has held up the host";
    ASSERT_EQ(stand_in_synchronize(60), 0);
    for (std::size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int rank = 0; rank < size_; ++rank) sum += value<double>(rank + turn, i);
      ASSERT_EQ(static_cast<float*>(to)[i], static_cast<float>(sum)) << i << " in turn " << turn;
    }
  }
  EXPECT_EQ(stand_in_count("unpinned_copies"), 0U);
  CUDA(cuMemFreeHost(from));
  CUDA(cuMemFreeHost(to));
  CUDA(cuStreamDestroy_v2(stream));
}

TEST_F(CudaRanks, ManyStartedCallsComplete) {
  constexpr std::size_t count = 30'001;
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<DDL_Handle> handles(12);
  for (std::size_t i = 0; i < handles.size(); ++i) {
    buffers.push_back(std::make_unique<Buffer>(count * sizeof(float)));
    buffers.back()->put(std::vector<float>(count, static_cast<float>(rank_) + static_cast<float>(i)));
    void* const pointer = buffers.back()->pointer();
    DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_FLOAT);
    call.bufs = &pointer;
    const std::size_t counts[] = {count};
    call.counts = counts;
    call.n = 1;
    call.priority = static_cast<int>(i);
    ASSERT_EQ(ddl_call_start(&call, &handles[i]), DDL_SUCCESS) << ddl_last_error();
  }
  const float ranks = static_cast<float>(size_ * (size_ - 1)) / 2;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    ASSERT_EQ(ddl_wait(handles[i]), DDL_SUCCESS) << ddl_last_error();
    const auto got = buffers[i]->get<float>();
    EXPECT_EQ(std::count(got.begin(), got.end(), ranks + static_cast<float>(size_) * static_cast<float>(i)),
              static_cast<std::ptrdiff_t>(count));
  }
}

TEST_F(CudaRanks, WhatIsAskedMustMakeSense) {
  float number = 1;
  Buffer buffer(2 * sizeof(float));
  buffer.put(std::vector<float>{1, 1});
  void* const pointers[] = {buffer.pointer(), &number};
  const std::size_t counts[] = {1, 1};
  DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_FLOAT);
  call.bufs = pointers;
  call.counts = counts;
  call.n = 2;
  EXPECT_EQ(ddl_call(&call), DDL_ERR_ARGUMENT);
  EXPECT_NE(std::string(ddl_last_error()).find("the buffers lie in different memory"), std::string::npos)
      << ddl_last_error();
  call.bufs = &pointers[1];
  call.n = 1;
  EXPECT_EQ(ddl_call(&call), DDL_ERR_ARGUMENT);
  EXPECT_NE(std::string(ddl_last_error()).find("lie in the host's memory"), std::string::npos)
      << ddl_last_error();
  Stream stream = nullptr;
  CUDA(cuStreamCreateWithPriority(&stream, kStreamNonBlocking, 0));
  ASSERT_EQ(stand_in_capture(stream, 1), 0);
  call.bufs = pointers;
  call.stream = stream;
  EXPECT_EQ(ddl_call(&call), DDL_ERR_STATE);
  EXPECT_NE(std::string(ddl_last_error()).find("captured into a CUDA graph"), std::string::npos)
      << ddl_last_error();
  ASSERT_EQ(stand_in_capture(stream, 0), 0);
  EXPECT_EQ(ddl_call(&call), DDL_SUCCESS) << ddl_last_error();
  CUDA(cuStreamDestroy_v2(stream));
  DDL_MemoryOperations operations{};
  operations.size = sizeof operations;
  EXPECT_EQ(ddl_memory_register(DDL_MEMORY_CUDA, &operations), DDL_ERR_ARGUMENT);
}

/// A communicator of its own, whose failure the others survive.
class FailingCudaRanks : public CudaRanks {
 protected:
  void SetUp() override {
    CudaRanks::SetUp();
    if (size_ < 2) GTEST_SKIP() << "a group needs two ranks";
    std::vector<int> all(static_cast<std::size_t>(size_));
    std::iota(all.begin(), all.end(), 0);
    ASSERT_EQ(ddl_group_create(all.data(), all.size(), 3, &group_), DDL_SUCCESS) << ddl_last_error();
  }
  void TearDown() override {
    if (group_ != 0) {
      EXPECT_EQ(ddl_group_free(group_), DDL_SUCCESS);
    }
    EXPECT_EQ(ddl_barrier(), DDL_SUCCESS) << ddl_last_error();
  }
  int reduce(void* pointer, std::size_t count, DDL_MemoryKind memory = DDL_MEMORY_CUDA,
             Stream stream = nullptr) {
    DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_FLOAT);
    call.memory = memory;
    call.stream = stream;
    call.bufs = &pointer;
    call.counts = &count;
    call.n = 1;
    call.group = group_;
    return ddl_call(&call);
  }
  DDL_Group group_ = 0;
};

TEST_F(FailingCudaRanks, HostAndDeviceMemoryAreAMismatch) {
  std::vector<float> host(100);
  Buffer buffer(host.size() * sizeof(float));
  const bool other = rank_ == size_ - 1;
  EXPECT_EQ(
      reduce(other ? host.data() : buffer.pointer(), host.size(), other ? DDL_MEMORY_HOST : DDL_MEMORY_CUDA),
      DDL_ERR_MISMATCH);
  const std::string said = ddl_last_error();
  EXPECT_NE(said.find("in CUDA memory"), std::string::npos) << said;
  EXPECT_NE(said.find("rank " + std::to_string(size_ - 1)), std::string::npos) << said;
}

TEST_F(FailingCudaRanks, AStuckStreamIsFoundAndNamed) {
  Buffer buffer(1000 * sizeof(float));
  Stream stream = nullptr;
  CUDA(cuStreamCreateWithPriority(&stream, kStreamNonBlocking, 0));
  ASSERT_EQ(reduce(buffer.pointer(), 1000), DDL_SUCCESS) << ddl_last_error();
  // The limit of the group's calls is 3 s.
  if (rank_ == size_ - 1) {
    ASSERT_EQ(stand_in_stick(stream, 1), 0);
  }
  void* const pinned = [] {
    void* at = nullptr;
    EXPECT_EQ(cuMemHostAlloc(&at, 4000, 0), kSuccess);
    return at;
  }();
  CUDA(cuMemcpyHtoDAsync_v2(buffer.address(), pinned, 4000, stream));
  EXPECT_EQ(reduce(buffer.pointer(), 1000, DDL_MEMORY_CUDA, stream), DDL_ERR_TIMEOUT);
  const std::string said = ddl_last_error();
  EXPECT_NE(said.find("rank " + std::to_string(size_ - 1)), std::string::npos) << said;
  EXPECT_NE(said.find("its GPU's stream has not come to the call"), std::string::npos) << said;
  if (rank_ == size_ - 1) {
    ASSERT_EQ(stand_in_stick(stream, 0), 0);
  }
  ASSERT_EQ(stand_in_synchronize(60), 0);
  CUDA(cuMemFreeHost(pinned));
  CUDA(cuStreamDestroy_v2(stream));
}

/// A first call on GPUs that cannot be, for the reason that the environment asks for.
TEST(RefusedCudaRanks, SayWhy) {
  const std::string expected = environment("CUDA_RANKS_ERROR");
  if (expected.empty()) GTEST_SKIP() << "none is asked for";
  int rank = 0;
  ddl_rank(&rank);
  DeviceAddress address = 0;
  Context context = nullptr;
  if (cuInit(0) == kSuccess && cuDevicePrimaryCtxRetain(&context, rank) == kSuccess) {
    ASSERT_EQ(cuCtxSetCurrent(context), kSuccess);
    ASSERT_EQ(cuMemAlloc_v2(&address, 4), kSuccess);
  }
  void* const pointer = reinterpret_cast<void*>(address == 0 ? 4096 : address);
  const std::size_t one = 1;
  DDL_Call call;
  std::memset(&call, 0, sizeof call);
  call.size = sizeof call;
  call.memory = DDL_MEMORY_CUDA;
  call.bufs = &pointer;
  call.counts = &one;
  call.n = 1;
  const int code = ddl_call(&call);
  EXPECT_NE(code, DDL_SUCCESS);
  const std::string said = ddl_last_error();
  EXPECT_NE(said.find(expected), std::string::npos) << said;
  // It is what every rank says, and in time.
  EXPECT_EQ(said.find("[ERROR DDL-1-" + environment("CUDA_RANKS_CODE") + "]"), 0U) << said;
}

class FirstCudaCall : public CudaRanks {};
class FailedCudaCall : public CudaRanks {};

/// The first call makes ready for those on GPUs: nothing in that may wait for all streams of a device, as one
/// of them waits for the call.
TEST_F(FirstCudaCall, AStreamMayWaitForIt) {
  Stream stream = nullptr;
  CUDA(cuStreamCreateWithPriority(&stream, kStreamNonBlocking, 0));
  void* host = nullptr;
  CUDA(cuMemHostAlloc(&host, sizeof(float), 0));
  Buffer buffer(sizeof(float));
  buffer.put(std::vector<float>{1});
  void* const pointer = buffer.pointer();
  const std::size_t one = 1;
  DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_FLOAT);
  call.stream = stream;
  call.bufs = &pointer;
  call.counts = &one;
  call.n = 1;
  DDL_Handle handle = 0;
  ASSERT_EQ(ddl_call_start(&call, &handle), DDL_SUCCESS) << ddl_last_error();
  ASSERT_EQ(ddl_stream_wait(handle, stream), DDL_SUCCESS) << ddl_last_error();
  CUDA(cuMemcpyDtoHAsync_v2(host, buffer.address(), sizeof(float), stream));
  ASSERT_EQ(ddl_wait(handle), DDL_SUCCESS) << ddl_last_error();
  ASSERT_EQ(stand_in_synchronize(60), 0);
  EXPECT_EQ(*static_cast<float*>(host), static_cast<float>(size_));
  CUDA(cuMemFreeHost(host));
  CUDA(cuStreamDestroy_v2(stream));
}

/// The last call of all ranks: none can follow.
TEST_F(FailedCudaCall, AStreamThatWaitsForItGoesOn) {
  Stream stream = nullptr;
  CUDA(cuStreamCreateWithPriority(&stream, kStreamNonBlocking, 0));
  void* host = nullptr;
  CUDA(cuMemHostAlloc(&host, sizeof(float), 0));
  Buffer buffer(1000 * sizeof(float));
  buffer.put(std::vector<float>(1000, 5));
  ASSERT_EQ(ddl_allreduce(buffer.pointer(), 1000, DDL_TYPE_FLOAT, DDL_OP_MAX), DDL_SUCCESS)
      << ddl_last_error();
  void* const pointer = buffer.pointer();
  // Different counts: the calls do not fit.
  const std::size_t count = 500 + static_cast<std::size_t>(rank_);
  DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_FLOAT);
  call.stream = stream;
  call.bufs = &pointer;
  call.counts = &count;
  call.n = 1;
  DDL_Handle handle = 0;
  ASSERT_EQ(ddl_call_start(&call, &handle), DDL_SUCCESS) << ddl_last_error();
  ASSERT_EQ(ddl_stream_wait(handle, stream), DDL_SUCCESS) << ddl_last_error();
  CUDA(cuMemcpyDtoHAsync_v2(host, buffer.address() + 999 * sizeof(float), sizeof(float), stream));
  EXPECT_EQ(ddl_wait(handle), DDL_ERR_MISMATCH) << ddl_last_error();
  ASSERT_EQ(stand_in_synchronize(60), 0);
  EXPECT_EQ(*static_cast<float*>(host), 5);
  CUDA(cuMemFreeHost(host));
  CUDA(cuStreamDestroy_v2(stream));
}

}  // namespace
