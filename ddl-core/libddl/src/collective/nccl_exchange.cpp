#include "collective/nccl_exchange.hpp"

#include <algorithm>

#include "support/error.hpp"

namespace ddl {

DeviceScratch::DeviceScratch(cuda::Device& device, std::size_t bytes) : device_(device) {
  device.driver().check(device.driver().device_allocate(&address_, bytes),
                        "taking memory of the device for chunks");
}

DeviceScratch::~DeviceScratch() {
  try {
    const cuda::Device::Current current(device_);
    device_.driver().device_free(address_);
  } catch (const Error&) {
    // The device has failed, and its memory is gone with it.
  }
}

void NcclExchange::start(const ReductionWork& work) {
  work_ = &work;
  check_room(bytes(work.elements()), kDeviceChunkBytes);
  check_room(bytes(own().size()), work.call->chunking.slot_bytes);
  stage_ = Stage::kReduce;
  mark_ = {};
  if (work.number == context_.chunks_done) host().position = 0;
}

cuda::CudaExecutor& NcclExchange::executor() const {
  return static_cast<cuda::CudaExecutor&>(work_->call->input.executor());
}

char* NcclExchange::on_device(std::size_t element) const {
  return host().scratch->at(work_->slot * kDeviceChunkBytes + bytes(element));
}

char* NcclExchange::staged(std::size_t element) const {
  return context_.segment.stage(context_.self, work_->slot, work_->call->chunking.slot_bytes) +
         bytes(element - own().begin);
}

bool NcclExchange::equal_parts() const {
  const std::size_t each = local().front().size();
  for (std::size_t i = 0; i < local().size(); ++i) {
    if (local()[i].size() != each || local()[i].begin != i * each) return false;
  }
  return true;
}

char* NcclExchange::piece_of(const BufferList& buffers, std::size_t from) const {
  char* found = nullptr;
  std::size_t pieces = 0;
  buffers.for_each_piece({from, from + work_->elements()}, [&](char* piece, std::size_t, std::size_t) {
    found = piece;
    ++pieces;
  });
  return pieces == 1 ? found : nullptr;
}

std::size_t NcclExchange::reduce_position() const {
  const std::size_t chunk = work_->number - context_.chunks_done;
  const std::size_t slots = work_->call->chunking.slots;
  return chunk < slots ? chunk : slots + 2 * (chunk - slots) + 1;
}

std::size_t NcclExchange::gather_position() const {
  const std::size_t chunk = work_->number - context_.chunks_done;
  const std::size_t slots = work_->call->chunking.slots;
  const std::size_t chunks = work_->call->chunking.chunks;
  return chunk + slots < chunks ? slots + 2 * chunk : chunks + chunk;
}

Progress NcclExchange::post() {
  // The stage may have been another call's, which all ranks of the group read.
  return context_.gathered_by_all(work_->reusable) ? Progress::kDone : Progress::kWaiting;
}

void NcclExchange::put_reduction() {
  const BufferList& input = work_->call->input;
  const std::size_t from = work_->spec.from.begin;
  cuda::CudaExecutor& device = executor();
  char* chunk = piece_of(input, from);
  if (chunk == nullptr) {
    input.for_each_piece(work_->spec.from, [&](char* piece, std::size_t count, std::size_t offset) {
      device.post(on_device(offset), piece, bytes(count), CopyDirection::kWithin);
    });
    chunk = on_device(0);
  }
  if (host().ranks == nullptr) {
    // Nothing to reduce with: the chunk itself is staged.
    if (chunk != on_device(0))
      device.post(on_device(0), chunk, bytes(work_->elements()), CopyDirection::kWithin);
    return;
  }
  cuda::NcclRanks& ranks = *host().ranks;
  const cuda::Nccl& nccl = ranks.nccl();
  const cuda::NcclType type = cuda::nccl_type(work_->call->type);
  // An average that is divided in the tiers is a sum here.
  const DDL_Op asked = work_->call->op;
  const cuda::NcclOp op = cuda::nccl_op(asked == DDL_OP_AVG && !divides() ? DDL_OP_SUM : asked);
  ranks.put("a reduce-scatter", [&] {
    const cuda::Stream stream = device.collective();
    if (equal_parts()) {
      nccl.check(
          nccl.reduce_scatter(chunk, on_device(own().begin), own().size(), type, op, ranks.comm(), stream),
          ranks.comm(), "a reduce-scatter");
      return;
    }
    for (std::size_t i = 0; i < local().size(); ++i) {
      if (local()[i].empty()) continue;
      nccl.check(nccl.reduce(chunk + bytes(local()[i].begin), on_device(local()[i].begin), local()[i].size(),
                             type, op, static_cast<int>(i), ranks.comm(), stream),
                 ranks.comm(), "a reduce");
    }
  });
}

void NcclExchange::divide() {
  // NCCL has divided by this host's ranks, lest its sum overflow: their share of all ranks' average.
  sources_.assign(local().size(), staged(own().begin));
  work_->call->kernel(staged(own().begin), sources_.data(), static_cast<int>(sources_.size()), own().size(),
                      work_->divisor_of(0));
}

Progress NcclExchange::reduce(bool agreed) {
  cuda::CudaExecutor& device = executor();
  switch (stage_) {
    case Stage::kReduce:
      if (!agreed || host().position != reduce_position()) return Progress::kWaiting;
      if (host().ranks != nullptr && !host().ranks->idle()) return Progress::kWaiting;
      put_reduction();
      given_ = DeviceSpans::Clock::now();
      ++host().position;
      stage_ = Stage::kReducing;
      return Progress::kMoved;
    case Stage::kReducing:
      if (host().ranks != nullptr && !host().ranks->idle()) return Progress::kWaiting;
      device.order(device.collective(), device.to_host());
      device.post(staged(own().begin), on_device(own().begin), bytes(own().size()), CopyDirection::kToHost);
      device.record(mark_, device.to_host());
      stage_ = Stage::kStaging;
      return Progress::kMoved;
    default:
      if (!device.reached(mark_, "a reduce-scatter of NCCL's, or the copy of its result"))
        return Progress::kWaiting;
      context_.counters.reduce_s +=
          host().spans.end(context_.timeline, "reduce-scatter", Timeline::kMemory, work_->number, given_);
      if (divides()) divide();
      stage_ = Stage::kStaged;
      return Progress::kDone;
  }
}

void NcclExchange::put_gathering() {
  cuda::CudaExecutor& device = executor();
  device.order(device.to_device(), device.collective());
  if (host().ranks == nullptr) return;
  cuda::NcclRanks& ranks = *host().ranks;
  const cuda::Nccl& nccl = ranks.nccl();
  char* chunk = piece_of(work_->call->output, work_->spec.to);
  if (chunk == nullptr) chunk = on_device(0);
  ranks.put("an all-gather", [&] {
    const cuda::Stream stream = device.collective();
    if (equal_parts()) {
      nccl.check(nccl.all_gather(on_device(own().begin), chunk, bytes(own().size()), cuda::NcclType::kBytes,
                                 ranks.comm(), stream),
                 ranks.comm(), "an all-gather");
      return;
    }
    for (std::size_t i = 0; i < local().size(); ++i) {
      const Interval part = local()[i];
      if (part.empty()) continue;
      nccl.check(nccl.broadcast(on_device(part.begin), chunk + bytes(part.begin), bytes(part.size()),
                                cuda::NcclType::kBytes, static_cast<int>(i), ranks.comm(), stream),
                 ranks.comm(), "a broadcast");
    }
  });
}

Progress NcclExchange::publish() {
  cuda::CudaExecutor& device = executor();
  switch (stage_) {
    case Stage::kStaged:
      device.post(on_device(own().begin), staged(own().begin), bytes(own().size()), CopyDirection::kFromHost);
      stage_ = Stage::kGather;
      return Progress::kMoved;
    case Stage::kGather:
      if (host().position != gather_position()) return Progress::kWaiting;
      if (host().ranks != nullptr && !host().ranks->idle()) return Progress::kWaiting;
      put_gathering();
      given_ = DeviceSpans::Clock::now();
      ++host().position;
      stage_ = Stage::kGathering;
      return Progress::kMoved;
    default:
      break;
  }
  if (host().ranks != nullptr && !host().ranks->idle()) return Progress::kWaiting;
  const BufferList& output = work_->call->output;
  const bool spread = host().ranks == nullptr || piece_of(output, work_->spec.to) == nullptr;
  if (spread) {
    output.for_each_piece({work_->spec.to, work_->spec.to + work_->elements()},
                          [&](char* piece, std::size_t count, std::size_t offset) {
                            device.post(piece, on_device(offset), bytes(count), CopyDirection::kWithin);
                          });
  }
  device.record(mark_, device.collective());
  stage_ = Stage::kSpread;
  return Progress::kDone;
}

Progress NcclExchange::gather() {
  if (mark_.set()) {
    if (!executor().reached(mark_, "an all-gather of NCCL's")) return Progress::kWaiting;
    context_.counters.gather_s +=
        host().spans.end(context_.timeline, "all-gather", Timeline::kMemory, work_->number, given_);
  }
  // What chunks have done is told in their order.
  if (context_.cell().gathered.load(std::memory_order_relaxed) != work_->number) return Progress::kWaiting;
  for (const auto counter : {&RankCell::posted, &RankCell::reduced, &RankCell::gathered}) {
    context_.publish(counter, work_->number + 1);
  }
  return Progress::kDone;
}

}  // namespace ddl
