"""Completion of the command line: what is offered, and the shells themselves at their prompts."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ddlrun.command_line.completion import offers
from ddlrun.command_line.known_hosts import known_hosts
from ddlrun.command_line.options import OPTIONS, SHELLS
from ddlrun_program import Ddlrun

NAMES = sorted(name for option in OPTIONS for name in option.names)
FILE, FOLDER = ["file"], ["dir"]


def offered(*words: str) -> list[str]:
    """What is offered for the last word: words, or that the shell is to look for files or folders."""
    found = offers(words[:-1], words[-1])
    return sorted(item.value if item.type == "plain" else item.type for item in found)


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_every_option_with_either_dash(dashes: str) -> None:
    assert offered(dashes) == sorted(f"{dashes}{name}" for name in NAMES)
    assert offered("-np", "2", f"{dashes}max-re") == [f"{dashes}max-restarts"]
    assert offered(f"{dashes}ssh_i") == [f"{dashes}ssh-identity"]
    assert all(item.help for item in offers([], dashes))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-hostfile ho", FILE),
        ("--ssh_identity ho", FILE),
        ("--hostfile=ho", FILE),
        ("-tcp -output_folder h", FOLDER),
        ("-simulate li", ["file", "list"]),
        ("-m ", sorted("pbnrmc")),
        ("--mode=", sorted(f"--mode={letter}" for letter in "pbnrmc")),
        ("--completion z", ["zsh"]),
        ("-launcher=s", ["-launcher=srun"]),
        ("-x DDL_TEST_OF_COMPLE", ["DDL_TEST_OF_COMPLETION"]),
        ("-np ", []),
        ("-tcp=", []),
        ("-nosuch=", []),
        ("-np=2 -dry", ["-dry-run"]),
        # a value that looks like an option is a value
        ("-mpiarg -x DDL_TEST_OF_COMPLE", FILE),
        ("-mpiarg -", []),
        # what follows the program, or a module, belongs to it
        ("-np 2 python ho", FILE),
        ("-np 2 python --max-re", FILE),
        ("-np 2 python -m --max-re", FILE),
        ("-module package.train --max-re", FILE),
        ("-- --max-re", FILE),
        ("-mpiarg -- --max-re", ["--max-restarts"]),
        # behind what ddlrun does not know nothing is known
        ("-nosuch a", []),
    ],
)
def test_values_and_the_program(monkeypatch: pytest.MonkeyPatch, line: str, expected: list[str]) -> None:
    monkeypatch.setenv("DDL_TEST_OF_COMPLETION", "1")
    assert offered(*line.split(" ")) == expected


def test_the_program_is_a_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, mode in (("train-a", 0o755), ("train-b", 0o755), ("train-text", 0o644), ("other", 0o755)):
        (tmp_path / name).touch(mode)
    (tmp_path / "train-folder").mkdir()
    monkeypatch.setenv("PATH", f"/nosuchfolder:{tmp_path}")
    for before in ([], ["-np", "2"], ["--"]):
        assert offered(*before, "train") == ["file", "train-a", "train-b"]
    assert offered("./train") == FILE


def test_hosts_that_ssh_knows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert offered("-H", "") == []
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text(
        "Host gpu1 gpu2\n  HostName a.example\nHost *.lan !gpu9\nhost=gpu3\n"
    )
    (tmp_path / ".ssh/known_hosts").write_text(
        "# a comment\nnode1,10.0.0.1 ssh-ed25519 A\n[node2]:2222 ssh-rsa B\n|1|salt|hash ssh-rsa C\n"
        "@revoked node3 ssh-rsa D\n\nnode$(id) ssh-rsa E\n"
    )
    assert known_hosts() == ["10.0.0.1", "gpu1", "gpu2", "gpu3", "node1", "node2"]
    assert offered("-H", "g") == ["gpu1", "gpu2", "gpu3"]
    assert offered("-exclude", "gpu1,n") == ["gpu1,node1", "gpu1,node2"]
    assert offered("--host=gpu1:4,n") == ["--host=gpu1:4,node1", "--host=gpu1:4,node2"]


@dataclass
class Place:
    """A folder with things to complete, and a home with hosts. program: stands for ddlrun: it answers
    completion as ddlrun, and otherwise only notes its words.
    """

    folder: Path
    program: Path

    @property
    def words(self) -> Path:
        return self.folder / "words"

    @property
    def answers(self) -> Path:
        return self.folder / "answers"

    def environment(self) -> dict[str, str]:
        home = str(self.folder / "home")
        return {
            "HOME": home,
            "XDG_CONFIG_HOME": home,
            "XDG_DATA_HOME": home,
            "TERM": "dumb",
            "PATH": f"{self.program.parent}:{os.environ['PATH']}",
        }


@pytest.fixture
def place(ddlrun: Ddlrun, tmp_path: Path) -> Place:
    made = Place(tmp_path, tmp_path / "bin/ddlrun")
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (tmp_path / "home/.ssh/config").write_text("Host gpu-node1\n")
    (tmp_path / "hosts.txt").touch()
    (tmp_path / "here").mkdir()
    made.program.parent.mkdir()
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in ddlrun.variables.items())
    made.program.write_text(
        "#!/bin/bash\n"
        f'if [ "$_DDLRUN_COMPLETE" ]; then\n  env {variables} {shlex.join(ddlrun.words)}\n'
        f"  echo >>{shlex.quote(str(made.answers))}\n"
        f"else\n  printf '%s\\n' \"$@\" >{shlex.quote(str(made.words))}.new\n"
        f"  mv {shlex.quote(str(made.words))}.new {shlex.quote(str(made.words))}\nfi\n"
    )
    made.program.chmod(0o755)
    (made.program.parent / "train-the-model").touch(0o755)
    return made


SETUPS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source ./completion"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit && compinit -u -D && source ./completion"),
    "fish": (["fish", "--no-config", "-i"], "source ./completion"),
}


class Prompt:
    """A shell on a terminal of its own."""

    def __init__(self, words: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.seen = b""
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execvpe(words[0], words, os.environ | environment)

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def wait(self, path: Path, lines: int) -> None:
        """Until a file has so many lines."""
        until = time.monotonic() + 20
        while not path.exists() or len(path.read_text().splitlines()) < lines:
            assert time.monotonic() < until, self.seen.decode(errors="replace")
            if select.select([self.terminal], [], [], 0.05)[0]:
                self.seen += os.read(self.terminal, 4096)

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.fixture
def prompt(request: pytest.FixtureRequest, ddlrun: Ddlrun, place: Place) -> Iterator[Prompt]:
    """The shell's prompt, with ddlrun's completion loaded."""
    shell = str(request.param)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (Debian package {shell})")
    (place.folder / "completion").write_text(ddlrun("--completion", shell).out)
    words, setup = SETUPS[shell]
    opened = Prompt(words, place.folder, place.environment())
    try:
        opened.type(f"{setup}; echo >ready\n")
        opened.wait(place.folder / "ready", 1)
        yield opened
    finally:
        opened.close()


@pytest.mark.parametrize("prompt", SHELLS, indirect=True)
def test_at_a_real_prompt(prompt: Prompt, place: Place) -> None:
    typed = (
        "ddlrun --max-re",
        "3 --hostfile=hos",
        "-H other:2,gpu",
        "-output_folder he",
        " --launcher=sr",
        "--completion z",
        "train-th",
        "hos",
    )
    for number, piece in enumerate(typed, 1):
        prompt.type(f"{piece}\t")
        prompt.wait(place.answers, number)
    prompt.type("\r")
    prompt.wait(place.words, 1)
    assert [word.rstrip("/") for word in place.words.read_text().splitlines()] == [
        "--max-restarts",
        "3",
        "--hostfile=hosts.txt",
        "-H",
        "other:2,gpu-node1",
        "-output_folder",
        "here",
        "--launcher=srun",
        "--completion",
        "zsh",
        "train-the-model",
        "hosts.txt",
    ]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script(ddlrun: Ddlrun, shell: str) -> None:
    run = ddlrun("--completion", shell)
    assert run.code == 0 and run.err == "" and "_DDLRUN_COMPLETE" in run.out
    # a list of hosts is one word for fish too
    assert 'split ","' not in run.out
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (Debian package {shell})")
    done = subprocess.run(
        [shell, "-n"], input=run.out, capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_named(ddlrun: Ddlrun) -> None:
    run = ddlrun("--completion", "dos")
    assert run.code == 2 and "-completion 'dos' is none of bash, zsh, fish; on the command line" in run.err
    run = ddlrun(_DDLRUN_COMPLETE="dos_complete")
    assert (run.code, run.out, run.err) == (1, "", "")


def test_a_missing_click_is_named(ddlrun: Ddlrun) -> None:
    (ddlrun.folder / "click.py").write_text("raise ModuleNotFoundError(\"No module named 'click'\")\n")
    path = os.pathsep.join(filter(None, [str(ddlrun.folder), ddlrun.variables.get("PYTHONPATH")]))
    # by a Python that takes PYTHONPATH
    ddlrun.words = [str(ddlrun.prefix / "bin/python3"), ddlrun.words[-1]]
    run = ddlrun("-np", "2", "true", PYTHONPATH=path)
    assert run.code == 1 and run.err.count("\n") == 1 and run.out == ""
    assert run.err.startswith("[ERROR DDL-2-8] the Python package click cannot be imported: No module named")
    assert f"conda install -p {ddlrun.prefix} click" in run.err


@pytest.mark.slow
def test_pythons_variables_are_the_ranks_alone(ddlrun: Ddlrun) -> None:
    """Modules on PYTHONPATH with common names, and another Python's home, do not reach ddlrun itself."""
    for name in ("click", "types", "json"):
        (ddlrun.folder / f"{name}.py").write_text("raise RuntimeError('not for ddlrun')\n")
    if "PYTHONPATH" in ddlrun.variables:
        pytest.skip("ddlrun is not installed in the environment under test, and found by PYTHONPATH")
    run = ddlrun(
        *("-np", "1", "sh", "-c", 'echo "$PYTHONPATH $PYTHONHOME"'),
        PYTHONPATH=str(ddlrun.folder),
        PYTHONHOME="/usr",
    )
    assert run.code == 0 and run.out == f"{ddlrun.folder} /usr\n", run.err
