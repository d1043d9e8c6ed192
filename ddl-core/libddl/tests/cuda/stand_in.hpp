#pragma once

#include <cstddef>
#include <cstdint>

/**
 * What tests may ask of the stand-in libraries beyond CUDA's and NCCL's own functions: linked, through dlsym,
 * or from Python through ctypes. All of them are in libcuda.so.1, but for those named stand_in_nccl_*.
 * README.md has the names of settings and counts.
 */
extern "C" {

/// Reads and writes memory of a device, from the host, at once and outside all streams. 0, or a CUresult.
int stand_in_read(std::uint64_t address, void* host, std::size_t bytes);
int stand_in_write(std::uint64_t address, const void* host, std::size_t bytes);

/// One of the counts; all ones where there is no such count.
std::uint64_t stand_in_count(const char* name);
/// What the process holds that it has to give back: memory, registrations, streams, events, opened handles
/// and communicators. `text`, of `capacity` bytes, gets one line for each kind.
std::uint64_t stand_in_held(char* text, std::size_t capacity);
/// Changes a setting from now on; 0, or 1 where there is no such setting or it cannot have the value.
int stand_in_set(const char* name, long long value);

/// The stream (null: the legacy default stream of the current context) gets stuck when it comes to what is
/// queued from now on, or comes loose again.
int stand_in_stick(void* stream, int stuck);
/// cuStreamIsCapturing says `status` of the stream from now on.
int stand_in_capture(void* stream, int status);
/// The current context fails as after an error in a kernel: all later calls return `status`.
int stand_in_break_context(int status);
/// Waits until everything queued on all streams is done: 0, or 600 (not ready) when `seconds` have passed.
int stand_in_synchronize(double seconds);

/// The communicator reports `status` as its asynchronous error from now on; its operations never end.
int stand_in_nccl_break(void* communicator, int status);
}
