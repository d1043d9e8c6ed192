"""Single-file installers of the channel under test, run on this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from images import CROWDED
from tree import ROOT

CHANNEL = ROOT / "build/channel"
SCRATCH = ".ibm-wml-ce-installer"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SUM = "import ddl, numpy as np; x = np.full(3, ddl.rank() + 1.0, 'f'); print(ddl.allreduce(x))"
"""What two ranks print [3. 3. 3.] for."""
VERSION = (ROOT / "VERSION").read_text().strip()
Result = subprocess.CompletedProcess[str]


def _hear_signals() -> None:
    """Tests in the background of a shell, or below nohup, are deaf to these, and so would be the command."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@dataclass(frozen=True)
class Installer:
    """A single-file installer on this machine."""

    file: Path

    @property
    def record(self) -> dict[str, Any]:
        """What lies beside it."""
        return read(self.file.with_name(f"{self.file.name}.json"))

    def command(self, *words: object, interpreter: str = "sh", file: Path | None = None) -> list[str]:
        return [interpreter, str(file or self.file), *map(str, words)]

    def start(self, *words: object, interpreter: str = "sh", path: str = PATH) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words, interpreter=interpreter),
            env=variables(path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_hear_signals,
        )

    def __call__(
        self,
        *words: object,
        interpreter: str = "sh",
        file: Path | None = None,
        cwd: Path | None = None,
        path: str = PATH,
        **more: str,
    ) -> Result:
        return subprocess.run(
            self.command(*words, interpreter=interpreter, file=file),
            env={**variables(path), **more},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )


def variables(path: str = PATH) -> dict[str, str]:
    return {"PATH": path, "HOME": "/nonexistent", "LANG": "C.UTF-8", **CROWDED}


def build(name: str, *specs: str) -> Installer:
    if not (CHANNEL / "channel.json").is_file():
        pytest.skip(f"no channel in {CHANNEL}: wmlce channel build")
    output = ROOT / "build/installers" / name
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "wmlce",
            "--root",
            str(ROOT),
            "installer",
            "build",
            *specs,
            "--output",
            str(output),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Installer(output)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def read(path: Path) -> dict[str, Any]:
    """A JSON document."""
    document: dict[str, Any] = json.loads(path.read_text())
    return document
