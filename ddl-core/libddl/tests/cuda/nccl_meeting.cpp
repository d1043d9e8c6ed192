#include "nccl_meeting.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "settings.hpp"

namespace stand_in {
namespace {

constexpr std::uint64_t kPage = 64 << 10;
/// Of each half; the file has holes where nothing was written.
constexpr std::uint64_t kScratch = std::uint64_t{8} << 30;

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::string folder() {
  const char* const text = std::getenv("STAND_IN_NCCL_FOLDER");
  return text != nullptr && *text != 0 ? text : "/dev/shm";
}

}  // namespace

Meeting::Meeting(const std::string& name, int rank, int ranks) : path_(folder() + "/" + name), ranks_(ranks) {
  const auto many = static_cast<std::size_t>(ranks);
  const std::size_t of_members = whole_pages(many * sizeof(Member));
  bytes_ = of_members + whole_pages(many * many * kMails * sizeof(Mail));
  file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(scratch(ranks, 0))) != 0) {
    die("%s, where the ranks of a communicator meet: %s; STAND_IN_NCCL_FOLDER names another folder",
        path_.c_str(), std::strerror(errno));
  }
  void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (at == MAP_FAILED) die("%s cannot be mapped: %s", path_.c_str(), std::strerror(errno));
  members_ = static_cast<Member*>(at);
  mails_ = reinterpret_cast<Mail*>(static_cast<char*>(at) + of_members);
  if (member(rank).joined != 0) die("two callers are rank %d of communicator %s", rank, name.c_str());
}

Meeting::~Meeting() {
  if (named_) remove_name();
  munmap(members_, bytes_);
  close(file_);
}

void Meeting::remove_name() {
  unlink(path_.c_str());
  named_ = false;
}

Mail& Meeting::mail(int from, int to, std::uint64_t number) const {
  return mails_[(static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) +
                 static_cast<std::size_t>(to)) *
                    kMails +
                number % kMails];
}

bool Meeting::all_joined() {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (member(rank).joined.load(std::memory_order_acquire) == 0) return false;
  }
  if (named_) remove_name();
  return true;
}

std::uint64_t Meeting::scratch(int rank, int half) const {
  return bytes_ + (static_cast<std::uint64_t>(rank) * 2 + static_cast<std::uint64_t>(half)) * kScratch;
}

bool read_all(int file, void* to, std::size_t bytes, std::uint64_t offset) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(file, at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
    offset += static_cast<std::uint64_t>(got);
  }
  return true;
}

void write_all(int file, const void* from, std::size_t bytes, std::uint64_t offset) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t put = pwrite(file, at, bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) die("a communicator's scratch cannot be written: %s", std::strerror(errno));
    at += put;
    bytes -= static_cast<std::size_t>(put);
    offset += static_cast<std::uint64_t>(put);
  }
}

OpenSource::OpenSource(const Source& source)
    : file_(source.file), own_(source.process == getpid()), offset_(source.offset) {
  if (own_) return;
  const std::string path = "/proc/" + std::to_string(source.process) + "/fd/" + std::to_string(source.file);
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

OpenSource::~OpenSource() {
  if (!own_ && file_ >= 0) close(file_);
}

}  // namespace stand_in
