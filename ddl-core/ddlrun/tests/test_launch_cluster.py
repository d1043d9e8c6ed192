"""Starts over real ssh on emulated hosts, and hosts that cannot take part: named before the start."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddlrun_program import PROGRAMS, Ddlrun
from emulated import assert_nothing_left, shared_folders

from ddl_validate.cluster import Cluster, ClusterSpec, HostSpec, missing_requirements

NOISE = 'Welcome!\n{"json": 1}\n@@ddlrun:00@@null@@ddlrun:00@@'


@pytest.fixture(scope="module")
def hosts(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """h1, h2; noisy prints at every login, locked refuses the key, bare has no environment, absent is
    down.
    """
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    spec = ClusterSpec(
        (
            HostSpec("h1", slots=2),
            HostSpec("h2", slots=2),
            HostSpec("noisy", noise=NOISE),
            HostSpec("locked", accepts_key=False),
            HostSpec("bare", hidden=(str(prefix),)),
        ),
        shared=shared_folders(prefix),
        absent=("absent",),
        # bash, started by sshd, reads ~/.bashrc unless it believes to be a shell in a shell.
        environment={"SHLVL": "1"},
        life_seconds=600,
    )
    with Cluster(spec, tmp_path_factory.mktemp("cluster") / "state") as cluster:
        yield cluster


@pytest.fixture
def start(hosts: Cluster, ddlrun: Ddlrun) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ddlrun on h1."""

    def on_h1(*words: str, limit: float = 90, **more: str) -> subprocess.CompletedProcess[str]:
        return hosts.run("h1", [*ddlrun.words, *words], timeout=limit, env={**ddlrun.variables, **more})

    return on_h1


Start = Callable[..., "subprocess.CompletedProcess[str]"]


def test_two_hosts_times_two_ranks_by_ssh(start: Start) -> None:
    run = start("-H", "h1:2,h2:2", "python", str(PROGRAMS / "joined.py"))
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == [
        "0 on h1 sum 6",
        "1 on h1 sum 6",
        "2 on h2 sum 6",
        "3 on h2 sum 6",
    ]


def test_remote_ranks_have_the_environment(start: Start) -> None:
    run = start(
        "-H", "h1:1,h2:1", "-x", "DDL_DEBUG=1", "python", str(PROGRAMS / "show.py"), PATH="/usr/bin:/bin"
    )
    assert run.returncode == 0, run.stderr
    first, second = sorted(run.stdout.splitlines())
    assert " on h1 " in first and " on h2 " in second
    assert re.search(r"python (\S+)", first)[1] == re.search(r"python (\S+)", second)[1]  # type: ignore[index]
    assert first.endswith("options -mode p:1x2x1x1")


