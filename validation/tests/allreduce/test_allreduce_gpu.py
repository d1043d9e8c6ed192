"""ddl-bench on memory of GPUs: DDL beside NCCL alone, on the stand-ins; the tiers one by one."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from program_runner import PYTHONPATH, Environment, Result, run_program

from ddl_validate.allreduce.scenarios import Scenario, by_tier

STAND_IN = {"STAND_IN_DELAY_US": "20"}


def bench(env: Environment, stand_ins: Path, *words: str | Path, **variables: str) -> Result:
    command = [sys.executable, "-m", "ddl_validate.allreduce", "run", *words]
    command += [word for peer in ("ddl", "nccl") for word in ("--prefix", f"{peer}={env.prefix}")]
    found = {"PYTHONPATH": PYTHONPATH, "LD_LIBRARY_PATH": str(stand_ins), **STAND_IN, **variables}
    return run_program(command, 180, **found)


def few(output: Path) -> list[str | Path]:
    return ["--budget", "0.05", "--rounds", "1", "--json", "--output", output]


def cells(done: Result) -> dict[tuple[str, int], dict[str, Any]]:
    document = json.loads(done.out)
    assert document["memory"] == "cuda"
    (one,) = document["scenarios"]
    return {(cell["peer"], cell["bytes"]): cell for cell in one["cells"]}


def test_ddl_beside_nccl(env: Environment, stand_ins: Path, tmp_path: Path) -> None:
    words = ["--device", "gpu", "--sizes", "4K,1M", *few(tmp_path / "out")]
    start = time.monotonic()
    done = bench(env, stand_ins, *words, STAND_IN_DEVICES="2").ok()
    seconds = time.monotonic() - start
    found = cells(done)
    assert set(found) == {(peer, size) for peer in ("ddl", "nccl") for size in (4096, 1 << 20)}
    for cell in found.values():
        assert cell["ranks"] == 2
        # all samples fit into the run; and nothing moves a terabyte a second
        assert sum(second for one in cell["rounds"] for second in one["seconds"]) < seconds
        assert cell["bytes"] / cell["median"] < 1e12
        assert cell["algbw"] == pytest.approx(cell["bytes"] / cell["median"])
    document = json.loads(done.out)
    assert document["peers"]["nccl"]["library"] == "NCCL 2.26.2 on stand-in for a GPU"
    # DDL has gone by NCCL as well: each rank has a GPU of its own
    (said,) = [text for name, text in document["scenarios"][0]["descriptions"].items() if "ddl" in name]
    assert said["device"]["nccl"] == "2.26.2"
    assert "openmpi" not in document["peers"]


def test_ranks_that_share_a_gpu(env: Environment, stand_ins: Path, tmp_path: Path) -> None:
    """DDL is measured; NCCL cannot be, and the run says so."""
    done = bench(env, stand_ins, "--memory", "cuda", "--sizes", "64K", *few(tmp_path / "out"))
    assert done.rc == 3 and set(cells(done)) == {("ddl", 65536)}
    (failure,) = json.loads(done.out)["failures"]
    assert failure["peer"] == "nccl" and "a GPU for each rank; there are 1 for 2" in failure["reason"]


# A peer that returns without having summed anything.
IDLE = """
import sys
from ddl_validate.gpu import timing
timing.{subject}.allreduce = lambda self, buffer: None
sys.exit(timing.main([{peer!r}, "4096", "0", "1", "1", "1"]))
"""


@pytest.mark.parametrize(("peer", "subject"), [("ddl", "OfDdl"), ("nccl", "OfNccl")])
def test_a_wrong_sum_is_found(env: Environment, stand_ins: Path, peer: str, subject: str) -> None:
    variables = {"LD_LIBRARY_PATH": str(stand_ins), "STAND_IN_DEVICES": "2", "PYTHONPATH": PYTHONPATH}
    done = env.ranks(2, "-c", IDLE.format(peer=peer, subject=subject), **variables)
    events = [
        json.loads(line.partition("@ddl-bench ")[2]) for line in done.out.splitlines() if "@ddl" in line
    ]
    wrong = events[-1]
    assert done.rc == 3 and [event["event"] for event in events] == ["start", "wrong"]
    # element 0 of rank 0 is 5 x 0 + 3 x 0 in the first repetition, and of rank 1 three more
    assert (wrong["bytes"], wrong["rank"], wrong["index"]) == (4096, 0, 0)
    assert (wrong["got"], wrong["expected"]) == ("0", "3")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--peers", "gloo"], "--peers gloo does not reduce this memory (--memory cuda)"),
        (["--wire", "bf16"], "--wire and --cpu-share are for the host's memory"),
        ([], "--memory cuda: no NVIDIA driver"),
    ],
    ids=["peer", "wire", "no_gpu"],
)
def test_what_cannot_be_measured(env: Environment, tmp_path: Path, words: list[str], error: str) -> None:
    done = bench(env, tmp_path, "--memory", "cuda", *words, "--output", tmp_path / "out")
    assert done.rc == 1 and error in done.err and "Traceback" not in done.err


def shown(scenario: Scenario) -> list[tuple[str, tuple[int, ...], int]]:
    return [(one.name, one.slots, one.racks) for one in by_tier(scenario)]


def test_tiers_one_by_one() -> None:
    real = Scenario("c", (2, 4, 4), 1, "shuffled", None, None, ("a", "b", "c"))
    assert shown(real) == [
        ("c-in-host", (4,), 1),
        ("c-between-hosts", (1, 1, 1), 1),
        ("c", (2, 4, 4), 1),
    ]
    in_host, between, _ = by_tier(real)
    assert in_host.hosts == ("b",) and between.hosts == ("a", "b", "c") and between.order == "shuffled"

    racks = Scenario("r", (2, 2, 2, 2), 2)
    assert shown(racks) == [
        ("r-in-host", (2,), 1),
        ("r-in-rack", (1, 1), 1),
        ("r-between-racks", (1, 1), 2),
        ("r", (2, 2, 2, 2), 2),
    ]
    assert by_tier(racks)[2].rack_members() == [["h1"], ["h3"]]
    # nothing but itself where there is one tier, or where the tiers are the whole
    assert shown(Scenario("one", (4,), 1)) == [("one", (4,), 1)]
    assert shown(Scenario("flat", (1, 1), 1)) == [("flat", (1, 1), 1)]
