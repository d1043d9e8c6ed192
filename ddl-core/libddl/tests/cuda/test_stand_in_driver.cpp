// The stand-in for CUDA's driver is as mean as a device: each test shows a mistake that it does not forgive.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "child_process.hpp"
#include "loaded.hpp"

namespace {

using child_process::Environment;
using child_process::eventually;
using loaded::Driver;

constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidContext = 201;
constexpr int kInvalidHandle = 400;
constexpr int kNotFound = 500;
constexpr int kNotReady = ddl::cuda::kNotReady;
constexpr int kLaunchFailed = 719;

/// A process that has a device's context current, and a non-blocking stream.
struct Process : Driver {
  explicit Process(int device = 0) {
    EXPECT_EQ(init(0), 0);
    EXPECT_EQ(primary_retain(&context, device), 0);
    EXPECT_EQ(context_set(context), 0);
    stream = new_stream();
  }

  Stream new_stream(unsigned flags = ddl::cuda::kStreamNonBlocking) {
    Stream made = nullptr;
    EXPECT_EQ(stream_create(&made, flags, 0), 0);
    return made;
  }
  Event new_event() {
    Event made = nullptr;
    EXPECT_EQ(event_create(&made, ddl::cuda::kEventDisableTiming), 0);
    return made;
  }
  DeviceAddress allocated(std::size_t bytes) {
    DeviceAddress address = 0;
    EXPECT_EQ(device_allocate(&address, bytes), 0);
    return address;
  }
  char* pinned(std::size_t bytes, char value) {
    void* address = nullptr;
    EXPECT_EQ(host_allocate(&address, bytes, ddl::cuda::kHostPortable), 0);
    std::memset(address, value, bytes);
    return static_cast<char*>(address);
  }
  /// A word for streams to wait at, until open().
  DeviceAddress closed_gate() {
    const DeviceAddress address = allocated(sizeof(std::uint32_t));
    const std::uint32_t closed = 0;
    EXPECT_EQ(write(address, &closed, sizeof closed), 0);
    return address;
  }
  void open(DeviceAddress gate) {
    const std::uint32_t opened = 1;
    EXPECT_EQ(write(gate, &opened, sizeof opened), 0);
  }
  std::uint32_t word(DeviceAddress address) {
    std::uint32_t value = 0;
    EXPECT_EQ(read(address, &value, sizeof value), 0);
    return value;
  }
  bool done(Stream one) {
    return eventually([&] { return stream_query(one) == 0; });
  }
  /// For a while: long enough for whatever can happen to happen.
  bool stays_busy(Stream one) {
    return !eventually([&] { return stream_query(one) != kNotReady; }, 0.05);
  }

  Context context = nullptr;
  Stream stream = nullptr;
};

int in_process(const std::function<void()>& body, const Environment& environment = {}) {
  return child_process::run(environment, body);
}

TEST(StandInDriver, MemoryOfADeviceCannotBeTouchedByTheHost) {
  const auto touch = [] {
    Process process;
    const auto address = process.allocated(100);
    std::signal(SIGSEGV, [](int) { _exit(42); });
    std::signal(SIGBUS, [](int) { _exit(42); });
    EXPECT_EQ(*reinterpret_cast<volatile char*>(address), 0);
  };
  EXPECT_EQ(in_process(touch), 42);
}

TEST(StandInDriver, CopiesArriveLaterInTheOrderOfTheirStream) {
  const auto body = [] {
    Process process;
    constexpr std::size_t kBytes = 5000;
    const auto device = process.allocated(kBytes);
    const auto gate = process.closed_gate();
    char* const from = process.pinned(kBytes, 1);
    char* const to = process.pinned(kBytes, 0);
    EXPECT_EQ(process.stream_wait_value(process.stream, gate, 1, ddl::cuda::kWaitGreaterOrEqual), 0);
    EXPECT_EQ(process.copy_to_device(device, from, kBytes, process.stream), 0);
    EXPECT_EQ(process.copy_to_host(to, device, kBytes, process.stream), 0);
    // The bytes are read late: this is a mistake, and shows.
    std::memset(from, 2, kBytes);
    EXPECT_EQ(process.stream_query(process.stream), kNotReady);
    process.open(gate);
    EXPECT_TRUE(process.done(process.stream));
    EXPECT_EQ(to[0], 2);
    EXPECT_EQ(to[kBytes - 1], 2);
    EXPECT_EQ(process.counted("unpinned_copies"), 0U);
    EXPECT_EQ(process.counted("copies_to_device"), 1U);
    EXPECT_EQ(process.counted("bytes_to_host"), kBytes);
  };
  EXPECT_EQ(in_process(body), 0);
}

TEST(StandInDriver, StreamsOvertakeEachOther) {
  const auto body = [] {
    Process process;
    const auto device = process.allocated(64);
    char* const host = process.pinned(64, 1);
    std::vector<Driver::Stream> streams;
    for (int i = 0; i < 8; ++i) streams.push_back(process.new_stream());
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(process.copy_to_device(device, host, 64, streams[static_cast<std::size_t>(i) % 8]), 0);
    }
    EXPECT_EQ(process.synchronize(20), 0);
    EXPECT_GT(process.counted("completed_out_of_order"), 0U);
  };
  EXPECT_EQ(in_process(body), 0);
}

