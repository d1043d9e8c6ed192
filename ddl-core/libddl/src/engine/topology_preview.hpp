#pragma once

#include <string>

#include "topology/topology.hpp"

namespace ddl {

/**
 * The topology that DDL will find for a job that has not been started: the same code, fed with a description
 * of the ranks instead of their own words. No MPI is needed. `-topology measure` is taken for the hosts
 * alone, as nothing can be measured.
 *
 * @param request  JSON: {"options": "-mode p:2x2", "order": ["h1", "h2"], "ranks": [{"host": "h1", "numa": 0,
 *        "package": 0, "gpu": "0000:1b:00.0/0"}, …]}: DDL_OPTIONS, DDL_HOST_ORDER (may be left out), and by
 *        rank its host, the NUMA node and package of its processors (-1: several, or not known), and its GPU
 *        as in DDL_RANK_GPU (may be left out)
 * @throws Error (DDL_ERR_OPTION) as the start of the job would, or DDL_ERR_ARGUMENT when the request is not
 *         understood
 */
Topology preview_topology(const std::string& request);

}  // namespace ddl
