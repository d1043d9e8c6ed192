"""Whatever is typed, stands in files and variables, or comes from hosts: a message, and no traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddlrun.checks import inventory, remote_probe
from ddlrun.cli import main
from ddlrun.command_line.options import OPTIONS, Option
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Those that start something, look at the machine for long, or write where they are told.
_LEFT_OUT = {"doctor", "simulate", "calibrate", "bytes", "ranks", "picture", "topology-picture", "check"}
_LEFT_OUT |= {"image", "imagearg", "read-flight-record", "completion", "version", "json", "show-topology"}
OFFERED = [option for option in OPTIONS if option.names[0] not in _LEFT_OUT]
odd = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), max_size=12)
typical = st.sampled_from(
    [
        *(
            "1",
            "2",
            "0",
            "-1",
            "1e9",
            "2:4",
            "4:2",
            "999999999999",
            "localhost",
            "localhost:2",
            "::1",
            "[::1]:2",
        ),
        *(
            "a,b",
            "h[1-3]",
            "h[1-3,5]x",
            "2(x3),1",
            "r:2x1",
            "p:9",
            "own",
            "none",
            "chief",
            "worker",
            "mpirun",
        ),
        *("srun", "A=1", "RANK=1", "NAME", ".", "--", "--x", "-np", ":", "'", "-bind-to none -map-by slot"),
    ]
)


def _written(option: Option) -> st.SearchStrategy[list[str]]:
    """An option as somebody may type it, mostly with a value of its kind."""
    name = st.sampled_from([f"{dash}{name}" for name in option.names for dash in ("-", "--")])
    if option.kind == "flag":
        return name.map(lambda spelled: [spelled])
    value = st.one_of(st.sampled_from(option.values), typical, odd) if option.values else typical | odd
    return st.tuples(name, value).map(list)


words = st.lists(st.one_of(*map(_written, OFFERED), st.lists(typical | odd, max_size=2)), max_size=5).map(
    lambda written: [word for part in written for word in part]
)
_VARIABLES = [
    *("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"),
    *("SLURM_STEP_ID", "SLURM_NTASKS_PER_NODE", "SLURM_JOB_NODELIST_HET_GROUP_0", "SLURM_TOPOLOGY_ADDR"),
    *("SLURM_JOB_NODELIST_HET_GROUP_1", "LSB_JOBID", "LSB_MCPU_HOSTS", "LSB_HOSTS", "LSB_DJOB_HOSTFILE"),
    *("PBS_JOBID", "PBS_NODEFILE", "DDL_OPTIONS", "CUDA_VISIBLE_DEVICES", "DDLRUN_REMOTE_SHELL"),
    *("DDLRUN_RANK", "DDLRUN_STATE", "WORLD_SIZE", "COLUMNS", "OMP_NUM_THREADS", "HOME"),
]
surroundings = st.dictionaries(st.sampled_from(_VARIABLES), st.one_of(odd, typical), max_size=5)


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder to run in, and the environment afterwards as it was."""
    folder, before, here = tmp_path_factory.mktemp("fuzz"), dict(os.environ), Path.cwd()
    os.chdir(folder)
    # for the line that is planned
    (folder / "mpirun").write_text("#!/bin/sh\n")
    (folder / "mpirun").chmod(0o755)
    yield folder
    os.chdir(here)
    os.environ.clear()
    os.environ.update(before)


def outcome(arguments: list[str], variables: dict[str, str], folder: Path) -> tuple[int, str]:
    """Exit code and errors of ddlrun in this process."""
    plain = {"PATH": f"{folder}:/usr/bin:/bin", "TMPDIR": str(folder), "HOME": str(folder)}
    os.environ.clear()
    os.environ.update(plain | variables)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(arguments)
    return code, errors.getvalue()


def told_or_planned(around: Path, arguments: list[str], variables: dict[str, str]) -> None:
    code, errors = outcome(["-dry-run", "-skip-checks", *arguments, "true"], variables, around)
    assert code in (0, 1, 2), errors
    assert (code != 0) == ("[ERROR DDL-2-" in errors), errors


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words, surroundings)
def test_any_command_line_in_any_surroundings(
    around: Path, arguments: list[str], variables: dict[str, str]
) -> None:
    told_or_planned(around, arguments, variables)


@pytest.mark.long
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(words, surroundings)
def test_very_many_command_lines(around: Path, arguments: list[str], variables: dict[str, str]) -> None:
    told_or_planned(around, arguments, variables)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["-hostfile", "-rankfile"]), st.one_of(st.binary(max_size=80), odd.map(str.encode)))
def test_any_file_of_hosts(around: Path, option: str, text: bytes) -> None:
    (around / "hosts").write_bytes(text)
    code, errors = outcome(["-dry-run", "-skip-checks", option, "hosts", "true"], {}, around)
    assert code in (0, 1, 2) and (code != 0) == ("[ERROR DDL-2-" in errors), errors


leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=True), odd)
answers = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd, inner, max_size=3)
)


@settings(max_examples=150, deadline=None)
@given(st.one_of(odd, answers.map(json.dumps)), odd)
def test_any_answer_of_a_host(answer: str, noise: str) -> None:
    """It comes through shells of others: what is no inventory is a ValueError, and nothing else."""
    output = f"{noise}@@ddlrun:0f@@{answer}@@ddlrun:0f@@{noise}"
    with contextlib.suppress(ValueError):
        inventory.parse(remote_probe.read_answer(output, "0f"))