TEST(StandInDriver, MemoryThatIsNotPinnedMakesTheHostWait) {
  const auto body = [] {
    Process process;
    const auto device = process.allocated(64);
    std::vector<char> host(64, 5);
    EXPECT_EQ(process.copy_to_device(device, host.data(), 64, process.stream), 0);
    EXPECT_EQ(process.stream_query(process.stream), 0);
    EXPECT_EQ(process.counted("unpinned_copies"), 1U);
    EXPECT_GE(process.counted("host_blocks"), 1U);
    EXPECT_EQ(process.word(device), 0x05050505U);
    // once registered, it is pinned; half of it is an error
    EXPECT_EQ(process.host_register(host.data(), 32, ddl::cuda::kHostPortable), 0);
    EXPECT_EQ(process.host_register(host.data() + 16, 32, 0), ddl::cuda::kAlreadyRegistered);
    EXPECT_EQ(process.copy_to_device(device, host.data(), 64, process.stream), kInvalidValue);
    EXPECT_EQ(process.copy_to_device(device, host.data(), 32, process.stream), 0);
    EXPECT_TRUE(process.done(process.stream));
    EXPECT_EQ(process.counted("unpinned_copies"), 1U);
    EXPECT_EQ(process.host_unregister(host.data()), 0);
    EXPECT_EQ(process.host_unregister(host.data()), 713);
    EXPECT_EQ(process.host_register(reinterpret_cast<void*>(1 << 12), 64, 0), kInvalidValue);
  };
  EXPECT_EQ(in_process(body), 0);
}

TEST(StandInDriver, AddressesAreCheckedToTheByte) {
  const auto body = [] {
    Process process;
    const auto device = process.allocated(1000);
    char* const host = process.pinned(2000, 1);
    EXPECT_EQ(process.copy_to_device(device, host, 1001, process.stream), kInvalidValue);
    EXPECT_EQ(process.copy_to_device(device + 1, host, 1000, process.stream), kInvalidValue);
    EXPECT_EQ(process.copy_to_host(reinterpret_cast<void*>(device), device, 10, process.stream),
              kInvalidValue);
    EXPECT_EQ(process.copy_within(device + 500, device, 501, process.stream), kInvalidValue);
    EXPECT_EQ(process.device_free(device + 1), kInvalidValue);
    EXPECT_EQ(process.copy_to_device(device, host, 0, process.stream), 0);
    Driver::DeviceAddress base = 0;
    std::size_t bytes = 0;
    EXPECT_EQ(process.address_range(&base, &bytes, device + 999), 0);
    EXPECT_EQ(base, device);
    EXPECT_EQ(bytes, 1000U);
    EXPECT_EQ(process.address_range(&base, &bytes, device + 1000), kNotFound);
    EXPECT_EQ(process.device_free(device), 0);
    EXPECT_EQ(process.copy_to_device(device, host, 1, process.stream), kInvalidValue);
    // The same address comes again, for something else.
    EXPECT_EQ(process.allocated(10), device);
  };
  EXPECT_EQ(in_process(body), 0);
}

