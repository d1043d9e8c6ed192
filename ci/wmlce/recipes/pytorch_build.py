"""Which build of PyTorch a clone's channel has: `cpu`, PyTorch's own for processors, or `plain`, that of the
ordinary package index, which is compiled for GPUs and computes on processors, too.

Both have the same name and version. What is compiled against one of them works with the other.
"""

from __future__ import annotations

import os
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout

VARIABLE = "WMLCE_PYTORCH"
CPU, PLAIN = "cpu", "plain"
BUILDS = (CPU, PLAIN)
PACKAGE = "powerai-pytorch"


def chosen(layout: Layout) -> str:
    """The build that the variable names, or that was chosen for this clone; else the one for processors."""
    return decided(layout) or CPU


def decided(layout: Layout) -> str | None:
    """The build that was chosen, or None."""
    if named := os.environ.get(VARIABLE):
        return checked(named, f"the variable {VARIABLE}")
    path = _file(layout)
    try:
        return checked(path.read_text().strip(), layout.display(path))
    except FileNotFoundError:
        return None


def choose(layout: Layout, build: str, *, only_now: bool = False) -> None:
    """From now on the clone's channel has this build; or this process takes it to have it."""
    if only_now:
        os.environ[VARIABLE] = checked(build, "--pytorch")
    else:
        write_atomic(_file(layout), f"{checked(build, '--pytorch')}\n")


def _file(layout: Layout) -> Path:
    return layout.build / "pytorch"


def checked(build: str, where: str) -> str:
    """The same; raises where it is no build."""
    if build not in BUILDS:
        raise WmlceError(
            f"{where} names a build of PyTorch that there is not: {build[:40]!r}",
            remedy=f"say {' or '.join(BUILDS)}",
        )
    return build
