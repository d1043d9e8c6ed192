// The Python module ddl.torch._backend.
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "backend.hpp"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  // Knows the base class.
  pybind11::module_::import("torch.distributed");
  module.attr("TORCH_VERSION") = DDL_TORCH_VERSION;
  module.def(
      "create",
      [](int rank, int size, const std::vector<int>& ranks,
         double timeout_seconds) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<ddl_torch::DdlBackend>(
            rank, size, ranks, std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000)));
      },
      pybind11::arg("rank"), pybind11::arg("size"), pybind11::arg("ranks"), pybind11::arg("timeout_seconds"),
      pybind11::call_guard<pybind11::gil_scoped_release>(),
      "Makes a process group of these ranks of DDL; none: all. Collective over them.");
}