TEST(StandInDriver, AttributesTellWhatAPointerIs) {
  const auto body = [] {
    Process process(1);
    const auto device = process.allocated(100);
    std::vector<char> plain(10);
    unsigned type = 77;
    unsigned managed = 77;
    int ordinal = 77;
    int attributes[] = {ddl::cuda::kPointerMemoryType, ddl::cuda::kPointerIsManaged,
                        ddl::cuda::kPointerDeviceOrdinal};
    void* values[] = {&type, &managed, &ordinal};
    const auto ask = [&](const void* address) {
      return process.pointer_attributes(3, attributes, values,
                                        reinterpret_cast<Driver::DeviceAddress>(address));
    };
    EXPECT_EQ(process.context_set(nullptr), 0);
    EXPECT_EQ(ask(reinterpret_cast<void*>(device + 99)), 0);
    EXPECT_EQ(type, ddl::cuda::kMemoryOfDevice);
    EXPECT_EQ(managed, 0U);
    EXPECT_EQ(ordinal, 1);
    // No error for memory that it does not know: zeros, and no device.
    EXPECT_EQ(ask(plain.data()), 0);
    EXPECT_EQ(type, 0U);
    EXPECT_EQ(ordinal, -2);
  };
  EXPECT_EQ(in_process(body, {{"STAND_IN_DEVICES", "2"}}), 0);
}

TEST(StandInDriver, CallsNeedAContextOfTheirThread) {
  const auto body = [] {
    Driver driver;
    int count = 0;
    EXPECT_EQ(driver.device_count(&count), ddl::cuda::kNotInitialized);
    Process process;
    const auto device = process.allocated(10);
    std::thread other([&] {
      Driver::DeviceAddress address = 0;
      Driver::DeviceHandle number = 0;
      EXPECT_EQ(process.device_allocate(&address, 10), kInvalidContext);
      EXPECT_EQ(process.device_free(device), kInvalidContext);
      EXPECT_EQ(process.context_device(&number), kInvalidContext);
      EXPECT_EQ(process.stream_query(process.stream), kInvalidContext);
      EXPECT_EQ(process.context_set(process.context), 0);
      EXPECT_EQ(process.context_device(&number), 0);
    });
    other.join();
    EXPECT_EQ(process.primary_release(0), 0);
    Driver::DeviceAddress address = 0;
    EXPECT_EQ(process.device_allocate(&address, 10), 709);
    EXPECT_EQ(process.context_set(process.context), kInvalidContext);
    // the allocation and the stream went with the context
    EXPECT_EQ(process.counted("left_at_reset"), 2U);
    EXPECT_EQ(process.what_is_held(), "");
  };
  EXPECT_EQ(in_process(body), 0);
}

TEST(StandInDriver, EventsOrderStreams) {
  const auto body = [] {
    Process process;
    const auto device = process.allocated(64);
    const auto gate = process.closed_gate();
    char* const ones = process.pinned(64, 1);
    char* const twos = process.pinned(64, 2);
    const auto first = process.new_stream();
    const auto second = process.new_stream();
    const auto event = process.new_event();
    EXPECT_EQ(process.event_query(event), 0);  // never recorded
    EXPECT_EQ(process.stream_wait_event(second, event, 0), 0);
    EXPECT_TRUE(process.done(second));
    EXPECT_EQ(process.stream_wait_value(first, gate, 1, ddl::cuda::kWaitGreaterOrEqual), 0);
    EXPECT_EQ(process.copy_to_device(device, ones, 64, first), 0);
    EXPECT_EQ(process.event_record(event, first), 0);
    EXPECT_EQ(process.stream_wait_event(second, event, 0), 0);
    EXPECT_EQ(process.copy_to_device(device, twos, 64, second), 0);
    // The wait is for the record of that time.
    EXPECT_EQ(process.event_record(event, process.stream), 0);
    EXPECT_TRUE(eventually([&] { return process.event_query(event) == 0; }));
    EXPECT_TRUE(process.stays_busy(second));
    EXPECT_EQ(process.stream_write_value(process.stream, gate, 1, ddl::cuda::kWriteDefault), 0);
    EXPECT_TRUE(process.done(first));
    EXPECT_TRUE(process.done(second));
    EXPECT_EQ(process.word(device), 0x02020202U);
    EXPECT_EQ(process.event_destroy(event), 0);
    EXPECT_EQ(process.event_record(event, first), kInvalidHandle);
  };
  EXPECT_EQ(in_process(body), 0);
}

