#include <cstdlib>
#include <cstring>

#include "api/collective_calls.hpp"
#include "api/guard.hpp"
#include "ddl.h"
#include "engine/flight_recorder.hpp"
#include "engine/runtime.hpp"
#include "engine/topology_preview.hpp"
#include "simulate/prediction.hpp"

namespace ddl::api {

LastError& last_error() {
  thread_local LastError error;
  return error;
}

namespace {

int query(int* out, const char* function, int (*value)(const Communicator&)) {
  return guard([&] {
    check_pointer(function, out, "the result");
    *out = value(Runtime::instance().numbering());
  });
}

/// Hands a text to a caller who said how much fits.
void copy_text(const char* function, const std::string& text, char* json, size_t capacity, size_t* needed) {
  if (needed != nullptr) *needed = text.size() + 1;
  if (capacity > 0) {
    const size_t length = text.size() < capacity ? text.size() : capacity - 1;
    std::memcpy(json, text.data(), length);
    json[length] = 0;
  }
  if (capacity < text.size() + 1 && capacity > 0) {
    throw Error(DDL_ERR_ARGUMENT,
                "capacity " + std::to_string(capacity) + " is less than the " +
                    std::to_string(text.size() + 1) + " bytes needed",
                std::string("in ") + function, "ask with capacity 0 first");
  }
}

int write_json(const char* function, char* json, size_t capacity, size_t* needed,
               std::string (*text_of)(const Communicator&)) {
  return guard([&] {
    check_pointer(function, json, "json", capacity > 0);
    std::string text;
    Runtime::instance().inspect([&](const Communicator& world) { text = text_of(world); });
    copy_text(function, text, json, capacity, needed);
  });
}

}  // namespace
}  // namespace ddl::api

using ddl::Communicator;
using ddl::Runtime;
using namespace ddl::api;

