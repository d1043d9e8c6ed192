// Stands for NVRTC in tests: compiles kernels by the host's C++ compiler.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "cuda/nvrtc_functions.hpp"
#include "kernel_image.hpp"
#include "settings.hpp"

namespace ddl::cuda {

struct _nvrtcProgram {
  std::string source;
  std::string name;
  std::string code;
  bool exact = false;
  std::string log;
};

// As in stand_in_driver.cpp: a function that is not defined below does not link.
#define F(member, symbol, parameters) \
  extern "C" STAND_IN_EXPORT NvrtcStatus stand_in_nvrtc_##member parameters __asm__(symbol);
DDL_NVRTC_FUNCTIONS(F)
#undef F
extern "C" STAND_IN_EXPORT const char* stand_in_nvrtc_error_text(NvrtcStatus) __asm__("nvrtcGetErrorString");

}  // namespace ddl::cuda

namespace stand_in {
namespace {

constexpr int kInvalidInput = 3;
constexpr int kInvalidProgram = 4;
constexpr int kInvalidOption = 5;
constexpr int kCompilation = 6;
constexpr int kInternal = 11;
constexpr int kArchs[] = {50, 52, 60, 61, 70, 72, 75, 80, 86, 87, 89, 90, 100, 120};

std::vector<int> known_archs() {
  std::vector<int> known;
  for (const int arch : kArchs) {
    const bool within = arch >= setting(Setting::kNvrtcLeast) && arch <= setting(Setting::kNvrtcNewest);
    if (within) known.push_back(arch);
  }
  return known;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  return static_cast<bool>(file.flush());
}

/// Runs the compiler; whether it succeeded. What it says goes to the file `said`.
bool run_compiler(std::vector<std::string> words, const std::string& said) {
  words.insert(words.begin(), STAND_IN_CXX);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // What tests preload into ranks is not meant for a compiler.
  std::vector<char*> variables;
  for (char** one = environ; *one != nullptr; ++one) {
    if (std::strncmp(*one, "LD_PRELOAD=", 11) != 0 && std::strncmp(*one, "LD_LIBRARY_PATH=", 16) != 0)
      variables.push_back(*one);
  }
  variables.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int started =
      posix_spawn(&child, STAND_IN_CXX, &actions, nullptr, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  if (started != 0) return false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// A folder for one compilation, which goes with it.
class Folder {
 public:
  Folder() {
    const char* const place = std::getenv("TMPDIR");
    path_ = std::string(place != nullptr && *place != 0 ? place : "/tmp") + "/stand-in-nvrtc-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) die("no folder for a compilation: %s", std::strerror(errno));
  }
  ~Folder() {
    for (const char* const name : {"kernels.cpp", "said", "preprocessed.cpp", "kernels.so"}) {
      unlink(at(name).c_str());
    }
    rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string at(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// A release that NVIDIA has not, and of this compiler alone: what DDL keeps of it must not be taken for
/// another's.
int own_release() {
  static const int number = [] {
    const std::string all = read_file(STAND_IN_SHIM) + STAND_IN_CXX;
    return 100'000 + static_cast<int>(std::hash<std::string>()(all) % 900'000);
  }();
  return number;
}

/// Where what was compiled before is kept: beside this library, in the build tree.
std::string kept_as(const std::string& source) {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&kept_as), &here) == 0) return "";
  const std::string path = here.dli_fname;
  const std::string all = source + read_file(STAND_IN_SHIM) + STAND_IN_CXX;
  char name[40];
  std::snprintf(name, sizeof name, "kernels-%016zx", std::hash<std::string>()(all));
  return path.substr(0, path.rfind('/') + 1) + name;
}

/// The shared object; "" where it does not compile, and `log` then says why.
std::string shared_object(const std::string& source, std::string& log) {
  const std::string kept = kept_as(source);
  if (std::string before = read_file(kept); !before.empty()) return before;
  const Folder folder;
  write_file(folder.at("kernels.cpp"), source);
  const auto fails = [&](const char* what) {
    log = read_file(folder.at("said"));
    if (log.empty()) log = std::string("no ") + what + " by " STAND_IN_CXX;
    return std::string();
  };
  if (!run_compiler({"-std=c++17", "-E", "-P", "-w", "-D__global__=STAND_IN_KERNEL", folder.at("kernels.cpp"),
                     "-o", folder.at("preprocessed.cpp")},
                    folder.at("said"))) {
    return fails("preprocessing");
  }
  std::string all = std::string("#include \"") + STAND_IN_SHIM + "\"\n" + source + "\n";
  const std::string found = read_file(folder.at("preprocessed.cpp"));
  const std::regex kernel("STAND_IN_KERNEL\\s+void\\s+(\\w+)\\s*\\(");
  for (std::sregex_iterator one(found.begin(), found.end(), kernel), end; one != end; ++one) {
    all += "STAND_IN_ENTRY(" + (*one)[1].str() + ")\n";
  }
  write_file(folder.at("kernels.cpp"), all);
  if (!run_compiler({"-std=c++17", "-O1", "-fPIC", "-shared", "-w", "-ffp-contract=off",
                     folder.at("kernels.cpp"), "-o", folder.at("kernels.so")},
                    folder.at("said"))) {
    return fails("compilation");
  }
  std::string made = read_file(folder.at("kernels.so"));
  // Several processes may do this at once.
  const std::string mine = kept + "." + std::to_string(getpid());
  if (write_file(mine, made)) rename(mine.c_str(), kept.c_str());
  return made;
}

}  // namespace
}  // namespace stand_in

namespace ddl::cuda {

using stand_in::setting;
using stand_in::Setting;

namespace {

/// Copies a text as the library does: with its zero.
NvrtcStatus give(NvrtcProgram program, const std::string& text, char* to) {
  if (program == nullptr) return stand_in::kInvalidProgram;
  if (to == nullptr) return stand_in::kInvalidInput;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return kNvrtcSuccess;
}

NvrtcStatus size_of(NvrtcProgram program, std::size_t size, std::size_t* bytes) {
  if (program == nullptr) return stand_in::kInvalidProgram;
  if (bytes == nullptr) return stand_in::kInvalidInput;
  *bytes = size;
  return kNvrtcSuccess;
}

}  // namespace

extern "C" {

const char* stand_in_nvrtc_error_text(NvrtcStatus status) {
  switch (status) {
    case kNvrtcSuccess:
      return "NVRTC_SUCCESS";
    case stand_in::kInvalidInput:
      return "NVRTC_ERROR_INVALID_INPUT";
    case stand_in::kInvalidProgram:
      return "NVRTC_ERROR_INVALID_PROGRAM";
    case stand_in::kInvalidOption:
      return "NVRTC_ERROR_INVALID_OPTION";
    case stand_in::kCompilation:
      return "NVRTC_ERROR_COMPILATION";
    default:
      return "NVRTC_ERROR_INTERNAL_ERROR";
  }
}

NvrtcStatus stand_in_nvrtc_version(int* major, int* minor) {
  if (major == nullptr || minor == nullptr) return stand_in::kInvalidInput;
  *major = 12;
  *minor = stand_in::own_release();
  return kNvrtcSuccess;
}

NvrtcStatus stand_in_nvrtc_arch_count(int* count) {
  if (count == nullptr) return stand_in::kInvalidInput;
  *count = static_cast<int>(stand_in::known_archs().size());
  return kNvrtcSuccess;
}

NvrtcStatus stand_in_nvrtc_archs(int* archs) {
  if (archs == nullptr) return stand_in::kInvalidInput;
  for (const int arch : stand_in::known_archs()) *archs++ = arch;
  return kNvrtcSuccess;
}

NvrtcStatus stand_in_nvrtc_create(NvrtcProgram* program, const char* source, const char* name, int headers,
                                  const char* const*, const char* const*) {
  // There is no folder of headers in this library either.
  if (program == nullptr || source == nullptr || headers != 0) return stand_in::kInvalidInput;
  *program = new _nvrtcProgram;
  (*program)->source = source;
  (*program)->name = name == nullptr ? "default_program" : name;
  stand_in::count(stand_in::Count::kHeldPrograms);
  return kNvrtcSuccess;
}

NvrtcStatus stand_in_nvrtc_destroy(NvrtcProgram* program) {
  if (program == nullptr || *program == nullptr) return stand_in::kInvalidProgram;
  delete *program;
  *program = nullptr;
  stand_in::count_back(stand_in::Count::kHeldPrograms);
  return kNvrtcSuccess;
}

NvrtcStatus stand_in_nvrtc_compile(NvrtcProgram program, int options, const char* const* texts) {
  if (program == nullptr) return stand_in::kInvalidProgram;
  int capability = 52;
  bool exact = false;
  for (int i = 0; i < options; ++i) {
    const std::string option = texts[i];
    const std::string key = "--gpu-architecture=";
    if (option.rfind(key, 0) == 0) {
      const std::string arch = option.substr(key.size());
      exact = arch.rfind("sm_", 0) == 0;
      capability = std::atoi(arch.substr(arch.find('_') + 1).c_str());
      bool known = false;
      for (const int one : stand_in::known_archs()) known = known || one == capability;
      if (known && (exact || arch.rfind("compute_", 0) == 0)) continue;
      program->log = "nvrtc: error: invalid value for --gpu-architecture (-arch)";
      return stand_in::kInvalidOption;
    }
    if (option == "--fmad=false" || option == "--std=c++17") continue;
    program->log = "nvrtc: error: unrecognized option " + option + " found";
    return stand_in::kInvalidOption;
  }
  if (stand_in::comes_due(Setting::kNvrtcFail)) {
    program->log = program->name + "(1): error: the stand-in was told to fail";
    return stand_in::kCompilation;
  }
  const std::string made = stand_in::shared_object(program->source, program->log);
  if (made.empty()) return stand_in::kCompilation;
  stand_in::count(stand_in::Count::kCompilations);
  stand_in::ImageHead head{{}, capability, exact ? 1 : 0, made.size()};
  std::memcpy(head.magic, stand_in::kImageMagic, sizeof head.magic);
  program->exact = exact;
  program->code.assign(reinterpret_cast<const char*>(&head), sizeof head);
  program->code += made;
  return kNvrtcSuccess;
}

NvrtcStatus stand_in_nvrtc_cubin_size(NvrtcProgram program, std::size_t* bytes) {
  const bool there = program != nullptr && program->exact;
  return size_of(program, there ? program->code.size() : 0, bytes);
}

NvrtcStatus stand_in_nvrtc_cubin(NvrtcProgram program, char* cubin) {
  if (program == nullptr) return stand_in::kInvalidProgram;
  if (cubin == nullptr || !program->exact) return stand_in::kInvalidInput;
  std::memcpy(cubin, program->code.data(), program->code.size());
  return kNvrtcSuccess;
}

NvrtcStatus stand_in_nvrtc_ptx_size(NvrtcProgram program, std::size_t* bytes) {
  return size_of(program, program == nullptr ? 0 : program->code.size() + 1, bytes);
}

NvrtcStatus stand_in_nvrtc_ptx(NvrtcProgram program, char* ptx) {
  return give(program, program == nullptr ? "" : program->code, ptx);
}

NvrtcStatus stand_in_nvrtc_log_size(NvrtcProgram program, std::size_t* bytes) {
  return size_of(program, program == nullptr ? 0 : program->log.size() + 1, bytes);
}

NvrtcStatus stand_in_nvrtc_log(NvrtcProgram program, char* log) {
  return give(program, program == nullptr ? "" : program->log, log);
}

}  // extern "C"
}  // namespace ddl::cuda
