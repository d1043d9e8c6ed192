#pragma once

#include <vector>

#include "transport/mpi_transport.hpp"

namespace ddl {

/**
 * Measures the bandwidth between every two hosts while all of them are busy: in each round every host has one
 * partner, all pairs exchange data in both directions at the same time, and after the rounds everybody has
 * met everybody. Links that several hosts share, such as the uplink of a rack, show as slower ones.
 *
 * Collective over the leaders, between which nothing else may be under way; other ranks may call it, too.
 * Takes about budget_s, and longer only where a single message of 128 KiB does. What a rank waits for has a
 * limit of 30 s more than its share.
 *
 * @param leaders   one rank of comm for each host; the same on all ranks
 * @param budget_s  seconds for the whole; more hosts need more: kMinProbeSeconds for each round, of which
 *                  there are about as many as hosts
 * @return symmetric matrix by the index in leaders: Mbit/s (10^6 bit) in each direction, 0 on the diagonal;
 *         on the first leader, empty on other ranks
 * @throws Error  DDL_ERR_OPTION, on all ranks, when the budget is too small for that many hosts,
 * DDL_ERR_TIMEOUT when a rank does not answer (comm is of no use then), DDL_ERR_MPI
 */
std::vector<std::vector<double>> measure_bandwidth(MPI_Comm comm, const std::vector<int>& leaders,
                                                   double budget_s);

}  // namespace ddl
