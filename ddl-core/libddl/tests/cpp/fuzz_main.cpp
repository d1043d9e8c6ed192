// Mutates the seeds of a fuzz target and feeds it with them, for compilers without libFuzzer: a fixed
// sequence of inputs, so that a failure comes again. An input that fails is left in a file beside the
// program.
//
// usage: fuzz_<target> [SECONDS [SEED [INPUT-FILE]]]
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>

#include "fuzz_target.hpp"

namespace {

std::string current;
std::string crash_file;

/// Writes the input to crash_file; by calls that are allowed in a signal handler.
void keep_input(int signal) {
  const int file = open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  bool kept = file >= 0;
  for (std::size_t at = 0; kept && at < current.size();) {
    const ssize_t written = write(file, current.data() + at, current.size() - at);
    kept = written > 0;
    if (kept) at += static_cast<std::size_t>(written);
  }
  const auto say = [](std::string_view text) {
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(2);
  };
  say(kept ? "the input that fails is in " : "the input that fails cannot be written to ");
  say(crash_file);
  say("\n");
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, std::vector<std::string> words, unsigned seed)
      : pool_(std::move(seeds)), words_(std::move(words)), random_(seed) {}

  std::string next() {
    std::string text = pool_[below(pool_.size())];
    for (std::size_t n = 1 + below(6); n > 0; --n) mutate(text);
    // Successors of mutants reach further than successors of seeds.
    if (below(16) == 0 && text.size() < 4096) {
      if (pool_.size() < 512) {
        pool_.push_back(text);
      } else {
        pool_[below(pool_.size())] = text;
      }
    }
    return text;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }

  void mutate(std::string& text) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = below(std::min<std::size_t>(text.size() - at, 32) + 1);
    switch (below(8)) {
      case 0:
        text.insert(at, words_[below(words_.size())]);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 4:
        text.insert(below(text.size() + 1), text.substr(at, length));
        break;
      case 5:
        text.replace(at, length, words_[below(words_.size())]);
        break;
      case 6: {
        const std::string& other = pool_[below(pool_.size())];
        text = text.substr(0, at) + other.substr(std::min(other.size(), below(other.size() + 1)));
        break;
      }
      default:
        // Depth and length.
        for (std::size_t n = below(64), i = 0; i < n && text.size() < 100'000; ++i) {
          text.insert(at, text.substr(at, length));
        }
    }
  }

  std::vector<std::string> pool_;
  std::vector<std::string> words_;
  std::mt19937 random_;
};

void feed(const std::string& text) {
  current = text;
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  const auto seed = static_cast<unsigned>(argc > 2 ? std::atoi(argv[2]) : 1);
  crash_file = std::string(argv[0]) + ".crash";
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, keep_input);
  if (argc > 3) {
    std::ifstream file(argv[3], std::ios::binary);
    feed(std::string(std::istreambuf_iterator<char>(file), {}));
    return 0;
  }
  for (const std::string& text : fuzz_seeds()) feed(text);
  Mutator mutator(fuzz_seeds(), fuzz_words(), seed);
  const auto begun = std::chrono::steady_clock::now();
  unsigned long inputs = 0;
  double slowest = 0;
  for (double now = 0; now < seconds; ++inputs) {
    feed(mutator.next());
    const double after = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    slowest = std::max(slowest, after - now);
    now = after;
  }
  std::printf("%lu inputs in %.1f s, the slowest took %.3f s\n", inputs, seconds, slowest);
  if (inputs < 50) {
    std::fprintf(stderr, "so few inputs test nothing\n");
    return 1;
  }
  return 0;
}
