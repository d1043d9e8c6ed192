"""What packages say of themselves: the files that they install.

Only the package's small part with this is unpacked; answers are remembered by the package's content.
"""

from __future__ import annotations

import json
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import zstandard
from conda_package_streaming.package_streaming import stream_conda_component

from wmlce.channel import published
from wmlce.util.files import write_json
from wmlce.util.host import cpu_count
from wmlce.util.layout import Layout
from wmlce.util.python import TARGET

SITE_PACKAGES = f"{TARGET.site_packages}/"
"""Where the files of a package for any Python come to lie in an environment of this channel."""
_FORM = 1


@dataclass(frozen=True)
class Contents:
    """One package.

    paths: where its files come to lie in an environment
    """

    paths: list[str]


@dataclass(frozen=True)
class Package:
    """A package of a channel's index."""

    key: str
    path: Path
    entry: dict[str, Any]
    contents: Contents

    @property
    def name(self) -> str:
        return str(self.entry["name"])

    @property
    def exactly(self) -> str:
        """The match spec that it alone fulfils."""
        return f"{self.name} =={self.entry['version']} {self.entry['build']}"


def of_channel(layout: Layout, folder: Path) -> list[Package]:
    """All packages of the index whose files can be read; the check of the index names others."""
    jobs = sorted(published.entries(folder).items())

    def examine(job: tuple[str, dict[str, Any]]) -> Package | None:
        key, entry = job
        contents = _remembered(layout, folder / key, str(entry["sha256"]))
        return None if contents is None else Package(key, folder / key, entry, contents)

    with ThreadPoolExecutor(cpu_count()) as pool:
        return [package for package in pool.map(examine, jobs) if package is not None]


def _remembered(layout: Layout, path: Path, digest: str) -> Contents | None:
    memory = layout.cache / "verified" / f"{digest}-contents-{_FORM}.json"
    try:
        return Contents(**json.loads(memory.read_text()))
    except (OSError, ValueError, TypeError):
        pass
    try:
        contents = read(path)
    except (OSError, ValueError, LookupError, zipfile.BadZipFile, tarfile.TarError, zstandard.ZstdError):
        return None
    write_json(memory, asdict(contents))
    return contents


def information(path: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a package's part for information, by their names in it."""
    for archive, member in stream_conda_component(str(path), component="info"):
        stream = archive.extractfile(member) if member.isfile() else None
        if stream is not None:
            yield member.name, stream.read()


def read(path: Path) -> Contents:
    """Read the contents of one package file."""
    listed: list[str] = []
    noarch = None
    for name, content in information(path):
        if name == "info/paths.json":
            listed += [str(item["_path"]) for item in json.loads(content)["paths"]]
        elif name == "info/index.json":
            noarch = json.loads(content).get("noarch")
        elif name == "info/link.json":
            points = (json.loads(content).get("noarch") or {}).get("entry_points", [])
            listed += [f"bin/{str(point).partition('=')[0].strip()}" for point in points]
    if noarch == "python":
        places = (("site-packages/", SITE_PACKAGES), ("python-scripts/", "bin/"))
        for start, place in places:
            listed = [place + p.removeprefix(start) if p.startswith(start) else p for p in listed]
    return Contents(sorted(listed))