TEST(StandInDriver, ValuesAreComparedRoundTheCircle) {
  const auto body = [] {
    Process process;
    auto* const word = reinterpret_cast<std::uint32_t*>(process.pinned(64, 0));
    const auto address = reinterpret_cast<Driver::DeviceAddress>(word);
    __atomic_store_n(word, 0xfffffff0U, __ATOMIC_RELEASE);
    EXPECT_EQ(process.stream_wait_value(process.stream, address, 5, ddl::cuda::kWaitGreaterOrEqual), 0);
    EXPECT_TRUE(process.stays_busy(process.stream));
    __atomic_store_n(word, 6U, __ATOMIC_RELEASE);
    EXPECT_TRUE(process.done(process.stream));
    std::uint32_t plain = 0;
    EXPECT_EQ(
        process.stream_wait_value(process.stream, reinterpret_cast<Driver::DeviceAddress>(&plain), 0, 0),
        kInvalidValue);
    EXPECT_EQ(process.stream_wait_value(process.stream, address + 2, 0, 0), kInvalidValue);
    EXPECT_EQ(process.set("no_stream_values", 1), 0);
    EXPECT_EQ(process.stream_wait_value(process.stream, address, 0, 0), ddl::cuda::kNotSupported);
  };
  EXPECT_EQ(in_process(body), 0);
}

TEST(StandInDriver, TheDefaultStreamSynchronisesWithBlockingStreamsOnly) {
  const auto body = [] {
    Process process;
    const auto gate = process.closed_gate();
    const auto blocking = process.new_stream(0);
    char* const host = process.pinned(64, 1);
    const auto device = process.allocated(64);
    EXPECT_EQ(process.stream_wait_value(nullptr, gate, 1, 0), 0);
    EXPECT_EQ(process.copy_to_device(device, host, 64, blocking), 0);
    EXPECT_EQ(process.copy_to_device(device, host, 64, process.stream), 0);
    EXPECT_TRUE(process.done(process.stream));
    EXPECT_TRUE(process.stays_busy(blocking));
    process.open(gate);
    EXPECT_TRUE(process.done(blocking));
    // and the other way round
    const auto second = process.closed_gate();
    EXPECT_EQ(process.stream_wait_value(blocking, second, 1, 0), 0);
    EXPECT_EQ(process.copy_to_device(device, host, 64, nullptr), 0);
    EXPECT_TRUE(process.stays_busy(nullptr));
    process.open(second);
    EXPECT_TRUE(process.done(nullptr));
  };
  EXPECT_EQ(in_process(body), 0);
}

TEST(StandInDriver, FailsOnDemand) {
  const auto body = [] {
    Process process;
    Driver::DeviceAddress address = 0;
    EXPECT_EQ(process.device_allocate(&address, 1 << 20), 0);
    EXPECT_EQ(process.device_allocate(&address, 1 << 20), kOutOfMemory);  // the second, by the environment
    EXPECT_EQ(process.device_allocate(&address, (3 << 20) + 1), kOutOfMemory);  // beyond the capacity
    EXPECT_EQ(process.device_allocate(&address, 1 << 20), 0);
    char* const host = process.pinned(64, 1);
    EXPECT_EQ(process.set("fail_copy", 2), 0);
    EXPECT_EQ(process.copy_to_device(address, host, 64, process.stream), 0);
    EXPECT_EQ(process.copy_to_device(address, host, 64, process.stream), kLaunchFailed);
    EXPECT_EQ(process.copy_to_device(address, host, 64, process.stream), 0);
    EXPECT_TRUE(process.done(process.stream));
    // A stream that gets stuck does not hold up the others.
    const auto stuck = process.new_stream();
    EXPECT_EQ(process.set("stick_at", 1), 0);
    EXPECT_EQ(process.copy_to_device(address, host, 64, stuck), 0);
    EXPECT_EQ(process.copy_to_device(address, host, 64, process.stream), 0);
    EXPECT_TRUE(process.done(process.stream));
    EXPECT_TRUE(process.stays_busy(stuck));
    EXPECT_EQ(process.stick(stuck, 0), 0);
    EXPECT_TRUE(process.done(stuck));
    // After an error on the device all calls fail.
    EXPECT_EQ(process.set("fail_copy_late", 1), 0);
    EXPECT_EQ(process.copy_to_device(address, host, 64, process.stream), 0);
    EXPECT_TRUE(eventually([&] { return process.stream_query(process.stream) == kLaunchFailed; }));
    EXPECT_EQ(process.device_free(address), kLaunchFailed);
    EXPECT_EQ(process.set("no_such_setting", 1), 1);
  };
  EXPECT_EQ(in_process(body, {{"STAND_IN_CAPACITY", "4194304"}, {"STAND_IN_FAIL_ALLOCATION", "2"}}), 0);
}