def test_remote_ranks_leave_out_the_users_own_packages_where_ddlrun_does(start: Start) -> None:
    """What lies in ~/.local of one host and not of another would make ranks that compute apart."""
    run = start(
        *("-H", "h1:1,h2:1", "python", "-c", "import site; print('own', site.ENABLE_USER_SITE)"),
        PYTHONNOUSERSITE="1",
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["own False"] * 2


def test_uneven_hosts(start: Start) -> None:
    run = start("-H", "h1:2,h2:1", "python", str(PROGRAMS / "show.py"))
    assert run.returncode == 0, run.stderr
    assert [line.split(" cores ")[0] for line in sorted(run.stdout.splitlines())] == [
        "0 of 3 on h1",
        "1 of 3 on h1",
        "2 of 3 on h2",
    ]
    assert "options -mode p" in run.stdout and "p:" not in run.stdout


def test_noise_of_remote_shells_does_not_matter(start: Start) -> None:
    run = start("-H", "h1:1,noisy:1", "python", str(PROGRAMS / "joined.py"))
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == ["0 on h1 sum 1", "1 on noisy sum 1"]


@pytest.mark.parametrize(
    ("host", "number", "reason"),
    [
        ("absent", 6, "cannot be reached by ssh"),
        ("no-such-name", 6, "the name is not known"),
        ("locked", 7, "does not accept your ssh key"),
        ("bare", 8, "there is no environment"),
    ],
)
def test_a_host_that_cannot_take_part_is_named(start: Start, host: str, number: int, reason: str) -> None:
    began = time.monotonic()
    run = start("-H", f"h1,h2,{host}", "touch", "/tmp/started")
    assert time.monotonic() - began < 15
    assert run.returncode == 1 and run.stdout == ""
    assert re.search(rf"\[ERROR DDL-2-{number}\] [^\n]*{reason}[^\n]*; host {host}; ", run.stderr), run.stderr
    assert "host h2" not in run.stderr and "The log is " in run.stderr


def test_all_bad_hosts_are_named_at_once(start: Start) -> None:
    run = start("-H", "h1,locked,bare,absent", "true")
    assert [name for name in ("locked", "bare", "absent", "h2") if f"; host {name}; " in run.stderr] == [
        "locked",
        "bare",
        "absent",
    ]


def test_a_schedulers_hosts_need_not_accept_ssh(start: Start) -> None:
    """The environment of a job is set by hand here; its plan is made although locked cannot be looked at."""
    job = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "h[1-2],locked", "SLURM_TASKS_PER_NODE": "1(x3)"}
    run = start("--json", "true", **job)
    assert run.returncode == 0, run.stderr
    assert "the cores of locked are not known" in run.stderr
    refused = start("--json", "true", **{**job, "SLURM_JOB_NODELIST": "h[1-2],bare"})
    assert refused.returncode == 1 and "; host bare; " in refused.stderr


def test_a_sshd_that_never_answers_is_named(start: Start, hosts: Cluster) -> None:
    stopped = hosts.run("h2", ["pgrep", "-o", "sshd"], timeout=10).stdout.strip()
    hosts.run("h2", ["kill", "-STOP", stopped], timeout=10, check=True)
    try:
        began = time.monotonic()
        run = start("-H", "h1,h2", "true")
        assert time.monotonic() - began < 15
        assert "[ERROR DDL-2-6]" in run.stderr and "; host h2; " in run.stderr
    finally:
        hosts.run("h2", ["kill", "-CONT", stopped], timeout=10, check=True)


def test_a_rank_that_dies_on_another_host_is_named(start: Start) -> None:
    run = start("-H", "h1:2,h2:2", "python", str(PROGRAMS / "obey.py"), "3", "exit", "9")
    assert run.returncode == 9
    assert "rank 3 ended with exit code 9; on host h2" in run.stderr
    assert "  | rank 3 is here" in run.stderr


def test_a_limit_ends_the_ranks_on_all_hosts(start: Start, hosts: Cluster) -> None:
    run = start("-H", "h1,h2", "-timeout", "4", "sleep", "4242")
    assert run.returncode == 124, run.stderr
    assert_nothing_left(hosts, ["h1", "h2"])


def test_the_time_of_grace_is_that_of_all_hosts(start: Start) -> None:
    """Every rank is told to end, wherever it is, and ends in its own time."""
    program = "trap 'sleep 1.5; echo saved; exit 0' TERM; echo up; while :; do sleep 0.2; done"
    run = start("-H", "h1:1,h2:1", "-timeout", "4", "-grace", "20", "sh", "-c", program)
    assert run.returncode == 124 and run.stdout.count("up") == run.stdout.count("saved") == 2, (
        run.stdout + run.stderr
    )


def test_own_names_need_no_ssh(hosts: Cluster, ddlrun: Ddlrun) -> None:
    """locked refuses every login, also its own; its names and its address are one host."""
    address = hosts.spec.address(3)
    words = ["-H", f"localhost,locked,{address}", "python", str(PROGRAMS / "show.py")]
    run = hosts.run("locked", [*ddlrun.words, *words], timeout=60, env=ddlrun.variables)
    assert run.returncode == 0, run.stderr
    assert [line.split(" cores ")[0] for line in sorted(run.stdout.splitlines())] == [
        f"{rank} of 3 on locked" for rank in range(3)
    ]
    assert "options -mode p:3x1x1x1" in run.stdout
