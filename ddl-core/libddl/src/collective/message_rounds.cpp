#include "collective/message_rounds.hpp"

#include <algorithm>
#include <cstring>

#include "collective/local_exchange.hpp"
#include "collective/round_reduction.hpp"
#include "support/stopwatch.hpp"

namespace ddl {

char* MessageRounds::place(const ReductionWork& work, Interval range, std::size_t scratch) {
  return scratch == Transfer::kInPlace ? work.local->staged(range.begin)
                                       : scratch_.data() + scratch * work.width;
}

void MessageRounds::start(const ReductionWork& work, std::size_t tier, const Round& round,
                          TierDirection direction) {
  const int tag = CollectiveContext::tag(work.slot, tier, static_cast<int>(direction));
  const std::size_t needed = work.spec.plan->scratch * work.width;
  if (scratch_.size() < needed) scratch_.resize(needed);
  if (wide_.size() < work.spec.plan->wide) wide_.resize(work.spec.plan->wide);
  const bool encoded = work.encoded();
  std::size_t bytes = 0;
  for (const auto* const transfers : {&round.receives, &round.sends}) {
    for (std::size_t i = 0, end = 0; i < transfers->size(); i = end) {
      end = end_of_message(*transfers, i);
      if (!encoded && end == i + 1) continue;
      for (std::size_t k = i; k < end; ++k) bytes += work.bytes_of((*transfers)[k]);
    }
  }
  std::vector<char>& joined = encoded ? wire_ : packed_;
  if (joined.size() < bytes) joined.resize(bytes);
  char* at = joined.data();
  for (std::size_t i = 0, end = 0; i < round.receives.size(); i = end) {
    end = end_of_message(round.receives, i);
    const Transfer& first = round.receives[i];
    std::size_t size = 0;
    for (std::size_t k = i; k < end; ++k) size += work.bytes_of(round.receives[k]);
    const bool direct = !encoded && end == i + 1;
    context_.scheduler.receive(direct ? place(work, first) : at, size, first.peer, tag, &pending_);
    at += direct ? 0 : size;
  }
  const char* last_encoded = nullptr;
  Interval last_range;
  for (std::size_t i = 0, end = 0; i < round.sends.size(); i = end) {
    end = end_of_message(round.sends, i);
    const Transfer& first = round.sends[i];
    if (end == i + 1) {
      if (!encoded) {
        context_.scheduler.send(tier, place(work, first), work.bytes_of(first), first.peer, tag, &pending_);
        continue;
      }
      // The same part often goes to several ranks.
      if (last_encoded != nullptr && last_range == first.range) {
        context_.scheduler.send(tier, last_encoded, work.bytes_of(first), first.peer, tag, &pending_);
        continue;
      }
    }
    const char* const from = at;
    for (std::size_t k = i; k < end; ++k) {
      const Transfer& send = round.sends[k];
      if (encoded) {
        const auto* const values = reinterpret_cast<const float*>(place(work, send));
        if (direction == TierDirection::kUp) {
          encode_with_residual(work, send.range, values, at);
        } else {
          encode(work.call->wire, values, send.range.size(), at, nullptr);
        }
        last_encoded = at;
        last_range = send.range;
      } else {
        std::memcpy(at, place(work, send), work.bytes_of(send));
      }
      at += work.bytes_of(send);
    }
    context_.scheduler.send(tier, from, static_cast<std::size_t>(at - from), first.peer, tag, &pending_);
  }
}

void MessageRounds::finish(const ReductionWork& work, std::size_t tier, const Round& round, TierDirection) {
  if (round.receives.empty() && round.reductions.empty()) return;
  const Stopwatch watch(context_.counters.reduce_s, work.timed);
  const TimelineSpan span(context_.timeline, "reduce", Timeline::kMemory, work.number);
  const bool encoded = work.encoded();
  const char* at = (encoded ? wire_ : packed_).data();
  for (std::size_t i = 0, end = 0; i < round.receives.size(); i = end) {
    end = end_of_message(round.receives, i);
    if (!encoded && end == i + 1) continue;
    for (std::size_t k = i; k < end; ++k) {
      const Transfer& receive = round.receives[k];
      if (encoded) {
        decode(work.call->wire, at, receive.range.size(), reinterpret_cast<float*>(place(work, receive)));
      } else {
        std::memcpy(place(work, receive), at, work.bytes_of(receive));
      }
      at += work.bytes_of(receive);
    }
  }
  const ReductionCall& call = *work.call;
  for (const Reduction& reduction : round.reductions) {
    const Interval range = reduction.range;
    carry_out(
        reduction, {call.type, call.op, call.kernel, range.size()},
        reduction.completes > 0 ? work.divisor_of(tier + reduction.completes) : 1, sources_,
        [&](std::size_t at) { return place(work, range, at); },
        [&](std::size_t at) { return wide_.data() + at; });
  }
}

void MessageRounds::encode_with_residual(const ReductionWork& work, Interval part, const float* from,
                                         char* to) {
  const BufferList* const kept = work.call->residual;
  if (kept == nullptr) {
    encode(work.call->wire, from, part.size(), to, nullptr);
    return;
  }
  const Interval range{work.spec.from.begin + part.begin, work.spec.from.begin + part.end};
  residual_.resize(std::max(residual_.size(), range.size()));
  const auto copy = [&](auto between) {
    kept->for_each_piece(range, [&](char* piece, std::size_t elements, std::size_t offset) {
      between(reinterpret_cast<float*>(piece), elements, residual_.data() + offset);
    });
  };
  // The tensors of a call lie in different places, but are encoded as one.
  copy([](const float* piece, std::size_t n, float* whole) { std::copy_n(piece, n, whole); });
  encode(work.call->wire, from, range.size(), to, residual_.data());
  copy([](float* piece, std::size_t n, const float* whole) { std::copy_n(whole, n, piece); });
}

void MessageRounds::turn(const ReductionWork& work) {
  // The others get the finished parts in the wire format, so this rank has to use the same values.
  if (!work.encoded() || work.spec.plan->exchange.tiers.empty()) return;
  const Exchange& exchange = work.spec.plan->exchange;
  for (const Segment& segment : exchange.tiers.back()) {
    const Interval part = segment.part(segment.mine, exchange.grain);
    if (part.empty()) continue;
    const std::size_t bytes = work.bytes_of(part);
    if (wire_.size() < bytes) wire_.resize(bytes);
    auto* const values = reinterpret_cast<float*>(work.local->staged(part.begin));
    encode_with_residual(work, part, values, wire_.data());
    decode(work.call->wire, wire_.data(), part.size(), values);
  }
}

}  // namespace ddl