TEST(StandInDriver, WaitsForAStuckStreamEndTheProcess) {
  const auto body = [] {
    Process process;
    const auto device = process.allocated(64);
    EXPECT_EQ(process.stick(process.stream, 1), 0);
    EXPECT_EQ(process.copy_to_device(device, process.pinned(64, 1), 64, process.stream), 0);
    process.device_free(device);
    ADD_FAILURE() << "cuMemFree came back";
  };
  EXPECT_EQ(in_process(body, {{"STAND_IN_PATIENCE_S", "1"}}), 86);
}

/// As on a device: whoever holds a stream until another thread has made its calls waits for ever.
TEST(StandInDriver, ACallThatWaitsForAStreamHoldsUpThoseOfOtherThreads) {
  const auto body = [] {
    Process process;
    const auto device = process.allocated(64);
    const auto gate = process.closed_gate();
    char* const pinned = process.pinned(64, 1);
    const auto other = process.new_stream();
    const auto event = process.new_event();
    EXPECT_EQ(process.event_record(event, other), 0);
    EXPECT_EQ(process.stream_wait_value(process.stream, gate, 1, ddl::cuda::kWaitGreaterOrEqual), 0);
    std::vector<char> plain(64);
    std::thread waiting([&] {
      EXPECT_EQ(process.context_set(process.context), 0);
      EXPECT_EQ(process.copy_to_host(plain.data(), device, 64, process.stream), 0);
    });
    EXPECT_TRUE(eventually([&] { return process.counted("host_blocks") == 1; }));
    std::atomic<int> made = 0;
    const std::vector<std::function<int()>> calls = {
        [&] { return process.copy_to_device(device, pinned, 64, other); },
        [&] { return process.copy_within(device, device + 32, 32, other); },
        [&] {
          Driver::DeviceAddress more = 0;
          return process.device_allocate(&more, 64);
        },
        [&] {
          void* more = nullptr;
          return process.host_allocate(&more, 64, 0);
        },
        [&] {
          Driver::Stream more = nullptr;
          return process.stream_create(&more, ddl::cuda::kStreamNonBlocking, 0);
        },
        [&] {
          Driver::Event more = nullptr;
          return process.event_create(&more, ddl::cuda::kEventDisableTiming);
        },
        [&] { return process.event_record(event, other); }};
    std::vector<std::thread> threads;
    for (const auto& call : calls) {
      threads.emplace_back([&] {
        EXPECT_EQ(process.context_set(process.context), 0);
        EXPECT_EQ(call(), 0);
        ++made;
      });
    }
    EXPECT_TRUE(eventually([&] { return process.counted("locked_out") == calls.size(); }));
    EXPECT_EQ(made, 0);
    // To ask needs no lock.
    EXPECT_EQ(process.event_query(event), 0);
    EXPECT_EQ(process.stream_query(other), 0);
    EXPECT_EQ(process.stream_query(process.stream), kNotReady);
    process.open(gate);
    waiting.join();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(made, static_cast<int>(calls.size()));
  };
  EXPECT_EQ(in_process(body), 0);
}

TEST(StandInDriver, AStreamThatWaitsForACallBehindTheLockEndsTheProcess) {
  const auto body = [] {
    Process process;
    const auto device = process.allocated(64);
    const auto gate = process.closed_gate();
    char* const pinned = process.pinned(64, 1);
    const auto other = process.new_stream();
    EXPECT_EQ(process.stream_wait_value(process.stream, gate, 1, ddl::cuda::kWaitGreaterOrEqual), 0);
    std::thread releasing([&] {
      EXPECT_EQ(process.context_set(process.context), 0);
      EXPECT_TRUE(eventually([&] { return process.counted("host_blocks") == 1; }));
      EXPECT_EQ(process.copy_to_device(device, pinned, 64, other), 0);
      process.open(gate);
    });
    std::vector<char> plain(64);
    process.copy_to_host(plain.data(), device, 64, process.stream);
    ADD_FAILURE() << "the copy came back";
    releasing.join();
  };
  EXPECT_EQ(in_process(body, {{"STAND_IN_PATIENCE_S", "1"}}), 86);
}

