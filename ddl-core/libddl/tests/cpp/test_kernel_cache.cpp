// What is kept of compiled kernels: used again, and never used where it may be wrong. The stand-in for NVRTC
// counts what it compiles.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "../cuda/stand_in.hpp"
#include "cuda/reduce_kernels.hpp"
#include "engine/kernel_cache.hpp"

namespace ddl {
namespace {

namespace fs = std::filesystem;

class KernelCache : public testing::Test {
 protected:
  void SetUp() override {
    std::string made = (fs::temp_directory_path() / "ddl-kernels-XXXXXX").string();
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    folder_ = made;
    setenv("DDL_CACHE_DIR", folder_.c_str(), 1);
    fresh_ = cuda::ReduceKernels::compiled(90);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// What it gives, and how often it compiled for that.
  std::pair<bool, std::uint64_t> fetch(int capability = 90) const {
    const std::uint64_t before = stand_in_count("compilations");
    const bool right = kept_kernels(capability) == fresh_;
    return {right, stand_in_count("compilations") - before};
  }
  fs::path file() const {
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
    return fs::directory_iterator(folder_)->path();
  }
  static std::string content(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& text) const { std::ofstream(file(), std::ios::binary) << text; }

  static constexpr std::pair<bool, std::uint64_t> kKept{true, 0};
  static constexpr std::pair<bool, std::uint64_t> kCompiled{true, 1};
  fs::path folder_;
  std::string fresh_;
};

TEST_F(KernelCache, CompilesOnce) {
  EXPECT_EQ(fetch(), kCompiled);
  EXPECT_EQ(fetch(), kKept);
  EXPECT_EQ(fetch(), kKept);
}

TEST_F(KernelCache, EveryCapabilityHasItsOwn) {
  EXPECT_EQ(fetch(), kCompiled);
  EXPECT_EQ(fetch(80), (std::pair<bool, std::uint64_t>(false, 1)));
  EXPECT_EQ(fetch(), kKept);
}

TEST_F(KernelCache, DamagedFilesAreWrittenAnew) {
  EXPECT_EQ(fetch(), kCompiled);
  const std::string whole = content(file());
  std::string changed = whole;
  changed[whole.size() / 2] ^= 1;
  std::string another = whole;
  another.replace(another.find("capability 90"), 13, "capability 80");
  for (const std::string& damaged : {changed, another, whole + "x", whole.substr(0, whole.size() - 1),
                                     whole.substr(0, 10), std::string(), std::string("\n")}) {
    put(damaged);
    EXPECT_EQ(fetch(), kCompiled) << damaged.size();
    EXPECT_EQ(content(file()), whole);
    EXPECT_EQ(fetch(), kKept);
  }
}

TEST_F(KernelCache, AFolderThatCannotBeIsNone) {
  setenv("DDL_CACHE_DIR", "/dev/null/none", 1);
  EXPECT_EQ(fetch(), kCompiled);
  EXPECT_EQ(fetch(), kCompiled);
}

}  // namespace
}  // namespace ddl
