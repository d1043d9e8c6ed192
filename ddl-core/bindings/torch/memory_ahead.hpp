// Memory that a collective call on tensors of a GPU needs beside them, taken before a stream waits for the
// call.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace ddl_torch {

// Taking memory of a device, or pinned memory of the host, may wait for all streams: on the thread that makes
// the call it might wait for the call itself. So the thread that issues the call sees to it that torch's
// allocator has enough for `stream`, on which the call is made, and PinnedPool what is staged. A call that
// works on the tensors themselves needs nothing.
void TakeAhead(c10d::OpType kind, const std::vector<at::Tensor>& inputs,
               const std::vector<std::vector<at::Tensor>>& outputs, const c10::Stream& stream);

}  // namespace ddl_torch