TEST(StandInDriver, CapturedStreamsTakeNothing) {
  const auto body = [] {
    Process process;
    const auto device = process.allocated(64);
    const auto blocking = process.new_stream(0);
    int status = 77;
    EXPECT_EQ(process.stream_capturing(blocking, &status), 0);
    EXPECT_EQ(status, ddl::cuda::kCaptureNone);
    EXPECT_EQ(process.capture(blocking, 1), 0);
    EXPECT_EQ(process.stream_capturing(blocking, &status), 0);
    EXPECT_EQ(status, 1);
    EXPECT_EQ(process.copy_to_device(device, process.pinned(64, 1), 64, blocking), 900);
    EXPECT_EQ(process.stream_capturing(nullptr, &status), 906);
  };
  EXPECT_EQ(in_process(body), 0);
}

TEST(StandInDriver, TheEnvironmentChoosesDevices) {
  const auto devices = [](int many, int first_bus) {
    Driver driver;
    const int status = driver.init(0);
    if (many == 0) {
      EXPECT_EQ(status, ddl::cuda::kNoDevice);
      return;
    }
    EXPECT_EQ(status, 0);
    int count = 0;
    EXPECT_EQ(driver.device_count(&count), 0);
    EXPECT_EQ(count, many);
    int bus = 0;
    EXPECT_EQ(driver.device_attribute(&bus, ddl::cuda::kAttributePciBus, 0), 0);
    EXPECT_EQ(bus, first_bus);
    Driver::DeviceHandle device = 0;
    EXPECT_EQ(driver.device_get(&device, many), kInvalidDevice);
    Driver::Uuid one{};
    Driver::Uuid other{};
    EXPECT_EQ(driver.device_uuid(&one, 0), 0);
    EXPECT_EQ(driver.device_uuid(&other, many - 1), 0);
    EXPECT_EQ(std::memcmp(&one, &other, sizeof one) == 0, many == 1);
  };
  const Environment four = {{"STAND_IN_DEVICES", "4"}};
  EXPECT_EQ(in_process([&] { devices(4, 0x10); }, four), 0);
  const auto visible = [&](const char* text) {
    Environment environment = four;
    environment["CUDA_VISIBLE_DEVICES"] = text;
    return environment;
  };
  EXPECT_EQ(in_process([&] { devices(2, 0x13); }, visible("3,1,9,2")), 0);
  EXPECT_EQ(in_process([&] { devices(1, 0x12); }, visible("GPU-5ca1ab1e-0000-4000-8000-000000000002")), 0);
  EXPECT_EQ(in_process([&] { devices(0, 0); }, visible("")), 0);
  EXPECT_EQ(in_process([&] { devices(1, 0x10); }, {{"STAND_IN_DEVICES", "4@2,1@0"}, {"RANK", "0"}}), 0);
}

TEST(StandInDriver, MisspeltVariablesEndTheProcess) {
  EXPECT_EQ(in_process([] { Driver(); }, {{"STAND_IN_DEVICE", "4"}}), 86);
  EXPECT_EQ(in_process([] { Driver(); }, {{"STAND_IN_DEVICES", "four"}}), 86);
}

