"""Random clusters, sizes, types and reductions against numpy."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PROGRAM = """
import json, os, sys
import ddl, ml_dtypes, numpy as np
rank, size = ddl.rank(), ddl.size()
numpy_op = {"sum": np.sum, "avg": np.mean, "min": np.min, "max": np.max, "product": np.prod}
for number, (dtype, op, sizes) in enumerate(json.loads(sys.argv[1])):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    integer = dtype.kind == "i"
    def inputs(r):
        rng = np.random.default_rng([r, number])
        if op == "product":
            return [rng.choice([-1, 1, 2], n).astype(dtype) for n in sizes]
        return [rng.integers(-50, 50, n).astype(dtype) for n in sizes]
    everybody = [inputs(r) for r in range(size)]
    got = ddl.allreduce_n(everybody[rank], op=op, name=str(number))
    for k, n in enumerate(sizes):
        exact = numpy_op[op](np.array([np.asarray(e[k], np.float64) for e in everybody]), axis=0)
        if op == "avg" and integer:
            exact = np.trunc(exact)
        expected = exact.astype(dtype)
        assert got[k].dtype == dtype and got[k].shape == (n,)
        # Sums of small integers are exact in every type but bfloat16, which rounds in each tier.
        tolerance = 0.02 if dtype.name == "bfloat16" else 1e-3 if dtype.name == "float16" else 1e-6
        scale = np.abs(exact) + (50 * size if dtype.itemsize == 2 else 0)
        error = np.abs(np.asarray(got[k], np.float64) - np.asarray(expected, np.float64))
        assert (error <= tolerance * scale).all(), (dtype, op, sizes, k)
print("checked", number + 1)
"""

hosts = st.lists(st.integers(1, 3), min_size=1, max_size=3)
racks = st.lists(hosts, min_size=1, max_size=3).filter(lambda tree: sum(map(sum, tree)) <= 7)
sizes = st.lists(st.integers(0, 40) | st.integers(1000, 70_000), min_size=1, max_size=4)
dtypes = st.sampled_from(["float32", "float16", "float64", "bfloat16", "int32", "int64"])
ops = st.sampled_from(["sum", "min", "max", "product", "avg"])
cases = st.lists(st.tuples(dtypes, ops, sizes), min_size=8, max_size=16)
options = st.sampled_from(
    ["", "-mode r", "-mode c", "-mode m", "-deterministic placement", "-deterministic off"]
)


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(racks, cases, options)
def test_any_cluster_gives_what_numpy_gives(
    mpirun: Any, tree: list[list[int]], calls: list[Any], chosen: str
) -> None:
    """Uneven hosts and racks included."""
    layout = "/".join(",".join(map(str, rack)) for rack in tree)
    ranks = sum(map(sum, tree))
    run = mpirun(ranks, PROGRAM, json.dumps(calls), hosts=layout, env={"DDL_OPTIONS": chosen})
    assert run.status == 0, (layout, chosen, run.output)
    assert run.lines("checked ") == [str(len(calls))] * ranks
