#include "transport/shared_segment.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "support/error.hpp"

namespace ddl {
namespace {

constexpr std::size_t kPage = 4096;

constexpr std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

std::size_t domains_in(const Division& division) {
  return division.empty() ? 0 : *std::max_element(division.begin(), division.end()) + 1;
}

/// One more has come; true when it is the last.
bool last(std::atomic<std::uint32_t>& count, std::size_t of) {
  if (count.fetch_add(1, std::memory_order_acq_rel) + 1 < of) return false;
  count.store(0, std::memory_order_relaxed);
  return true;
}

CombinedSummary combined(const CombinedSummary& a, const CombinedSummary& b) {
  return {{a.digest, least_submitted(a.submitted, b.submitted), std::max(a.last_s, b.last_s)},
          a.digest == b.digest ? a.same & b.same : 0};
}

std::string free_space() {
  const std::uint64_t bytes = SharedSegment::free_bytes();
  return bytes == 0 ? "nothing" : std::to_string(bytes >> 20) + " MiB";
}

[[noreturn]] void fail(const std::string& what, const std::string& name, int error) {
  std::string remedy = "check that /dev/shm is mounted and writable";
  if (error == ENOSPC || error == ENOMEM || error == EDQUOT) {
    remedy = "free space in /dev/shm, which has " + free_space() +
             " left, or enlarge it (mount -o remount,size=…, "
             "or --shm-size for a container)";
  } else if (error == ENOENT) {
    remedy =
        "ranks that count as one host must share /dev/shm: start containers with the host's IPC namespace";
  }
  throw Error(DDL_ERR_MEMORY, what + ": " + std::strerror(error), "/dev/shm" + name, remedy);
}

/// mmap() has refused. Room in /dev/shm is not what it lacks then: pages are taken from there later.
[[noreturn]] void fail_to_map(const std::string& what, const std::string& where, int error) {
  std::string remedy = "free memory or raise its limit";
  rlimit limit{};
  if (error == ENOMEM && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    remedy = "raise the limit of address space (ulimit -v), which is " +
             std::to_string(limit.rlim_cur >> 20) + " MiB";
  }
  throw Error(DDL_ERR_MEMORY, what + ": " + std::strerror(error), where, remedy);
}

}  // namespace

std::size_t SharedSegment::bytes_for(std::size_t ranks, std::size_t stage_bytes, const Division& division) {
  return control_bytes_for(ranks, domains_in(division)) + ranks * stage_bytes;
}

std::size_t SharedSegment::control_bytes_for(std::size_t ranks, std::size_t domains) {
  const std::size_t tallies = domains == 0 ? 0 : domains * sizeof(DomainCell) + sizeof(Tally);
  return round_up(domains_at(ranks) + tallies, kPage);
}

void SharedSegment::divide(Division division) {
  domain_of_ = std::move(division);
  domains_.resize(domains_in(domain_of_));
  for (std::size_t rank = 0; rank < domain_of_.size(); ++rank) domains_[domain_of_[rank]].push_back(rank);
  control_bytes_ = control_bytes_for(ranks_, domains_.size());
  bytes_ = bytes_for(ranks_, stage_bytes_, domain_of_);
}

std::uint64_t SharedSegment::free_bytes() {
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0) return 0;
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

SharedSegment SharedSegment::create_private(std::size_t stage_bytes) {
  SharedSegment segment;
  segment.ranks_ = 1;
  segment.stage_bytes_ = stage_bytes;
  segment.divide({});
  void* base = mmap(nullptr, segment.bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    fail_to_map("cannot allocate " + std::to_string(segment.bytes_ >> 20) + " MiB of staging memory",
                "in this process", errno);
  }
  segment.base_ = static_cast<char*>(base);
  segment.reserved_ = true;
  return segment;
}

std::string SharedSegment::name_for(std::uint64_t nonce, int first_rank) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "/ddl-%016llx-%d", static_cast<unsigned long long>(nonce),
                first_rank);
  return name.data();
}

