#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "collective/collective_context.hpp"
#include "memory/copies.hpp"

namespace ddl {

/// What a rank sends to another one, and receives from it. May be empty in either direction.
struct ExchangedBlocks {
  const char* in = nullptr;
  std::size_t in_bytes = 0;
  char* out = nullptr;
  std::size_t out_bytes = 0;
};

/**
 * All-to-all: rank r's block b becomes rank b's block r. Blocks may have any sizes; gathering and scattering
 * are the cases where most are empty, and nothing is sent for these.
 *
 * In step k a rank sends to the rank k places after it and receives from the one k places before, so that no
 * two ranks send to the same one. MPI carries the blocks, within a host too: there is nothing to reduce, and
 * each byte has one reader. They travel in pieces through staging buffers of this rank's own, of which a few
 * are under way in each direction: the caller's memory is never MPI's.
 */
class AllToAll {
 public:
  explicit AllToAll(CollectiveContext& context) : context_(context) {}

  /// Memory for pieces under way, from the first call on.
  static constexpr std::size_t kPieceBytes = std::size_t{512} << 10;
  static constexpr std::size_t kPieces = 8;  ///< in each direction

  /// @param bytes  of a block; in and out hold one for each rank and do not overlap
  /// @param executor  of the memory of both
  void start(const char* in, char* out, std::size_t bytes, Executor& executor);
  /// @param blocks  one for each rank; what one sends, the other expects
  void start(std::vector<ExchangedBlocks> blocks, Executor& executor);
  /// Where pieces are staged, with its bytes; it stays.
  std::pair<char*, std::size_t> staging();
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return outgoing_.over() && incoming_.over() && own_done_; }

 private:
  /// Bytes of one block on their way.
  struct Piece {
    int peer = 0;
    int tag = 0;
    std::size_t at = 0;  ///< in the block
    std::size_t bytes = 0;
    int pending = 0;
    Copies copies;
  };
  /// The pieces in one direction, in the order in which their messages are posted. Those from `retired` to
  /// `begun` are under way, each in its place of the ring.
  struct Pieces {
    std::array<Piece, kPieces> ring;
    std::size_t begun = 0;
    std::size_t posted =
        0;  ///< their messages are posted (outgoing) or have arrived and are copied (incoming)
    std::size_t retired = 0;
    std::size_t step = 1;  ///< of the piece that is begun next
    std::size_t at = 0;    ///< where it begins in its block
    bool all_begun = false;
    bool over() const { return all_begun && retired == begun; }
    Piece& place(std::size_t number) { return ring[number % kPieces]; }
  };

  /// The next piece that is to be begun, if there is any and room for it; then it counts as begun.
  Piece* next(Pieces& pieces, bool outgoing);
  bool step_outgoing();
  bool step_incoming();
  char* buffer(const Pieces& pieces, std::size_t number) const;

  CollectiveContext& context_;
  Executor* executor_ = nullptr;
  std::vector<ExchangedBlocks> blocks_;
  /// Of the outgoing pieces, then of the incoming ones.
  std::unique_ptr<char[]> buffers_;
  Pieces outgoing_;
  Pieces incoming_;
  Copies own_;
  bool own_started_ = false;
  bool own_done_ = false;
};

/**
 * Finds blocks that do not fit: what each rank sends to others, and what it expects of them. Ranks tell each
 * other in a message for each pair, so this is for naming the culprit of what balance_of() has shown.
 */
class BlockSizes {
 public:
  explicit BlockSizes(CollectiveContext& context) : context_(context) {}

  void start(const std::vector<ExchangedBlocks>& blocks);
  /// @throws Error (DDL_ERR_MISMATCH) where another rank sends this one more or less than it expects
  bool step(bool locally_agreed, bool globally_agreed);
  bool done() const { return done_; }

 private:
  void check() const;

  CollectiveContext& context_;
  bool sent_ = false;
  bool done_ = false;
  int pending_ = 0;
  std::vector<std::uint64_t> expected_;
  std::vector<std::uint64_t> here_;
  std::vector<std::uint64_t> there_;
};

/// A number for what a rank sends and expects, whose sum over all ranks (mod 2^64) is 0 when all fits, and
/// anything else, but for one in 2^64, when it does not.
std::uint64_t balance_of(int rank, const std::vector<ExchangedBlocks>& blocks);

}  // namespace ddl
