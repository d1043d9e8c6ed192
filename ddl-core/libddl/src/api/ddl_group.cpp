#include <string>
#include <vector>

#include "api/collective_calls.hpp"
#include "api/guard.hpp"
#include "ddl.h"
#include "engine/runtime.hpp"
#include "support/number.hpp"

using namespace ddl;
using namespace ddl::api;

namespace {

constexpr int kLargestTag = 32767;

void check_message(const char* function, const RankGroup& group, int rank, bool any, int tag) {
  const int size = group.view().size();
  if ((rank < 0 || rank >= size || rank == group.view().rank()) && !(any && rank == Messages::kAnyRank)) {
    throw Error(DDL_ERR_ARGUMENT, "rank " + std::to_string(rank) + " is no other rank of the group",
                std::string("in ") + function, "pass another one of 0 to " + std::to_string(size - 1));
  }
  if (tag < 0 || tag > kLargestTag) {
    throw Error(DDL_ERR_ARGUMENT, "tag " + std::to_string(tag), std::string("in ") + function,
                "pass 0 to " + std::to_string(kLargestTag));
  }
}

}  // namespace

extern "C" {

int ddl_group_create(const int* ranks, size_t n, double timeout_s, DDL_Group* group) {
  return guard([=] {
    check_pointer("ddl_group_create", ranks, "ranks", n > 0);
    check_pointer("ddl_group_create", group, "group");
    const std::vector<int> members(ranks, ranks + n);
    *group = Runtime::instance().create_group(members, timeout_s);
  });
}

int ddl_group_set_timeout(DDL_Group group, double timeout_s) {
  return guard([=] {
    if (!(timeout_s > 0) || timeout_s > 1e9) {
      throw Error(DDL_ERR_ARGUMENT, "a time limit of " + format_number(timeout_s) + " s",
                  "in ddl_group_set_timeout", "pass more than 0, and at most 1e9");
    }
    Runtime::instance().group(group)->set_patience(timeout_s);
  });
}

int ddl_group_free(DDL_Group group) {
  return guard([=] { Runtime::instance().free_group(group); });
}

int ddl_group_exchange(DDL_Group group, const void* const* in, const size_t* in_bytes, void* const* out,
                       const size_t* out_bytes, const char* name) {
  return guard([=] {
    const Caller members(group);
    const auto size = static_cast<size_t>(members.size());
    const char* const function = "ddl_group_exchange";
    check_pointer(function, in, "in");
    check_pointer(function, in_bytes, "in_bytes");
    check_pointer(function, out, "out");
    check_pointer(function, out_bytes, "out_bytes");
    for (size_t i = 0; i < size; ++i) {
      check_pointer(function, in[i], "a block of in", in_bytes[i] > 0);
      check_pointer(function, out[i], "a block of out", out_bytes[i] > 0);
    }
    const auto self = static_cast<size_t>(members.rank());
    if (in_bytes[self] != out_bytes[self]) {
      throw Error(DDL_ERR_ARGUMENT,
                  "this rank sends itself " + std::to_string(in_bytes[self]) + " bytes and expects " +
                      std::to_string(out_bytes[self]),
                  std::string("in ") + function, "make the two agree");
    }
    std::vector<ExchangedBlocks> blocks;
    members.prepare([&] {
      blocks.reserve(size);
      for (size_t i = 0; i < size; ++i) {
        blocks.push_back(
            {static_cast<const char*>(in[i]), in_bytes[i], static_cast<char*>(out[i]), out_bytes[i]});
      }
    });
    members.call([&](Communicator& ranks) { ranks.alltoallv(std::move(blocks), name); });
  });
}

int ddl_group_send_start(DDL_Group group, const void* buf, size_t bytes, int rank, int tag,
                         DDL_Handle* handle) {
  return guard([=] {
    check_pointer("ddl_group_send_start", buf, "buf", bytes > 0);
    check_pointer("ddl_group_send_start", handle, "handle");
    const auto members = Runtime::instance().group(group);
    check_message("ddl_group_send_start", *members, rank, false, tag);
    *handle = members->messages().isend(buf, bytes, rank, tag);
  });
}

int ddl_group_receive_start(DDL_Group group, void* buf, size_t bytes, int rank, int tag, DDL_Handle* handle) {
  return guard([=] {
    check_pointer("ddl_group_receive_start", buf, "buf", bytes > 0);
    check_pointer("ddl_group_receive_start", handle, "handle");
    const auto members = Runtime::instance().group(group);
    check_message("ddl_group_receive_start", *members, rank, true, tag);
    *handle = members->messages().irecv(buf, bytes, rank, tag);
  });
}

int ddl_group_test(DDL_Group group, DDL_Handle handle, int* done, int* source) {
  return guard([=] {
    check_pointer("ddl_group_test", done, "done");
    const auto found = Runtime::instance().group(group)->messages().test(handle);
    *done = found ? 1 : 0;
    if (found && source != nullptr) *source = *found;
  });
}

int ddl_group_cancel(DDL_Group group, DDL_Handle handle) {
  return guard([=] { Runtime::instance().group(group)->messages().cancel(handle); });
}

}  // extern "C"
