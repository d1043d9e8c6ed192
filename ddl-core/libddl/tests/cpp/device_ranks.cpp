// Calls on memory that the processor must not touch: a "device" on the host, whose copies are complete later
// and out of order. Whoever reads or writes it otherwise than by its functions ends with a segmentation
// fault.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ddl.hpp"
#include "whole_numbers.hpp"

namespace {

const DDL_MemoryKind kKind = DDL_MEMORY_FIRST;
constexpr std::size_t kDeviceBytes = std::size_t{96} << 20;

/// The memory, and what is under way on it.
class Device {
 public:
  Device() {
    const int file = memfd_create("device", 0);
    EXPECT_EQ(ftruncate(file, kDeviceBytes), 0);
    device_ = static_cast<char*>(mmap(nullptr, kDeviceBytes, PROT_NONE, MAP_SHARED, file, 0));
    shadow_ = static_cast<char*>(mmap(nullptr, kDeviceBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
    operations_.size = sizeof operations_;
    operations_.name = "TEST";
    operations_.context = this;
    operations_.post_copy = post;
    operations_.test_copy = test;
    operations_.last_error = [](void*) { return "the test wants it so"; };
    EXPECT_EQ(ddl_memory_register(kKind, &operations_), DDL_SUCCESS) << ddl_last_error();
  }

  static Device& instance() {
    static Device device;
    return device;
  }

  const DDL_MemoryOperations& operations() const { return operations_; }
  /// Room on the device; all of it is free again at the next reset().
  char* allocate(std::size_t bytes) {
    char* const at = device_ + used_;
    used_ += (bytes + 255) / 256 * 256;
    EXPECT_LE(used_, kDeviceBytes);
    return at;
  }
  void reset() {
    EXPECT_TRUE(under_way_.empty()) << under_way_.size() << " copies are under way";
    used_ = 0;
    latest_ = 20;
    fail_at_ = stick_at_ = 0;
  }
  /// Whatever is under way ends.
  void finish() {
    while (!under_way_.empty()) {
      int done = 0;
      EXPECT_EQ(test(this, under_way_.begin()->first, &done), 0);
    }
  }
  /// What only the test may do.
  char* shown(const void* device) { return shadow_ + (static_cast<const char*>(device) - device_); }

  int latest_ = 20;            ///< polls until a copy is complete, at most
  std::uint64_t fail_at_ = 0;  ///< copies from now on until one fails; 0: none does
  std::uint64_t stick_at_ = 0;
  void* stream_ = nullptr;  ///< of the last copy
  std::uint64_t completed_out_of_order_ = 0;

 private:
  struct Copy {
    char* to;
    const char* from;
    std::size_t bytes;
    int polls;
    bool fails;
    bool sticks;
  };

  static int post(void* context, void* to, const void* from, std::size_t bytes, DDL_CopyDirection direction,
                  void* stream, unsigned long long* number) {
    auto& self = *static_cast<Device*>(context);
    self.stream_ = stream;
    const bool to_device = direction != DDL_COPY_TO_HOST;
    const bool from_device = direction != DDL_COPY_FROM_HOST;
    EXPECT_EQ(self.on_device(to), to_device);
    EXPECT_EQ(self.on_device(from), from_device);
    const int polls = self.latest_ == 0 ? 0 : static_cast<int>(self.random_() % (1U + self.latest_));
    *number = ++self.last_;
    self.under_way_[*number] = {to_device ? self.shown(to) : static_cast<char*>(to),
                                from_device ? self.shown(from) : static_cast<const char*>(from),
                                bytes,
                                polls,
                                self.fail_at_ > 0 && --self.fail_at_ == 0,
                                self.stick_at_ > 0 && --self.stick_at_ == 0};
    return 0;
  }

  /// The bytes move as late as possible.
  static int test(void* context, unsigned long long number, int* done) {
    auto& self = *static_cast<Device*>(context);
    const auto found = self.under_way_.find(number);
    if (found == self.under_way_.end()) return 1;
    Copy& copy = found->second;
    *done = 0;
    if (copy.fails) {
      self.under_way_.erase(found);
      return 1;
    }
    if (copy.sticks && self.stuck_) return 0;
    if (copy.polls-- > 0) return 0;
    std::memcpy(copy.to, copy.from, copy.bytes);
    if (found != self.under_way_.begin()) ++self.completed_out_of_order_;
    self.under_way_.erase(found);
    *done = 1;
    return 0;
  }

  bool on_device(const void* at) const { return at >= device_ && at < device_ + kDeviceBytes; }

  char* device_ = nullptr;
  char* shadow_ = nullptr;
  std::size_t used_ = 0;
  unsigned long long last_ = 0;
  std::map<unsigned long long, Copy> under_way_;
  std::mt19937 random_{std::random_device{}()};
  DDL_MemoryOperations operations_{};

 public:
  bool stuck_ = true;
};

class DeviceRanks : public testing::Test {
 protected:
  void SetUp() override {
    ddl_rank(&rank_);
    ddl_size(&size_);
    device().reset();
  }
  static Device& device() { return Device::instance(); }

  template <class T>
  T* put(const std::vector<T>& values) {
    char* const at = device().allocate(values.size() * sizeof(T) + 1);
    if (!values.empty()) std::memcpy(device().shown(at), values.data(), values.size() * sizeof(T));
    return reinterpret_cast<T*>(at);
  }
  template <class T>
  std::vector<T> get(const T* at, std::size_t count) {
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), device().shown(at), count * sizeof(T));
    return values;
  }
  static DDL_Call call_of(DDL_Collective collective, DDL_Type type) {
    DDL_Call call;
    std::memset(&call, 0, sizeof call);
    call.size = sizeof call;
    call.collective = collective;
    call.memory = kKind;
    call.type = type;
    return call;
  }
  void make(const DDL_Call& call) { ASSERT_EQ(ddl_call(&call), DDL_SUCCESS) << ddl_last_error(); }

