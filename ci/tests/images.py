"""Real images for tests: Apptainer, the image of the whole environment, and one that is quickly built."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tree import ROOT
from wmlce import apptainer
from wmlce.errors import WmlceError
from wmlce.layout import Layout

NOBODY = 65534
CHANNEL = ROOT / "build/channel"


@dataclass(frozen=True)
class Singularity:
    """Apptainer of this machine, or Debian's. enter: words behind `exec` that this machine needs."""

    program: Path
    environment: dict[str, str]
    enter: tuple[str, ...] = field(default=())

    def run(
        self,
        *words: str,
        user: int | None = None,
        limit: float = 120,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        """`singularity WORDS`, as another user where one is named. before: words in front of it."""
        become = (
            []
            if user is None or os.geteuid() != 0
            else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        )
        return subprocess.run(
            [*become, *before, str(self.program), *words],
            env={**self.environment, **(env or {})},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
        )


def singularity() -> Singularity:
    """Skips where there is none and Debian's cannot be had, or where a capability is missing."""
    if missing := apptainer.missing_helpers():
        pytest.skip("; ".join(missing))
    layout = Layout.locate(ROOT)
    try:
        try:
            runtime = apptainer.find(layout)
        except WmlceError:
            runtime = apptainer.fetch(layout, say=lambda text: print(text, file=sys.stderr))
    except WmlceError as error:
        pytest.skip(f"no Apptainer: {error.what}")
    return Singularity(runtime.program, runtime.environment())


def build(*words: str, limit: float = 600) -> None:
    """`wmlce image build …` in the tree under test."""
    done = subprocess.run(
        [sys.executable, "-m", "wmlce", "--root", str(ROOT), "image", "build", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit,
    )
    assert done.returncode == 0, done.stdout + done.stderr
