#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace ddl::bootstrap {

/// What this program and the rank that started it tell each other: a letter, a number, and bytes.
///
///   kJob     rank -> program   the job, as JSON; the first frame
///   kReady   program -> rank   the environment of each rank of this host, as JSON
///   kError   program -> rank   why the program ends
///   kFence   program -> rank   what this host brings to exchange `id`
///   kData    rank -> program   what all hosts brought to exchange `id`
///   kBroken  rank -> program   exchange `id` failed
enum class FrameKind : char {
  kJob = 'J',
  kReady = 'R',
  kError = 'X',
  kFence = 'F',
  kData = 'D',
  kBroken = 'B'
};

struct Frame {
  FrameKind kind;
  std::uint32_t id = 0;
  std::string bytes;
};

/// Frames over a pair of pipes. On the wire: the letter, the number (4 bytes) and the length (8 bytes), both
/// little-endian, then the bytes.
class FramePipe {
 public:
  FramePipe(int in, int out) : in_(in), out_(out) {}

  /// Blocks until a whole frame is there; none when the other side has closed.
  std::optional<Frame> read();

  /// False when the other side has closed. May be called from several threads.
  bool write(const Frame& frame);

  int input() const { return in_; }

 private:
  bool read_all(char* to, std::size_t bytes);

  int in_;
  int out_;
  std::mutex writing_;
};

}  // namespace ddl::bootstrap
