"""The single-file installer beside others, stopped, killed, on a terminal: it leaves the whole or nothing."""

from __future__ import annotations

import errno
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from installers import SCRATCH, Installer, names, variables


def test_two_at_once(tiny: Installer, tmp_path: Path) -> None:
    apart = [tiny.start("-b", "-p", tmp_path / f"env{number}") for number in range(2)]
    for process in apart:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, out
    same = [tiny.start("-b", "-p", tmp_path / "same") for _ in range(2)]
    said = [process.communicate(timeout=300)[0] for process in same]
    # the second one is refused, and does no harm to what the first one makes
    assert sorted(process.returncode for process in same) == [0, 1], said
    for name in ("env0", "env1", "same"):
        assert (tmp_path / name / "lib/libz.so.1").exists()
        assert not (tmp_path / name / SCRATCH).exists()


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None and time.monotonic() < limit, process.communicate()
        time.sleep(0.005)


def at_work_in(folder: Path) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if process.pid != os.getpid() and any(str(folder) in word for word in process.info["cmdline"] or []):
            found.append(process.pid)
    return found


@pytest.mark.parametrize(
    ("moment", "number", "interpreter", "place"),
    [
        ("bootstrap", signal.SIGTERM, "dash", "new/deep/env"),
        ("bootstrap/channel/linux-64", signal.SIGHUP, "bash", "empty"),
        ("environment/bin", signal.SIGTERM, "bash", "new/deep/env"),
        ("environment/bin", signal.SIGINT, "dash", "empty"),
    ],
)
def test_a_stopped_installation_leaves_what_was_there(
    small: Installer, tmp_path: Path, moment: str, number: signal.Signals, interpreter: str, place: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    prefix = tmp_path / place
    process = small.start("-b", "-p", prefix, interpreter=interpreter)
    try:
        wait_for(prefix / SCRATCH / moment, process)
        process.send_signal(number)
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 128 + number, out
    assert "stopped: removing" in out and "error" not in out
    assert names(tmp_path) == {"empty", "file"} and names(tmp_path / "empty") == set()
    assert not at_work_in(prefix)


def test_a_killed_installation_is_made_anew(small: Installer, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    process = small.start("-b", "-p", prefix)
    wait_for(prefix / SCRATCH / "environment/bin", process)
    # while it is at work nobody else may touch it
    other = small("-b", "-p", prefix)
    assert other.returncode == 1 and f"another installer (process {process.pid} on" in other.stderr
    process.kill()
    process.wait(timeout=30)
    limit = time.monotonic() + 30
    while at_work_in(prefix):  # the kernel ends the rest of it
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert not (prefix / "conda-meta").exists()  # no half of an environment that looks like one
    again = small("-b", "-p", prefix)
    assert again.returncode == 0 and "removing what a killed installer left" in again.stdout, again.stderr
    assert (prefix / "bin/ddlrun").exists() and not (prefix / SCRATCH).exists()


@dataclass
class Terminal:
    """A process on a terminal of its own."""

    process: subprocess.Popen[bytes]
    master: int
    said: str = ""

    def until(self, text: str) -> str:
        """What it says up to this text."""
        limit = time.monotonic() + 120
        while text not in self.said:
            assert time.monotonic() < limit, self.said
            if select.select([self.master], [], [], 1)[0]:
                self.said += self._read()
        before, _, self.said = self.said.partition(text)
        return before

    def _read(self) -> str:
        try:
            return os.read(self.master, 4096).decode()
        except OSError as error:
            assert error.errno == errno.EIO
            raise AssertionError(f"it ended: {self.said}") from error

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())


def own_terminal() -> None:
    """In the new process: standard input is its controlling terminal, and Ctrl-C counts, which tests in the
    background of a shell would hand on as ignored.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.close(os.open(os.ttyname(0), os.O_RDWR))


@pytest.fixture
def terminal(tiny: Installer, tmp_path: Path) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        tiny.command(),
        env={**variables(), "HOME": str(tmp_path)},
        cwd=tmp_path,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=own_terminal,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait(timeout=30)
        os.close(master)


def test_questions_on_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    before = terminal.until(f"Folder to install into [{tmp_path}/ibm-wml-ce/2.0.0]: ")
    assert "MiB of disk space" in before and "every package its own: see --list" in before
    terminal.type("a b\n")
    assert "has a blank in its path" in terminal.until("Folder to install into")
    terminal.type("~/here\n")
    assert f"ibm-wml-ce 2.0.0 is in {tmp_path}/here: " in terminal.until("Remove it:")
    assert terminal.process.wait(timeout=30) == 0
    assert (tmp_path / "here/lib/libz.so.1").exists()


def test_ctrl_c_on_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.until("Folder to install into")
    terminal.type("\n")
    terminal.until("unpacking the installer's own Python")
    terminal.type("\x03")
    terminal.until("stopped: removing what was installed so far")
    assert terminal.process.wait(timeout=30) == 130
    assert names(tmp_path) == set()
