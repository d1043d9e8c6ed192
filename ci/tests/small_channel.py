"""Channels of packages that are made in a moment: a few files, and the dependencies that a test wants."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

from conda_package_streaming.create import conda_builder
from wmlce.channel import published


def make_package(
    channel: Path,
    name: str,
    version: str = "1.0",
    *,
    depends: Sequence[str] = (),
    size: int = 100,
    subdir: str = "noarch",
    license_family: str | None = None,
) -> Path:
    """SUBDIR/NAME-VERSION-0.conda with one file share/NAME of `size` bytes that do not compress."""
    words = (hashlib.sha256(f"{name} {version} {n}".encode()).digest() for n in range(size // 32 + 1))
    content = b"".join(words)[:size]
    index = {
        "name": name,
        "version": version,
        "build": "0",
        "build_number": 0,
        "depends": list(depends),
        "license": "LicenseRef-Own" if license_family else "MIT",
        "subdir": subdir,
        **({"noarch": "generic"} if subdir == "noarch" else {"arch": "x86_64", "platform": "linux"}),
        **({"license_family": license_family} if license_family else {}),
    }
    path = {
        "_path": f"share/{name}",
        "path_type": "hardlink",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_in_bytes": size,
    }
    files = {
        "info/index.json": json.dumps(index).encode(),
        "info/paths.json": json.dumps({"paths": [path], "paths_version": 1}).encode(),
        "info/files": f"share/{name}\n".encode(),
        f"share/{name}": content,
    }
    folder = channel / subdir
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-{version}-0"
    with conda_builder(stem, folder) as archive:
        for place, data in files.items():
            info = tarfile.TarInfo(place)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return folder / f"{stem}.conda"


def index(channel: Path) -> Path:
    published.index(channel, {})
    return channel
