#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/driver_functions.hpp"

namespace stand_in {

enum class Kind : int { kAllReduce, kReduceScatter, kAllGather, kReduce, kBroadcast };

/// Where a rank's bytes are for others: in a file that its process has open.
struct Source {
  std::int64_t process = 0;
  std::int32_t file = -1;
  std::uint64_t offset = 0;
};

/// What has to be the same on all ranks.
struct Signature {
  Kind kind = Kind::kAllReduce;
  std::int32_t type = 0;
  std::int32_t op = 0;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  std::int32_t position = 0;  ///< in its group call
  std::int32_t of = 0;        ///< collectives in that group call
  bool operator==(const Signature&) const = default;
};

/// A rank's part of one collective.
struct Part {
  std::atomic<std::uint64_t> sequence;  ///< the collective's number + 1, once the rest is there
  std::atomic<std::uint32_t> written;   ///< the rank's share of the result is in the scratch
  Signature signature;
  Source in;
  std::uint64_t scratch;  ///< offset of the share in the meeting's file
};

/// One message from a rank to another.
struct Mail {
  std::atomic<std::uint64_t> sequence;
  std::atomic<std::uint64_t> taken;
  std::uint64_t count;
  std::int32_t type;
  Source from;
};

struct SplitWish {
  std::atomic<std::uint64_t> sequence;
  std::int32_t color;
  std::int32_t key;
};

/// A rank runs ahead of others by two group calls at most.
inline constexpr std::size_t kParts = 4096;
inline constexpr std::size_t kMails = 256;

struct Member {
  std::atomic<std::uint32_t> joined;
  std::int32_t ranks;
  std::int32_t version;
  std::int32_t bus;
  ddl::cuda::Uuid device;
  std::uint64_t host;
  SplitWish splits[2];
  Part parts[kParts];
};

/**
 * The file in which the ranks of a communicator meet: who they are, what they want, and scratch for results.
 * The rank that sees everybody there removes its name.
 */
class Meeting {
 public:
  Meeting(const std::string& name, int rank, int ranks);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  Member& member(int rank) const { return members_[rank]; }
  Mail& mail(int from, int to, std::uint64_t number) const;
  bool all_joined();
  int file() const { return file_; }
  /// Where a rank's scratch begins; it has two, for alternate group calls.
  std::uint64_t scratch(int rank, int half) const;

 private:
  void remove_name();

  std::string path_;
  int ranks_;
  int file_ = -1;
  std::size_t bytes_ = 0;
  Member* members_ = nullptr;
  Mail* mails_ = nullptr;
  bool named_ = true;
};

/// All of the bytes, or false: the file is gone, as is the process that had it.
bool read_all(int file, void* to, std::size_t bytes, std::uint64_t offset);
void write_all(int file, const void* from, std::size_t bytes, std::uint64_t offset);

/// A source opened for reading.
class OpenSource {
 public:
  explicit OpenSource(const Source& source);
  ~OpenSource();
  OpenSource(const OpenSource&) = delete;
  OpenSource& operator=(const OpenSource&) = delete;
  bool read(void* to, std::size_t bytes, std::uint64_t at) const {
    return file_ >= 0 && read_all(file_, to, bytes, offset_ + at);
  }

 private:
  int file_;
  bool own_;
  std::uint64_t offset_;
};

}  // namespace stand_in
