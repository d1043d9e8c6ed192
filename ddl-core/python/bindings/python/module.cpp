// ddl._core: the C interface for Python. Arrays arrive as addresses and counts; ddl/_arrays.py makes sure
// that they are what they claim to be. Errors become ddl.DDLError.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "ddl.h"

namespace nb = nanobind;

namespace {

void check(int code) {
  if (code == DDL_SUCCESS) return;
  const std::string text = ddl_last_error();
  const nb::object error = nb::module_::import_("ddl._errors").attr("DDLError")(text, code);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

/// Without the interpreter lock, so that other threads of the program go on.
template <class Call>
void run(Call call) {
  int code = DDL_SUCCESS;
  {
    const nb::gil_scoped_release release;
    code = call();
  }
  // The text is this thread's, and still there.
  check(code);
}

template <int (*Function)(int*)>
int get() {
  int value = 0;
  run([&] { return Function(&value); });
  return value;
}

const char* text_of(const std::optional<std::string>& text) { return text ? text->c_str() : nullptr; }

std::vector<void*> pointers(const std::vector<std::uintptr_t>& addresses) {
  std::vector<void*> out;
  for (const std::uintptr_t address : addresses) out.push_back(reinterpret_cast<void*>(address));
  return out;
}

template <class Integer>
void* pointer(Integer address) {
  return reinterpret_cast<void*>(address);
}

/// The text of a function that fills a buffer as long as it says it needs.
std::string text_of(int (*fill)(char*, std::size_t, std::size_t*)) {
  std::string text;
  std::size_t needed = 0;
  while (true) {
    run([&] { return fill(nullptr, 0, &needed); });
    // Counters may get longer between two calls.
    text.resize(needed + 64);
    if (fill(text.data(), text.size(), &needed) == DDL_SUCCESS) break;
  }
  text.resize(needed - 1);
  return text;
}

void require_equal_length(std::size_t addresses, std::size_t counts) {
  if (addresses != counts) throw nb::value_error("addresses and counts differ in length");
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The C interface of DDL. Use the package ddl instead.";
  m.attr("VERSION") = ddl_version();

  m.def(
      "init",
      [](const std::optional<std::string>& options) { run([&] { return ddl_init(text_of(options)); }); },
      nb::arg("options").none());
  m.def(
      "init_comm",
      [](const std::optional<std::string>& options, int comm, const std::string& library) {
        run([&] { return ddl_init_comm_f(text_of(options), comm, library.c_str()); });
      },
      nb::arg("options").none(), nb::arg("comm"), nb::arg("library"));
  m.def("finalize", [] { run(ddl_finalize); });
  m.def(
      "abort", [](const std::string& reason) { run([&] { return ddl_abort(reason.c_str()); }); },
      nb::arg("reason"));
  m.def("busy", [] { return get<ddl_busy>() != 0; });
  m.def("is_initialized", [] { return get<ddl_initialized>() != 0; });
  m.def("rank", get<ddl_rank>);
  m.def("size", get<ddl_size>);
  m.def("local_rank", get<ddl_local_rank>);
  m.def("local_size", get<ddl_local_size>);
  m.def("num_hosts", get<ddl_num_hosts>);
  m.def("host_index", get<ddl_host_index>);
  m.def("barrier", [] { run(ddl_barrier); });

  m.def(
      "allreduce_n",
      [](const std::vector<std::uintptr_t>& addresses, const std::vector<std::size_t>& counts, int type,
         int op, const std::optional<std::string>& name) {
        require_equal_length(addresses.size(), counts.size());
        const std::vector<void*> buffers = pointers(addresses);
        run([&] {
          return ddl_allreduce_n(buffers.data(), counts.data(), counts.size(), static_cast<DDL_Type>(type),
                                 static_cast<DDL_Op>(op), text_of(name));
        });
      },
      nb::arg("addresses"), nb::arg("counts"), nb::arg("type"), nb::arg("op"), nb::arg("name").none());
  m.def(
      "broadcast_n",
      [](const std::vector<std::uintptr_t>& addresses, const std::vector<std::size_t>& counts, int type,
         int root, const std::optional<std::string>& name) {
        require_equal_length(addresses.size(), counts.size());
        const std::vector<void*> buffers = pointers(addresses);
        run([&] {
          return ddl_broadcast_n(buffers.data(), counts.data(), counts.size(), static_cast<DDL_Type>(type),
                                 root, text_of(name));
        });
      },
      nb::arg("addresses"), nb::arg("counts"), nb::arg("type"), nb::arg("root"), nb::arg("name").none());
  m.def(
      "allreduce_start",
      [](const std::vector<std::uintptr_t>& addresses, const std::vector<std::size_t>& counts, int type,
         int op, const std::optional<std::string>& name, int priority) {
        require_equal_length(addresses.size(), counts.size());
        const std::vector<void*> buffers = pointers(addresses);
        DDL_Handle handle = 0;
        run([&] {
          return ddl_allreduce_start(buffers.data(), counts.data(), counts.size(),
                                     static_cast<DDL_Type>(type), static_cast<DDL_Op>(op), text_of(name),
                                     priority, &handle);
        });
        return handle;
      },
      nb::arg("addresses"), nb::arg("counts"), nb::arg("type"), nb::arg("op"), nb::arg("name").none(),
      nb::arg("priority"));
  m.def(
      "test",
      [](DDL_Handle handle) {
        int done = 0;
        run([&] { return ddl_test(handle, &done); });
        return done != 0;
      },
      nb::arg("handle"));
  m.def(
      "wait", [](DDL_Handle handle) { run([&] { return ddl_wait(handle); }); }, nb::arg("handle"));

  m.def(
      "reduce",
      [](std::uintptr_t address, std::size_t count, int type, int op, int root,
         const std::optional<std::string>& name) {
        run([&] {
          return ddl_reduce(pointer(address), count, static_cast<DDL_Type>(type), static_cast<DDL_Op>(op),
                            root, text_of(name));
        });
      },
      nb::arg("address"), nb::arg("count"), nb::arg("type"), nb::arg("op"), nb::arg("root"),
      nb::arg("name").none());
  m.def(
      "reduce_scatter",
      [](std::uintptr_t address, std::uintptr_t result, std::size_t count, int type, int op,
         const std::optional<std::string>& name) {
        run([&] {
          return ddl_reduce_scatter(pointer(address), pointer(result), count, static_cast<DDL_Type>(type),
                                    static_cast<DDL_Op>(op), text_of(name));
        });
      },
      nb::arg("address"), nb::arg("result"), nb::arg("count"), nb::arg("type"), nb::arg("op"),
      nb::arg("name").none());
  m.def(
      "all_gather",
      [](std::uintptr_t address, std::uintptr_t result, std::size_t count, int type,
         const std::optional<std::string>& name) {
        run([&] {
          return ddl_all_gather(pointer(address), pointer(result), count, static_cast<DDL_Type>(type),
                                text_of(name));
        });
      },
      nb::arg("address"), nb::arg("result"), nb::arg("count"), nb::arg("type"), nb::arg("name").none());
  m.def(
      "all_to_all",
      [](std::uintptr_t address, std::uintptr_t result, std::size_t count, int type,
         const std::optional<std::string>& name) {
        run([&] {
          return ddl_all_to_all(pointer(address), pointer(result), count, static_cast<DDL_Type>(type),
                                text_of(name));
        });
      },
      nb::arg("address"), nb::arg("result"), nb::arg("count"), nb::arg("type"), nb::arg("name").none());

  m.def(
      "allreduce_plain",
      [](std::uintptr_t address, std::size_t count, int type, int op) {
        run([&] {
          return ddl_allreduce_plain(reinterpret_cast<void*>(address), count, static_cast<DDL_Type>(type),
                                     static_cast<DDL_Op>(op));
        });
      },
      nb::arg("address"), nb::arg("count"), nb::arg("type"), nb::arg("op"));

  m.def(
      "malloc",
      [](std::size_t align, std::size_t bytes) {
        void* memory = nullptr;
        if (ddl_malloc(&memory, align, bytes) == 0) {
          check(memory == nullptr && (align & (align - 1)) != 0 ? DDL_ERR_ARGUMENT : DDL_ERR_MEMORY);
        }
        return reinterpret_cast<std::uintptr_t>(memory);
      },
      nb::arg("align"), nb::arg("bytes"));
  m.def(
      "free", [](std::uintptr_t address) { check(ddl_free(reinterpret_cast<void*>(address))); },
      nb::arg("address"));

  m.def("describe", [] { return text_of(ddl_describe); });
  m.def("stats", [] { return text_of(ddl_stats); });
  m.def(
      "flight_record", [](const std::string& path) { check(ddl_flight_record(path.c_str())); },
      nb::arg("path"));
  m.def(
      "predict",
      [](const std::string& cluster, const std::optional<std::string>& steps, std::size_t bytes,
         const std::vector<std::size_t>& ranks) {
        // Mostly long enough at once: asking for the length first would do all the work twice.
        std::string text(std::size_t{64} << 10, 0);
        std::size_t needed = 0;
        run([&] {
          const auto fill = [&] {
            return ddl_predict(cluster.c_str(), text_of(steps), bytes, ranks.data(), ranks.size(),
                               text.data(), text.size(), &needed);
          };
          const int code = fill();
          if (needed <= text.size()) return code;
          text.resize(needed);
          return fill();
        });
        text.resize(needed - 1);
        return text;
      },
      nb::arg("cluster"), nb::arg("steps").none(), nb::arg("bytes"), nb::arg("ranks"));
}
