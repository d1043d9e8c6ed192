#include "frames.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

namespace ddl::bootstrap {
namespace {

constexpr std::size_t kHeaderBytes = 13;
/// More than the addresses of a hundred thousand ranks; a longer frame is a damaged one.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

void put_little_endian(char* to, std::uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) to[i] = static_cast<char>((number >> (8 * i)) & 0xff);
}

std::uint64_t get_little_endian(const char* from, int bytes) {
  std::uint64_t number = 0;
  for (int i = 0; i < bytes; ++i) number |= std::uint64_t{static_cast<unsigned char>(from[i])} << (8 * i);
  return number;
}

}  // namespace

bool FramePipe::read_all(char* to, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = ::read(in_, to, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

std::optional<Frame> FramePipe::read() {
  std::array<char, kHeaderBytes> header{};
  if (!read_all(header.data(), header.size())) return std::nullopt;
  Frame frame{static_cast<FrameKind>(header[0]),
              static_cast<std::uint32_t>(get_little_endian(header.data() + 1, 4)),
              {}};
  const std::uint64_t bytes = get_little_endian(header.data() + 5, 8);
  if (bytes > kMostBytes) return std::nullopt;
  frame.bytes.resize(bytes);
  if (!read_all(frame.bytes.data(), frame.bytes.size())) return std::nullopt;
  return frame;
}

bool FramePipe::write(const Frame& frame) {
  std::string text(kHeaderBytes, '\0');
  text[0] = static_cast<char>(frame.kind);
  put_little_endian(text.data() + 1, frame.id, 4);
  put_little_endian(text.data() + 5, frame.bytes.size(), 8);
  text += frame.bytes;
  const std::lock_guard lock(writing_);
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t put = ::write(out_, rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    rest.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

}  // namespace ddl::bootstrap