  int rank_ = 0;
  int size_ = 1;
};

constexpr std::size_t kCounts[] = {0, 1, 2, 17, 1009, 70'001, 700'001};

template <class T>
void check_all_reduces(DDL_Type type, int rank, int size, Device& device) {
  for (const DDL_Op op : {DDL_OP_SUM, DDL_OP_MIN, DDL_OP_MAX, DDL_OP_PRODUCT}) {
    if (!exact(type, op)) continue;
    for (const std::size_t count : kCounts) {
      device.reset();
      // Two buffers, as if they were one.
      const std::size_t counts[] = {count / 3, count - count / 3};
      char* const at[] = {device.allocate(counts[0] * sizeof(T) + 1),
                          device.allocate(counts[1] * sizeof(T) + 1)};
      const auto element = [&](std::size_t i) {
        char* const buffer = i < counts[0] ? at[0] : at[1];
        return reinterpret_cast<T*>(device.shown(buffer)) + (i < counts[0] ? i : i - counts[0]);
      };
      for (std::size_t i = 0; i < count; ++i) *element(i) = as<T>(type, value<double>(rank, i));
      void* const buffers[] = {at[0], at[1]};
      DDL_Call call;
      std::memset(&call, 0, sizeof call);
      call.size = sizeof call;
      call.collective = DDL_ALLREDUCE;
      call.memory = kKind;
      call.stream = &device;
      call.bufs = buffers;
      call.counts = counts;
      call.n = 2;
      call.type = type;
      call.op = op;
      ASSERT_EQ(ddl_call(&call), DDL_SUCCESS) << ddl_last_error();
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(*element(i), as<T>(type, reduced(op, size, i)))
            << "type " << type << ", op " << op << ", " << i << " of " << count;
      }
      if (count > 0 && size > 1) {
        ASSERT_EQ(device.stream_, &device);
      }
    }
  }
}

TEST_F(DeviceRanks, AllReducesOfAllTypes) {
  check_all_reduces<float>(DDL_TYPE_FLOAT, rank_, size_, device());
  check_all_reduces<double>(DDL_TYPE_DOUBLE, rank_, size_, device());
  check_all_reduces<std::int32_t>(DDL_TYPE_INT32, rank_, size_, device());
  check_all_reduces<std::int64_t>(DDL_TYPE_INT64, rank_, size_, device());
  check_all_reduces<std::uint16_t>(DDL_TYPE_HALF, rank_, size_, device());
  check_all_reduces<std::uint16_t>(DDL_TYPE_BFLOAT16, rank_, size_, device());
  if (size_ > 1) {
    EXPECT_GT(device().completed_out_of_order_, 0U);
  }
}

TEST_F(DeviceRanks, AveragesHaveTheBitsOfTheHost) {
  for (const std::size_t count : {1, 1009, 700'001}) {
    device().reset();
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = 1.0F / static_cast<float>(rank_ + 3 + static_cast<int>(i % 11));
    float* const at = put(values);
    void* const buffer = at;
    DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_FLOAT);
    call.bufs = &buffer;
    call.counts = &count;
    call.n = 1;
    call.op = DDL_OP_AVG;
    make(call);
    ASSERT_EQ(ddl_allreduce(values.data(), count, DDL_TYPE_FLOAT, DDL_OP_AVG), DDL_SUCCESS);
    ASSERT_EQ(get(at, count), values);
  }
}