extern "C" {

int ddl_init(const char* options) {
  return guard([&] { Runtime::instance().init(options); });
}

int ddl_finalize(void) {
  return guard([] { Runtime::instance().finalize(); });
}

int ddl_abort(const char* reason) {
  return guard([=] { Runtime::instance().abort(reason); });
}

int ddl_busy(int* flag) {
  return guard([=] {
    check_pointer("ddl_busy", flag, "the result");
    *flag = Runtime::instance().busy() ? 1 : 0;
  });
}

int ddl_initialized(int* flag) {
  return guard([&] {
    check_pointer("ddl_initialized", flag, "the result");
    *flag = Runtime::instance().initialized() ? 1 : 0;
  });
}

int ddl_rank(int* rank) {
  return query(rank, "ddl_rank", [](const Communicator& world) { return world.rank(); });
}

int ddl_size(int* size) {
  return query(size, "ddl_size", [](const Communicator& world) { return world.size(); });
}

int ddl_local_rank(int* local_rank) {
  return query(local_rank, "ddl_local_rank",
               [](const Communicator& world) { return world.topology().local_rank_of(world.rank()); });
}

int ddl_local_size(int* local_size) {
  return query(local_size, "ddl_local_size", [](const Communicator& world) {
    const auto host = static_cast<size_t>(world.topology().host_of(world.rank()));
    return static_cast<int>(world.topology().hosts()[host].ranks.size());
  });
}

int ddl_num_hosts(int* num_hosts) {
  return query(num_hosts, "ddl_num_hosts",
               [](const Communicator& world) { return static_cast<int>(world.topology().hosts().size()); });
}

int ddl_host_index(int* host_index) {
  return query(host_index, "ddl_host_index",
               [](const Communicator& world) { return world.topology().host_of(world.rank()); });
}

int ddl_allreduce(void* buf, size_t count, DDL_Type type, DDL_Op op) {
  return ddl_allreduce_n(&buf, &count, 1, type, op, nullptr);
}

int ddl_allreduce_n(void* const* bufs, const size_t* counts, size_t n, DDL_Type type, DDL_Op op,
                    const char* name) {
  return make_call({.function = "ddl_allreduce",
                    .collective = DDL_ALLREDUCE,
                    .bufs = bufs,
                    .counts = counts,
                    .n = n,
                    .type = static_cast<int>(type),
                    .op = static_cast<int>(op),
                    .name = name});
}

int ddl_broadcast(void* buf, size_t count, DDL_Type type, int root, const char* name) {
  return ddl_broadcast_n(&buf, &count, 1, type, root, name);
}

int ddl_broadcast_n(void* const* bufs, const size_t* counts, size_t n, DDL_Type type, int root,
                    const char* name) {
  return make_call({.function = "ddl_broadcast",
                    .collective = DDL_BROADCAST,
                    .bufs = bufs,
                    .counts = counts,
                    .n = n,
                    .type = static_cast<int>(type),
                    .root = root,
                    .name = name});
}

int ddl_reduce(void* buf, size_t count, DDL_Type type, DDL_Op op, int root, const char* name) {
  return make_call({.function = "ddl_reduce",
                    .collective = DDL_REDUCE,
                    .bufs = &buf,
                    .counts = &count,
                    .n = 1,
                    .type = static_cast<int>(type),
                    .op = static_cast<int>(op),
                    .root = root,
                    .name = name});
}

int ddl_reduce_scatter(const void* in, void* out, size_t count, DDL_Type type, DDL_Op op, const char* name) {
  return make_call({.function = "ddl_reduce_scatter",
                    .collective = DDL_REDUCE_SCATTER,
                    .in = in,
                    .out = out,
                    .count = count,
                    .type = static_cast<int>(type),
                    .op = static_cast<int>(op),
                    .name = name});
}

int ddl_all_gather(const void* in, void* out, size_t count, DDL_Type type, const char* name) {
  return make_call({.function = "ddl_all_gather",
                    .collective = DDL_ALL_GATHER,
                    .in = in,
                    .out = out,
                    .count = count,
                    .type = static_cast<int>(type),
                    .name = name});
}

int ddl_all_to_all(const void* in, void* out, size_t count, DDL_Type type, const char* name) {
  return make_call({.function = "ddl_all_to_all",
                    .collective = DDL_ALL_TO_ALL,
                    .in = in,
                    .out = out,
                    .count = count,
                    .type = static_cast<int>(type),
                    .name = name});
}

int ddl_allreduce_start(void* const* bufs, const size_t* counts, size_t n, DDL_Type type, DDL_Op op,
                        const char* name, int priority, DDL_Handle* handle) {
  return start_call({.function = "ddl_allreduce_start",
                     .collective = DDL_ALLREDUCE,
                     .bufs = bufs,
                     .counts = counts,
                     .n = n,
                     .type = static_cast<int>(type),
                     .op = static_cast<int>(op),
                     .name = name},
                    priority, handle);
}

int ddl_broadcast_start(void* const* bufs, const size_t* counts, size_t n, DDL_Type type, int root,
                        const char* name, int priority, DDL_Handle* handle) {
  return start_call({.function = "ddl_broadcast_start",
                     .collective = DDL_BROADCAST,
                     .bufs = bufs,
                     .counts = counts,
                     .n = n,
                     .type = static_cast<int>(type),
                     .root = root,
                     .name = name},
                    priority, handle);
}

int ddl_test(DDL_Handle handle, int* done) {
  return guard([&] {
    check_pointer("ddl_test", done, "done");
    *done = Runtime::instance().engine().test(handle) ? 1 : 0;
  });
}

int ddl_wait(DDL_Handle handle) {
  return guard([&] { Runtime::instance().engine().wait(handle); });
}

int ddl_barrier(void) { return make_call({.function = "ddl_barrier", .collective = DDL_BARRIER}); }

int ddl_allreduce_plain(void* buf, size_t count, DDL_Type type, DDL_Op op) {
  return guard([=, type_number = static_cast<int>(type), op_number = static_cast<int>(op)] {
    check_type("ddl_allreduce_plain", type_number);
    check_op("ddl_allreduce_plain", op_number);
    check_pointer("ddl_allreduce_plain", buf, "buf", count > 0);
    Runtime::instance().engine().call([&](Communicator& world) {
      world.allreduce_plain(buf, count, static_cast<DDL_Type>(type_number), static_cast<DDL_Op>(op_number));
    });
  });
}

size_t ddl_malloc(void** p, size_t align, size_t bytes) {
  size_t usable = 0;
  guard([&] {
    check_pointer("ddl_malloc", p, "p");
    *p = nullptr;
    const size_t alignment = align == 0 ? 64 : align;
    if ((alignment & (alignment - 1)) != 0) {
      throw ddl::Error(DDL_ERR_ARGUMENT, "alignment " + std::to_string(align) + " is no power of two",
                       "in ddl_malloc", "pass one, or 0 for 64");
    }
    // At least one byte, so that success and a null pointer exclude each other.
    const size_t wanted = bytes == 0 ? 1 : bytes;
    const size_t least = alignment < sizeof(void*) ? sizeof(void*) : alignment;
    if (posix_memalign(p, least, wanted) != 0) {
      *p = nullptr;
      throw ddl::Error(DDL_ERR_MEMORY, "cannot allocate " + std::to_string(bytes) + " bytes", "in ddl_malloc",
                       "free memory or raise its limit");
    }
    usable = wanted;
  });
  return usable;
}

int ddl_free(void* p) {
  std::free(p);
  return DDL_SUCCESS;
}

int ddl_describe(char* json, size_t capacity, size_t* needed) {
  return write_json("ddl_describe", json, capacity, needed,
                    [](const Communicator& world) { return world.to_json(); });
}

int ddl_stats(char* json, size_t capacity, size_t* needed) {
  return write_json("ddl_stats", json, capacity, needed,
                    [](const Communicator& world) { return world.stats_json(); });
}

int ddl_flight_record(const char* path) {
  return guard([&] {
    check_pointer("ddl_flight_record", path, "path");
    Runtime::instance().view();
    ddl::FlightRecorder::instance().write(path, "asked for");
  });
}

int ddl_preview_topology(const char* request, char* json, size_t capacity, size_t* needed) {
  return guard([&] {
    check_pointer("ddl_preview_topology", request, "request");
    check_pointer("ddl_preview_topology", json, "json", capacity > 0);
    copy_text("ddl_preview_topology", ddl::preview_topology(request).to_json(), json, capacity, needed);
  });
}

int ddl_predict(const char* cluster, const char* steps, size_t bytes, const size_t* ranks, size_t n,
                char* json, size_t capacity, size_t* needed) {
  return guard([&] {
    check_pointer("ddl_predict", cluster, "cluster");
    check_pointer("ddl_predict", ranks, "ranks", n > 0);
    check_pointer("ddl_predict", json, "json", capacity > 0);
    const std::string text =
        ddl::predict_json(cluster, steps == nullptr ? "" : steps, bytes, {ranks, ranks + n});
    copy_text("ddl_predict", text, json, capacity, needed);
  });
}

size_t ddl_type_size(DDL_Type type) {
  const int number = static_cast<int>(type);
  return ddl::valid_type(number) ? ddl::size_of(static_cast<DDL_Type>(number)) : 0;
}

const char* ddl_last_error(void) { return last_error().c_str(); }

const char* ddl_version(void) { return DDL_VERSION; }

}  // extern "C"
