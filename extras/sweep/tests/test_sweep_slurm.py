"""Sweeps in a real Slurm: two hosts of two CPUs, a slurmd on each."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_processes import ALLOW_ROOT, ROOT
from sweep_process import PROGRAMS, interrupt

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements
from ddl_validate.cluster.slurm import Slurm, missing_slurm

ENVIRONMENT = {
    "SHLVL": "1",
    **ALLOW_ROOT,
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@pytest.fixture(scope="module")
def slurm(env: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    reasons = missing_requirements() + missing_slurm()
    if reasons:
        pytest.skip("; ".join(reasons))
    shared = tuple(str(path) for path in (env, ROOT) if path.is_relative_to("/tmp"))
    spec = ClusterSpec.uneven([2, 2], shared=shared, environment=ENVIRONMENT, life_seconds=600)
    with Cluster(spec, tmp_path_factory.mktemp("cluster") / "state") as cluster:
        made = Slurm(cluster)
        made.up()
        yield made


def test_an_array_without_a_driver(slurm: Slurm, env: Path) -> None:
    """Six trials, of which two at a time run, and one fails. Submitting again runs what has no result."""
    folder = new_folder(slurm)
    sweep = [str(env / "bin/python"), "-m", "ddl_sweep"]
    code = "import socket; x = {x}; print('host:', socket.gethostname()[1:]); print('y:', 1 / (x - 2))"
    words = ["--param", "x=0,1,2,3,4,5", "--maximize", "y", "--at-once", "2", "--sbatch=--time=5"]
    program = ["--", str(env / "bin/python"), "-c", code]
    submitted = slurm.run([*sweep, "submit", str(folder), *words, *program], timeout=60, check=True).stdout
    assert submitted.startswith("submitted job "), submitted
    status = awaited(slurm, [*sweep, "status", str(folder), "--json"])
    assert status == {"trials": 6, "done": 5, "pruned": 0, "failed": 1, "begun": 0, "left": 0}
    journal = folder / "optuna.log"
    assert '"--array=0-5%2"' in journal.read_text() and '"--time=5"' in journal.read_text()
    table = [*sweep, "table", str(folder), "--json"]
    rows = json.loads(slurm.run(table, timeout=60, check=True).stdout)
    assert {row["x"]: row["y"] for row in rows if row["status"] == "done"} == {
        x: 1 / (x - 2) for x in (0, 1, 3, 4, 5)
    }
    assert [row["x"] for row in rows if "ZeroDivisionError" in (row["error"] or "")] == [2]

    for lost in (0, 4):
        interrupt(folder, lost)
    slurm.run([*sweep, "submit", str(folder)], timeout=60, check=True)
    assert awaited(slurm, [*sweep, "status", str(folder), "--json"]) == status
    assert '"--array=0,4"' in journal.read_text()
    assert json.loads(slurm.run(table, timeout=60, check=True).stdout)[1:4] == rows[1:4]


def new_folder(slurm: Slurm) -> Path:
    """One that both hosts see, also when a test is repeated."""
    return Path(tempfile.mkdtemp(prefix="sweep-", dir=slurm.cluster.state))


def awaited(slurm: Slurm, status: list[str]) -> dict[str, int]:
    end = time.monotonic() + 300
    while True:
        told: dict[str, int] = json.loads(slurm.run(status, timeout=60, check=True).stdout)
        if told["begun"] + told["left"] == 0:
            return told
        assert time.monotonic() < end, told
        time.sleep(0.5)


def test_arrays_and_dasks_workers_of_a_program(slurm: Slurm, env: Path) -> None:
    folder = new_folder(slurm)
    line = [str(env / "bin/python"), str(PROGRAMS / "in_slurm.py"), str(folder)]
    run = slurm.run(line, timeout=240, cwd=folder)
    assert run.returncode == 0, run.stdout + run.stderr
    told = json.loads(run.stdout.splitlines()[-1])
    assert told["ranks"] == [[1, 2.0, 3.0], [10, 2.0, 30.0]]
    assert len({x for x, _ in told["tpe"]}) == 4
    assert all(y == pytest.approx(-((x - 1) ** 2)) for x, y in told["tpe"])
    assert told["dask"] == [1, [True, True, True]]
