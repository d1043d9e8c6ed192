// DDL_OPTIONS and DDL_EMULATE_HOSTS: any text is understood or refused with the remedy.
#include <cmath>

#include "engine/options.hpp"
#include "fuzz_target.hpp"
#include "support/error.hpp"
#include "topology/emulation.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string whole(reinterpret_cast<const char*>(data), size);
  // Variables of the environment end at the first zero byte.
  const std::string text = whole.substr(0, whole.find('\0'));
  try {
    const ddl::Options options = ddl::parse_options(text);
    for (const double seconds :
         {options.limits.timeout_s, options.limits.late_s, options.limits.patience_s}) {
      require(std::isfinite(seconds) && seconds > 0);
    }
    require(options.text == text);
    for (const int dim : options.dims) require(dim > 0);
    ddl::check_dims(options, 8);
  } catch (const ddl::Error& error) {
    require(error.code() == DDL_ERR_OPTION);
    require(std::string(error.what()).find("DDL_OPTIONS") != std::string::npos);
  }
  try {
    int sum = 0;
    for (const ddl::EmulatedHost& host : ddl::parse_emulation(text, 5)) sum += host.ranks;
    require(sum == 5);
  } catch (const ddl::Error& error) {
    require(error.code() == DDL_ERR_OPTION);
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {"-mode p:2x2x2x1 -timeout 60", "--mode=r -dump_iter 10 -dev_sync 2 -rebind_iter 7 -dbg_level 1\n",
          "-mode c:8", "3,2", "1,1/1//1/1"};
}

std::vector<std::string> fuzz_words() {
  return {"-mode",
          "-timeout",
          "-dump_iter",
          "-dev_sync",
          "-rebind_iter",
          "-dbg_level",
          "-deterministic",
          "-topology",
          "placement",
          "=",
          " ",
          "p:",
          "x",
          "2x2",
          "16777216",
          "99999999999",
          "-1",
          "1e9",
          "nan",
          "inf",
          "0x10",
          "-",
          "--",
          "\t",
          "/",
          "//",
          ",",
          "5",
          "\xff",
          std::string(1, '\0')};
}
