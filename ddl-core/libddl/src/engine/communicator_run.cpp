// How a call of a communicator is run: what it says about itself, its progress, its failures.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "cuda/cuda_executor.hpp"
#include "engine/backoff.hpp"
#include "engine/communicator.hpp"
#include "engine/flight_recorder.hpp"
#include "support/hash.hpp"
#include "transport/bounded_wait.hpp"

namespace ddl {
namespace {

/// While nothing moves, the caller's stream is looked at once in so many rounds.
constexpr unsigned kHeldUpLooks = 32;

}  // namespace

CallHeader Communicator::header_of(CallKind kind, DDL_Type type, int op, int root, std::uint64_t count,
                                   const CallSignature& signature) {
  // Here no call uses any.
  if (plans_) plans_->trim();
  // Whatever moves data does so through the stages.
  if (segment_ && signature.buffers > 0 && !segment_->reserved()) segment_->reserve_stage(context_->self);
  if (distributed_) began_ = Clock::now();
  CallHeader header;
  header.sequence = ++sequence_;
  header.kind = kind;
  header.type = type;
  header.op = op;
  header.root = root;
  header.count = count;
  header.buffers = signature.buffers;
  header.counts_hash = signature.counts_hash;
  header.memory = signature.memory;
  header.submitted = submitted_ | (started_ ? kStartedCalls : 0);
  header.last_s = history_.last_s;
  if (signature.name != nullptr && *signature.name != 0) {
    const std::size_t length = std::strlen(signature.name);
    // Never 0, which stands for no name.
    header.name_hash = hash_bytes(signature.name, length) | 1;
    // Of a name with a line for each tensor the first is shown.
    const std::size_t line = std::strcspn(signature.name, "\n");
    const std::string_view more = line < length ? " and more" : "";
    const std::size_t kept = std::min(line, sizeof header.name - 1 - more.size());
    std::memcpy(header.name, signature.name, kept);
    std::memcpy(header.name + kept, more.data(), more.size());
    header.name[kept + more.size()] = 0;
  }
  return header;
}

void Communicator::run(const CallHeader& header, const CollectiveRef& collective, const RunRules& rules) {
  if (detector_->failure()) throw *detector_->failure();
  under_way_ = header;
  // A call may need several runs.
  under_way_since_ = began_ > ended_ ? began_ : Clock::now();
  in_call_ = true;
  FlightRecorder& recorder = FlightRecorder::instance();
  const std::uint64_t recorded = recorder.begin(recorded_as_, header, *under_way_since_);
  detector_->begin_call(
      header.sequence, [this] { return describe_call(under_way_); }, rules.patience_scale, patience_s_);
  detector_->set_awaited(std::exchange(awaited_of_device_, {}));
  Backoff backoff(*detector_, *segment_, oversubscribed_ || background_);
  backoff.set_longest_sleep(rules.longest_sleep_s);
  const bool on_device = header.memory == DDL_MEMORY_CUDA && device_call_ != nullptr;
  unsigned idle_rounds = 0;
  try {
    // Ranks that gave up count as arrived in the call that they gave up, so nobody else may begin it.
    detector_->adopt_known_failure();
    validation_->begin(header, rules.carries_headers);
    if (collective && (rules.eager || rules.carries_headers)) {
      // What can be posted at once is seen together with the arrival.
      context_->arriving = true;
      collective.step(false, rules.eager);
      context_->arriving = false;
    }
    validation_->arrive();
    while (true) {
      inspection_.serve();
      bool moved = validation_->step();
      bool done = validation_->complete();
      if (collective) {
        try {
          moved = collective.step(validation_->locally(), validation_->globally() || rules.eager) || moved;
          moved = scheduler_->progress() || moved;
        } catch (const Error&) {
          // A message that does not fit may be another call's: the agreement says more about it.
          if (!rules.eager || validation_->globally()) throw;
          agree_after_failure(backoff);
          throw;
        }
        done = done && collective.done() && scheduler_->idle();
      }
      if (done) break;
      if (moved) {
        backoff.reset();
      } else {
        if (on_device && ++idle_rounds % kHeldUpLooks == 0) note_held_up(header);
        const bool messages = on_device || header.memory != DDL_MEMORY_HOST || !scheduler_->idle() ||
                              validation_->messages_pending() || small_->messages_pending();
        backoff.idle(messages ? WaitsFor::kMessages : WaitsFor::kMemory);
      }
    }
    if (on_device) segment_->cell(context_->self).held_up.store(0, std::memory_order_relaxed);
    backoff.reset();
    history_.counters.wait_s += backoff.waited_s();
    submitted_by_all_ = validation_->submitted_by_all();
    under_way_since_.reset();
    in_call_ = false;
    ended_ = Clock::now();
    recorder.end(recorded, false, ended_);
    learn();
  } catch (...) {
    // The others must not wait for this rank.
    in_call_ = false;
    context_->arriving = false;
    recorder.end(recorded, true, Clock::now());
    abandon();
    fail(error_here());
  }
}

void Communicator::refuse_call() {
  if (!distributed_ || detector_->failure()) return;
  // The others take it for the failure of the call that they make: the next where the last one is over.
  if (sequence_ == under_way_.sequence) ++sequence_;
  detector_->begin_call(sequence_, [] { return std::string("a call that could not be made"); });
  abandon();
  fail(error_here());
}

void Communicator::refuse_alike(const Error& error) {
  CallHeader header = header_of(CallKind::kRefused, DDL_TYPE_FLOAT, 0, 0, 0, CallSignature{0, 0, nullptr});
  // Not compared: ranks that refuse the same call may give reasons of their own.
  const std::string reason(error.message());
  header.name_hash = 1;
  std::snprintf(header.name, sizeof header.name, "%s", reason.c_str());
  if (distributed_) run(header, {});
}

Error Communicator::error_here() const {
  const std::string self = topology_.describe_rank(rank_);
  const auto out_of_memory = [&] {
    return Error(DDL_ERR_MEMORY, "out of memory", "on " + self, "free memory or raise its limit");
  };
  try {
    throw;
  } catch (const Error& error) {
    if (error.where() == Error::kOnThisRank) return error.at("on " + self);
    // Where it was found mostly knows no ranks.
    if (std::string_view(error.what()).find("rank ") != std::string_view::npos) return error;
    std::string where = "on " + self;
    if (!error.where().empty()) (where += "; ") += error.where();
    return error.at(where);
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::length_error&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return Error(DDL_ERR_INTERNAL, error.what(), "on " + self, "please report this defect");
  } catch (...) {
    return Error(DDL_ERR_INTERNAL, "an unknown exception", "on " + self, "please report this defect");
  }
}

void Communicator::announce(const Error& error, bool all_alive) noexcept {
  if (!detector_) return;
  try {
    detector_->announce(error, all_alive, in_call_);
  } catch (...) {
    // Without memory for a message the others find out when they miss this rank.
  }
}

void Communicator::fail(const Error& error) {
  if (!detector_->failure()) {
    try {
      // A device that fails, or a call that cannot be made, takes no rank with it.
      const bool alive = error.code() == DDL_ERR_DEVICE || error.code() == DDL_ERR_MEMORY ||
                         error.code() == DDL_ERR_ARGUMENT;
      const bool here = error.where() == Error::kOnThisRank;
      detector_->fail(here ? error.at("on " + topology_.describe_rank(rank_)) : error, alive);
    } catch (const Error&) {
      // It may be another one, that was known before.
    }
  }
  FlightRecorder::instance().note_failure(detector_->failure()->what(), true);
  throw Error(*detector_->failure());
}

void Communicator::note_finalizing() {
  if (segment_) segment_->cell(context_->self).finalizing.store(1, std::memory_order_release);
}

void Communicator::note_held_up(const CallHeader& header) {
  std::atomic<std::uint64_t>& held_up = segment_->cell(context_->self).held_up;
  held_up.store(device_call_->input_ready() ? 0 : header.sequence, std::memory_order_relaxed);
}

void Communicator::agree_after_failure(Backoff& backoff) {
  wait_while(
      backoff, [&] { return !validation_->complete(); }, [&] { return validation_->step(); });
}

void Communicator::abandon() {
  if (devices_) devices_->abort();
  validation_->abandon();
  small_->abandon();
  scheduler_->abandon();
}

void Communicator::prepare_devices(CallHeader& header, Executor& executor) {
  device_call_ = nullptr;
  if (executor.kind() != DDL_MEMORY_CUDA) return;
  device_call_ = &executor;
  cuda::Device& device = static_cast<cuda::CudaExecutor&>(executor).device();
  if (devices_) {
    if (&devices_->device() == &device) return;
    fail(Error(DDL_ERR_DEVICE,
               topology_.describe_rank(rank_) + " makes a call on " + device.name() +
                   ", but its first was on " + devices_->device().name(),
               "in a collective call", "a rank uses one GPU: choose it by ddl_local_rank()"));
  }
  // What follows is done by all ranks, so they must be known to be here, and to have GPUs as well.
  run(header, {});
  header.sequence = ++sequence_;
  std::vector<int> everyone(static_cast<std::size_t>(size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const TreeExchange tree(transport_->data(), std::move(everyone), options_.limits.timeout_s,
                          "in the first call on GPUs",
                          "look at the output of the others, or raise -timeout in DDL_OPTIONS");
  try {
    devices_ = std::make_unique<DeviceRanks>(
        tree, *context_, std::vector<DeviceRanks::Region>{segment_->whole(), all_to_all_->staging()}, device,
        options_);
  } catch (const Error& error) {
    fail(error);
  }
  if (const auto& figures = devices_->figures()) {
    LinkModel model = planner_->model();
    model.copies = figures->copies;
    if (figures->devices.bytes_per_s > 0) model.devices = figures->devices;
    if (figures->ipc.bytes_per_s > 0) model.ipc = figures->ipc;
    planner_->set_model(std::move(model));
  }
  const bool chatty = explain_ || options_.dbg_level > 0;
  if (rank_ == 0 && devices_->ipc() != nullptr && chatty) {
    std::fprintf(stderr, "[DDL] NCCL is not used, ranks of a host share memory of GPUs by CUDA IPC: %s\n",
                 devices_->note().c_str());
  } else if (rank_ == 0 && devices_->all() == nullptr && devices_->ipc() == nullptr &&
             (options_.mode == 'p' || chatty)) {
    std::fprintf(stderr,
                 "[WARN DDL-1-%d] NCCL is not used, GPUs' buffers are staged in the host's memory: %s\n",
                 DDL_ERR_DEVICE, devices_->note().c_str());
  }
  devices_ready_.store(true, std::memory_order_release);
}

bool Communicator::nccl_takes(const Executor& executor,
                              std::optional<std::pair<DDL_Type, DDL_Op>> reduces) const {
  if (!distributed_ || executor.kind() != DDL_MEMORY_CUDA || devices_->all() == nullptr) return false;
  return !reduces || cuda::nccl_reduces(reduces->first, reduces->second);
}

void Communicator::run_by_nccl(CallHeader& header, Executor& executor, const char* what,
                               NcclCollective::Put put) {
  awaited_of_device_ = std::string(", for NCCL's ") + what;
  by_nccl_.start(*devices_->all(), static_cast<cuda::CudaExecutor&>(executor), what, std::move(put));
  run(header, CollectiveRef(by_nccl_));
  history_.last_chunking = {};
}

IpcHost* Communicator::ipc_of(const Executor& executor) const {
  return distributed_ && executor.kind() == DDL_MEMORY_CUDA ? devices_->ipc() : nullptr;
}

void Communicator::learn() {
  if (!timed_) return;
  planner_->learn(timed_->shape, timed_->candidate, validation_->slowest_last_s());
  if (explain_ && rank_ == 0) {
    const std::string news = planner_->explain(timed_->shape);
    if (!news.empty()) std::fprintf(stderr, "[DDL] plan of %s\n", news.c_str());
  }
  timed_.reset();
}

void Communicator::make_segment_comms(const ChunkPlan& plan) {
  for (std::size_t t = 0; t < plan.by_mpi.size(); ++t) {
    if (plan.by_mpi[t] == 0) continue;
    for (const Segment& segment : plan.exchange.tiers[t]) {
      if (context_->segment_comms.count(segment.owners) != 0) continue;
      const MPI_Comm made =
          communicator_within(transport_->data(), segment.owners, 0, options_.limits.timeout_s,
                              {"a rank of " + Topology::describe_ranks(segment.owners),
                               "in the making of a communicator for -mode",
                               "look at its output, or raise -timeout in DDL_OPTIONS"});
      MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
      context_->segment_comms.emplace(segment.owners, made);
    }
  }
}

}  // namespace ddl
