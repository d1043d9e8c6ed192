"""Channels of packages that are made in a moment: a few files, and the dependencies that a test wants."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from conda_package_streaming.create import conda_builder
from wmlce.channel import published
from wmlce.release import check, freshness, manifest, signature
from wmlce.release.freshness import Statement
from wmlce.release.signature import Key


def make_package(
    channel: Path,
    name: str,
    version: str = "1.0",
    *,
    depends: Sequence[str] = (),
    size: int = 100,
    build: str = "0",
    subdir: str = "noarch",
    license_: str | None = "MIT",
    license_family: str | None = None,
    files: Mapping[str, str | bytes] | None = None,
    links: Mapping[str, str] | None = None,
) -> Path:
    """SUBDIR/NAME-VERSION-BUILD.conda with share/NAME, `size` bytes that do not compress, with `files`, and
    with links PLACE -> TARGET.
    """
    words = (hashlib.sha256(f"{name} {version} {n}".encode()).digest() for n in range(size // 32 + 1))
    content = b"".join(words)[:size]
    index = {
        "name": name,
        "version": version,
        "build": build,
        "build_number": 0,
        "depends": list(depends),
        **({"license": "LicenseRef-Own" if license_family else license_} if license_ else {}),
        "subdir": subdir,
        **({"noarch": "generic"} if subdir == "noarch" else {"arch": "x86_64", "platform": "linux"}),
        **({"license_family": license_family} if license_family else {}),
    }
    more = {place: data.encode() if isinstance(data, str) else data for place, data in (files or {}).items()}
    installed = {f"share/{name}": content, **{p: more[p] for p in more if not p.startswith("info/")}}
    paths = [
        {
            "_path": place,
            "path_type": "hardlink",
            "sha256": hashlib.sha256(data).hexdigest(),
            "size_in_bytes": len(data),
        }
        for place, data in installed.items()
    ]
    empty = hashlib.sha256(b"").hexdigest()
    paths += [
        {"_path": place, "path_type": "softlink", "sha256": empty, "size_in_bytes": 0}
        for place in links or {}
    ]
    members = {
        "info/index.json": json.dumps(index).encode(),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}).encode(),
        "info/files": "".join(f"{place}\n" for place in installed).encode(),
        **more,
        **installed,
    }
    folder = channel / subdir
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-{version}-{build}"
    with conda_builder(stem, folder) as archive:
        for place, data in members.items():
            info = tarfile.TarInfo(place)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for place, target in (links or {}).items():
            info = tarfile.TarInfo(place)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return folder / f"{stem}.conda"


def index(channel: Path) -> Path:
    published.index(channel, {})
    return channel


def sign(
    channel: Path,
    key: Key,
    version: str = "1.0",
    *,
    name: str = "small",
    date: datetime | None = None,
    expires: datetime | None = None,
    stated: bool = True,
) -> Path:
    """Sign an indexed channel as a release is signed; stated: with the version, date and name."""
    date = date or datetime.now(UTC)
    if stated:
        Statement(name, version, date, expires).write(channel / freshness.NAME)
    manifest.write(channel)
    signature.sign(check.to_sign(channel), key.private)
    return channel
