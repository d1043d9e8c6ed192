"""Is every file fit for the oldest system that the channel promises to run on?"""

from __future__ import annotations

import os
from pathlib import Path

from wmlce.builder import build_root, glibc
from wmlce.channel import published
from wmlce.channel.verify.check import Check
from wmlce.util.layout import Layout


def packages(layout: Layout, folder: Path) -> Check:
    """No package of the channel needs a newer glibc than recipes/build-root.yaml says. What each needs was
    computed from its own files when it was built.
    """
    config = build_root.read_config(layout)
    findings, count = [], 0
    for entries in published.repodata(folder).values():
        for file, entry in sorted(entries.items()):
            count += 1
            for spec in entry.get("depends", []):
                version = _lower_bound(spec)
                if version is not None and version > _number(config.glibc):
                    findings.append(f"{file}: needs glibc {glibc.text(version)}, the floor is {config.glibc}")
    return Check("glibc of packages", f"{count} packages, none above {config.glibc}", findings)


def environment(layout: Layout, prefix: Path) -> Check:
    """No file of an installed environment needs a newer glibc than that, whatever its package says."""
    config = build_root.read_config(layout)
    findings, count = [], 0
    highest: glibc.Version = (0,)
    for folder, _, names in os.walk(prefix):
        for name in names:
            path = Path(folder) / name
            if path.is_symlink() or not path.is_file():
                continue
            with path.open("rb") as stream:
                if stream.read(4) != b"\x7fELF":
                    continue
                count += 1
                version = glibc.needed_by_file(stream)
            if version is None:
                continue
            highest = max(highest, version)
            if version > _number(config.glibc):
                findings.append(f"{path.relative_to(prefix)}: needs glibc {glibc.text(version)}")
    return Check("glibc of files", f"{count} files, the newest needs {glibc.text(highest)}", sorted(findings))


def _number(version: str) -> glibc.Version:
    return tuple(map(int, version.split(".")))


def _lower_bound(spec: str) -> glibc.Version | None:
    """2.28 of `__glibc >=2.28,<3.0.a0`."""
    name, _, rest = spec.partition(" ")
    if name != "__glibc" or not rest.startswith(">="):
        return None
    return _number(rest[2:].split(",")[0])
