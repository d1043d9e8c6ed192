"""Symbols: what a library or program of an environment leaves undefined, something that it loads defines.

The loader finds a missing symbol only when the file is loaded, or even later, when a function is called. Weak
symbols may be missing. Versions are looked up too: a library may have the function and not the version.
"""

from __future__ import annotations

import ctypes
import fnmatch
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from pydantic import BaseModel, ConfigDict, TypeAdapter

from wmlce.channel.verify.check import Check, Say
from wmlce.channel.verify.elf import Dynamic
from wmlce.channel.verify.environment import Libraries, host_libraries
from wmlce.channel.verify.index import owners

_SHOWN = 5


class Elsewhere(BaseModel):
    """Symbols that something outside a file's own libraries defines.

    users:    files, as patterns
    symbols:  names, as patterns
    provider: a file of the environment that defines them, as a pattern; `-` when nothing does
    """

    model_config = ConfigDict(extra="forbid")
    users: list[str]
    symbols: list[str]
    provider: str
    reason: str


@cache
def declared() -> list[Elsewhere]:
    """symbols.yaml."""
    text = (files("wmlce.channel.verify") / "symbols.yaml").read_text()
    return TypeAdapter(list[Elsewhere]).validate_python(yaml.safe_load(text) or [])


@dataclass
class Symbols:
    """The dynamic symbols of a file.

    undefined: those that it needs, without the weak ones
    defined:   those that others can use
    versions:  versions that it defines; empty for a library without versions
    needed:    library -> versions of it that have to be there
    """

    undefined: set[bytes] = field(default_factory=set)
    defined: set[bytes] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)
    needed: dict[str, set[str]] = field(default_factory=dict)


_WEAK = 2
_LOCAL = 0
_HIDDEN = (1, 2)
"""STV_INTERNAL and STV_HIDDEN."""
_WEAK_VERSION = 2
"""VER_FLG_WEAK of a version that is needed."""


def read(path: Path) -> Symbols | None:
    """None for a file without a table of dynamic symbols."""
    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            table = elf.get_section_by_name(".dynsym")
            if table is None or table.header["sh_type"] != "SHT_DYNSYM":
                return None
            symbols = Symbols()
            names = elf.get_section(table.header["sh_link"]).data()
            # by hand: pyelftools takes minutes for the frameworks' hundreds of thousands
            wide = elf.elfclass == 64
            form = struct.Struct("<IBBHQQ" if wide else "<IIIBBH")
            for entry in form.iter_unpack(table.data()):
                at, info, other, section = entry[:4] if wide else (entry[0], *entry[3:])
                binding = info >> 4
                if not at or binding == _LOCAL:
                    continue
                name = names[at : names.index(b"\0", at)]
                if section:
                    if other & 3 not in _HIDDEN:
                        symbols.defined.add(name)
                elif binding != _WEAK:
                    symbols.undefined.add(name)
            for part in elf.iter_sections():
                if isinstance(part, GNUVerDefSection):
                    symbols.versions |= {next(iter(aux)).name for _, aux in part.iter_versions()}
                elif isinstance(part, GNUVerNeedSection):
                    for library, versions in part.iter_versions():
                        required = {
                            version.name for version in versions if not version["vna_flags"] & _WEAK_VERSION
                        }
                        symbols.needed.setdefault(str(library.name), set()).update(required)
            return symbols
    except (OSError, ELFError, UnicodeDecodeError, ValueError, struct.error):
        return None


def undefined(prefix: Path, elf_files: Mapping[Path, Dynamic], say: Say) -> Check:
    """Every undefined symbol is defined by the libraries that the file needs, by the environment's Python, or
    by a library of the host.
    """
    prefix = prefix.resolve()
    say(f"symbols of {len(elf_files)} files")
    tables = {path: symbols for path in elf_files if (symbols := read(path)) is not None}
    libraries = Libraries(prefix, elf_files)
    python = _python(prefix, tables, libraries)
    owner = owners(prefix)
    check = Check("no undefined symbol", f"{sum(len(table.undefined) for table in tables.values())} symbols")
    for path, table in sorted(tables.items()):
        user = str(path.relative_to(prefix))
        reached, foreign, absent = libraries.reached(path)
        missing = set(table.undefined)
        for other in reached:
            if other in tables:
                missing -= tables[other].defined
        missing -= python
        missing = {name for name in missing if not _on_host(name, foreign)}
        who = f"{owner.get(user, '?')}: {user}"
        if missing:
            missing = _undeclared(user, missing, tables, prefix, check)
        if missing and absent:
            check.notes.append(f"{user}: {len(missing)} symbols are left to the site's {', '.join(absent)}")
        elif missing:
            names = sorted(name.decode(errors="replace") for name in missing)
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            check.findings.append(
                f"{who} needs the symbol {', '.join(names[:_SHOWN])}{more}: nothing defines it"
            )
        for library, versions in sorted(table.needed.items()):
            place = libraries.find(path, library)
            if place in tables and (lacking := versions - tables[place].versions):
                check.findings.append(
                    f"{who} needs version {', '.join(sorted(lacking))} of {library}: "
                    f"{place.relative_to(prefix)} does not have it"
                )
    check.notes = sorted(set(check.notes))
    return check


def _undeclared(
    user: str, missing: set[bytes], tables: Mapping[Path, Symbols], prefix: Path, check: Check
) -> set[bytes]:
    """Without those that symbols.yaml tells of; a provider has to be there and to define them."""
    for declaration in declared():
        if not any(fnmatch.fnmatch(user, pattern) for pattern in declaration.users):
            continue
        exempt = {
            n for n in missing if any(fnmatch.fnmatch(n.decode(), pattern) for pattern in declaration.symbols)
        }
        if declaration.provider != "-":
            defined: set[bytes] = set()
            for path, table in tables.items():
                if fnmatch.fnmatch(str(path.relative_to(prefix)), declaration.provider):
                    defined |= table.defined
            exempt &= defined
        if exempt:
            check.notes.append(
                f"{user}: {len(exempt)} symbols are not of its own libraries: {declaration.reason}"
            )
            missing = missing - exempt
    return missing


def _python(prefix: Path, tables: Mapping[Path, Symbols], libraries: Libraries) -> set[bytes]:
    """What modules find in the interpreter that loads them, and in its libraries."""
    program = (prefix / "bin" / "python").resolve()
    if program not in tables:
        return set()
    reached, _, _ = libraries.reached(program)
    return {name for path in reached if path in tables for name in tables[path].defined}


@cache
def _loaded(library: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(library)
    except OSError:
        return None


@cache
def _host_has(name: bytes, library: str) -> bool:
    loaded = _loaded(library)
    return loaded is not None and hasattr(loaded, name.decode(errors="replace"))


def _on_host(name: bytes, libraries: Iterable[str]) -> bool:
    """Does one of these libraries of the host define it? Only those that host_libraries.yaml declares."""
    return any(_host_has(name, library) for library in libraries if library in host_libraries().host)
