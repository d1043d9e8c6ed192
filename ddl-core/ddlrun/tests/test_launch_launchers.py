"""Other launchers than mpirun. jsrun and flux are stand-ins for these commands; the real srun is in
test_launch_slurm.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from ddlrun.checks.inventory import Domain, HostInventory
from ddlrun.command_line.options import Options
from ddlrun.environment import Environment
from ddlrun.errors import LaunchError
from ddlrun.hosts.host_list import Host, HostList
from ddlrun.placement.slots import Placement, Slot
from ddlrun.start import launchers
from ddlrun.start.launcher_messages import ProcessFailure
from ddlrun.start.launchers import Start
from ddlrun.start.launchers.cpus import by_local_rank
from ddlrun.start.launchers.jsrun import Jsrun
from ddlrun.start.launchers.labels import LabelSplitter
from ddlrun.start.launchers.srun import Srun, SrunMessages
from ddlrun_program import PROGRAMS, Ddlrun, Run
from hypothesis import given
from hypothesis import strategies as st

STANDINS = Path(__file__).parent / "standins"
#: Two hosts of two cores with two hyperthreads each.
HOST = HostInventory("h", (Domain(0, 0, (0, 1), ((0, 2), (1, 3))),))
TWO = (Slot(0, "a", (0,)), Slot(1, "a", (1,)), Slot(2, "b", (0,)), Slot(3, "b", (1,)))


def start(tmp_path: Path, slots: tuple[Slot, ...] = TWO, **more: object) -> Start:
    environment = Environment(Path("/env"), Path("/env/ddl"), Path("/env/bin/mpirun"))
    made: dict[str, object] = {
        "environment": environment,
        "options": Options(program=("p", "x y")),
        "placed": Placement(slots, bound=True, oversubscribed=False),
        "facts": {"a": HOST, "b": HOST},
        "folder": tmp_path,
        "variables": {"A": "b"},
        "remote": True,
        "stdin_is_tty": False,
    }
    return Start(**(made | more))  # type: ignore[arg-type]


# ---- words


@given(
    st.lists(st.tuples(st.integers(0, 12), st.binary(max_size=9).map(lambda b: b.replace(b"\n", b"")))),
    st.data(),
)
def test_labels_are_taken_off(written: list[tuple[int, bytes]], data: st.DataObject) -> None:
    """Any lines of ranks, also such that look like labels, in pieces of any size."""
    text = b"".join(b"%2d: %b\n" % (rank, line) for rank, line in written)
    splitter, pieces, at = LabelSplitter(), [], 0
    while at < len(text):
        size = data.draw(st.integers(1, 20))
        pieces += list(splitter.feed(text[at : at + size]))
        at += size
    pieces += list(splitter.feed(b"", last=True))
    assert pieces == [(rank, line + b"\n") for rank, line in written]


def test_the_launchers_own_words() -> None:
    own = re.compile(rb"slurmstepd(-\S+)?: ")
    text = b"srun: error: x\n0: slurmstepd-h1: error: gone\n0: mine\n1: no end"
    assert list(LabelSplitter(own).feed(text, last=True)) == [
        (None, b"srun: error: x\n"),
        (None, b"slurmstepd-h1: error: gone\n"),
        (0, b"mine\n"),
        (1, b"no end"),
    ]


@pytest.mark.parametrize(
    ("line", "death"),
    [
        (
            "srun: error: h2: task 3: Exited with exit code 9",
            ProcessFailure(True, 3, "EXITED WITH NON-ZERO", 9, "h2"),
        ),
        ("srun: error: h2: tasks 4-5: Killed", ProcessFailure(True, 4, "ABORTED BY SIGNAL", 137, "h2")),
        (
            "srun: error: h2: task 1: Segmentation fault (core dumped)",
            ProcessFailure(True, 1, "ABORTED BY SIGNAL", 139, "h2"),
        ),
        ("srun: error: h2: task 1: Out Of Memory", ProcessFailure(True, 1, "OUT OF MEMORY", 137, "h2")),
        ("srun: error: Node failure on h7", ProcessFailure(False, 0, "NODE FAILURE", host="h7")),
        ("srun: error: Application launch failed: No such file", ProcessFailure(True, 0, "FAILED TO START")),
        ("srun: error: task 2 launch failed: Unspecified error", ProcessFailure(True, 0, "FAILED TO START")),
    ],
)
def test_what_srun_says(line: str, death: ProcessFailure) -> None:
    messages = SrunMessages(launcher="srun")
    messages.read("srun: job 7 queued and waiting for resources")
    assert messages.first is None
    messages.read(line)
    messages.read("srun: error: h1: task 0: Terminated")
    assert messages.first == death


def test_pmix_that_slurm_does_not_have() -> None:
    messages = SrunMessages(launcher="srun")
    assert not messages.read("srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types")
    assert messages.hint and "PMIx" in messages.hint


# ---- binding and lines


def test_cpus_by_local_rank(tmp_path: Path) -> None:
    made = start(tmp_path)
    assert by_local_rank(made.placed, made.facts) == [[0, 2], [1, 3]]
    other = HostInventory("b", (Domain(0, 0, (0, 1), ((0,), (1,))),))
    assert by_local_rank(made.placed, {"a": HOST, "b": other}) == []
    assert by_local_rank(made.placed, {"a": HOST}) == []
    assert by_local_rank(Placement(TWO, bound=False, oversubscribed=True), made.facts) == []


def test_srun_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "a,b")
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "4(x2)")
    line = Srun().line(start(tmp_path))
    assert line[0] == "srun" and line[-2:] == ["p", "x y"] and "--mpi=pmix" in line
    assert "-N 2 -n 4 --ntasks-per-node 2 --distribution=block" in " ".join(line)
    assert "--cpu-bind=mask_cpu:0x5,0xa" in line
    uneven = Srun().line(start(tmp_path, TWO[:3]))
    assert (tmp_path / "SLOTS").read_text() == "a\na\nb\n"
    assert "--distribution=arbitrary" in uneven and f"--nodelist={tmp_path / 'SLOTS'}" in uneven
    monkeypatch.setenv("SLURM_JOB_NODELIST", "a,b,c")
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "2(x3)")  # others have the rest of the hosts
    part = " ".join(Srun().line(start(tmp_path)))
    assert "--nodelist=a,b --cpus-per-task 1 --cpu-bind=cores" in part
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "1(x3)")
    assert "--overcommit --cpu-bind=none" in " ".join(Srun().line(start(tmp_path)))


def test_srun_gets_no_options_of_the_job(tmp_path: Path) -> None:
    inherited = {"SLURM_NTASKS_PER_NODE": "4", "SLURM_EXPORT_ENV": "NONE", "SLURM_JOB_ID": "7", "A": "b"}
    made = Srun().variables(start(tmp_path, variables=inherited, options=Options(program=("p",), tcp=True)))
    assert "SLURM_NTASKS_PER_NODE" not in made and "SLURM_EXPORT_ENV" not in made
    assert made["SLURM_JOB_ID"] == "7" and made["A"] == "b"
    assert made["PMIX_MCA_psec"] == "native" and made["OMPI_MCA_btl"] == "self,sm,tcp"


def test_jsrun_resource_file(tmp_path: Path) -> None:
    line = Jsrun().line(start(tmp_path, TWO[:3]))
    assert line[line.index("--erf_input") + 1] == str(tmp_path / "RESOURCES")
    assert (tmp_path / "RESOURCES").read_text().splitlines() == [
        "overlapping_rs: allow",
        "cpu_index_using: logical",
        "",
        "rank: 0: { hostname: a; cpu: {0,1} }",
        "rank: 1: { hostname: a; cpu: {2,3} }",
        "rank: 2: { hostname: b; cpu: {0,1} }",
    ]


@pytest.mark.parametrize("name", ["jsrun", "flux"])
def test_uneven_hosts_without_a_way_are_refused(name: str, tmp_path: Path) -> None:
    placed = Placement(TWO[:3], bound=False, oversubscribed=False, reason="the cores of b are not known")
    with pytest.raises(LaunchError, match=r"DDL-2-24\].*leave -launcher"):
        launchers.choose(name).line(start(tmp_path, placed=placed))


def test_a_host_of_another_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    job = {"PATH": str(tmp_path), "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "h[1-2]"}
    Srun().check(HostList((Host("h1"), Host("h2")), "-H"), job)
    with pytest.raises(LaunchError, match="host h3 does not belong to Slurm job 7"):
        Srun().check(HostList((Host("h1"), Host("h3")), "-H"), job)


# ---- the program


@pytest.mark.parametrize("name", ["srun", "jsrun", "flux"])
def test_a_launcher_that_is_missing(name: str, ddlrun: Ddlrun, tmp_path: Path) -> None:
    few = tmp_path / "bin"
    few.mkdir()
    for tool in ("dirname", "readlink", "true"):
        (few / tool).symlink_to(str(shutil.which(tool)))
    run = ddlrun("-launcher", name, "true", PATH=str(few))
    assert run.code == 1
    assert f"[ERROR DDL-2-24] {name} was not found; on PATH; load the module that brings {name}" in run.err


@pytest.mark.parametrize("name", ["jsrun", "flux"])
def test_no_job_around(name: str, ddlrun: Ddlrun) -> None:
    run = ddlrun("-launcher", name, "true", PATH=f"{STANDINS}:{os.environ['PATH']}")
    assert run.code == 1
    assert re.search(
        rf"\[ERROR DDL-2-24\] {name} starts .* there is none around; in -launcher {name}; ", run.err
    )


def test_bad_launchers(ddlrun: Ddlrun) -> None:
    run = ddlrun("-launcher", "aprun", "true")
    assert run.code == 2 and "'aprun' is none of mpirun, srun, jsrun, flux" in run.err
    run = ddlrun("-launcher", "srun", "-rankfile", "f", "true")
    assert run.code == 2 and "leave -launcher or -rankfile out" in run.err


def under(name: str, ddlrun: Ddlrun, *words: str, **more: str) -> Run:
    """ddlrun with a stand-in, in the environment of a job on this host."""
    here = os.uname().nodename
    jobs = {
        "jsrun": {"LSB_JOBID": "12", "LSB_MCPU_HOSTS": f"{here} 2"},
        "flux": {
            "FLUX_URI": "local:///x",
            "FLUX_STANDIN_R": json.dumps(
                {"execution": {"R_lite": [{"rank": "0", "children": {"core": "0-1"}}], "nodelist": [here]}}
            ),
        },
    }
    path = f"{STANDINS}:{os.environ['PATH']}"
    return ddlrun("-launcher", name, *words, PATH=path, **jobs[name], **more)


@pytest.mark.parametrize("name", ["jsrun", "flux"])
def test_ranks_by_a_stand_in(name: str, ddlrun: Ddlrun, tmp_path: Path) -> None:
    record = tmp_path / "words"
    run = under(name, ddlrun, "python", str(PROGRAMS / "joined.py"), STANDIN_RECORD=str(record))
    assert run.code == 0, run.err
    here = os.uname().nodename
    assert run.lines == [f"0 on {here} sum 1", f"1 on {here} sum 1"]
    words = record.read_text()
    assert f"+ {name} " in run.err
    if name == "jsrun":
        assert "--nrs\n1\n--rs_per_host\n1\n--tasks_per_rs\n2\n" in words
    else:
        assert "-N\n1\n--tasks-per-node\n2\n" in words and "pmi=pmix" in words


@pytest.mark.parametrize(
    ("name", "deed", "number", "code", "said"),
    [
        ("jsrun", "signal", 9, 137, "rank 1 was killed by signal 9 (SIGKILL)"),
        ("flux", "exit", 7, 7, "rank 1 ended with exit code 7"),
        ("flux", "signal", 9, 137, "rank 1 was killed by signal 9 (SIGKILL)"),
    ],
)
def test_a_rank_that_fails_is_named(
    name: str, deed: str, number: int, code: int, said: str, ddlrun: Ddlrun
) -> None:
    run = under(name, ddlrun, "python", str(PROGRAMS / "obey.py"), "1", deed, str(number))
    assert run.code == code, run.err
    assert said in run.err and "  | rank 1 is here" in run.err
    assert "doom" not in run.err and "One or more process" not in run.err
