"""Making a finished package depend on what it was made of alone: not on the machine, the hour or the folder.

The same recipe, sources and tools give the same bytes, so that a file name stands for one content. Dates
become `source_date`, owners root's, permissions 0644 or 0755; the folder of the build, which stands for the
prefix until the package is installed, becomes the same one for all; rattler-build's note of its channels,
which here are scratch folders, goes. What a compiler wrote into a file is not touched otherwise: builds see
$SOURCE_DATE_EPOCH for that.
"""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import re
import tarfile
import tempfile
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

import zstandard
from rattler import IndexJson, MatchSpec, PathsJson

from wmlce.builder import glibc
from wmlce.util.errors import WmlceError

LEVEL = 3
"""zstd's compression level: higher ones cost minutes for the largest packages, and save some percent."""
_UNCHECKED = (1).to_bytes(4, "little")
"""Flags of a compiled module (PEP 552): a digest of the source, which is not looked at."""
_MOST_LINKS = 40  # as Linux follows
_COMMAND = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]* ?= ?[\w.]+:[\w.]+")
_SCRIPT = re.compile(r"(bin|Scripts)/\..*-(pre|post)-(un)?link\..*")
_UNPRINTABLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of what steers a terminal, turns a line round, or is no character."""
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


def finish(path: Path, source_date: int) -> dict[str, Any]:
    """Write a .conda file anew in its final form, in place; returns its repodata entry. Besides all that,
    `__glibc` becomes what the package's own files need.

    A .conda file is a zip of stored members: metadata.json, info-*.tar.zst and pkg-*.tar.zst.
    source_date: seconds since 1970; the same number as the build's $SOURCE_DATE_EPOCH
    Raises WmlceError for a compiled module that an edit of its source leaves in use, and for what would be
    installed or lead out of the environment.
    """
    part = path.with_suffix(".part")
    package_files = _PackageFiles(source_date)
    info_files = _InfoFiles(
        source_date, max(glibc.needed_by_package(path).values(), default=None), package_files.changed
    )
    try:
        with (
            zipfile.ZipFile(path) as old,
            zipfile.ZipFile(part, "w", zipfile.ZIP_STORED, allowZip64=True) as new,
        ):
            members = {member.filename.split("-")[0]: member for member in old.infolist()}
            info, package = members["info"], members["pkg"]
            listed = _paths(_read(old, info))
            for item in listed:
                if (prefix := item.get("prefix_placeholder")) is not None:
                    package_files.placeholders[item["_path"]] = prefix.encode()
            # the files before what is said of them; in the package the order is the other way round
            with tempfile.TemporaryFile(dir=path.parent) as packed:
                with old.open(package) as source:
                    _normalize_tar(source, packed, source_date, package_files)
                package_files.check_listed(path, listed)
                package_files.check_links(path)
                _put(new, "metadata.json", io.BytesIO(_read(old, old.getinfo("metadata.json"))))
                with old.open(info) as source, tempfile.TemporaryFile(dir=path.parent) as about:
                    _normalize_tar(source, about, source_date, info_files)
                    for command in info_files.commands:
                        if not _COMMAND.fullmatch(command):
                            raise _refused(
                                path, f"its entry point {command!r} is no `command = module:function`"
                            )
                    _put(new, info.filename, about)
                _put(new, package.filename, packed)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    part.replace(path)
    _require_readable(path, info_files.index)
    with path.open("rb") as stream:
        md5 = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        stream.seek(0)
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    size = path.stat().st_size
    return {
        **info_files.index,
        "run_exports": info_files.run_exports,
        "size": size,
        "md5": md5,
        "sha256": sha256,
    }


class _PackageFiles:
    """Change the files of a package.

    sha256, links: of all of them, after the change.
    placeholders: the prefix that each file holds, by the file's name.
    changed: the new digest of each file that became another one, by the old digest.
    """

    def __init__(self, source_date: int) -> None:
        self.source_date = source_date
        self.sha256: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.placeholders: dict[str, bytes] = {}
        self.changed: dict[str, str] = {}

    most_bytes = 2 << 30

    def selects(self, name: str) -> bool:
        return name.endswith(".pyc") or name in self.placeholders

    def check_listed(self, package: Path, listed: list[dict[str, Any]]) -> None:
        """WmlceError where info/paths.json, by which clients install, does not list just these files."""
        items = {str(item["_path"]): item for item in listed if item.get("path_type") != "directory"}
        # clients make the folders that it lists
        for name in [str(item["_path"]) for item in listed if item.get("path_type") == "directory"]:
            if not _is_plain(name) or name in self.sha256 or name in self.links:
                raise _refused(package, f"its list has {name!r}, which is no folder in an environment")
        if strange := {*self.sha256, *self.links} ^ items.keys():
            raise _refused(package, f"{min(strange)} is only in its files or only in its list of them")
        for name, item in items.items():
            kind = "softlink" if name in self.links else "hardlink"
            sha256 = self.changed.get(str(item.get("sha256")), item.get("sha256"))
            if item.get("path_type") != kind or self.sha256.get(name, sha256) != sha256:
                raise _refused(package, f"its list of files says something else of {name}")
            if _SCRIPT.fullmatch(name):
                raise _refused(package, f"{name} would run when the package is installed")
        for name in (str(item["_path"]) for item in listed):
            if f"{name}/".startswith(("conda-meta/", "info/")):
                raise _refused(package, f"{name} would be a record of the environment")

    def check_links(self, package: Path) -> None:
        """WmlceError for a link that leads out of the environment, by way of others or not."""
        for name in self.links:
            folder, followed = posixpath.dirname(name), 0
            todo = [*reversed(self.links[name].split("/"))]
            while todo:
                part = todo.pop()
                if part == "..":
                    if not folder:
                        raise _refused(package, f"{name} leads out of the environment, to {self.links[name]}")
                    folder = posixpath.dirname(folder)
                elif part not in ("", "."):
                    folder = posixpath.join(folder, part)
                    if (target := self.links.get(folder)) is not None:
                        followed += 1
                        if followed > _MOST_LINKS:
                            raise _refused(package, f"{name} leads to itself")
                        folder = posixpath.dirname(folder)
                        todo += reversed(target.split("/"))

    def change(self, name: str, content: bytes) -> bytes:
        before = content
        if (placeholder := self.placeholders.get(name)) is not None:
            content = content.replace(placeholder, _placeholder(placeholder))
        if name.endswith(".pyc") and content[4:8] == _UNCHECKED:
            raise WmlceError(
                f"{name} is a compiled module that Python never compares with its source",
                remedy="compile with --invalidation-mode timestamp: else an edit of the source has no effect",
            )
        # one that is validated by date names that of its source, which is now another one
        if name.endswith(".pyc") and content[4:8] == bytes(4):
            content = content[:8] + (self.source_date & 0xFFFFFFFF).to_bytes(4, "little") + content[12:]
        if content != before:
            self.changed[hashlib.sha256(before).hexdigest()] = hashlib.sha256(content).hexdigest()
        return content


class _InfoFiles:
    """Change what a package says of itself.

    version: the glibc that it needs.
    commands: its entry points, of which clients make programs.
    entry: what is new in info/index.json.
    index, run_exports: what it then holds, and the package's exports.
    """

    def __init__(self, source_date: int, version: glibc.Version | None, changed: Mapping[str, str]) -> None:
        self.version = version
        self.changed = changed
        self.entry: dict[str, Any] = {"timestamp": source_date * 1000}
        self.commands: list[str] = []
        self.index: dict[str, Any] = {}
        self.run_exports: dict[str, Any] = {}

    most_bytes = 64 << 20

    def selects(self, name: str) -> bool:
        return name.endswith(".json")

    def change(self, name: str, content: bytes) -> bytes:
        if name == "info/run_exports.json":
            self.run_exports.update(json.loads(content))
        if name == "info/link.json":
            points = (json.loads(content).get("noarch") or {}).get("entry_points") or []
            self.commands += map(str, points)
        if name == "info/about.json":
            return _json({**json.loads(content), "channels": []})
        if name == "info/index.json":
            document = json.loads(content)
            modules = document.get("python_site_packages_path")
            if modules is not None and not _is_plain(str(modules)):
                raise WmlceError(f"{modules!r} is no place for modules", remedy="look into its scripts")
            # rattler-build adds those of run exports in an order that changes from build to build
            for key in document.keys() & {"depends", "constrains"}:
                document[key] = sorted(document[key])
            self.entry["depends"] = glibc.with_requirement(document.get("depends", []), self.version)
            self.index = {**document, **self.entry}
            return _json(self.index)
        if name == "info/paths.json":
            document = json.loads(content)
            for item in document["paths"]:
                # a link has the digest of the file to which it leads
                item["sha256"] = self.changed.get(item.get("sha256"), item.get("sha256"))
                if (prefix := item.get("prefix_placeholder")) is not None:
                    item["prefix_placeholder"] = _placeholder(prefix.encode()).decode()
            return _json(document)
        return content


def _placeholder(prefix: bytes) -> bytes:
    """The prefix that stands in a package until it is installed: as long as the one of this build, which is
    its folder.
    """
    return (b"/opt/placeholder" + b"_placeholder" * (len(prefix) // 12))[: len(prefix)]


def _paths(info: bytes) -> list[dict[str, Any]]:
    """What info/paths.json lists."""
    with (
        zstandard.ZstdDecompressor().stream_reader(io.BytesIO(info)) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        for member in archive:
            if member.name == "info/paths.json" and (content := archive.extractfile(member)) is not None:
                if member.size > _InfoFiles.most_bytes:
                    raise WmlceError(f"{member.name} has {member.size} bytes", remedy="make fewer files")
                return list(json.loads(content.read())["paths"])
    return []


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > _InfoFiles.most_bytes:
        raise WmlceError(f"{member.filename} is compressed, or too large", remedy="look into its scripts")
    return archive.read(member)


class _Hashed:
    """A stream, and the digest of what was read of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.digest.update(data)
        return data


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, allow_nan=False).encode()


