#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/exchange.hpp"

namespace ddl {

/**
 * How the owners of a segment reduce it among themselves and give each other the result. G owners, n
 * elements, latency a, b seconds an element.
 *
 * All but kRing and kMpi reduce every element in the same order (the one of ReduceKernel), whatever its owner
 * and the size of the chunk; they can replace each other without changing a bit.
 */
enum class Algorithm : std::uint8_t {
  kDirect,       ///< everybody sends everybody its part: 2 a + 2 (G-1)/G n b
  kOneShot,      ///< everybody sends everybody everything: a + (G-1) n b; for small messages
  kStar,         ///< one collects everything, and sends the sum to all: 2 a + 2 (G-1) n b; leaders only
  kDoubling,     ///< recursive doubling: log2(G) (a + n b); for small messages and many owners
  kMultiplying,  ///< the same by fours: log4(G) (a + 3 n b); see radices()
  kRecursive,    ///< recursive halving and doubling: 2 log2(G) a + 2 (G-1)/G n b; see recursive_cost()
  kRing,         ///< ring: 2 (G-1) a + 2 (G-1)/G n b, neighbours only
  kMpi,          ///< MPI_Ireduce_scatter and MPI_Iallgatherv; no rounds of our own
};

const char* name_of(Algorithm algorithm);
/// The same bits as kDirect with `owners` owners.
bool keeps_order(Algorithm algorithm, std::size_t owners);
/// Adds up as the topology nests, where schedule_tier is told.
bool nests(Algorithm algorithm);

/**
 * How many sums become one in each round of kDoubling or kMultiplying, of `count` in all: together they make
 * the largest power of two up to that. kMultiplying takes four, and two or eight in the last round where
 * fours do not suffice.
 */
std::vector<std::size_t> radices(Algorithm algorithm, std::size_t count);

/// Elements of the chunk, to or from another rank.
struct Transfer {
  int peer = 0;
  Interval range;
  /// Receives, and what is sent wide: where in the scratch memory, in elements; else in the chunk itself.
  std::size_t scratch = kInPlace;
  bool wide = false;  ///< as float, from or to the memory of wide elements

  static constexpr std::size_t kInPlace = static_cast<std::size_t>(-1);
};

/// into = reduction of `operands`. All are places of the elements of `range`: in the chunk itself (kInPlace),
/// or an offset in the scratch memory.
struct Reduction {
  /// Sums of 16-bit types that are made in several steps are kept as float, wide, and rounded once.
  enum class Form : std::uint8_t {
    kSame,    ///< of elements, to elements
    kWiden,   ///< an element becomes wide; there is one operand
    kWide,    ///< of wide elements, to wide ones
    kNarrow,  ///< a wide element is rounded; there is one operand
  };

  Interval range;
  std::size_t into = Transfer::kInPlace;
  std::vector<std::size_t> operands;
  /// Levels of sums that are complete with it: 1, the tier's own, or more where a tier nests its sums. 0:
  /// there is more to add.
  std::size_t completes = 0;
  Form form = Form::kSame;
};

/// What happens at the same time; the reductions follow when all transfers of the round are complete.
/// Transfers with one peer follow each other, and are one message.
struct Round {
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
  std::vector<Reduction> reductions;
};

/// The first transfer behind those of the message that begins with `first`.
inline std::size_t end_of_message(const std::vector<Transfer>& transfers, std::size_t first) {
  std::size_t end = first + 1;
  while (end < transfers.size() && transfers[end].peer == transfers[first].peer) ++end;
  return end;
}

/// What one rank does in one tier with one chunk.
struct TierSchedule {
  std::vector<Round> up;    ///< reduce-scatter
  std::vector<Round> down;  ///< all-gather
  std::size_t scratch = 0;  ///< elements of scratch memory
  std::size_t wide = 0;     ///< wide elements of scratch memory
};

/**
 * The rounds of one tier.
 *
 * kRecursive follows R. Thakur et al., "Optimization of Collective Communication Operations in MPICH" (2005),
 * in the order of ReduceKernel: where G is no power of two, some owners give all that they have to their
 * neighbours, and are given the result at the end. With p the largest power of two up to G, an owner sends
 * one message a round to one other, in log2 p rounds each way, and 2 each way more where p < G.
 *
 * kDoubling and kMultiplying follow M. Ruefenacht, M. Bull, S. Booth: "Generalisation of recursive doubling
 * for AllReduce" (2017), in the same order: in a round the holders of k sums get the k - 1 others. Nobody
 * waits for neighbours that are more than p: these take part, and each of the owners who hold the same sum
 * gets the others from another owner, as far as there are as many. Where the sums nest, the innermost groups
 * are the first to add up.
 *
 * kRing is the bucket algorithm of Patarasuk and Yuan (2009).
 *
 * @param segments  those of this rank in this tier
 * @param rounds_each_step  a 16-bit type: sums that take several steps are kept wide
 * @param nesting   of those that nest(): the groups in which the owners' contributions are added up
 */
TierSchedule schedule_tier(const std::vector<Segment>& segments, Algorithm algorithm, std::size_t grain,
                           const Nesting* nesting = nullptr, bool rounds_each_step = false);

/// What kDoubling, kMultiplying or kRecursive costs the owner that has most to do, for a message of one byte.
/// At most so much of kDoubling and kMultiplying where the owners are no power of two.
struct RecursiveCost {
  double rounds = 0;    ///< that wait for each other
  double messages = 0;  ///< that an owner sends
  double bytes = 0;     ///< that an owner sends or receives, the larger; 1 is the whole message
  double added = 0;     ///< that an owner adds to its own
};
/// @param widening  4 / width where sums are kept wide, else 1
RecursiveCost recursive_cost(Algorithm algorithm, std::size_t owners, double widening);

/**
 * Instead of an all-gather: the finished parts go to owner number `target` of each segment, and nowhere else.
 * One round.
 */
std::vector<Round> gather_rounds(const std::vector<Segment>& segments, std::size_t target, std::size_t grain);

/// Messages that the rounds send.
std::size_t messages_sent(const std::vector<Round>& rounds);

}  // namespace ddl
