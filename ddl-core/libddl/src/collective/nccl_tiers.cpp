#include "collective/nccl_tiers.hpp"

#include <algorithm>

namespace ddl {

std::size_t NcclTiers::ranks() const {
  std::size_t all = 1;
  for (const Tier& tier : tiers) all *= static_cast<std::size_t>(tier.ranks->size());
  return all;
}

void NcclTieredAllreduce::start(CollectiveContext& context, NcclTiers& tiers, cuda::NcclRanks& all,
                                const BufferList& buffers, DDL_Type type, DDL_Op op,
                                const Chunking& chunking) {
  context_ = &context;
  tiers_ = &tiers;
  all_ = &all;
  buffers_ = &buffers;
  type_ = type;
  op_ = op;
  width_ = size_of(type);
  whole_ = buffers.count() / tiers.ranks() * tiers.ranks();
  chunk_elements_ = chunking.chunk_elements;
  chunks_ = chunk_elements_ == 0 ? 0 : (whole_ + chunk_elements_ - 1) / chunk_elements_;
  step_ = 0;
  operation_ = operations();
  given_.assign(tiers.tiers.size(), {});
  marks_.assign(tiers.slots() * operations(), {});
  observed_.assign(tiers.tiers.size(), {});
  chunk_ended_.assign(tiers.slots(), {});
  end_ = {};
  looks_ = 0;
  stage_ = Stage::kBegin;
}

cuda::CudaExecutor& NcclTieredAllreduce::executor() const {
  return static_cast<cuda::CudaExecutor&>(buffers_->executor());
}

std::size_t NcclTieredAllreduce::tier_of(std::size_t operation) const {
  const std::size_t tiers = tiers_->tiers.size();
  return operation < tiers ? operation : 2 * tiers - 1 - operation;
}

std::size_t NcclTieredAllreduce::elements_of(std::size_t chunk) const {
  return std::min(chunk_elements_, whole_ - chunk * chunk_elements_);
}

char* NcclTieredAllreduce::on_device(std::size_t chunk, std::size_t element) const {
  return tiers_->scratch->at((chunk % tiers_->slots()) * chunk_elements_ * width_ + element * width_);
}

char* NcclTieredAllreduce::piece_of(std::size_t chunk) const {
  char* found = nullptr;
  std::size_t pieces = 0;
  const std::size_t begin = chunk * chunk_elements_;
  buffers_->for_each_piece({begin, begin + elements_of(chunk)}, [&](char* piece, std::size_t, std::size_t) {
    found = piece;
    ++pieces;
  });
  return pieces == 1 ? found : nullptr;
}

cuda::Mark& NcclTieredAllreduce::mark(std::size_t chunk, std::size_t operation) {
  return marks_[(chunk % tiers_->slots()) * operations() + operation];
}

bool NcclTieredAllreduce::settle(std::size_t tier) {
  Given& given = given_[tier];
  if (!tiers_->tiers[tier].ranks->idle()) return false;
  if (!given.any) return true;
  given.any = false;
  const cuda::Stream stream = executor().tier_stream(tier);
  if (given.operation + 1 == operations() && piece_of(given.chunk) == nullptr) {
    const std::size_t begin = given.chunk * chunk_elements_;
    buffers_->for_each_piece(
        {begin, begin + elements_of(given.chunk)}, [&](char* piece, std::size_t count, std::size_t offset) {
          executor().copy_within(piece, on_device(given.chunk, offset), count * width_, stream);
        });
  }
  executor().record(mark(given.chunk, given.operation), stream);
  Running& running = observed_[tier].running.emplace_back();
  running = {given.chunk, given.operation, given.since, {}};
  executor().record(running.end, stream);
  return true;
}

void NcclTieredAllreduce::observe() {
  for (std::size_t tier = 0; tier < observed_.size(); ++tier) {
    std::deque<Running>& running = observed_[tier].running;
    while (!running.empty() && executor().reached(running.front().end, "an operation of NCCL's in a tier")) {
      const Running& done = running.front();
      const bool up = done.operation < tiers_->tiers.size();
      // It has waited for the operation before of its chunk.
      DeviceSpans::Clock::time_point& chunk_ended = chunk_ended_[done.chunk % tiers_->slots()];
      const auto begin = done.operation == 0 ? done.given : std::max(done.given, chunk_ended);
      const int lane = tiers_->tiers[tier].lane;
      const double seconds = observed_[tier].spans.end(
          context_->timeline, up ? "reduce-scatter" : "all-gather", lane, done.chunk, begin);
      chunk_ended = observed_[tier].spans.ended();
      if (lane == Timeline::kMemory) {
        (up ? context_->counters.reduce_s : context_->counters.gather_s) += seconds;
      } else {
        context_->tier_clocks[static_cast<std::size_t>(lane - Timeline::kFirstTier)].add(seconds);
      }
      running.pop_front();
    }
  }
}

void NcclTieredAllreduce::put(std::size_t chunk, std::size_t operation) {
  const std::size_t tier = tier_of(operation);
  const bool up = operation < tiers_->tiers.size();
  cuda::CudaExecutor& device = executor();
  const cuda::Stream stream = device.tier_stream(tier);
  if (operation > 0) device.after(mark(chunk, operation - 1), stream);
  // What this rank owns below the tier, and in it.
  std::size_t begin = 0;
  std::size_t owned = elements_of(chunk);
  for (std::size_t t = 0; t < tier; ++t) {
    owned /= static_cast<std::size_t>(tiers_->tiers[t].ranks->size());
    begin += tiers_->tiers[t].self * owned;
  }
  cuda::NcclRanks& ranks = *tiers_->tiers[tier].ranks;
  const std::size_t part = owned / static_cast<std::size_t>(ranks.size());
  const std::size_t mine = begin + tiers_->tiers[tier].self * part;
  char* const piece = tier == 0 ? piece_of(chunk) : nullptr;
  if (operation == 0 && piece == nullptr) {
    const std::size_t from = chunk * chunk_elements_;
    buffers_->for_each_piece({from, from + elements_of(chunk)},
                             [&](char* at, std::size_t count, std::size_t offset) {
                               device.copy_within(on_device(chunk, offset), at, count * width_, stream);
                             });
  }
  const cuda::Nccl& nccl = ranks.nccl();
  char* const whole = piece != nullptr ? piece : on_device(chunk, begin);
  if (up) {
    ranks.put("a reduce-scatter", [&] {
      // The average of equally many averages is that of all.
      nccl.check(nccl.reduce_scatter(whole, on_device(chunk, mine), part, cuda::nccl_type(type_),
                                     cuda::nccl_op(op_), ranks.comm(), stream),
                 ranks.comm(), "a reduce-scatter");
    });
  } else {
    ranks.put("an all-gather", [&] {
      nccl.check(nccl.all_gather(on_device(chunk, mine), whole, part * width_, cuda::NcclType::kBytes,
                                 ranks.comm(), stream),
                 ranks.comm(), "an all-gather");
    });
  }
  given_[tier] = {true, chunk, operation, DeviceSpans::Clock::now()};
}

bool NcclTieredAllreduce::put_next() {
  // A step is what can be under way at a time: chunk i's k-th operation in step i + k.
  for (; step_ + 1 < chunks_ + operations(); ++step_, operation_ = operations()) {
    while (operation_ > 0) {
      const std::size_t operation = operation_ - 1;
      if (step_ < operation || step_ - operation >= chunks_) {
        --operation_;
        continue;
      }
      const std::size_t chunk = step_ - operation;
      if (!settle(tier_of(operation))) return false;
      // What it depends on must be on its stream.
      if (operation > 0 && !settle(tier_of(operation - 1))) return false;
      put(chunk, operation);
      --operation_;
      return true;
    }
  }
  return false;
}

bool NcclTieredAllreduce::step(bool, bool globally_agreed) {
  switch (stage_) {
    case Stage::kBegin:
      if (!globally_agreed || !all_->idle()) return false;
      if (whole_ < buffers_->count()) {
        all_->put("an all-reduce", [this] {
          const cuda::Nccl& nccl = all_->nccl();
          buffers_->for_each_piece(
              {whole_, buffers_->count()}, [&](char* piece, std::size_t count, std::size_t) {
                nccl.check(nccl.all_reduce(piece, piece, count, cuda::nccl_type(type_), cuda::nccl_op(op_),
                                           all_->comm(), executor().tier_stream(0)),
                           all_->comm(), "an all-reduce");
              });
        });
      }
      stage_ = Stage::kRest;
      return true;
    case Stage::kRest:
      if (!all_->idle()) return false;
      stage_ = Stage::kPut;
      return true;
    case Stage::kPut:
      observe();
      if (put_next()) return true;
      if (chunks_ > 0 && step_ + 1 < chunks_ + operations()) return false;
      stage_ = Stage::kEnd;
      return true;
    case Stage::kEnd:
      for (std::size_t tier = 0; tier < given_.size(); ++tier) {
        if (!settle(tier)) return false;
      }
      executor().record(end_, executor().tier_stream(0));
      stage_ = Stage::kRun;
      return true;
    case Stage::kRun:
      if (++looks_ % cuda::NcclRanks::kLooks == 0) {
        for (const NcclTiers::Tier& tier : tiers_->tiers) tier.ranks->look();
      }
      observe();
      if (!executor().reached(end_, "an all-reduce by tiers")) return false;
      observe();
      for (cuda::Mark& one : marks_) executor().drop(one);
      stage_ = Stage::kDone;
      return true;
    case Stage::kDone:
      return false;
  }
  return false;
}

}  // namespace ddl
