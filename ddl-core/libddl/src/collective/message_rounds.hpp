#pragma once

#include <vector>

#include "collective/collective_context.hpp"
#include "collective/tier_engine.hpp"

namespace ddl {

/// Rounds of messages between ranks as the plan has them, and additions by the processor; in a reduced wire
/// format where the call has one.
class MessageRounds : public TierEngine {
 public:
  explicit MessageRounds(CollectiveContext& context) : context_(context) {}

  void start(const ReductionWork& work, std::size_t tier, const Round& round,
             TierDirection direction) override;
  bool complete() const override { return pending_ == 0; }
  void finish(const ReductionWork& work, std::size_t tier, const Round& round,
              TierDirection direction) override;
  void turn(const ReductionWork& work) override;

  /// Forgets messages of a call that has failed.
  void reset() { pending_ = 0; }

 private:
  char* place(const ReductionWork& work, Interval range, std::size_t scratch);
  /// Where a transfer's elements lie, or come to lie, if they are not encoded.
  char* place(const ReductionWork& work, const Transfer& transfer) {
    return transfer.wide ? reinterpret_cast<char*>(wide_.data() + transfer.scratch)
                         : place(work, transfer.range, transfer.scratch);
  }
  /// Encodes a part of the chunk, with what earlier encodings have lost of it.
  void encode_with_residual(const ReductionWork& work, Interval part, const float* from, char* to);

  CollectiveContext& context_;
  int pending_ = 0;
  std::vector<char> scratch_;
  std::vector<float> wide_;
  std::vector<char> wire_;    ///< what is encoded
  std::vector<char> packed_;  ///< messages of several transfers: the received ones, then the sent ones
  std::vector<float> residual_;
  std::vector<const void*> sources_;
};

}  // namespace ddl
