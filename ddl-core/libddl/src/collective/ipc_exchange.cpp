#include "collective/ipc_exchange.hpp"

namespace ddl {

void IpcExchange::start(const ReductionWork& work) {
  SharedMemoryExchange::start(work);
  if (tiers_above()) check_room(own().size() * work.width, work.call->chunking.slot_bytes);
  stage_ = Stage::kReduce;
  mark_ = {};
}

char* IpcExchange::at(std::size_t owner, std::size_t element) const {
  return host().stages[member(owner)] + offset(element);
}

char* IpcExchange::staged(std::size_t element) const {
  return context().segment.stage(context().self, work().slot, work().call->chunking.slot_bytes) +
         (element - own().begin) * work().width;
}

SharedMemoryExchange::BlockPlace IpcExchange::own_block() const {
  // The tiers begin and end in the host's memory.
  if (tiers_above()) return {staged(block_begin()), CopyDirection::kToHost, CopyDirection::kFromHost};
  return SharedMemoryExchange::own_block();
}

void IpcExchange::put_reduction() {
  const ReductionCall& call = *work().call;
  const std::int64_t divisor = work().divisor_of(0);
  cuda::CudaExecutor& device = executor();
  input().for_each_piece({input_begin() + own().begin, input_begin() + own().end},
                         [&](char* piece, std::size_t count, std::size_t shift) {
                           char* const sum = at(self_index(), own().begin + shift);
                           if (alone() && (call.op != DDL_OP_AVG || divisor == 1)) {
                             device.post(sum, piece, count * work().width, CopyDirection::kWithin);
                             return;
                           }
                           host().kernels->launch(
                               call.type, call.op, sum,
                               {host().bases, offset(own().begin + shift), piece,
                                static_cast<int>(self_index()), static_cast<int>(local().size())},
                               count, divisor, device.collective());
                         });
}

Progress IpcExchange::reduce_group() {
  cuda::CudaExecutor& device = executor();
  if (stage_ == Stage::kReduce) {
    put_reduction();
    given_ = DeviceSpans::Clock::now();
    if (tiers_above()) {
      device.order(device.collective(), device.to_host());
      device.post(staged(own().begin), at(self_index(), own().begin), own().size() * work().width,
                  CopyDirection::kToHost);
    }
    device.record(mark_, tiers_above() ? device.to_host() : device.collective());
    stage_ = Stage::kReducing;
    return Progress::kMoved;
  }
  if (!device.reached(mark_, "a reduction on the GPU", true)) return Progress::kWaiting;
  context().counters.reduce_s +=
      host().spans.end(context().timeline, "reduce on the GPU", Timeline::kMemory, work().number, given_);
  stage_ = Stage::kReduced;
  return Progress::kDone;
}

Progress IpcExchange::bring_back() {
  // A block that a reduce-scatter leaves to this rank is nobody else's affair.
  if (stage_ == Stage::kBack || !tiers_above() || own().empty() || work().call->goal == Goal::kScatter) {
    return Progress::kDone;
  }
  cuda::CudaExecutor& device = executor();
  if (stage_ != Stage::kReturning) {
    device.post(at(self_index(), own().begin), staged(own().begin), own().size() * work().width,
                CopyDirection::kFromHost);
    device.record(mark_, device.to_device());
    stage_ = Stage::kReturning;
    return Progress::kMoved;
  }
  if (!device.reached(mark_, "a copy to the GPU", true)) return Progress::kWaiting;
  stage_ = Stage::kBack;
  return Progress::kDone;
}

}  // namespace ddl
