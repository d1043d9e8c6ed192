#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddl {

/// What a link does, as one group of a tier sees it: all its ranks use it at the same time.
struct LinkFigures {
  double latency_s = 0;    ///< of a small message
  double bytes_per_s = 0;  ///< in one direction, while the other is as busy
  /// Part of bytes_per_s that is left when all goes to the same other group.
  double to_one_peer = 1;
  /// Part of bytes_per_s that one rank of the group can use alone.
  double by_one_rank = 1;
};

/// The figures that predictions are made of.
struct LinkModel {
  LinkFigures memory;              ///< bytes_per_s: of a vector that all ranks of a host reduce together
  std::vector<LinkFigures> tiers;  ///< above the innermost, innermost first
  std::string origin;              ///< "assumed", "measured", "cached", "topology file", "described"
  double chunk_s = 20e-6;          ///< processor time of one chunk: bookkeeping, wake-ups
  double message_s = 3e-6;         ///< processor time of one message
  double overlap = 1;              ///< 1: chunks keep all tiers busy at once; 0: one tier after the other
  /// Between the GPUs of a host, by NCCL: what each of them sends, while it receives as much.
  LinkFigures devices{20e-6, 100e9};
  /// Between ranks of a host that have memory of each other's GPUs open: bytes_per_s of a vector that they
  /// reduce together, latency_s of what a GPU does of a small one.
  LinkFigures ipc{30e-6, 50e9};
  /// Between a GPU and the host's memory, in one direction.
  LinkFigures copies{10e-6, 20e9};

  /// Cautious figures for a cluster that nobody has measured: 10 Gbit/s, 30 microseconds.
  static LinkModel assumed(std::size_t tiers);

  std::string to_text() const;
  /// False when the text is not one that to_text() wrote for this number of tiers.
  bool from_text(const std::string& text, std::size_t tiers);
};

}  // namespace ddl
