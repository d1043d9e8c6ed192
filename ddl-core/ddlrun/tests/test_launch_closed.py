"""Very many hosts that ssh does not reach, by a stand-in for ssh: how many are tried, what is said."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ddlrun.checks import preflight
from ddlrun.environment import Environment
from ddlrun.errors import Code, Failures, LaunchError
from ddlrun.hosts.host_list import Host, HostList
from ddlrun.image import Image
from ddlrun.processes import run_bounded
from ddlrun.run import cleanup
from ddlrun.start.launch_agent import launch_agent
from ddlrun_program import Ddlrun
from hypothesis import example, given, settings
from hypothesis import strategies as st

COUNT = 1000
#: What ssh does: it is refused at once, or waits for a firewall that drops what it gets. `sleep` keeps ssh's
#: output open when that is killed, as a ProxyCommand does.
ENDINGS = {"refused": "echo 'u@h: Permission denied (publickey).' >&2; exit 255", "silent": "sleep 30"}
NAMES = [f"node{number}.invalid" for number in range(COUNT)]

Play = Callable[[str], Path]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Puts an ssh with this ending first on PATH, and returns the file with a line for each start of it."""

    def made(ending: str) -> Path:
        folder, asked = tmp_path / "bin", tmp_path / "asked"
        folder.mkdir()
        asked.touch()
        (folder / "ssh").write_text(f"#!/bin/sh\necho x >> {asked}\n{ENDINGS[ending]}\n")
        (folder / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return asked

    return made


def environment(prefix: Path) -> Environment:
    return Environment(prefix, prefix / "ddl", prefix / "bin/mpirun")


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("explicit", [True, False], ids=["named", "scheduler"])
def test_few_of_a_thousand_hosts_are_tried(
    explicit: bool, ending: str, play: Play, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round of 64, whatever the order of its answers."""
    asked = play(ending)
    monkeypatch.setattr(preflight, "HOST_SECONDS", 1.5 if ending == "silent" else 12.0)
    hosts = HostList(tuple(Host(name, 1) for name in NAMES), "PBS job 1", explicit_slots=explicit)
    try:
        report = preflight.look_at(hosts, {NAMES[0]}, environment(prefix), lambda _: None)
    except LaunchError as error:  # this machine's own answer does not matter here
        pytest.fail(str(error))
    assert len(asked.read_text().splitlines()) == 64
    if not explicit:
        assert set(report.failed) <= {NAMES[0]}
        return
    assert set(report.failed) >= set(NAMES[1:])
    texts = [str(report.failed[name]) for name in NAMES[1:]]
    left = [text for text in texts if "not looked at, as 64 other hosts cannot be reached" in text]
    assert len(left) == COUNT - 65


def test_hosts_of_one_rack_that_is_down_do_not_stand_for_all(
    play: Play, tmp_path: Path, prefix: Path
) -> None:
    """The first half of the list is down, and in the second ssh works: every host is tried."""
    asked = play("refused")
    up = "*|*".join(NAMES[200:400])
    script = tmp_path / "bin/ssh"
    script.write_text(
        script.read_text().replace("\n", f'\ncase "$*" in *{up}*) echo x >>{asked}; exit 3 ;; esac\n', 1)
    )
    hosts = HostList(tuple(Host(name, 1) for name in NAMES[:400]), "-H", explicit_slots=True)
    report = preflight.look_at(hosts, set(), environment(prefix), lambda _: None)
    assert len(asked.read_text().splitlines()) == 400
    assert {error.code for name, error in report.failed.items() if name in NAMES[:200]} == {Code.REFUSED}


@pytest.mark.long
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("source", ["named", "PBS", "LSF"])
def test_an_answer_within_the_time_of_one_host(
    source: str, ending: str, play: Play, ddlrun: Ddlrun, tmp_path: Path
) -> None:
    """The real program with its real limits; its words, and all hosts in the log."""
    asked = play(ending)
    job: dict[str, str] = {"PATH": os.environ["PATH"]}
    words = ["-H", ",".join(NAMES)] if source == "named" else []
    (tmp_path / "nodes").write_text("\n".join(NAMES))
    if source == "PBS":
        job |= {"PBS_JOBID": "1", "PBS_NODEFILE": str(tmp_path / "nodes")}
    elif source == "LSF":
        job |= {"LSB_JOBID": "1", "LSB_DJOB_HOSTFILE": str(tmp_path / "nodes")}
    began = time.monotonic()
    run = ddlrun("-dry-run", *words, "true", **job)
    print(f"{source}, {ending}: {time.monotonic() - began:.1f} s")
    assert len(asked.read_text().splitlines()) == 64
    if source != "named":
        assert run.code == 0, run.err[-2000:]
        return
    assert run.code == 1
    errors = [line for line in run.err.splitlines() if line.startswith("[ERROR")]
    assert len(errors) == 16 and len(run.err.splitlines()) < 40
    assert f"{COUNT - 16} other hosts cannot take part either; the log names each" in run.err
    log = ddlrun.log()
    assert all(f"; host {name}; " in log for name in NAMES)


def test_few_findings_are_all_printed() -> None:
    def failures(count: int) -> Failures:
        return Failures({f"h{i}": LaunchError(Code.REFUSED, "x", f"host h{i}", "y") for i in range(count)})

    assert str(failures(16)).count("\n") == 15 and "other hosts" not in str(failures(16))
    assert str(failures(18)).endswith("\n2 other hosts cannot take part either; the log names each of them")


def test_a_command_that_is_late_is_not_waited_for() -> None:
    """Not even where something that it has started holds its output open."""
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        run_bounded(["/bin/sh", "-c", "sleep 30; :"], "x" * 1_000_000, 0.3)
    assert time.monotonic() - began < 20
    done = run_bounded(["/bin/sh", "-c", "cat; echo $A >&2; exit 3"], "text", 20, {"A": "b"})
    assert (done.returncode, done.stdout, done.stderr) == (3, "text", "b\n")


def test_the_look_at_hosts_afterwards_has_one_limit_for_all(
    play: Play, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of hosts that do not answer come to an end; those that were never reached count as silent."""
    asked = play("silent")
    monkeypatch.setattr(cleanup, "_HOST_SECONDS", 1.0)
    monkeypatch.setattr(cleanup, "_ALL_SECONDS", 1.5)
    monkeypatch.setattr(cleanup, "_PARALLEL", 8)
    ended = cleanup.sweep(NAMES[:40], environment(prefix), "job", lambda _: None)
    assert list(ended) == NAMES[:40] and set(ended.values()) == {None}
    assert 8 <= len(asked.read_text().splitlines()) <= 16


hostile = st.text(
    st.characters(exclude_characters="\0/\n", exclude_categories=["Cs"]), min_size=1, max_size=12
)


@settings(max_examples=25)
@given(hostile)
@example("a b'c\"d $(e) `f` \\ é~#&|;")
def test_the_daemons_guard_survives_any_folder_name(name: str) -> None:
    """mpirun cuts the words at blanks and joins them for a remote shell, which finds the very words."""
    there = Environment(
        Path("/n") / name, Path("/d"), Path("/m"), Image(f"/i/{name}.sif", "enter", ("", name))
    )
    words = launch_agent(there, "job").split(" ")
    script = re.sub(r"^", "set -- ", " ".join(words)) + r"; printf '%s\n' " + '"$@"'
    for shell in ("/bin/sh", "/bin/bash"):
        done = subprocess.run([shell, "-c", script], capture_output=True, timeout=20, check=True)
        shown = done.stdout.decode().split("\n")
        assert shown[:5] == ["enter", "exec", "", name, f"/i/{name}.sif"]
        assert shown[5:8] == [f"/n/{name}/bin/python3", "-I", "-S"]
        assert shown[8].endswith("/host_agent.py") and shown[9:11] == ["job", "prted"]
