"""A machine that ci/quickstart and ci/test meet before wmlce can run.

It is played by a folder of commands that is all of PATH: links to the real ones, and stand-ins for those
whose answers make a machine unfit. Its Python makes real environments, quickly: without pip, for which a
module that does nothing stands in (ci/bare-machine installs the real tools).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tree import ROOT
from wmlce.sources.relock_tools import SETS

LIMIT_S = 240.0
# what a minimal system has, of what ci/bootstrap.sh calls
COMMANDS = "bash cat chmod cut date df dirname dpkg env flock getconf grep head id kill ln ls mkdir mv nproc"
COMMANDS += " readlink rm sed sha256sum sh sleep stat tail touch tr true uname"

# what is run before there are tools, and what of wmlce has to be there without its libraries
OWN = ("__init__.py", "builder/__init__.py", "builder/sandbox.py", "util/__init__.py", "util/errors.py")
OWN += ("util/platform.py",)
NOTHING = (
    "builder/schedule.py",
    "cli/__init__.py",
    "cli/main.py",
    "envs/__init__.py",
    "envs/environments.py",
)
NOTHING += ("sources/own_pip.py",)

_PYTHON = """
if [ "$1 $2 $3" != "-I -m venv" ]; then exec {python} "$@"; fi
sleep "${{VENV_SECONDS:-0}}"
{python} -m venv --without-pip "$4"
mkdir -p "$4"/lib/python3.11/site-packages/pip && : >"$4"/lib/python3.11/site-packages/pip/__main__.py
"""


class Machine:
    """A clone of what bootstrap needs, and the commands that the machine has."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bin, self.home = folder / "clone", folder / "bin", folder / "home"
        for made in (self.root / "ci", self.bin, self.home):
            made.mkdir(parents=True)
        self.os_release = folder / "os-release"
        script = (ROOT / "ci/bootstrap.sh").read_text()
        (self.root / "ci/bootstrap.sh").write_text(script.replace("/etc/os-release", "../os-release"))
        for name in OWN:
            (self.root / "ci/wmlce" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / "ci/wmlce" / name, self.root / "ci/wmlce" / name)
        for name in NOTHING:
            (self.root / "ci/wmlce" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / "ci/wmlce" / name).touch()
        # nothing to install: these tests are about the steps around it
        for name in SETS:
            (self.root / f"ci/{name}.lock").write_text("")
        self.packages("build  git  cmd:git  lists files", "build  bubblewrap  cmd:bwrap  shuts builds in")
        for name in COMMANDS.split():
            self.link(name)
        self.command("df", "echo Avail; echo 500000")
        self.command("id", "echo 0")
        for name in ("git", "bwrap", "apt-get", "apt-cache"):
            self.command(name, f'echo "$@" >>{folder}/{name}.calls')
        self.calls = folder / "apt-get.calls"
        self.command("python3.11", _PYTHON.format(python=base_python()))

    def packages(self, *lines: str) -> None:
        (self.root / "ci/debian-packages.txt").write_text("# a comment\n" + "\n".join(lines) + "\n")

    def link(self, name: str) -> None:
        found = shutil.which(name)
        assert found, f"this machine has no {name}"
        (self.bin / name).symlink_to(found)

    def command(self, name: str, script: str) -> None:
        file = self.bin / name
        file.unlink(missing_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def lacks(self, *names: str) -> None:
        for name in names:
            (self.bin / name).unlink()

    def start(self, need: str = "build", then: str = "true", **env: str) -> subprocess.Popen[str]:
        script = f'set -euo pipefail; . ci/bootstrap.sh; bootstrap {need}; echo "tools: $TOOLS"; {then}'
        return subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.root,
            env={"PATH": str(self.bin), "HOME": str(self.home), "LANG": "C.UTF-8", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # tests in the background of a shell are deaf to this signal, and so would be the command
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, out, err

    def refuses(self, need: str = "build", **env: str) -> str:
        """The one error, after which nothing has been made or installed."""
        code, out, err = self.end(self.start(need, **env))
        assert code == 1, out + err
        assert err.count("error: ") == 1 and err.count("remedy: ") == 1, err
        assert not self.installed() and not list(self.root.glob("build/tools*")), out + err
        return err

    def installed(self) -> list[str]:
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line for line in lines if "install" in line]

    def ready(self, need: str = "build", **env: str) -> Path:
        code, out, err = self.end(self.start(need, **env))
        assert code == 0, out + err
        tools = Path(out.split("tools: ")[1].strip())
        self.whole(tools)
        return tools

    def whole(self, tools: Path) -> None:
        assert (tools / ".complete").read_text()
        assert (self.root / "build/tools").resolve() == tools
        run = [tools / "bin/python", "-c", "import pip"]
        assert subprocess.run(run, capture_output=True, timeout=60, check=False).returncode == 0


def base_python() -> str:
    """The interpreter that the tests' own environment was made from."""
    return os.path.realpath(Path(sys.base_prefix) / "bin/python3")
