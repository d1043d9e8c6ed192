// All-reduce: by NCCL, by tiers, by the leaders of hosts, or as MPI_Allreduce, as the planner chooses.
#include <functional>
#include <string_view>
#include <utility>

#include "engine/communicator.hpp"
#include "plan/chunking.hpp"
#include "support/hash.hpp"

namespace ddl {
namespace {

/// Calls of this size take so long that the ranks look anew at what was submitted.
constexpr std::size_t kLongCallBytes = std::size_t{4} << 20;

/// The chunks of an all-reduce. A reference to it fits into a std::function without memory of its own.
struct Cuts {
  const Chunking& chunking;
  std::size_t elements;
  const ChunkPlan* whole;
  const ChunkPlan* last;

  ChunkSpec chunk(std::size_t i) const {
    const Interval part = chunking.interval(i, elements);
    return ChunkSpec{part, part.begin, i + 1 == chunking.chunks ? last : whole, nullptr, -1};
  }
};

}  // namespace

void Communicator::allreduce(const BufferList& buffers, const CallSignature& signature, DDL_Type type,
                             DDL_Op op) {
  CallHeader header = header_of(CallKind::kAllreduce, type, op, 0, buffers.count(), signature);
  std::string_view algorithm = kCopy;
  if (distributed_) {
    prepare_devices(header, buffers.executor());
    algorithm = run_allreduce(header, buffers, type, op, signature.name);
  }
  account(header, buffers.count() * size_of(type), algorithm);
  if (distributed_ && buffers.count() * size_of(type) >= kLongCallBytes && validation_->any_started()) {
    // Much may have been submitted meanwhile; what is urgent among it should not wait for one call more.
    run(header_of(CallKind::kSchedule, DDL_TYPE_FLOAT, 0, 0, 0, CallSignature{0, 0, nullptr}), {});
  }
}

const std::string& Communicator::run_allreduce(CallHeader header, const BufferList& buffers, DDL_Type type,
                                               DDL_Op op, const char* name) {
  const WireFormat wire =
      type == DDL_TYPE_FLOAT && (op == DDL_OP_SUM || op == DDL_OP_AVG) && context_->groups.size() > 1
          ? options_.wire
          : WireFormat::kFull;
  AllreduceShape shape;
  shape.elements = buffers.count();
  shape.width = size_of(type);
  shape.order_free = type == DDL_TYPE_INT32 || type == DDL_TYPE_INT64;
  shape.rounds_each_step = is_16bit(type);
  shape.narrow_range = type == DDL_TYPE_HALF;
  shape.one_buffer = buffers.buffers() == 1;
  shape.encoded = wire != WireFormat::kFull;
  shape.memory = buffers.executor().kind();
  if (shape.memory == DDL_MEMORY_CUDA && devices_->all() != nullptr && cuda::nccl_reduces(type, op)) {
    shape.nccl = true;
    shape.nccl_tiers = !devices_->tiers().tiers.empty();
    shape.nccl_hosts = devices_->host().scratch != nullptr && !shape.encoded;
  }
  shape.ipc = ipc_of(buffers.executor()) != nullptr && !shape.encoded;
  const Plan& plan = planner_->choose(shape);
  const PlanCache::Prepared& ready = plans_->prepared(plan, shape, wire);
  header.plan_hash = ready.hash;
  if (plan.device == DevicePath::kNccl) {
    run_by_nccl(header, buffers.executor(), "all-reduce", [&](cuda::NcclRanks& ranks, cuda::Stream stream) {
      nccl::all_reduce(ranks, stream, buffers, type, op);
    });
  } else if (plan.device == DevicePath::kNcclTiers) {
    awaited_of_device_ = ", for NCCL's operations in the tiers";
    in_tiers_.start(*context_, devices_->tiers(), *devices_->all(), buffers, type, op, plan.chunking);
    run(header, CollectiveRef(in_tiers_));
    history_.last_chunking = plan.chunking;
  } else if (plan.plain_mpi) {
    plain_->start(buffers.buffer(0), buffers.count(), type, op, size(), PlainAllreduce::Memory::kOwn);
    run(header, CollectiveRef(*plain_));
    history_.last_chunking = {};
  } else if (plan.shape == Shape::kLeaders) {
    const SmallAllreduce::Call call{.buffers = buffers,
                                    .type = type,
                                    .op = op,
                                    .kernel = reduce_kernel(type, op),
                                    .divisor = op == DDL_OP_AVG ? size() : 1,
                                    .divided_in = ready.divided_in,
                                    .algorithm = plan.algorithms.front(),
                                    .chunking = plan.chunking};
    carry_out(header, *small_, call, {}, {.carries_headers = true});
  } else {
    const BufferList* residual = nullptr;
    // Only a name tells that it is the same tensor again; what another one lost must not be added to it.
    if (wire == WireFormat::kQ8 && header.name_hash != 0) residual = &residuals_.of(name, buffers);
    const Cuts cuts{plan.chunking, buffers.count(), ready.whole.get(), ready.last.get()};
    // Where ranks share processors the redundant work would take turns.
    const bool redundant = context_->groups.size() == 1 && plan.shape != Shape::kRanks && !oversubscribed_ &&
                           buffers.on_host() && shape.bytes() <= plans_->undivided_bytes();
    ReductionCall call = reduction_of(buffers, buffers, type, op);
    call.redundant = redundant;
    call.wire = wire;
    call.residual = residual;
    call.chunking = plan.chunking;
    call.chunks = [&cuts](std::size_t i) { return cuts.chunk(i); };
    call.divided_in = ready.divided_in;
    if (plan.device == DevicePath::kNcclHosts) call.nccl = &devices_->host();
    if (plan.device == DevicePath::kIpc) call.ipc = devices_->ipc();
    CallHeader data = header;
    if (ready.by_mpi) {
      // Communicators are made by those concerned, who must be known to be here.
      run(header, {});
      make_segment_comms(*ready.whole);
      make_segment_comms(*ready.last);
      data.sequence = ++sequence_;
    }
    carry_out(data, *reduction_, call, plan.windows,
              {.eager = !ready.by_mpi && shape.bytes() <= kEagerBytes});
  }
  timed_ = Timed{shape, plan.candidate};
  return ready.text;
}

void Communicator::allreduce_plain(void* buf, std::size_t count, DDL_Type type, DDL_Op op) {
  const CallSignature signature{1, hash_bytes(&count, sizeof count), nullptr};
  const CallHeader header = header_of(CallKind::kPlainAllreduce, type, op, 0, count, signature);
  if (distributed_) {
    plain_->start(static_cast<char*>(buf), count, type, op, size(), PlainAllreduce::Memory::kCallers);
    run(header, CollectiveRef(*plain_));
  }
  account(header, count * size_of(type), "MPI_Allreduce");
}

}  // namespace ddl
