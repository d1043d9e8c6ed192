#include "collective/all_to_all.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "support/error.hpp"
#include "support/hash.hpp"

namespace ddl {

void AllToAll::start(const char* in, char* out, std::size_t bytes, Executor& executor) {
  std::vector<ExchangedBlocks> blocks;
  for (std::size_t i = 0; i < static_cast<std::size_t>(context_.topology.size()); ++i) {
    blocks.push_back({in + i * bytes, bytes, out + i * bytes, bytes});
  }
  start(std::move(blocks), executor);
}

void AllToAll::start(std::vector<ExchangedBlocks> blocks, Executor& executor) {
  blocks_ = std::move(blocks);
  executor_ = &executor;
  staging();
  for (Pieces* const pieces : {&outgoing_, &incoming_}) {
    pieces->begun = pieces->posted = pieces->retired = 0;
    pieces->step = 1;
    pieces->at = 0;
    pieces->all_begun = false;
    for (Piece& piece : pieces->ring) {
      piece.pending = 0;
      piece.copies.clear();
    }
  }
  own_.clear();
  own_started_ = own_done_ = false;
}

char* AllToAll::buffer(const Pieces& pieces, std::size_t number) const {
  const std::size_t place = number % kPieces + (&pieces == &incoming_ ? kPieces : 0);
  return buffers_.get() + place * kPieceBytes;
}

AllToAll::Piece* AllToAll::next(Pieces& pieces, bool outgoing) {
  const std::size_t size = blocks_.size();
  const auto self = static_cast<std::size_t>(context_.rank);
  for (; pieces.step < size; ++pieces.step, pieces.at = 0) {
    const std::size_t peer = outgoing ? (self + pieces.step) % size : (self + size - pieces.step) % size;
    const std::size_t bytes = outgoing ? blocks_[peer].in_bytes : blocks_[peer].out_bytes;
    if (pieces.at == bytes) continue;
    if (pieces.begun == pieces.retired + kPieces) return nullptr;
    Piece& piece = pieces.place(pieces.begun++);
    piece.peer = static_cast<int>(peer);
    piece.tag = CollectiveContext::tag(pieces.step % kMaxSlots, 0, 0);
    piece.at = pieces.at;
    piece.bytes = std::min(kPieceBytes, bytes - pieces.at);
    pieces.at += piece.bytes;
    return &piece;
  }
  pieces.all_begun = true;
  return nullptr;
}

std::pair<char*, std::size_t> AllToAll::staging() {
  constexpr std::size_t bytes = 2 * kPieces * kPieceBytes;
  if (!buffers_) buffers_ = std::make_unique<char[]>(bytes);
  return {buffers_.get(), bytes};
}

bool AllToAll::step_outgoing() {
  bool moved = false;
  while (outgoing_.retired < outgoing_.posted && outgoing_.place(outgoing_.retired).pending == 0) {
    ++outgoing_.retired;
    moved = true;
  }
  while (Piece* const piece = next(outgoing_, true)) {
    const ExchangedBlocks& block = blocks_[static_cast<std::size_t>(piece->peer)];
    piece->copies.add(*executor_, buffer(outgoing_, outgoing_.begun - 1), block.in + piece->at, piece->bytes,
                      CopyDirection::kToHost);
    moved = true;
  }
  // In their order, whichever copy is complete first: MPI keeps the order of what is posted.
  while (outgoing_.posted < outgoing_.begun && outgoing_.place(outgoing_.posted).copies.done()) {
    Piece& piece = outgoing_.place(outgoing_.posted);
    context_.scheduler.send(0, buffer(outgoing_, outgoing_.posted), piece.bytes, piece.peer, piece.tag,
                            &piece.pending);
    ++outgoing_.posted;
    moved = true;
  }
  return moved;
}

bool AllToAll::step_incoming() {
  bool moved = false;
  while (incoming_.retired < incoming_.posted && incoming_.place(incoming_.retired).copies.done()) {
    ++incoming_.retired;
    moved = true;
  }
  while (Piece* const piece = next(incoming_, false)) {
    context_.scheduler.receive(buffer(incoming_, incoming_.begun - 1), piece->bytes, piece->peer, piece->tag,
                               &piece->pending);
    moved = true;
  }
  while (incoming_.posted < incoming_.begun && incoming_.place(incoming_.posted).pending == 0) {
    Piece& piece = incoming_.place(incoming_.posted);
    const ExchangedBlocks& block = blocks_[static_cast<std::size_t>(piece.peer)];
    piece.copies.add(*executor_, block.out + piece.at, buffer(incoming_, incoming_.posted), piece.bytes,
                     CopyDirection::kFromHost);
    ++incoming_.posted;
    moved = true;
  }
  return moved;
}

bool AllToAll::step(bool, bool globally_agreed) {
  bool moved = false;
  if (!own_started_) {
    const ExchangedBlocks& own = blocks_[static_cast<std::size_t>(context_.rank)];
    own_.add(*executor_, own.out, own.in, own.in_bytes, CopyDirection::kWithin);
    own_started_ = moved = true;
  }
  if (!own_done_ && own_.done()) own_done_ = moved = true;
  if (!globally_agreed) return moved;
  // Both, also where the first one moves.
  const bool sent = step_outgoing();
  const bool received = step_incoming();
  return sent || received || moved;
}

void BlockSizes::start(const std::vector<ExchangedBlocks>& blocks) {
  sent_ = done_ = false;
  pending_ = 0;
  here_.clear();
  expected_.clear();
  for (const ExchangedBlocks& block : blocks) {
    here_.push_back(block.in_bytes);
    expected_.push_back(block.out_bytes);
  }
  there_ = here_;
}

bool BlockSizes::step(bool, bool globally_agreed) {
  if (!globally_agreed || done_) return false;
  if (!sent_) {
    for (std::size_t i = 0; i < here_.size(); ++i) {
      if (static_cast<int>(i) == context_.rank) continue;
      const int peer = static_cast<int>(i);
      const int tag = CollectiveContext::tag(0, 0, 0);
      context_.scheduler.receive(&there_[i], sizeof there_[i], peer, tag, &pending_);
      context_.scheduler.send(0, &here_[i], sizeof here_[i], peer, tag, &pending_);
    }
    sent_ = true;
    return true;
  }
  if (pending_ > 0) return false;
  check();
  done_ = true;
  return true;
}

void BlockSizes::check() const {
  for (std::size_t i = 0; i < there_.size(); ++i) {
    if (there_[i] == expected_[i]) continue;
    throw Error(DDL_ERR_MISMATCH,
                context_.topology.describe_rank(static_cast<int>(i)) + " sends " + std::to_string(there_[i]) +
                    " bytes to " + context_.topology.describe_rank(context_.rank) + ", which expects " +
                    std::to_string(expected_[i]),
                "in exchange", "make the sizes of what is sent and of what is received agree");
  }
}

std::uint64_t balance_of(int rank, const std::vector<ExchangedBlocks>& blocks) {
  const auto number = [](int from, std::size_t to, std::size_t bytes) {
    const std::uint64_t words[] = {static_cast<std::uint64_t>(from), to, bytes};
    return hash_words(words, 3, 0);
  };
  std::uint64_t balance = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    balance += number(rank, i, blocks[i].in_bytes);
    balance -= number(static_cast<int>(i), static_cast<std::size_t>(rank), blocks[i].out_bytes);
  }
  return balance;
}

}  // namespace ddl
