"""Makes a program that was built on a newer C library start on an older one, where that is harmless.

C23 gave strtol and its relatives a second name in glibc 2.38 (`__isoc23_strtol`), for the prefix 0b alone.
A program whose only new symbols are these runs on older systems when they are pointed to the old names.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile

from wmlce.util.errors import WmlceError
from wmlce.util.platform import of_this_machine

_NEW = "__isoc23_"
_OLD_VERSION = "GLIBC_2.2.5"
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")
_SYMBOL_SIZE = 24
_HIDDEN = 0x7FFF


@dataclass(frozen=True)
class _Need:
    """A version that a file wants of a library. at: where its entry is in the file. index: its number in the
    table of the symbols' versions.
    """

    version: str
    at: int
    index: int
    name: int


def _hash(name: str) -> int:
    """The ELF hash of a version's name."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high
    return value


def _number(version: str) -> tuple[int, ...]:
    text = version.removeprefix("GLIBC_")
    return tuple(map(int, text.split("."))) if text.replace(".", "").isdecimal() else ()


class _File:
    """The tables of a 64-bit little-endian file, changed in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = bytearray(path.read_bytes())
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            machine = of_this_machine()
            if elf.elfclass != 64 or not elf.little_endian or elf.header["e_machine"] != machine.elf:
                raise WmlceError(
                    f"{path} is not a program for {machine.spoken}",
                    remedy=f"unpack Debian packages of {machine.debian}",
                )
            sections = {
                section.name: (int(section["sh_offset"]), int(section["sh_size"]))
                for section in elf.iter_sections()
            }
        self._sections = sections

    def section(self, name: str) -> tuple[int, int]:
        if name not in self._sections:
            raise WmlceError(
                f"{self.path} has no section {name}", remedy="use the distribution's unchanged file"
            )
        return self._sections[name]

    def text(self, offset: int) -> str:
        start = self.section(".dynstr")[0] + offset
        return self.data[start : self.data.index(0, start)].decode(errors="replace")

    def needs(self) -> list[_Need]:
        """Versions wanted of the C library."""
        needs = []
        at, size = self.section(".gnu.version_r")
        end = at + size
        while at < end:
            _, count, library, first, following = _VERNEED.unpack_from(self.data, at)
            entry = at + first
            for _ in range(count):
                _, _, index, name, step = _VERNAUX.unpack_from(self.data, entry)
                if self.text(library) == "libc.so.6":
                    needs.append(_Need(self.text(name), entry, index, name))
                entry += step
            if not following:
                break
            at += following
        return needs

    def symbols(self, index: int) -> list[int]:
        """Places of the dynamic symbols that have this version."""
        versions, _ = self.section(".gnu.version")
        table, size = self.section(".dynsym")
        return [
            table + number * _SYMBOL_SIZE
            for number in range(size // _SYMBOL_SIZE)
            if struct.unpack_from("<H", self.data, versions + 2 * number)[0] & _HIDDEN == index
        ]


def relax_glibc(path: Path, glibc: str) -> list[str]:
    """Make `path` start on this version of glibc; the symbols that were pointed elsewhere. Raises WmlceError
    where it needs more than the new names, and leaves the file as it was.
    """
    file = _File(path)
    needs = file.needs()
    missing = [need for need in needs if _number(need.version) > _number(f"GLIBC_{glibc}")]
    if not missing:
        return []
    old = next((need for need in needs if need.version == _OLD_VERSION), None)
    changed = []
    for need in missing:
        for symbol in file.symbols(need.index):
            (name,) = struct.unpack_from("<I", file.data, symbol)
            function = file.text(name)
            if not function.startswith(f"{_NEW}strto") or old is None:
                raise WmlceError(
                    f"{path.name} needs {function} of {need.version}, and this machine has glibc {glibc}",
                    remedy="install Apptainer from elsewhere: its project has packages for older systems",
                )
            struct.pack_into("<I", file.data, symbol, name + len(_NEW))
            changed.append(function)
        if old is None:  # a program of the C library alone always wants some
            raise WmlceError(f"{path} wants nothing of {_OLD_VERSION}", remedy="use the unchanged program")
        struct.pack_into("<I", file.data, need.at, _hash(_OLD_VERSION))
        struct.pack_into("<I", file.data, need.at + 8, old.name)
    path.write_bytes(file.data)
    return changed
