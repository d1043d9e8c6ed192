#include "mpi_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "status.hpp"
#include "tensorflow/core/framework/numeric_types.h"

namespace ddl_tensorflow {
namespace {

size_t ElementBytes(DDL_Type type) {
  switch (type) {
    case DDL_TYPE_HALF:
    case DDL_TYPE_BFLOAT16:
      return 2;
    case DDL_TYPE_FLOAT:
    case DDL_TYPE_INT32:
      return 4;
    case DDL_TYPE_DOUBLE:
    case DDL_TYPE_INT64:
      return 8;
  }
  return 0;
}

struct Difference {
  size_t outside = 0;  // elements beyond the tolerance
  size_t first = 0;    // the first of them
  double largest = 0;  // of all finite ones
};

template <typename T>
Difference Differences(const void* ddl, const void* mpi, size_t count, double tolerance) {
  const T* const a = static_cast<const T*>(ddl);
  const T* const b = static_cast<const T*>(mpi);
  Difference found;
  for (size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double difference = std::abs(x - y);
    if (std::isfinite(difference)) found.largest = std::max(found.largest, difference);
    if (difference <= tolerance * std::max(1.0, std::abs(y))) continue;
    if (found.outside++ == 0) found.first = i;
  }
  return found;
}

template <typename T>
double At(const void* data, size_t i) {
  return static_cast<double>(static_cast<const T*>(data)[i]);
}

// Calls `visit` with a value of the C++ type that stands for `type`.
template <typename Visit>
auto Dispatch(DDL_Type type, const Visit& visit) {
  switch (type) {
    case DDL_TYPE_HALF:
      return visit(Eigen::half());
    case DDL_TYPE_BFLOAT16:
      return visit(Eigen::bfloat16());
    case DDL_TYPE_DOUBLE:
      return visit(double());
    case DDL_TYPE_INT32:
      return visit(int32_t());
    case DDL_TYPE_INT64:
      return visit(int64_t());
    case DDL_TYPE_FLOAT:
      break;
  }
  return visit(float());
}

bool DebugWanted() {
  const char* const value = std::getenv("DDL_DEBUG");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

}  // namespace

MpiCheck::MpiCheck(const TensorGroup& inputs, DDL_Type type) : type_(type), copies_(inputs.buffers.size()) {
  for (size_t i = 0; i < copies_.size(); ++i) {
    const char* const data = static_cast<const char*>(inputs.buffers[i]);
    const size_t bytes = inputs.counts[i] * ElementBytes(type);
    if (bytes != 0) copies_[i].assign(data, data + bytes);
  }
}

absl::Status MpiCheck::Compare(const TensorGroup& results, DDL_Op op, float tolerance,
                               const std::string& call_name) {
  int rank = 0;
  if (absl::Status status = ToStatus(ddl_rank(&rank)); !status.ok()) return status;
  for (size_t i = 0; i < copies_.size(); ++i) {
    void* const mpi = copies_[i].data();
    const void* const ddl = results.buffers[i];
    const size_t count = results.counts[i];
    if (absl::Status status = ToStatus(ddl_allreduce_plain(mpi, count, type_, op)); !status.ok()) {
      return status;
    }
    Dispatch(type_, [&](auto element) {
      using T = decltype(element);
      const Difference found = Differences<T>(ddl, mpi, count, tolerance);
      if (found.outside != 0) {
        std::fprintf(stderr,
                     "[WARN DDL-1-20] check of %s: tensor %zu of %zu, %zu of %zu elements differ from "
                     "MPI_Allreduce by more than %g on rank %d; the first, element %zu: DDL %.9g, MPI %.9g\n",
                     call_name.c_str(), i + 1, copies_.size(), found.outside, count,
                     static_cast<double>(tolerance), rank, found.first, At<T>(ddl, found.first),
                     At<T>(mpi, found.first));
      } else if (DebugWanted()) {
        std::fprintf(stderr,
                     "[INFO DDL-1-21] check of %s: tensor %zu of %zu, %zu elements agree with MPI_Allreduce "
                     "within %g on rank %d; largest difference %.3g\n",
                     call_name.c_str(), i + 1, copies_.size(), count, static_cast<double>(tolerance), rank,
                     found.largest);
      }
    });
  }
  return absl::OkStatus();
}

}  // namespace ddl_tensorflow
