"""The shared objects of a package: what each says of itself.

Answers are remembered by the package's content: finding them means unpacking it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import mmap
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

import zstandard
from conda_package_streaming.package_streaming import stream_conda_component
from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.hash import ELFHashSection, GNUHashSection
from elftools.elf.sections import NoteSection

from wmlce.recipes import third_party
from wmlce.util.files import sha256_file, write_json
from wmlce.util.layout import Layout
from wmlce.util.scratch import scratch_folder

_FORM = 1
_MAGIC = b"\x7fELF"
_PIE = 0x08000000
"""DF_1_PIE of DT_FLAGS_1: a program."""


@dataclass(frozen=True)
class SharedObject:
    """A shared object.

    build_id:  that of the linker, in hexadecimal
    extension: has it PyInit_NAME, and is it named NAME: a module that Python imports?
    versions:  others' projects inside it -> the versions that its text names
    """

    soname: str | None
    build_id: str | None
    extension: bool
    versions: dict[str, str] = field(default_factory=dict)


@dataclass
class Held:
    """What a package holds.

    objects: path -> shared object; links are not counted
    records: path of a distribution's RECORD -> shared objects that it lists, by paths in the package
    """

    objects: dict[str, SharedObject] = field(default_factory=dict)
    records: dict[str, list[str]] = field(default_factory=dict)

    def extension_of(self, path: str) -> str | None:
        """The distribution, as `name-version`, whose RECORD lists this module of Python."""
        if not self.objects[path].extension:
            return None
        return next(
            (
                record.split("/")[-2].removesuffix(".dist-info")
                for record, paths in sorted(self.records.items())
                if path in paths
            ),
            None,
        )


@cache
def _table() -> str:
    """What is looked for in the files follows from third_party.yaml."""
    return hashlib.sha256((files("wmlce.recipes") / "third_party.yaml").read_bytes()).hexdigest()[:16]


def _memory(layout: Layout, entry: Mapping[str, Any]) -> Path:
    return layout.cache / "verified" / f"{entry['sha256']}-objects-{_FORM}-{_table()}.json"


def _remembered(layout: Layout, entry: Mapping[str, Any]) -> Held | None:
    try:
        document = json.loads(_memory(layout, entry).read_text())
        objects = {str(file): SharedObject(**item) for file, item in document["objects"].items()}
        return Held(objects, document["records"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def of_package(layout: Layout, path: Path, entry: Mapping[str, Any]) -> Held | None:
    """What a .conda file with this entry in the index holds; None for one that cannot be read."""
    held = _remembered(layout, entry)
    if held is not None:
        return held
    try:
        with scratch_folder(layout.cache / "scratch", "objects") as scratch:
            held = _read(path, str(entry["name"]), scratch)
    except (OSError, ValueError, LookupError, zipfile.BadZipFile, tarfile.TarError, zstandard.ZstdError):
        return None
    if sha256_file(path) == entry["sha256"]:
        write_json(_memory(layout, entry), asdict(held))
    return held


def of_record(layout: Layout, prefix: Path, record: Mapping[str, Any]) -> Held:
    """What an installed package holds, by its record in conda-meta."""
    held = _remembered(layout, record)
    if held is not None:
        return held
    held = Held()
    for name in map(str, record.get("files", ())):
        path = prefix / name
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as stream:
            shared_object = read_file(stream, str(record["name"]), name)
        if shared_object is not None:
            held.objects[name] = shared_object
    return held


def _read(path: Path, package: str, scratch: Path) -> Held:
    """Read a .conda file; its shared objects are written into `scratch`, one at a time."""
    held = Held()
    listings: dict[str, str] = {}
    for archive, member in stream_conda_component(str(path), component="pkg"):
        stream = archive.extractfile(member) if member.isfile() else None
        if stream is None:
            continue
        if member.name.endswith(".dist-info/RECORD"):
            listings[member.name] = stream.read().decode(errors="replace")
            continue
        start = stream.read(4)
        if start != _MAGIC:
            continue
        with tempfile.TemporaryFile(dir=scratch) as copy:
            copy.write(start)
            shutil.copyfileobj(stream, copy, 1 << 20)
            shared_object = read_file(copy, package, member.name)
        if shared_object is not None:
            held.objects[member.name] = shared_object
    for record, text in sorted(listings.items()):
        held.records[record] = sorted(set(_listed(record, text)) & held.objects.keys())
    return held


def _listed(record: str, text: str) -> Iterator[str]:
    site_packages = record.rpartition("/")[0].rpartition("/")[0]
    for row in csv.reader(io.StringIO(text)):
        if row:
            yield f"{site_packages}/{row[0]}"


def read_file(stream: IO[bytes], package: str, name: str) -> SharedObject | None:
    """A file of a package; None for what is no shared object: a program, a file for the linker."""
    stream.seek(0)
    if stream.read(4) != _MAGIC:
        return None
    stream.seek(0)
    try:
        elf = ELFFile(stream)
        if elf.header["e_type"] != "ET_DYN":
            return None
        soname, program = None, False
        for segment in elf.iter_segments():
            if segment.header["p_type"] == "PT_INTERP":
                program = True
            elif isinstance(segment, DynamicSegment):
                for tag in segment.iter_tags():
                    if tag.entry.d_tag == "DT_SONAME":
                        soname = str(getattr(tag, "soname", ""))
                    elif tag.entry.d_tag == "DT_FLAGS_1" and tag.entry.d_val & _PIE:
                        program = True
        if program and soname is None:
            return None
        extension = _defines(elf, f"PyInit_{_module(name)}")
        build_id = _build_id(elf)
    except (ELFError, ValueError, KeyError, IndexError, AttributeError):
        # it starts as one and cannot be loaded, or only differently: it is to be accounted for, too
        return SharedObject(None, None, False)
    stream.flush()
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return SharedObject(soname, build_id, extension, third_party.versions(package, name, content))


def _module(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def _build_id(elf: ELFFile) -> str | None:
    section = elf.get_section_by_name(".note.gnu.build-id")
    if isinstance(section, NoteSection):
        for note in section.iter_notes():
            if note["n_type"] == "NT_GNU_BUILD_ID":
                return str(note["n_desc"])
    return None


def _defines(elf: ELFFile, symbol: str) -> bool:
    for section in elf.iter_sections():
        if isinstance(section, GNUHashSection | ELFHashSection):
            shared_object = section.get_symbol(symbol)
            if shared_object is not None:
                return bool(shared_object["st_shndx"] != "SHN_UNDEF")
    return False
