"""Inside jobs of LSF and PBS hosts are reached by the scheduler's own remote shell: stand-ins for blaunch and
pbs_tmrsh, on emulated hosts that are closed to ssh as far as ddlrun sees.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddlrun import remote_shell
from ddlrun.errors import LaunchError
from ddlrun.ssh import Ssh
from ddlrun_program import Ddlrun
from emulated import ROOT, assert_nothing_left, shared_folders
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements

SHELLS = Path(__file__).parent / "remote_shells"
WAYS = ("blaunch", "blaunch and a shell", "pbs_tmrsh")
HOSTS = ("h1", "h2")


@pytest.fixture(scope="module")
def hosts(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    spec = ClusterSpec.even(
        hosts=2, slots=2, shared=shared_folders(prefix), environment={"SHLVL": "1"}, life_seconds=600
    )
    with Cluster(spec, tmp_path_factory.mktemp("cluster") / "state") as cluster:
        yield cluster


def job(way: str, folder: Path, names: tuple[str, ...] = HOSTS) -> dict[str, str]:
    """The environment of a job with these hosts."""
    (folder / "nodes").write_text("".join(f"{name}\n" for name in names))
    made = {"PATH": f"{SHELLS}:{os.environ['PATH']}", "STANDIN_RECORD": str(folder / "words")}
    if way == "pbs_tmrsh":
        made |= {"PBS_JOBID": "7", "PBS_NODEFILE": str(folder / "nodes"), "PBS_ENVIRONMENT": "PBS_BATCH"}
        return made | {"STANDIN_JOB_OUTPUT": str(folder / "output")}
    made |= {"LSB_JOBID": "7", "LSB_DJOB_HOSTFILE": str(folder / "nodes")}
    return made | ({"STANDIN_SHELL": "1"} if "shell" in way else {})


@pytest.mark.parametrize("way", WAYS)
def test_ranks_where_ssh_is_closed(way: str, hosts: Cluster, ddlrun: Ddlrun) -> None:
    """The look at h2 and the daemon there come by the scheduler's shell, and nothing by ssh."""
    folder = hosts.state / way.replace(" ", "-")
    folder.mkdir(exist_ok=True)
    variables = {**ddlrun.variables, **job(way, folder)}
    run = hosts.run("h1", [*ddlrun.words, "sh", "-c", "hostname"], timeout=80, env=variables)
    assert run.returncode == 0 and sorted(run.stdout.split()) == list(HOSTS), run.stderr
    assert "not known" not in run.stderr  # the cores of h2 are
    assert (folder / "words").read_text().count(f"{way.split()[0]} h2 ") == 2
    assert not (folder / "words.ssh").exists()
    assert_nothing_left(hosts, HOSTS)


@pytest.mark.parametrize("way", ["blaunch", "pbs_tmrsh"])
def test_ranks_are_asked_to_end_by_it(way: str, hosts: Cluster, ddlrun: Ddlrun) -> None:
    folder = hosts.state / f"end-{way}"
    folder.mkdir(exist_ok=True)
    program = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    variables = {**ddlrun.variables, **job(way, folder)}
    words = ["-timeout", "4", "-grace", "20", "sh", "-c", program]
    run = hosts.run("h1", [*ddlrun.words, *words], timeout=80, env=variables)
    assert run.returncode == 124 and run.stdout.count("up") == run.stdout.count("saved") == 2, run.stderr
    assert not (folder / "words.ssh").exists()
    assert_nothing_left(hosts, HOSTS)


def test_a_shell_that_fails_is_named(ddlrun: Ddlrun, tmp_path: Path) -> None:
    """mpirun has no other way to the job's hosts, so the job is refused before its start."""
    made = job("pbs_tmrsh", tmp_path, ("localhost", "nowhere"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pbs_tmrsh").write_text("#!/bin/sh\necho 'tm_init: not today' >&2\nexit 3\n")
    (tmp_path / "bin/pbs_tmrsh").chmod(0o755)
    run = ddlrun("true", **{**made, "PATH": f"{tmp_path / 'bin'}:{made['PATH']}"})
    assert run.code == 1
    assert "[ERROR DDL-2-6] pbs_tmrsh brought no answer of the environment's Python there: " in run.err
    assert "not today" in run.err and "ended with code 3; host nowhere; " in run.err


hostile = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hostile)
@example("a  b'c\"d $(e) `f` \\ é~#&|;*\n")
def test_every_word_arrives_as_it_is(way: str, tmp_path: Path, text: str) -> None:
    """Also input and output, and the code of the end."""
    shell = remote_shell.SchedulerShell(way.split()[0])
    line = shell.command("here", f"printf %s {shlex.quote(text)}; cat; exit 7")
    environment = {**os.environ, **job(way, tmp_path)}
    done = subprocess.run(
        line, env=environment, input=b"\0in\n", capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (7, text.encode() + b"\0in\n"), done.stderr


def test_which_shell_is_taken(tmp_path: Path) -> None:
    lsf, pbs, ssh = job("blaunch", tmp_path), job("pbs_tmrsh", tmp_path), Ssh()
    choose = remote_shell.choose
    assert choose(ssh, ["h2"], lsf).name == "blaunch" and choose(ssh, ["h2"], pbs).name == "pbs_tmrsh"
    assert choose(ssh, ["h2"], {"PATH": lsf["PATH"]}) is ssh
    assert choose(ssh, ["h3"], lsf) is ssh, "h3 is none of the job's hosts"
    assert choose(Ssh(2222), ["h2"], lsf) == Ssh(2222)
    assert choose(ssh, ["h2"], {**lsf, "PATH": "/usr/bin"}) is ssh
    assert choose(ssh, ["h2"], {**lsf, "CSM_ALLOCATION_ID": "1"}) is ssh
    assert choose(ssh, ["h2"], {**lsf, remote_shell.VARIABLE: "ssh"}) is ssh
    with pytest.raises(LaunchError, match="host h3 does not belong to the job; in DDLRUN_REMOTE_SHELL"):
        choose(ssh, ["h2", "h3"], {**lsf, remote_shell.VARIABLE: "blaunch"})
    with pytest.raises(LaunchError, match="'rsh' is none of ssh, blaunch, pbs_tmrsh"):
        choose(ssh, ["h2"], {remote_shell.VARIABLE: "rsh"})
    assert str(ROOT) in remote_shell.SchedulerShell("blaunch").agent
