// The Python module ddl.torch._backend.
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <string>
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
  module.def(
      "named_maximum",
      [](const c10::intrusive_ptr<c10d::Backend>& backend, const at::Tensor& tensor,
         const std::string& name) -> c10::intrusive_ptr<c10d::Work> {
        auto* own = dynamic_cast<ddl_torch::DdlBackend*>(backend.get());
        TORCH_CHECK_TYPE(own != nullptr, "named_maximum takes a process group of DDL");
        return own->NamedMaximum(tensor, name);
      },
      pybind11::arg("backend"), pybind11::arg("tensor"), pybind11::arg("name"),
      pybind11::call_guard<pybind11::gil_scoped_release>(),
      "Starts an all-reduce (MAX) in place; ranks compare its name, and errors show it.");
}