def _require_readable(path: Path, index: Mapping[str, Any]) -> None:
    """WmlceError where clients cannot read what a package says of itself, or the index with it."""
    try:
        IndexJson.from_package_archive(path)
        PathsJson.from_package_archive(path)
        for spec in (*index.get("depends", ()), *index.get("constrains", ())):
            MatchSpec(spec)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # rattler's errors, and its panics, which are no Exception
        raise _refused(path, f"clients cannot read its records: {str(error)[:200]}") from error


def _put(archive: zipfile.ZipFile, name: str, content: IO[bytes]) -> None:
    content.seek(0)
    member = zipfile.ZipInfo(name, _ZIP_DATE)
    member.create_system = 3
    member.external_attr = 0o644 << 16
    with archive.open(member, "w", force_zip64=True) as target:
        while block := content.read(1 << 20):
            target.write(block)


@contextmanager
def _writing(target: IO[bytes]) -> Iterator[tarfile.TarFile]:
    # with threads, zstd gives the same bytes for any number of them, but not those of none
    compressor = zstandard.ZstdCompressor(level=LEVEL, threads=-1)
    with (
        compressor.stream_writer(target, closefd=False) as stream,
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT, bufsize=1 << 20) as archive,
    ):
        yield archive


def _normalize_tar(
    source: IO[bytes], target: IO[bytes], source_date: int, files: _PackageFiles | _InfoFiles
) -> None:
    """Write the tar archive `source` anew, with the contents of `files`."""
    with (
        zstandard.ZstdDecompressor().stream_reader(source) as stream,
        tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 20) as old,
        _writing(target) as new,
    ):
        seen: dict[str, bool] = {}
        size = 0
        for member in old:
            member.name = member.name.rstrip("/")
            size += member.size
            if isinstance(files, _InfoFiles) and not f"{member.name}/".startswith("info/"):
                raise WmlceError(f"{member.name!r} is no record of a package", remedy="look into its scripts")
            _check_member(member, links=isinstance(files, _PackageFiles))
            if size > glibc.LARGEST:
                raise WmlceError(f"its files have more than {size} bytes", remedy="look into its scripts")
            content: Any = old.extractfile(member) if member.isreg() else None
            if content is not None and files.selects(member.name):
                if member.size > files.most_bytes:
                    raise WmlceError(f"{member.name!r} has {member.size} bytes", remedy="make it smaller")
                data = files.change(member.name, content.read())
                member.size = len(data)
                content = io.BytesIO(data)
            if member.name in seen:
                raise WmlceError(f"{member.name!r} is in the package twice", remedy="look into its scripts")
            seen[member.name] = member.isdir()
            member.mtime = source_date
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = (
                0o777 if member.issym() else 0o755 if member.isdir() or member.mode & 0o111 else 0o644
            )
            member.pax_headers = {}
            if isinstance(files, _PackageFiles) and member.issym():
                files.links[member.name] = member.linkname
            elif isinstance(files, _PackageFiles) and content is not None:
                content = _Hashed(content)
                new.addfile(member, content)
                files.sha256[member.name] = content.digest.hexdigest()
                continue
            new.addfile(member, content)
    # clients unpack through a link, to where nothing has looked
    for name in seen:
        for folder in map(str, PurePosixPath(name).parents):
            if not seen.get(folder, True):
                raise WmlceError(
                    f"{name!r} is below {folder!r}, which is no folder", remedy="look into its scripts"
                )


def _is_plain(place: str) -> bool:
    """Is it a place in an environment, whose name can be shown?"""
    printable = not any(unicodedata.category(character) in _UNPRINTABLE for character in place)
    return printable and posixpath.normpath(place) == place and not place.startswith(("/", ".."))


def _check_member(member: tarfile.TarInfo, *, links: bool) -> None:
    """WmlceError for what would be written, or lead, out of the environment, and for what is no file. links:
    may it be one?
    """
    place = member.name
    wrong = ""
    if not _is_plain(place):
        wrong = "is no place in an environment"
    elif member.issym() and links:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(place), member.linkname))
        wrong = (
            f"leads out of the environment, to {member.linkname}" if target.startswith(("/", "..")) else ""
        )
    elif member.issparse() or not (member.isreg() or member.isdir()):
        wrong = "is neither a file nor a link" if links else "is no file"
    if wrong:
        raise WmlceError(f"{place!r} {wrong}", remedy="leave it out of the package")


def _refused(path: Path, why: str) -> WmlceError:
    return WmlceError(f"{path.name}: {why}", remedy="look into the recipe's scripts")
