"""Which glibc a package needs, by its own files: the highest version of a symbol that one is bound to."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from conda_package_streaming.package_streaming import stream_conda_component
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from wmlce.util.errors import WmlceError

_SYMBOL_VERSION = re.compile(r"GLIBC_(\d+(?:\.\d+)+)$")
_SPEC = "__glibc"
_IN_MEMORY = 64 << 20
LARGEST = 64 << 30
"""Bytes of a package's files, unpacked: more are a mistake, or meant to fill memory or disk."""

Version = tuple[int, ...]


def needed_by_file(stream: IO[bytes]) -> Version | None:
    """The highest `GLIBC_x.y` that an ELF file wants of others; None where there is none, or no ELF file."""
    try:
        section = ELFFile(stream).get_section_by_name(".gnu.version_r")
    except (ELFError, ValueError):
        return None
    if not isinstance(section, GNUVerNeedSection):
        return None
    required = [
        tuple(map(int, match[1].split(".")))
        for _, versions in section.iter_versions()
        for version in versions
        if (match := _SYMBOL_VERSION.match(version.name))
    ]
    return max(required, default=None)


def needed_by_package(path: Path) -> dict[str, Version]:
    """File in the package -> the glibc that it needs, for those that need one."""
    required = {}
    size = 0
    for archive, member in stream_conda_component(str(path), component="pkg"):
        size += member.size
        if size > LARGEST or member.issparse():
            raise WmlceError(
                f"{path.name} has files of more than {LARGEST >> 30} GiB, or with holes",
                remedy="look into the recipe's scripts",
            )
        if not member.isfile() or member.size < 64:
            continue
        stream = archive.extractfile(member)
        if stream is None or stream.read(4) != b"\x7fELF":
            continue
        # a library may be larger than the memory
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as content:
            content.write(b"\x7fELF")
            shutil.copyfileobj(stream, content, 1 << 20)
            content.seek(0)
            version = needed_by_file(content)
        if version is not None:
            required[member.name] = version
    return required


def text(version: Version) -> str:
    return ".".join(map(str, version))


def with_requirement(depends: Iterable[str], version: Version | None) -> list[str]:
    """A package's dependencies with the given `__glibc` in place of those that were there."""
    others = [spec for spec in depends if spec.split()[0] != _SPEC]
    return others if version is None else [*others, f"{_SPEC} >={text(version)},<3.0.a0"]