SharedSegment SharedSegment::create(const std::string& name, std::size_t ranks, std::size_t stage_bytes,
                                    Division division) {
  SharedSegment segment;
  segment.name_ = name;
  segment.ranks_ = ranks;
  segment.stage_bytes_ = stage_bytes;
  segment.divide(std::move(division));
  segment.fd_ = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (segment.fd_ < 0) fail("cannot create shared memory", name, errno);
  segment.linked_ = true;
  if (ftruncate(segment.fd_, static_cast<off_t>(segment.bytes_)) != 0) {
    fail("cannot size shared memory", segment.name_, errno);
  }
  segment.map(segment.fd_);
  return segment;
}

SharedSegment SharedSegment::open(const std::string& name, std::size_t ranks, std::size_t stage_bytes,
                                  Division division) {
  SharedSegment segment;
  segment.name_ = name;
  segment.ranks_ = ranks;
  segment.stage_bytes_ = stage_bytes;
  segment.divide(std::move(division));
  segment.fd_ = shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0600);
  if (segment.fd_ < 0) fail("cannot open the shared memory of this host's first rank", name, errno);
  struct stat info {};
  if (fstat(segment.fd_, &info) != 0) fail("cannot inspect shared memory", name, errno);
  if (info.st_uid != geteuid() || static_cast<std::size_t>(info.st_size) != segment.bytes_) {
    throw Error(DDL_ERR_MEMORY,
                "the shared memory of this host's first rank has another owner or size (" +
                    std::to_string(info.st_size) + " bytes, expected " + std::to_string(segment.bytes_) + ")",
                "/dev/shm" + name, "run the same DDL as the same user on all ranks");
  }
  segment.map(segment.fd_);
  return segment;
}

void SharedSegment::map(int fd) {
  void* base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    fail_to_map("cannot map " + std::to_string(bytes_ >> 20) + " MiB of shared memory", "/dev/shm" + name_,
                errno);
  }
  base_ = static_cast<char*>(base);
}

