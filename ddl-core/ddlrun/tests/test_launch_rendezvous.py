"""Programs for torchrun find what they look for, whoever starts their ranks."""

from __future__ import annotations

import os

import pytest
from ddlrun.placement.slots import Placement, Slot
from ddlrun.start import rendezvous
from ddlrun_program import Ddlrun, environment_of_rank
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "WORLD_SIZE", "OMP_NUM_THREADS")
LAUNCHED = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK")


def environment_of(**variables: str) -> dict[str, str]:
    """What a program sees of them."""
    launched = {name: value for name, value in variables.items() if name in LAUNCHED}
    handed = {name: value for name, value in variables.items() if name not in LAUNCHED}
    seen = environment_of_rank(handed, launched)
    return {name: seen.get(name, "none") for name in NAMES}


@settings(max_examples=25)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.data())
def test_every_rank_of_any_cluster(counts: list[int], data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, sum(counts) - 1))
    seen = environment_of(PMIX_RANK=str(rank), DDLRUN_HOST_RANKS=",".join(map(str, counts)))
    host = next(i for i in range(len(counts)) if rank < sum(counts[: i + 1]))
    wanted = {
        "RANK": rank,
        "GROUP_RANK": host,
        "LOCAL_RANK": rank - sum(counts[:host]),
        "LOCAL_WORLD_SIZE": counts[host],
    }
    assert {name: int(seen[name]) for name in wanted} == wanted and seen["OMP_NUM_THREADS"] == "none"


@pytest.mark.parametrize("variable", LAUNCHED)
def test_every_launcher(variable: str) -> None:
    seen = environment_of(**{variable: "3", "DDLRUN_HOST_RANKS": "2,2"})
    assert [seen[name] for name in NAMES[:4]] == ["3", "1", "2", "1"]


def test_without_a_launcher_nothing_is_set() -> None:
    for odd in ({}, {"PMIX_RANK": ""}, {"PMIX_RANK": "$(touch x)"}):
        assert set(environment_of(**odd, DDLRUN_HOST_RANKS="2").values()) == {"none"}


def test_threads_of_ranks_that_are_not_bound() -> None:
    """A share of the processors, one at least; what the user says stays."""
    common = {"PMIX_RANK": "0", "DDLRUN_UNBOUND": "1"}
    cores = len(os.sched_getaffinity(0))
    assert environment_of(**common, DDLRUN_HOST_RANKS="1")["OMP_NUM_THREADS"] == str(cores)
    assert environment_of(**common, DDLRUN_HOST_RANKS="999")["OMP_NUM_THREADS"] == "1"
    assert environment_of(**common, DDLRUN_HOST_RANKS="1", OMP_NUM_THREADS="7")["OMP_NUM_THREADS"] == "7"


def placed(*hosts: str) -> Placement:
    return Placement(tuple(Slot(rank, host) for rank, host in enumerate(hosts)), True, False)


def test_where_the_ranks_meet() -> None:
    """By a name that the other hosts know; another port for every job."""
    made = rendezvous.variables(placed("n1", "n1", "n2"), {}, "a", unbound=False)
    assert made["MASTER_ADDR"] == "n1" and made["WORLD_SIZE"] == "3" and made["DDLRUN_HOST_RANKS"] == "2,1"
    assert rendezvous.variables(placed("n1"), {}, "a", unbound=True)["MASTER_ADDR"] == "127.0.0.1"
    assert (
        rendezvous.variables(placed("localhost", "n2"), {}, "a", unbound=True)["MASTER_ADDR"] != "localhost"
    )
    cyclic = rendezvous.variables(placed("n1", "n2", "n1"), {}, "a", unbound=False)
    assert "DDLRUN_HOST_RANKS" not in cyclic
    ports = {rendezvous.port_of(f"job {i}") for i in range(50)}
    assert len(ports) > 40 and all(20000 <= port < 32768 for port in ports)


def test_a_program_for_torchrun_runs(ddlrun: Ddlrun) -> None:
    """Without a word of DDL in it: gloo, env://."""
    program = ddlrun.folder / "program.py"
    program.write_text(
        "import os, sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.full((3,), dist.get_rank() + 1.0)\n"
        "dist.all_reduce(x)\n"
        "names = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'GROUP_RANK')\n"
        "sys.stdout.write(f\"{x[0]:g} {' '.join(os.environ[n] for n in names)} {'ddl' in sys.modules}\\n\")\n"
        # gloo's threads do not all end by themselves
        "dist.destroy_process_group()\n"
    )
    run = ddlrun("-np", "2", "python", str(program))
    assert run.code == 0 and run.lines == ["3 0 0 2 2 0 False", "3 1 1 2 2 0 False"], run.out + run.err


def test_variables_of_another_start_are_not_taken_over(ddlrun: Ddlrun) -> None:
    odd = {
        "RANK": "7",
        "WORLD_SIZE": "9",
        "MASTER_ADDR": "elsewhere",
        "LOCAL_RANK": "5",
        "DDLRUN_HOST_RANKS": "9",
    }
    run = ddlrun("-np", "2", "sh", "-c", 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR"', **odd)
    assert run.lines == ["0 0 2 127.0.0.1", "1 1 2 127.0.0.1"], run.out + run.err
