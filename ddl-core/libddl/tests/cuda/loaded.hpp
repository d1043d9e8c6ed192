#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "cuda/driver_functions.hpp"
#include "cuda/nccl_functions.hpp"
#include "cuda/nvrtc_functions.hpp"
#include "stand_in.hpp"

/// The stand-ins as DDL sees them: opened by name, with every function of its lists.
namespace loaded {

inline void* open(const char* name) {
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) ADD_FAILURE() << dlerror();
  return library;
}

template <class Function>
void find(void* library, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  EXPECT_NE(function, nullptr) << symbol;
}

struct Driver {
  using Status = ddl::cuda::Status;
  using Context = ddl::cuda::Context;
  using DeviceHandle = ddl::cuda::DeviceHandle;
  using DeviceAddress = ddl::cuda::DeviceAddress;
  using Event = ddl::cuda::Event;
  using Function = ddl::cuda::Function;
  using Module = ddl::cuda::Module;
  using IpcHandle = ddl::cuda::IpcHandle;
  using Stream = ddl::cuda::Stream;
  using Uuid = ddl::cuda::Uuid;

  Driver() {
    void* const library = open("libcuda.so.1");
#define F(member, symbol, parameters) find(library, symbol, member);
    DDL_CUDA_DRIVER_FUNCTIONS(F)
#undef F
    find(library, "stand_in_read", read);
    find(library, "stand_in_write", write);
    find(library, "stand_in_count", counted);
    find(library, "stand_in_held", held);
    find(library, "stand_in_set", set);
    find(library, "stand_in_stick", stick);
    find(library, "stand_in_capture", capture);
    find(library, "stand_in_break_context", break_context);
    find(library, "stand_in_synchronize", synchronize);
  }

#define F(member, symbol, parameters) Status(*member) parameters = nullptr;
  DDL_CUDA_DRIVER_FUNCTIONS(F)
#undef F
  decltype(&stand_in_read) read = nullptr;
  decltype(&stand_in_write) write = nullptr;
  decltype(&stand_in_count) counted = nullptr;
  decltype(&stand_in_held) held = nullptr;
  decltype(&stand_in_set) set = nullptr;
  decltype(&stand_in_stick) stick = nullptr;
  decltype(&stand_in_capture) capture = nullptr;
  decltype(&stand_in_break_context) break_context = nullptr;
  decltype(&stand_in_synchronize) synchronize = nullptr;

  /// What is not given back, a line for each kind.
  std::string what_is_held() const {
    char text[1024];
    held(text, sizeof text);
    return text;
  }
};

struct Nvrtc {
  using NvrtcProgram = ddl::cuda::NvrtcProgram;

  Nvrtc() {
    void* const library = open("libnvrtc.so.12");
#define F(member, symbol, parameters) find(library, symbol, member);
    DDL_NVRTC_FUNCTIONS(F)
#undef F
  }

#define F(member, symbol, parameters) ddl::cuda::NvrtcStatus(*member) parameters = nullptr;
  DDL_NVRTC_FUNCTIONS(F)
#undef F
};

struct Nccl {
  using DeviceAddress = ddl::cuda::DeviceAddress;
  using NcclComm = ddl::cuda::NcclComm;
  using NcclConfig = ddl::cuda::NcclConfig;
  using NcclId = ddl::cuda::NcclId;
  using NcclOp = ddl::cuda::NcclOp;
  using NcclStatus = ddl::cuda::NcclStatus;
  using NcclType = ddl::cuda::NcclType;
  using Stream = ddl::cuda::Stream;

  Nccl() {
    void* const library = open("libnccl.so.2");
#define F(member, symbol, parameters) find(library, symbol, member);
    DDL_NCCL_FUNCTIONS(F)
#undef F
    find(library, "ncclGetErrorString", status_text);
    find(library, "ncclGetLastError", last_error);
    find(library, "stand_in_nccl_break", break_communicator);
  }

#define F(member, symbol, parameters) NcclStatus(*member) parameters = nullptr;
  DDL_NCCL_FUNCTIONS(F)
#undef F
  const char* (*status_text)(NcclStatus) = nullptr;
  const char* (*last_error)(NcclComm) = nullptr;
  decltype(&stand_in_nccl_break) break_communicator = nullptr;
};

}  // namespace loaded