void SharedSegment::allocate(std::size_t offset, std::size_t bytes) {
  int error = 0;
  do {
    error = posix_fallocate(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) {
    fail("cannot reserve " + std::to_string(bytes >> 10) + " KiB of shared memory", name_, error);
  }
}

void SharedSegment::reserve_control() {
  if (fd_ >= 0) allocate(0, control_bytes_);
}

void SharedSegment::reserve_stage(std::size_t rank) {
  if (reserved_) return;
  if (fd_ >= 0) allocate(control_bytes_ + rank * stage_bytes_, stage_bytes_);
  reserved_ = true;
  if (!linked_) close_file();
}

void SharedSegment::close_file() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void SharedSegment::remove(const std::string& name) { shm_unlink(name.c_str()); }

void SharedSegment::unlink() {
  if (linked_) shm_unlink(name_.c_str());
  linked_ = false;
  // The file is still needed where a stage is reserved later.
  if (reserved_) close_file();
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept { *this = std::move(other); }

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(linked_, other.linked_);
  std::swap(reserved_, other.reserved_);
  std::swap(fd_, other.fd_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(control_bytes_, other.control_bytes_);
  std::swap(ranks_, other.ranks_);
  std::swap(stage_bytes_, other.stage_bytes_);
  std::swap(domain_of_, other.domain_of_);
  std::swap(domains_, other.domains_);
  return *this;
}

SharedSegment::~SharedSegment() {
  unlink();
  close_file();
  if (base_ != nullptr) munmap(base_, bytes_);
}

bool SharedSegment::count(std::size_t rank, Counter counter, std::uint64_t value) {
  (cell(rank).*counter).store(value, std::memory_order_release);
  const std::size_t gate = gate_of(counter);
  const std::size_t place = value % kCountedChunks;
  const std::size_t own = domain_of_[rank];
  if (!last(domain(own).tally.chunks[gate][place], domains_[own].size())) return false;
  if (!last(tally().chunks[gate][place], domains_.size())) return false;
  // Nobody has come to the next chunk's end yet, as this rank has not: so these only grow.
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    domain(i).passed[gate].chunks.store(value, std::memory_order_seq_cst);
  }
  return true;
}

void SharedSegment::arrive(std::size_t rank, const CallHeader& header) {
  const auto slot = header.sequence % kHeaderSlots;
  cell(rank).headers[slot] = header;
  cell(rank).summaries[slot] = {header.digest, header.submitted, header.last_s};
  if (!divided()) {
    publish(rank, &RankCell::arrived, header.sequence);
    return;
  }
  cell(rank).arrived.store(header.sequence, std::memory_order_release);
  const std::size_t domains = domains_.size();
  const std::vector<std::size_t>& members = domains_[domain_of_[rank]];
  DomainCell& own = domain(domain_of_[rank]);
  if (!last(own.tally.arrived, members.size())) return;
  const auto said = [&](std::size_t member) { return CombinedSummary{cell(member).summaries[slot], 1}; };
  own.summary = said(members[0]);
  for (std::size_t i = 1; i < members.size(); ++i) own.summary = combined(own.summary, said(members[i]));
  if (!last(tally().arrived, domains)) return;
  CombinedSummary all = domain(0).summary;
  for (std::size_t i = 1; i < domains; ++i) all = combined(all, domain(i).summary);
  for (std::size_t i = 0; i < domains; ++i) {
    domain(i).agreed = all;
    domain(i).arrived.store(header.sequence, std::memory_order_seq_cst);
  }
  if (doorbell().sleepers.load(std::memory_order_seq_cst) != 0) ring();
}

void SharedSegment::publish(std::size_t rank, Counter counter, std::uint64_t value, bool wakes) {
  if (divided()) {
    const bool all = count(rank, counter, value);
    if (all && wakes && doorbell().sleepers.load(std::memory_order_seq_cst) != 0) ring();
    return;
  }
  if (ranks_ == 1 || !wakes) {
    (cell(rank).*counter).store(value, std::memory_order_release);
    return;
  }
  // Whoever is the last sees all others: each stores before it looks.
  (cell(rank).*counter).store(value, std::memory_order_seq_cst);
  if (doorbell().sleepers.load(std::memory_order_seq_cst) == 0) return;
  for (std::size_t i = 0; i < ranks_; ++i) {
    if ((cell(i).*counter).load(std::memory_order_seq_cst) < value) return;
  }
  ring();
}

void SharedSegment::publish_alone(std::size_t rank, Counter counter, std::uint64_t value) {
  if (divided() && counter == &RankCell::reduced) count(rank, counter, value);
  (cell(rank).*counter).store(value, ranks_ == 1 ? std::memory_order_release : std::memory_order_seq_cst);
  if (ranks_ > 1 && doorbell().sleepers.load(std::memory_order_seq_cst) != 0) ring();
}

void SharedSegment::ring() {
  Doorbell& bell = doorbell();
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::uint32_t SharedSegment::prepare_sleep() {
  Doorbell& bell = doorbell();
  bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
  return bell.rings.load(std::memory_order_seq_cst);
}

bool SharedSegment::sleep(std::uint32_t rings_seen, double limit_s) {
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(limit_s);
  limit.tv_nsec = static_cast<long>((limit_s - static_cast<double>(limit.tv_sec)) * 1e9);
  const long rc = syscall(SYS_futex, &doorbell().rings, FUTEX_WAIT, rings_seen, &limit, nullptr, 0);
  return rc == 0 || errno != ETIMEDOUT;
}

void SharedSegment::end_sleep() { doorbell().sleepers.fetch_sub(1, std::memory_order_seq_cst); }

}  // namespace ddl