TEST_F(DeviceRanks, BroadcastsAndReducesToEachRoot) {
  for (int root = 0; root < size_; ++root) {
    for (const std::size_t count : kCounts) {
      device().reset();
      std::vector<std::int32_t> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = value<std::int32_t>(rank_, i);
      std::int32_t* const first = put(values);
      std::int32_t* const second = put(values);
      void* buffer = first;
      DDL_Call call = call_of(DDL_BROADCAST, DDL_TYPE_INT32);
      call.bufs = &buffer;
      call.counts = &count;
      call.n = 1;
      call.root = root;
      make(call);
      buffer = second;
      call.collective = DDL_REDUCE;
      make(call);
      const auto told = get(first, count);
      const auto sums = get(second, count);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(told[i], value<std::int32_t>(root, i)) << i << " of " << count;
        const double sum = rank_ == root ? reduced(DDL_OP_SUM, size_, i) : value<double>(rank_, i);
        ASSERT_EQ(sums[i], static_cast<std::int32_t>(sum)) << i << " of " << count;
      }
    }
  }
}

TEST_F(DeviceRanks, BlocksOfAllRanks) {
  const auto ranks = static_cast<std::size_t>(size_);
  for (const std::size_t count : {0, 1, 17, 1009, 70'001}) {
    device().reset();
    std::vector<double> all(count * ranks);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = value<double>(rank_, i);
    const std::vector<double> mine(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
    double* const in = put(all);
    double* const out = put(std::vector<double>(all.size()));
    double* const block = put(mine);
    const auto first = static_cast<std::size_t>(rank_) * count;
    DDL_Call call = call_of(DDL_REDUCE_SCATTER, DDL_TYPE_DOUBLE);
    call.in = in;
    call.out = out;
    call.count = count;
    make(call);
    auto got = get(out, all.size());
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(got[i], reduced(DDL_OP_SUM, size_, first + i));
    call.collective = DDL_ALL_GATHER;
    call.in = block;
    make(call);
    got = get(out, all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(got[i], value<double>(static_cast<int>(i / count), i % count)) << i << " of " << count;
    }
    call.collective = DDL_ALL_TO_ALL;
    call.in = in;
    make(call);
    got = get(out, all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(got[i], value<double>(static_cast<int>(i / count), first + i % count))
          << i << " of " << count;
    }
  }
}

TEST_F(DeviceRanks, StartedCallsComplete) {
  constexpr std::size_t count = 30'001;
  std::vector<float*> at;
  std::vector<DDL_Handle> handles(8);
  for (std::size_t i = 0; i < handles.size(); ++i) {
    at.push_back(put(std::vector<float>(count, static_cast<float>(rank_) + static_cast<float>(i))));
    void* const buffer = at.back();
    DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_FLOAT);
    call.bufs = &buffer;
    call.counts = &count;
    call.n = 1;
    call.priority = static_cast<int>(i);
    ASSERT_EQ(ddl_call_start(&call, &handles[i]), DDL_SUCCESS) << ddl_last_error();
  }
  const float ranks = static_cast<float>(size_ * (size_ - 1)) / 2;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    ASSERT_EQ(ddl_wait(handles[i]), DDL_SUCCESS) << ddl_last_error();
    const auto got = get(at[i], count);
    EXPECT_EQ(std::count(got.begin(), got.end(), ranks + static_cast<float>(size_) * static_cast<float>(i)),
              static_cast<std::ptrdiff_t>(count));
  }
}

