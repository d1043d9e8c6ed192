#pragma once

#include "collective/collective_context.hpp"
#include "engine/backoff.hpp"
#include "plan/link_model.hpp"

namespace ddl {

/**
 * What the links between the groups of every tier do: read from the cache of an earlier job on the same
 * hosts, or measured (and then kept). The same on all ranks. Collective.
 *
 * The cache is a file for each cluster in $DDL_CACHE_DIR, by default ddl in the user's cache folder; a
 * cluster is told by its hosts' names, their numbers of ranks, the tiers, and the MPI library. A file that
 * cannot be read or written is as good as none.
 *
 * Measured is what an all-reduce will do: in every tier all ranks send to their counterpart in the next group
 * and receive from the one before, first little (latency), then more and more (bandwidth).
 */
LinkModel measured_links(CollectiveContext& context, Backoff& backoff, MPI_Comm comm);

}  // namespace ddl
