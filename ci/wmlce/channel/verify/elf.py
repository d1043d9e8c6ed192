"""What an ELF file asks the loader for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection, DynamicSegment
from elftools.elf.elffile import ELFFile


@dataclass(frozen=True)
class Dynamic:
    """The dynamic section's names: needed libraries, search paths as written, and whether they are inherited.

    rpath is searched also for the libraries that this file's libraries need; runpath only for its own.
    """

    needed: tuple[str, ...]
    soname: str | None
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    bits: int


_TEXT_TAGS = {"DT_NEEDED", "DT_SONAME", "DT_RPATH", "DT_RUNPATH"}


def read_dynamic(path: Path) -> Dynamic | None:
    """None for a file that is not a dynamically linked ELF file."""
    try:
        with path.open("rb") as stream:
            if stream.read(4) != b"\x7fELF":
                return None
            stream.seek(0)
            elf = ELFFile(stream)
            if elf.header["e_type"] not in ("ET_DYN", "ET_EXEC"):
                return None
            needed: list[str] = []
            rpath: list[str] = []
            runpath: list[str] = []
            soname = None
            for segment in elf.iter_segments():
                if not isinstance(segment, (DynamicSegment, DynamicSection)):
                    continue
                for tag in segment.iter_tags():
                    kind = tag.entry.d_tag
                    # pyelftools names a tag's text by the tag: DT_NEEDED -> .needed
                    text = str(getattr(tag, kind[3:].lower(), "")) if kind in _TEXT_TAGS else ""
                    if kind == "DT_NEEDED":
                        needed.append(text)
                    elif kind == "DT_SONAME":
                        soname = text
                    elif kind == "DT_RPATH":
                        rpath = [part for part in text.split(":") if part]
                    elif kind == "DT_RUNPATH":
                        runpath = [part for part in text.split(":") if part]
                return Dynamic(tuple(needed), soname, tuple(rpath), tuple(runpath), elf.elfclass)
    except (OSError, ELFError, UnicodeDecodeError, ValueError):
        return None
    return None