TEST_F(DeviceRanks, WhatIsAskedMustMakeSense) {
  float number = 1;
  void* const buffer = &number;
  const std::size_t one = 1;
  DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_FLOAT);
  call.bufs = &buffer;
  call.counts = &one;
  call.n = 1;
  const auto refused = [](const DDL_Call& asked, const char* words) {
    EXPECT_EQ(ddl_call(&asked), DDL_ERR_ARGUMENT);
    EXPECT_NE(std::string(ddl_last_error()).find(words), std::string::npos) << ddl_last_error();
  };
  DDL_Call wrong = call;
  wrong.memory = static_cast<DDL_MemoryKind>(77);
  refused(wrong, "nobody has registered memory of kind 77");
  wrong = call;
  wrong.collective = static_cast<DDL_Collective>(40);
  refused(wrong, "unknown collective 40");
  wrong = call;
  wrong.size = sizeof call + 8;
  refused(wrong, "set it to sizeof(DDL_Call)");
  wrong = call;
  wrong.collective = DDL_BROADCAST;
  wrong.root = size_;
  refused(wrong, "is no rank");
  EXPECT_EQ(ddl_call(nullptr), DDL_ERR_ARGUMENT);
  EXPECT_EQ(ddl_memory_register(kKind, &device().operations()), DDL_ERR_ARGUMENT);
  EXPECT_NE(std::string(ddl_last_error()).find("registered already, as TEST"), std::string::npos);
  EXPECT_EQ(ddl_memory_register(DDL_MEMORY_HOST, &device().operations()), DDL_ERR_ARGUMENT);
  // A structure of an early release, without what was added since.
  wrong = call;
  wrong.memory = DDL_MEMORY_HOST;
  wrong.size = offsetof(DDL_Call, priority);
  EXPECT_EQ(ddl_call(&wrong), DDL_SUCCESS) << ddl_last_error();
  EXPECT_EQ(number, static_cast<float>(size_));
}

/// A communicator of its own, whose failure the others survive.
class FailingRanks : public DeviceRanks {
 protected:
  void SetUp() override {
    DeviceRanks::SetUp();
    if (size_ < 2) GTEST_SKIP() << "a group needs two ranks";
    std::vector<int> all(static_cast<std::size_t>(size_));
    std::iota(all.begin(), all.end(), 0);
    ASSERT_EQ(ddl_group_create(all.data(), all.size(), 0, &group_), DDL_SUCCESS) << ddl_last_error();
  }
  void TearDown() override {
    if (group_ != 0) {
      EXPECT_EQ(ddl_group_free(group_), DDL_SUCCESS);
    }
    EXPECT_EQ(ddl_barrier(), DDL_SUCCESS) << ddl_last_error();
  }
  /// An all-reduce of the group, of memory of some kind.
  int reduce(DDL_MemoryKind kind, std::size_t count) {
    std::vector<float> host(count);
    void* const buffer = kind == DDL_MEMORY_HOST ? host.data() : put(host);
    DDL_Call call = call_of(DDL_ALLREDUCE, DDL_TYPE_FLOAT);
    call.memory = kind;
    call.bufs = &buffer;
    call.counts = &count;
    call.n = 1;
    call.group = group_;
    return ddl_call(&call);
  }
  DDL_Group group_ = 0;
};

TEST_F(FailingRanks, KindsOfMemoryMustBeTheSame) {
  for (const std::size_t count : {std::size_t{5}, std::size_t{100'000}}) {
    EXPECT_EQ(reduce(rank_ == size_ - 1 ? kKind : DDL_MEMORY_HOST, count), DDL_ERR_MISMATCH);
    const std::string said = ddl_last_error();
    EXPECT_NE(said.find("in TEST memory"), std::string::npos) << said;
    EXPECT_NE(said.find("rank " + std::to_string(size_ - 1)), std::string::npos) << said;
  }
}

TEST_F(FailingRanks, ACopyThatFailsIsEveryRanksError) {
  if (rank_ == 1) device().fail_at_ = 2;
  EXPECT_EQ(reduce(kKind, 2'000'000), DDL_ERR_MEMORY);
  const std::string said = ddl_last_error();
  EXPECT_NE(said.find("TEST memory failed: the test wants it so"), std::string::npos) << said;
}

TEST_F(FailingRanks, ACopyThatHangsIsAnError) {
  const char* const options = std::getenv("DDL_OPTIONS");
  if (options == nullptr || std::string(options) != "-timeout 2") GTEST_SKIP() << "for a short time limit";
  if (rank_ == 1) device().stick_at_ = 1;
  EXPECT_EQ(reduce(kKind, 1000), DDL_ERR_MEMORY);
  const std::string said = ddl_last_error();
  EXPECT_NE(said.find("TEST memory was not complete within the time limit"), std::string::npos) << said;
  // It may end now.
  device().stuck_ = false;
  device().finish();
}

TEST_F(FailingRanks, NothingIsUnderWayAfterAnError) {
  if (rank_ == 1) device().fail_at_ = 1;
  device().latest_ = 500;
  EXPECT_EQ(reduce(kKind, 2'000'000), DDL_ERR_MEMORY) << ddl_last_error();
  device().reset();
}

}  // namespace
