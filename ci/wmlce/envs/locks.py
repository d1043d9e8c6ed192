"""Locks of environments in the formats of other tools: each names the files of an environment with their
sha256, so each can be read as an explicit lock.

explicit:   of `conda list --explicit`; conda, mamba and micromamba install from it
conda-lock: of conda-lock, version 1 (conda-lock.yml); conda-lock and micromamba install from it
pixi:       of pixi and rattler (pixi.lock)
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml
from rattler import PrefixRecord
from rattler.lock import LockChannel, LockFile, LockPlatform
from rattler.repo_data.record import RepoDataRecord

from wmlce.envs import explicit
from wmlce.util import conda_meta, platform
from wmlce.util.errors import WmlceError
from wmlce.util.files import text_of

_REMEDY = "write the lock file again: wmlce env lock --format"


class Format(StrEnum):
    """What `wmlce env lock --format` can write."""

    EXPLICIT = "explicit"
    CONDA_LOCK = "conda-lock"
    PIXI = "pixi"


def of_environment(prefix: Path, base: str, form: Format) -> str:
    """The lock of an installed environment; `base` is the URL of the channel to name in it."""
    plain = explicit.of_environment(prefix, base)  # an error if not all is known that a lock needs
    if form is Format.EXPLICIT:
        return plain
    base = base.rstrip("/")
    records = [_placed(PrefixRecord.from_path(path), base) for path in conda_meta.files(prefix)]
    return _conda_lock(records, base) if form is Format.CONDA_LOCK else _pixi(records, base)


def _placed(record: RepoDataRecord, base: str) -> RepoDataRecord:
    """The record as if it had come from the channel at `base`."""
    record.url = f"{base}/{record.subdir}/{record.file_name}"
    record.channel = base
    return record


def _pixi(records: Iterable[RepoDataRecord], base: str) -> str:
    target = LockPlatform(platform.of_this_machine().subdir)
    lock = LockFile([target])
    lock.set_channels("default", [LockChannel(base)])
    for record in records:
        lock.add_conda_package("default", target, record)
    with tempfile.TemporaryDirectory(prefix="wmlce-lock-") as scratch:
        path = Path(scratch) / "pixi.lock"
        lock.to_path(path)
        return path.read_text()


def _conda_lock(records: Iterable[RepoDataRecord], base: str) -> str:
    packages = []
    for record in records:
        assert record.sha256 is not None
        hashes = {"sha256": record.sha256.hex()}
        if record.md5 is not None:
            hashes = {"md5": record.md5.hex(), **hashes}
        packages.append(
            {
                "name": record.name.normalized,
                "version": str(record.version),
                "manager": "conda",
                "platform": platform.of_this_machine().subdir,
                "dependencies": dict(_split(spec) for spec in record.depends if not spec.startswith("__")),
                "url": record.url,
                "hash": hashes,
                "category": "main",
                "optional": False,
            }
        )
    content = explicit.Lock({str(item["url"]): str(item["hash"]["sha256"]) for item in packages}).digest  # type: ignore[index]
    document = {
        "version": 1,
        "metadata": {
            "content_hash": {platform.of_this_machine().subdir: content},
            "channels": [{"url": base, "used_env_vars": []}],
            "platforms": [platform.of_this_machine().subdir],
            "sources": [],
        },
        "package": packages,
    }
    head = "# Made by `wmlce env lock`. Install it with: wmlce env create NAME --lock FILE,\n"
    head += "# conda-lock install --name NAME FILE, or micromamba create --name NAME --file FILE\n"
    return head + yaml.safe_dump(document, sort_keys=False, width=110)


def _split(spec: str) -> tuple[str, str]:
    name, _, rest = spec.partition(" ")
    return name, rest.strip()


def read(path: Path) -> explicit.Lock:
    """The packages that a lock of any of the formats names."""
    try:
        text = text_of(path)
    except (OSError, UnicodeDecodeError) as error:
        raise WmlceError(
            f"{path} cannot be read: {error}", remedy="name a file of `wmlce env lock`"
        ) from error
    if re.search(r"^version:\s*\d", text, re.MULTILINE) is None:
        return explicit.read(path)
    try:
        document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise WmlceError(f"{path} is not YAML", detail=str(error).splitlines()[:6], remedy=_REMEDY) from error
    if not isinstance(document, Mapping):
        raise WmlceError(f"{path} is not a lock file", remedy=_REMEDY)
    packages = _of_conda_lock(path, document) if "metadata" in document else _of_pixi(path)
    if not packages:
        raise WmlceError(f"{path} names no package for {platform.of_this_machine().subdir}", remedy=_REMEDY)
    return explicit.Lock(packages)


def _entry(path: Path, url: object, sha256: object) -> tuple[str, str]:
    """`subdir/file` and digest, if an explicit lock could say the same."""
    match = explicit.LINE.match(f"{unquote(str(url))}#sha256:{sha256}")
    if match is None:
        raise WmlceError(f"{path} has no package with its sha256 in {str(url)[:120]}", remedy=_REMEDY)
    return f"{match['subdir']}/{match['file']}", match["sha256"]


def _of_conda_lock(path: Path, document: Mapping[str, Any]) -> dict[str, str]:
    packages = document.get("package")
    if document.get("version") != 1 or not isinstance(packages, list):
        raise WmlceError(f"{path} is not a lock file of conda-lock version 1", remedy=_REMEDY)
    entries: dict[str, str] = {}
    for item in packages:
        if not isinstance(item, Mapping):
            raise WmlceError(f"{path} has an invalid entry: {str(item)[:80]}", remedy=_REMEDY)
        if item.get("platform") != platform.of_this_machine().subdir:
            continue
        if item.get("manager") != "conda":
            raise _not_conda(path, str(item.get("name")))
        hashes = item.get("hash")
        key, sha256 = _entry(path, item.get("url"), hashes.get("sha256") if hashes else None)
        entries[key] = sha256
    return entries


def _of_pixi(path: Path) -> dict[str, str]:
    try:
        lock = LockFile.from_path(path)
        environment = lock.default_environment()
        environments = {name: other for name, other in lock.environments()}
    except Exception as error:  # rattler's errors have no common type
        raise WmlceError(
            f"{path} cannot be read as pixi's lock", detail=str(error).splitlines()[:6], remedy=_REMEDY
        ) from error
    if environment is None:
        if len(environments) != 1:
            raise WmlceError(
                f"{path} has the environments {', '.join(sorted(environments)) or '(none)'}, none of them "
                "named `default`",
                remedy="name the one that is wanted `default`",
            )
        (environment,) = environments.values()
    packages: dict[str, str] = {}
    for target in environment.platforms():
        if target.name != platform.of_this_machine().subdir:
            continue
        for package in environment.packages(target) or []:
            hashes = package.hashes
            if not package.location.endswith(".conda"):
                raise _not_conda(path, str(package.name))
            key, sha256 = _entry(
                path, package.location, hashes.sha256.hex() if hashes and hashes.sha256 else None
            )
            packages[key] = sha256
    return packages


def _not_conda(path: Path, name: str) -> WmlceError:
    return WmlceError(
        f"{path} names {name}, which is not a conda package",
        remedy="lock what the channel has alone; add other packages by pip: wmlce env overlay",
    )
