"""Ranks in a small /dev/shm, such as a container's of 64 MiB."""

from __future__ import annotations

from typing import Any

import pytest
from rank_processes import ALLOW_ROOT, ROOT

from ddl_validate.cluster import Cluster, ClusterSpec, HostSpec, missing_requirements

PROGRAM = """
import ddl, numpy as np
x = np.arange(3_000_001, dtype="f") % 97
total = ddl.allreduce(x)
np.testing.assert_array_equal(total, x * ddl.size())
part = ddl.reduce_scatter(np.ones(800_000, "f"))
np.testing.assert_array_equal(part, np.full(100_000, ddl.size(), "f"))
every = ddl.all_gather(np.full(50_000, ddl.rank(), "f"))
np.testing.assert_array_equal(every.reshape(ddl.size(), -1)[:, 0], np.arange(ddl.size()))
assert 2 << 20 <= ddl.describe()["staging_bytes"] < 8 << 20, ddl.describe()
print("sum", total[1])
"""


def test_eight_ranks_where_full_staging_memory_does_not_fit(mpirun: Any) -> None:
    """8 x 8 MiB would be more than there is."""
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    shared = tuple(str(path) for path in (mpirun.mpirun.parents[1], ROOT) if path.is_relative_to("/tmp"))
    spec = ClusterSpec(
        (HostSpec("h1", slots=8, shm_bytes=60 << 20),),
        shared=shared,
        environment=ALLOW_ROOT,
        life_seconds=200,
    )
    with Cluster(spec) as cluster:
        words = [str(mpirun.mpirun), "--prefix", str(mpirun.mpirun.parents[1]), "-np", "8"]
        words += ["--oversubscribe", "--bind-to", "none", str(mpirun.python), "-c", PROGRAM]
        run = cluster.run("h1", words, timeout=90)
    assert run.returncode == 0 and run.stdout.count("sum 8.0") == 8, run.stdout + run.stderr
