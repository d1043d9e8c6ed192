// Horovod's kernels without nvcc, which PyPI does not have for CUDA 12: the file cuda_kernels.cu of Horovod
// is replaced by kernels.cu, which NVRTC compiles for the GPU at hand when the first one is needed.

#include "cuda_kernels.h"

#include <nvrtc.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace horovod {
namespace common {
namespace {

// Conversions of halves by instructions: the header that has them is not there where this runs.
const char kHalves[] =
    "__device__ inline float half_value(unsigned short bits) {\n"
    "  float value;\n"
    "  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(value) : \"h\"(bits));\n"
    "  return value;\n"
    "}\n"
    "__device__ inline unsigned short half_bits(float value) {\n"
    "  unsigned short bits;\n"
    "  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(value));\n"
    "  return bits;\n"
    "}\n";

const char kKernels[] =
#include "kernels.inc"
    ;

// As kernels.cu has it.
constexpr unsigned kBlocksPerCopy = 8;
constexpr unsigned kThreadsOfCopy = 1024;
constexpr unsigned kThreadsOfScale = 512;
constexpr int64_t kMostBlocksOfScale = 65535;

void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

void Check(nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + nvrtcGetErrorString(result));
}

std::vector<char> Compile(int architecture) {
  const std::string text = std::string(kHalves) + kKernels;
  const std::string target = "--gpu-architecture=sm_" + std::to_string(architecture);
  const char* options[] = {target.c_str(), "--std=c++17"};
  nvrtcProgram program;
  Check(nvrtcCreateProgram(&program, text.c_str(), "horovod_kernels.cu", 0, nullptr, nullptr),
        "nvrtcCreateProgram");
  const nvrtcResult result = nvrtcCompileProgram(program, 2, options);
  if (result != NVRTC_SUCCESS) {
    size_t size = 0;
    nvrtcGetProgramLogSize(program, &size);
    std::string log(size, '\0');
    nvrtcGetProgramLog(program, &log[0]);
    nvrtcDestroyProgram(&program);
    throw std::runtime_error("Horovod's kernels for " + target + ": " + nvrtcGetErrorString(result) + "\n" +
                             log);
  }
  size_t size = 0;
  Check(nvrtcGetCUBINSize(program, &size), "nvrtcGetCUBINSize");
  std::vector<char> binary(size);
  Check(nvrtcGetCUBIN(program, binary.data()), "nvrtcGetCUBIN");
  nvrtcDestroyProgram(&program);
  return binary;
}

// The kernel of this name for the current device. What is loaded stays to the end of the process.
const void* Kernel(const std::string& name) {
  static std::mutex mutex;
  static std::map<int, cudaLibrary_t> libraries;
  static std::map<std::pair<int, std::string>, cudaKernel_t> kernels;

  int device = 0, major = 0, minor = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  Check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  Check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  const int architecture = 10 * major + minor;

  std::lock_guard<std::mutex> guard(mutex);
  auto library = libraries.find(architecture);
  if (library == libraries.end()) {
    const std::vector<char> binary = Compile(architecture);
    cudaLibrary_t loaded;
    Check(cudaLibraryLoadData(&loaded, binary.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
          "cudaLibraryLoadData");
    library = libraries.emplace(architecture, loaded).first;
  }
  cudaKernel_t& kernel = kernels[{architecture, name}];
  if (kernel == nullptr) Check(cudaLibraryGetKernel(&kernel, library->second, name.c_str()), name.c_str());
  return reinterpret_cast<const void*>(kernel);
}

void Launch(const std::string& name, int64_t blocks, unsigned threads, void** arguments,
            cudaStream_t stream) {
  if (blocks <= 0) return;
  Check(cudaLaunchKernel(Kernel(name), dim3(static_cast<unsigned>(blocks)), dim3(threads), arguments, 0,
                         stream),
        name.c_str());
}

// The type's name in kernels.cu; `single` is set where the factor is a float there.
std::string TypeName(DataType type, bool& single, const char* caller) {
  single = type == HOROVOD_FLOAT16 || type == HOROVOD_FLOAT32;
  switch (type) {
    case HOROVOD_UINT8:
      return "uint8";
    case HOROVOD_INT8:
      return "int8";
    case HOROVOD_INT32:
      return "int32";
    case HOROVOD_INT64:
      return "int64";
    case HOROVOD_FLOAT16:
      return "float16";
    case HOROVOD_FLOAT32:
      return "float32";
    case HOROVOD_FLOAT64:
      return "float64";
    default:
      throw std::logic_error("Type " + DataType_Name(type) + " not supported by " + caller + ".");
  }
}

}  // namespace

void BatchedD2DMemcpyCudaImpl(BatchedD2DParams& params, int num_copies, cudaStream_t stream) {
  void* arguments[] = {&params};
  Launch("copy_tensors", static_cast<int64_t>(num_copies) * kBlocksPerCopy, kThreadsOfCopy, arguments,
         stream);
}

void ScaleBufferCudaImpl(const void* fused_input_data, void* buffer_data, const int64_t num_elements,
                         double scale_factor, DataType dtype, cudaStream_t stream) {
  bool single = false;
  const std::string name = "scale_" + TypeName(dtype, single, "ScaleBufferCudaImpl");
  float factor = static_cast<float>(scale_factor);
  int64_t elements = num_elements;
  void* arguments[] = {&fused_input_data, &buffer_data, &elements,
                       single ? static_cast<void*>(&factor) : static_cast<void*>(&scale_factor)};
  const int64_t blocks = (elements + kThreadsOfScale - 1) / kThreadsOfScale;
  Launch(name, blocks < kMostBlocksOfScale ? blocks : kMostBlocksOfScale, kThreadsOfScale, arguments, stream);
}

void BatchedScaledD2DMemcpyCudaImpl(BatchedD2DParams& params, int num_copies, double scale_factor,
                                    DataType dtype, cudaStream_t stream) {
  bool single = false;
  const std::string name = "copy_scaled_" + TypeName(dtype, single, "BatchedScaledD2DMemcpyCudaImpl");
  float factor = static_cast<float>(scale_factor);
  void* arguments[] = {&params, single ? static_cast<void*>(&factor) : static_cast<void*>(&scale_factor)};
  Launch(name, static_cast<int64_t>(num_copies) * kBlocksPerCopy, kThreadsOfCopy, arguments, stream);
}

}  // namespace common
}  // namespace horovod
