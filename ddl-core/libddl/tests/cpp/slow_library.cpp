// Its initialisation says that it has begun, and ends when it is told to, or after a time limit.
#include <poll.h>
#include <unistd.h>

#include <cstdlib>

namespace {

constexpr int kLimitMs = 10'000;

const int g_told = [] {
  const char* const begun = std::getenv("DDL_SLOW_BEGUN");
  const char* const end = std::getenv("DDL_SLOW_END");
  if (begun == nullptr || end == nullptr) return 0;
  pollfd wanted{std::atoi(end), POLLIN, 0};
  if (write(std::atoi(begun), "b", 1) != 1) return 0;
  return poll(&wanted, 1, kLimitMs);
}();

}  // namespace

/// 1: it was told; 0: the limit passed first.
extern "C" __attribute__((visibility("default"))) int slow_library_told() { return g_told; }
