// Cluster descriptions and step times: any text is a prediction or an error that says where and what to do.
#include <cmath>
#include <nlohmann/json.hpp>

#include "fuzz_target.hpp"
#include "simulate/described_cluster.hpp"
#include "simulate/prediction.hpp"
#include "support/error.hpp"

namespace {

constexpr const char* kCluster =
    R"({"version": 1, "device": {"reduce": "1 TB/s"}, "tiers": [{"name": "host", "members": 4, "bandwidth": 1e9,
        "latency": 0}, {"name": "all", "members": 4, "bandwidth": 1e9, "latency": 0}]})";

void try_to_predict(const std::string& cluster, const std::string& steps) {
  try {
    const auto result = nlohmann::json::parse(ddl::predict_json(cluster, steps, 1 << 20, {}));
    for (const auto& row : result["predictions"]) {
      const double seconds = row["allreduce_s"].get<double>();
      require(std::isfinite(seconds) && seconds >= 0);
      require(row["ranks"] == 1 || seconds > 0);
    }
  } catch (const ddl::Error& error) {
    const std::string what = error.what();
    require(error.code() == DDL_ERR_ARGUMENT && what.find("; in ") != std::string::npos);
    require(what.size() < 2000);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_to_predict(text, "");
  if (!text.empty()) try_to_predict(kCluster, text);
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {kCluster,
          R"({"version": 1, "name": "n", "step": {"compute": "1 s", "fixed": 0, "bytes": "1 MB"}, "tiers": [
              {"name": "host", "members": [3, 1], "bandwidth": "1 GB/s", "latency": "1 us", "shared_by": "memory"},
              {"name": "all", "members": 2, "bandwidth": "1 Gbit/s", "latency": "1 ms", "efficiency": 0.5}]})",
          R"({"version": 1, "bytes": "1 MB", "steps": [{"ranks": 1, "time": "1 s"}, {"ranks": 4, "time": 2},
              {"ranks": 16, "time": 3, "fit": true}]})"};
}

std::vector<std::string> fuzz_words() {
  return {"\"members\": ",
          "\"bandwidth\": ",
          "\"latency\": ",
          "\"shared_by\": ",
          "\"rank\"",
          "\"host\"",
          "\"pair\"",
          "\"tier\"",
          "\"memory\"",
          "\"efficiency\": ",
          "\"overlap\": ",
          "\"overheads\": {",
          "\"device\": {",
          "\"step\": {",
          "\"steps\": [",
          "\"ranks\": ",
          "\"time\": ",
          "\"fit\": ",
          "null",
          "true",
          "-1",
          "0",
          "1e308",
          "1e999",
          "100000",
          "18446744073709551616",
          "{",
          "}",
          "[",
          "]",
          ",",
          ":",
          "\"",
          "\\u0000",
          "\xff",
          "\"1 us\"",
          "\"1 TB/s\""};
}
