"""One copy of each library, one OpenMP runtime, and one owner of each file.

Two copies of a library in one process have two states: two pools of threads, two allocators, objects of one
in the hands of the other. Wheels bring copies under names of their own, with a hash in it.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

from wmlce.channel.verify.check import Check
from wmlce.channel.verify.index import owners
from wmlce.util import conda_meta

_HASH = re.compile(r"(?:-[0-9a-f]{8})+(?=\.so)")
_LIBRARY = re.compile(r"^(lib[^/]+?)\.so(?:\.(\d+))?(?:\.\d+)*$")
_OPENMP = re.compile(r"^(libgomp|libiomp5|libomp5?|libomp)\.so")
_ASIDE = "__clobbers__"
"""Where the installer puts the files that lose: PACKAGE/FILE."""
OPENMP = "OpenMP runtime"


class Copy(BaseModel):
    """An entry of copies.yaml."""

    model_config = ConfigDict(extra="forbid")
    library: str
    places: list[str]
    reason: str


@cache
def declared() -> list[Copy]:
    """copies.yaml."""
    text = (files("wmlce.channel.verify") / "copies.yaml").read_text()
    return TypeAdapter(list[Copy]).validate_python(yaml.safe_load(text) or [])


def library_name(file: str) -> str | None:
    """libgfortran.so.5 of libgfortran-040039e1.so.5.0.0; None for what is no library by its name."""
    match = _LIBRARY.match(_HASH.sub("", file))
    if match is None or ".cpython-" in file:
        return None
    return f"{match[1]}.so" + (f".{match[2]}" if match[2] else "")


def libraries(prefix: Path, elf_files: Iterable[Path]) -> Check:
    """One copy of each library, and one OpenMP runtime, but for those that copies.yaml has a reason for."""
    prefix = prefix.resolve()
    owner = owners(prefix)
    by_name: dict[str, dict[tuple[int, int], Path]] = {}
    for path in sorted(elf_files):
        name = library_name(path.name)
        if name is not None:
            status = path.stat()
            kind = OPENMP if _OPENMP.match(name) else name
            # links to one file are one copy
            by_name.setdefault(kind, {}).setdefault((status.st_dev, status.st_ino), path)
    check = Check("one copy of each library", f"{len(by_name)} libraries")
    for name, places in sorted(by_name.items()):
        plain = []
        for path in places.values():
            file = str(path.relative_to(prefix))
            reason = _reason(library_name(path.name) or "", file)
            if reason is None:
                plain.append(f"{file} ({owner.get(file, '?')})")
            elif len(places) > 1:
                check.notes.append(f"{file} is another {name}: {reason}")
        if len(plain) > 1:
            check.findings.append(
                f"{name} is there {len(plain)} times: {', '.join(sorted(plain))}; "
                "leave one out in recipes/wheels.yaml, or declare why in verify/copies.yaml"
            )
    return check


def _reason(library: str, file: str) -> str | None:
    for declaration in declared():
        if declaration.library == library and any(
            fnmatch.fnmatch(file, pattern) for pattern in declaration.places
        ):
            return declaration.reason
    return None


def clobbered(prefix: Path) -> Check:
    """No file is in two packages: one of them would have the other's content."""
    holders: dict[str, set[str]] = {}
    for record in conda_meta.readable(prefix):
        for file in record.get("files", ()):
            path = str(file).removeprefix(f"{_ASIDE}/{record['name']}/")
            holders.setdefault(path, set()).add(str(record["name"]))
    for loser in (prefix / _ASIDE).rglob("*"):
        if loser.is_symlink() or loser.is_file():
            package, file = str(loser.relative_to(prefix / _ASIDE)).split("/", 1)
            holders.setdefault(file, set()).add(package)
    findings = [
        f"{file} is in {' and in '.join(sorted(names))}: leave it out of one of them"
        for file, names in sorted(holders.items())
        if len(names) > 1
    ]
    return Check("each file in one package", f"{len(holders)} files", findings)
