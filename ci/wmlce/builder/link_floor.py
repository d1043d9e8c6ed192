"""Hides from the linker what is newer than a version of glibc, so that what it links runs on that version.

The symbols of a shared library have versions (Drepper, "How To Write Shared Libraries", 3.3); a program is
bound to those that are the default when it is linked. Copies of the C library's files, which only the linker
sees, get other defaults: `exp` of 2.29 is hidden and that of 2.2.5 takes its place; `gettid` of 2.30 has no
older form, so a program that asks for it does not link, and a configure script finds that it is not there.
"""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

from wmlce.util.errors import WmlceError
from wmlce.util.platform import of_this_machine

_PLACE = "usr/lib/link-floor"
_SHARED = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1")
_HIDDEN = 0x8000
_REMEDY = "adapt ci/wmlce/builder/link_floor.py to the suite of recipes/build-root.yaml"
_HEADERS = {
    # libstdc++ was configured to let condition variables and mutexes wait with functions of 2.30
    "_GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT",
    "_GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK",
    "_GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK",
}


def hide_newer_symbols(root: Path, glibc: str) -> None:
    """Make the compiler in `root` link for this version of glibc."""
    multiarch = of_this_machine().multiarch
    libraries = f"usr/lib/{multiarch}"
    place = root / _PLACE
    place.mkdir(parents=True)
    for name in _SHARED:
        copied = place / name
        shutil.copy2((root / libraries / name).resolve(), copied)
        _hide(copied, _number(glibc))
        development = root / libraries / f"{name.split('.so')[0]}.so"
        if development.is_symlink():
            development.unlink()
            development.symlink_to(f"/{_PLACE}/{name}")
        else:  # a linker script
            text = development.read_text()
            changed = re.sub(
                rf"(?<=[\s(])/lib/{multiarch}/{re.escape(name)}(?=[\s)])", f"/{_PLACE}/{name}", text
            )
            if changed == text:
                raise WmlceError(f"{development} does not name {name}", remedy=_REMEDY)
            development.write_text(changed)
    count = 0
    for path in (root / "usr/include").rglob("c++config.h"):
        text = path.read_text()
        changed = re.sub(
            rf"^#\s*define ({'|'.join(sorted(_HEADERS))})\b.*$", r"/* \1: see link-floor */", text, flags=re.M
        )
        count += changed != text
        path.write_text(changed)
    if not count:
        raise WmlceError("no c++config.h in the build root to adapt", remedy=_REMEDY)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _hide(path: Path, floor: tuple[int, ...]) -> None:
    """Change which versions of the symbols in the shared library are the default ones."""
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        versions = elf.get_section_by_name(".gnu.version")
        symbols = elf.get_section_by_name(".dynsym")
        definitions = elf.get_section_by_name(".gnu.version_d")
        if not (
            isinstance(versions, GNUVerSymSection)
            and isinstance(symbols, SymbolTableSection)
            and isinstance(definitions, GNUVerDefSection)
        ):
            raise WmlceError(
                f"{path.name} has no symbol versions", remedy="use the distribution's unchanged file"
            )
        names: dict[int, tuple[int, ...]] = {}
        for definition, parts in definitions.iter_versions():
            name = next(iter(parts)).name
            if re.fullmatch(r"GLIBC_[0-9.]+", name):
                names[definition["vd_ndx"]] = _number(name.removeprefix("GLIBC_"))
        start = int(versions["sh_offset"])
        by_name: dict[str, list[tuple[tuple[int, ...], int, int]]] = {}
        for number, symbol in enumerate(symbols.iter_symbols()):
            if symbol["st_shndx"] == "SHN_UNDEF":
                continue
            stream.seek(start + 2 * number)
            (raw,) = struct.unpack("<H", stream.read(2))
            if raw & ~_HIDDEN in names:
                by_name.setdefault(symbol.name, []).append((names[raw & ~_HIDDEN], start + 2 * number, raw))
    data = bytearray(path.read_bytes())
    for entries in by_name.values():
        if all(version <= floor for version, _, _ in entries):
            continue
        if all(raw & _HIDDEN for _, _, raw in entries):
            continue  # kept for old programs alone, in no version to link with
        usable = [item for item in entries if item[0] <= floor]
        chosen = max(usable)[1] if usable else None
        for _, at, raw in entries:
            struct.pack_into("<H", data, at, (raw & ~_HIDDEN) if at == chosen else (raw | _HIDDEN))
    path.write_bytes(data)
