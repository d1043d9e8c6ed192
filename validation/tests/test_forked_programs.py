"""Programs in forks behave as in processes of their own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest
from forked_programs import ForkServer
from program_runner import Environment

SAYS = """
import os, sys
print(sys.argv[1:], os.environ.get("MARK"), "tensorflow" in sys.modules, sys.stdin.read() == "")
print("to stderr", file=sys.stderr)
changed = globals().get("changed", 0) + 1
print(changed, os.getpid() == os.getsid(0))
"""


@pytest.fixture(scope="module")
def server(tf_env: Environment) -> Iterator[ForkServer]:
    made = ForkServer(tf_env.prefix / "bin/python")
    yield made
    made.close()


@pytest.mark.slow
def test_arguments_variables_and_output(server: ForkServer) -> None:
    """Of each its own; nothing is left of the one before."""
    for mark in ("a", "b"):
        code, out, err = server.run(["x y", mark], {**os.environ, "MARK": mark}, 120, code=SAYS)
        assert (code, err) == (0, "to stderr\n")
        assert out == f"['x y', '{mark}'] {mark} True True\n1 True\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "code", "says"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('no such file')", 1, "no such file\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
        ("import atexit, sys; atexit.register(sys.stderr.write, 'at the end')", 0, "at the end"),
    ],
)
def test_how_it_ends(server: ForkServer, program: str, code: int, says: str) -> None:
    ended, out, err = server.run([], os.environ, 120, code=program)
    assert (ended, out) == (code, "") and err.endswith(says)


@pytest.mark.slow
def test_a_module(server: ForkServer) -> None:
    assert server.run(["1", "2"], os.environ, 120, module="this")[1].startswith("The Zen of Python")


@pytest.mark.slow
def test_one_that_hangs_is_ended_with_what_it_started(server: ForkServer) -> None:
    hangs = "import os, subprocess, time; subprocess.Popen(['sleep', '600']); print(os.getpid(), flush=True)"
    with pytest.raises(TimeoutError, match="ended after 10 s") as raised:
        server.run([], os.environ, 10, code=f"{hangs}; time.sleep(600)")
    group = int(str(raised.value).splitlines()[1])
    until = time.monotonic() + 60
    while living(group):
        assert time.monotonic() < until, living(group)
        time.sleep(0.1)
    assert server.run([], os.environ, 120, code="print(1)") == (0, "1\n", "")


def living(group: int) -> list[str]:
    """The commands of a process group that have not ended."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True)
    processes = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    return [words[2] for words in processes if words[0] == str(group) and not words[1].startswith("Z")]
