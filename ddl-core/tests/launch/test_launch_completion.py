"""Completion of the command line, in the shells themselves."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from ddlrun_program import Ddlrun
from launch.command_line.completion import SHELLS
from launch.command_line.options import SECTIONS

NAMES = [name for section in SECTIONS.values() for option in section for name in option.names]


@pytest.fixture
def completion(ddlrun: Ddlrun) -> Path:
    """bash's script, and a folder with things to complete."""
    run = ddlrun("--completion", "bash")
    assert run.code == 0, run.err
    path = ddlrun.folder / "completion.bash"
    path.write_text(run.out)
    (ddlrun.folder / "hosts.txt").write_text("")
    (ddlrun.folder / "here").mkdir()
    return path


def complete(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    # compopt only works while a person completes.
    driver = (
        'compopt() { :; }; source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ddlrun; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", driver, str(script), "ddlrun", *words],
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert not done.stderr, done.stderr
    return sorted(filter(None, done.stdout.splitlines()))


def test_every_option_with_either_dash(completion: Path) -> None:
    assert complete(completion, "--") == sorted(f"--{name}" for name in NAMES)
    assert complete(completion, "-") == sorted(f"-{name}" for name in NAMES)
    assert complete(completion, "-np", "2", "--max-re") == ["--max-restarts"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("-hostfile", "ho"), ["hosts.txt"]),
        (("--hostfile", "=", "ho"), ["hosts.txt"]),
        (("-tcp", "-output_folder", "h"), ["here"]),
        (("-mode", ""), sorted("pbnrmc")),
        (("--mode", "="), sorted("pbnrmc")),
        (("--completion", "z"), ["zsh"]),
        (("-np", ""), []),
        (("-np", "=", "2", "-dry"), ["-dry-run"]),
        # what follows the program belongs to it
        (("-np", "2", "python", "ho"), ["hosts.txt"]),
        (("-np", "2", "python", "--max-re"), []),
        (("--", "--max-re"), []),
    ],
)
def test_values_and_the_program(completion: Path, words: tuple[str, ...], offered: list[str]) -> None:
    assert complete(completion, *words) == offered


def test_the_program_is_a_command(completion: Path) -> None:
    assert "python3" in complete(completion, "-np", "2", "pytho")


def test_at_a_real_prompt(completion: Path) -> None:
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(completion.parent)
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    try:
        os.write(terminal, f"PS1='$ '; source {completion}\nddlrun --max-re\t 3 -hostfile hos\t".encode())
        seen, until = b"", time.monotonic() + 10
        while b"--max-restarts  3 -hostfile hosts.txt " not in seen and time.monotonic() < until:
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 4096)
        assert b"--max-restarts  3 -hostfile hosts.txt " in seen, seen
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_can_read_it(ddlrun: Ddlrun, shell: str) -> None:
    run = ddlrun("--completion", shell)
    assert run.code == 0 and all(name in run.out for name in NAMES)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (Debian package {shell})")
    path = ddlrun.folder / "completion"
    path.write_text(run.out)
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_named(ddlrun: Ddlrun) -> None:
    run = ddlrun("--completion", "dos")
    assert (
        run.code == 2 and "'dos' is no shell known here; on the command line; write one of these" in run.err
    )
