"""What is piped into ddlrun arrives at rank 0, wherever that is, with its end; and disturbs nobody."""

from __future__ import annotations

import hashlib
import os
import pty
import random
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddlrun_program import Ddlrun
from emulated import assert_nothing_left, shared_folders

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements

#: With NULs and every other byte, more than pipes and sockets hold.
DATA = random.Random(7).randbytes(5_000_000) + b"\0" * 1000 + bytes(range(256))
SUM = hashlib.sha256(DATA).hexdigest()
READ = (
    "import os, sys, hashlib, stat; data = sys.stdin.buffer.read(); "
    "print(os.environ['RANK'], os.uname().nodename, hashlib.sha256(data).hexdigest(), len(data), "
    "'DDLRUN_STDIN' in os.environ, flush=True)"
)
EMPTY = hashlib.sha256(b"").hexdigest()


def piped(ddlrun: Ddlrun, data: bytes | None, *words: str, limit: float = 60) -> tuple[int, list[str], str]:
    """A run with this input; its code, its lines, its errors."""
    run = subprocess.run(
        [*ddlrun.words, *words],
        input=data,
        stdin=subprocess.DEVNULL if data is None else None,
        env=ddlrun.environment(),
        cwd=ddlrun.folder,
        capture_output=True,
        timeout=limit,
        check=False,
    )
    return run.returncode, sorted(run.stdout.decode().splitlines()), run.stderr.decode()


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


@pytest.mark.parametrize("data", [DATA, b""], ids=["much", "nothing"])
def test_rank_0_reads_all_of_it(ddlrun: Ddlrun, data: bytes) -> None:
    """The others have an empty input."""
    here = os.uname().nodename
    code, lines, err = piped(ddlrun, data, "-np", "2", "python", "-c", READ)
    assert code == 0, err
    assert lines == [
        f"0 {here} {hashlib.sha256(data).hexdigest()} {len(data)} False",
        f"1 {here} {EMPTY} 0 False",
    ]
    assert "WARN DDL-2-20" not in err, "no process is left behind"


def test_a_file_and_no_input_at_all(ddlrun: Ddlrun, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA)
    line = f'"$@" <{tmp_path}/data; "$@" </dev/null; "$@" <&-'
    words = ["/bin/sh", "-c", line, "sh", *ddlrun.words, "-q", "-np", "1", "python", "-c", READ]
    run = subprocess.run(
        words,
        env=ddlrun.environment(),
        cwd=ddlrun.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [text.split()[2] for text in run.stdout.splitlines()] == [SUM, EMPTY, EMPTY], run.stderr
    assert "DDLRUN_STDIN" not in run.stderr


def test_a_program_that_never_reads(ddlrun: Ddlrun) -> None:
    """Nor does one that reads a little: the job ends with the program, and as it ended."""
    code, lines, err = piped(ddlrun, DATA, "-np", "2", "sh", "-c", "echo up; exit 3")
    assert code == 3 and "up" in lines, err
    code, lines, err = piped(
        ddlrun, DATA, "-np", "1", "python", "-c", "import os; print(len(os.read(0, 10)))"
    )
    assert code == 0 and lines == ["10"] and "WARN" not in err, err


def test_an_input_that_does_not_end(ddlrun: Ddlrun) -> None:
    """As of an ssh without a terminal: the job does not wait for it. It may be opened by name, too."""
    script = "head -c 6 /dev/stdin; echo over"
    child = subprocess.Popen(
        [*ddlrun.words, "-np", "1", "sh", "-c", script],
        env=ddlrun.environment(),
        cwd=ddlrun.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin and child.stdout and child.stderr
    try:
        child.stdin.write(b"some\n.")
        child.stdin.flush()
        assert child.wait(60) == 0, child.stderr.read()
        assert child.stdout.read() == b"some\n.over\n"
    finally:
        child.kill()
        child.communicate(timeout=20)


@pytest.mark.parametrize("first", ["h1", "h2"])
def test_rank_0_on_another_host(first: str, hosts: Cluster, ddlrun: Ddlrun) -> None:
    other = "h1" if first == "h2" else "h2"
    words = ["-H", f"{first}:1,{other}:1", "python", "-c", READ]
    line = hosts.command("h1", [*ddlrun.words, *words], env=ddlrun.variables)
    run = subprocess.run(line, input=DATA, capture_output=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    lines = sorted(run.stdout.decode().splitlines())
    assert [text.split()[:3] for text in lines] == [["0", first, SUM], ["1", other, EMPTY]]
    assert_nothing_left(hosts, ["h1", "h2"])


def test_a_job_in_the_background_of_a_terminal(ddlrun: Ddlrun) -> None:
    """Reading there would stop it."""
    ours, theirs = pty.openpty()
    line = 'set -m; "$@" & wait $!; echo "ended with $?"'
    words = ["setsid", "--ctty", "--wait", "/bin/bash", "-c", line, "sh", *ddlrun.words]
    child = subprocess.Popen(
        [*words, "-q", "-np", "1", "sh", "-c", "sleep 1; echo done"],
        env=ddlrun.environment(),
        cwd=ddlrun.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said, until = b"", time.monotonic() + 60
    try:
        while b"ended with" not in said and time.monotonic() < until:
            if select.select([ours], [], [], 1)[0]:
                said += os.read(ours, 4096)
        assert b"done" in said and b"ended with 0" in said, said
    finally:
        child.kill()
        child.wait(20)
        os.close(ours)