TEST(StandInDriver, ProcessesOpenEachOthersMemory) {
  int there[2];
  int back[2];
  ASSERT_EQ(pipe(there), 0);
  ASSERT_EQ(pipe(back), 0);
  constexpr std::size_t kBytes = 100'000;
  const pid_t owner = child_process::start({}, [&] {
    Process process;
    const auto first = process.allocated(10);  // so that the other is not at the start
    const auto device = process.allocated(kBytes);
    const std::uint32_t value = 0xabcd;
    EXPECT_EQ(process.write(device + kBytes - 4, &value, sizeof value), 0);
    Driver::IpcHandle handle{};
    EXPECT_EQ(process.ipc_handle(&handle, device + 500), 0);  // the whole allocation's
    Driver::DeviceAddress opened = 0;
    EXPECT_EQ(process.ipc_open(&opened, handle, 1), kInvalidContext);  // not by its owner
    EXPECT_EQ(write(there[1], &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
    char done = 0;
    EXPECT_EQ(read(back[0], &done, 1), 1);
    EXPECT_EQ(process.word(device), 0x1234U);
    EXPECT_EQ(process.device_free(device), 0);
    EXPECT_EQ(process.device_free(first), 0);
    EXPECT_EQ(write(there[1], &done, 1), 1);
    EXPECT_EQ(read(back[0], &done, 1), 1);
  });
  const int other = in_process([&] {
    Process process;
    Driver::IpcHandle handle{};
    EXPECT_EQ(read(there[0], &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
    Driver::DeviceAddress opened = 0;
    Driver::DeviceAddress again = 0;
    EXPECT_EQ(process.ipc_open(&opened, handle, 0), kInvalidValue);
    EXPECT_EQ(process.set("fail_ipc_open", 1), 0);
    EXPECT_EQ(process.ipc_open(&opened, handle, 1), 205);
    EXPECT_EQ(process.ipc_open(&opened, handle, 1), 0);
    EXPECT_EQ(process.ipc_open(&again, handle, 1), 0);
    EXPECT_EQ(opened, again);
    EXPECT_EQ(process.device_free(opened), kInvalidValue);
    EXPECT_EQ(process.word(opened + kBytes - 4), 0xabcdU);
    char* const host = process.pinned(4, 0);
    const std::uint32_t value = 0x1234;
    std::memcpy(host, &value, sizeof value);
    EXPECT_EQ(process.copy_to_device(opened, host, sizeof value, process.stream), 0);
    EXPECT_TRUE(process.done(process.stream));
    char done = 0;
    EXPECT_EQ(write(back[1], &done, 1), 1);
    EXPECT_EQ(read(there[0], &done, 1), 1);
    // Its owner has freed it: what is there now is nobody's.
    EXPECT_EQ(process.word(opened), 0xffffffffU);
    EXPECT_EQ(process.ipc_close(opened), 0);
    EXPECT_EQ(process.word(opened + kBytes - 4), 0xffffffffU);
    EXPECT_EQ(process.ipc_close(opened), 0);
    EXPECT_EQ(process.ipc_close(opened), kInvalidValue);
    EXPECT_EQ(process.counted("held_ipc"), 0U);
    EXPECT_EQ(write(back[1], &done, 1), 1);
    // Of a process that is gone there is nothing.
    handle.reserved[8] ^= 1;
    EXPECT_EQ(process.ipc_open(&opened, handle, 1), kInvalidValue);
  });
  EXPECT_EQ(other, 0);
  EXPECT_EQ(child_process::finish(owner), 0);
  for (const int end : {there[0], there[1], back[0], back[1]}) close(end);
}

TEST(StandInDriver, ForkedProcessesHaveNoDriver) {
  const auto body = [] {
    Process process;
    const int forked = in_process([&] {
      Driver::DeviceAddress address = 0;
      EXPECT_EQ(process.device_allocate(&address, 10), ddl::cuda::kNotInitialized);
      EXPECT_EQ(process.init(0), ddl::cuda::kNotInitialized);
    });
    EXPECT_EQ(forked, 0);
    EXPECT_EQ(process.device_free(process.allocated(10)), 0);
  };
  EXPECT_EQ(in_process(body), 0);
}

TEST(StandInDriver, CountsAreReportedAtTheEnd) {
  char folder[] = "/tmp/stand-in-report-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const pid_t process = child_process::start({{"STAND_IN_REPORT", folder}, {"RANK", "3"}}, [] {
    Process own;
    own.allocated(10);
  });
  EXPECT_EQ(child_process::finish(process), 0);
  const std::string path = std::string(folder) + "/" + std::to_string(process) + ".json";
  std::FILE* const file = std::fopen(path.c_str(), "r");
  ASSERT_NE(file, nullptr);
  char text[4096] = {};
  EXPECT_GT(std::fread(text, 1, sizeof text - 1, file), 0U);
  std::fclose(file);
  EXPECT_NE(std::strstr(text, "{\"rank\": 3,"), nullptr) << text;
  EXPECT_NE(std::strstr(text, "\"held_memory\": 1,"), nullptr) << text;
  unlink(path.c_str());
  EXPECT_EQ(rmdir(folder), 0);
}

TEST(StandInDriver, ErrorsHaveNamesAndTexts) {
  const auto body = [] {
    Driver driver;
    const char* text = nullptr;
    EXPECT_EQ(driver.error_name(kOutOfMemory, &text), 0);
    EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
    EXPECT_EQ(driver.error_text(kOutOfMemory, &text), 0);
    EXPECT_STREQ(text, "out of memory");
    EXPECT_EQ(driver.error_name(12345, &text), kInvalidValue);
    int version = 0;
    EXPECT_EQ(driver.driver_version(&version), 0);
    EXPECT_EQ(version, 12040);
  };
  EXPECT_EQ(in_process(body, {{"STAND_IN_DRIVER_VERSION", "12040"}}), 0);
}

}  // namespace
