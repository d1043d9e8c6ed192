"""Taking out of a finished package what only the build machine knows.

rattler-build notes the URLs of its channels in info/about.json; here these are scratch folders.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import zstandard

from wmlce.builder import glibc


def finish(path: Path) -> dict[str, Any]:
    """Write a .conda file anew in its final form, in place; returns what is new in its repodata entry.

    The list of channels is emptied, and `__glibc` becomes what the package's own files need.

    A .conda file is a zip of stored members: metadata.json, info-*.tar.zst and pkg-*.tar.zst; only the info
    member changes, the others are copied as they are.
    """
    depends: list[str] = []
    version = max(glibc.needed_by_package(path).values(), default=None)
    part = path.with_suffix(".part")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(part, "w", zipfile.ZIP_STORED, allowZip64=True) as new:
        for member in old.infolist():
            if member.filename.startswith("info-"):
                new.writestr(_named(member), _final_info(old.read(member), version, depends))
            else:
                with old.open(member) as source, new.open(_named(member), "w", force_zip64=True) as target:
                    shutil.copyfileobj(source, target, 1 << 20)
    part.replace(path)
    with path.open("rb") as stream:
        md5 = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        stream.seek(0)
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"size": path.stat().st_size, "md5": md5, "sha256": sha256, "depends": depends}


def _named(member: zipfile.ZipInfo) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(member.filename, member.date_time)


def _final_info(packed: bytes, version: glibc.Version | None, depends: list[str]) -> bytes:
    """The info member in its final form; `depends` receives the package's dependencies."""
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    result = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(plain)) as old,
        tarfile.open(fileobj=result, mode="w", format=tarfile.GNU_FORMAT) as new,
    ):
        for member in old:
            stream = old.extractfile(member)
            if member.name in ("info/about.json", "info/index.json") and stream is not None:
                document = json.loads(stream.read())
                if member.name == "info/about.json":
                    document["channels"] = []
                else:
                    document["depends"] = glibc.with_requirement(document.get("depends", []), version)
                    depends += document["depends"]
                text = json.dumps(document, indent=2).encode()
                member.size = len(text)
                new.addfile(member, io.BytesIO(text))
            else:
                new.addfile(member, stream)
    return zstandard.ZstdCompressor(level=10).compress(result.getvalue())
