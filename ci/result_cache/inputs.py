"""What each file of tests depends on, and the hash of it. inputs.toml has the table."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

from wmlce.util.project_files import file_state, listed_files

EVERYTHING = "*"
_TABLE = Path(__file__).with_name("inputs.toml")


def is_test_file(path: PurePosixPath) -> bool:
    """Whether pytest collects it: such a file is an input of itself alone."""
    return path.name.startswith("test_") and path.suffix == ".py"


@dataclass(frozen=True)
class Area:
    """Tests with the same inputs.

    Attributes:
        tests: Files of tests, or folders of them.
        files: Files and folders of the clone that the tests may read; "*" is every file.
        packages: Packages of the channel that they use, each with what it depends on; "*" is every package.
        without: Packages that those depend on, and that the tests do not use.
    """

    tests: tuple[str, ...]
    files: tuple[str, ...]
    packages: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """The contents of inputs.toml.

    Attributes:
        always: Inputs of every test.
        areas: The areas.
    """

    always: tuple[str, ...]
    areas: tuple[Area, ...]

    @classmethod
    def read(cls, file: Path = _TABLE) -> Table:
        document = tomllib.loads(file.read_text())
        areas = (Area(**{key: tuple(value) for key, value in area.items()}) for area in document["area"])
        return cls(tuple(document["always"]), tuple(areas))

    def area(self, test: str) -> Area:
        """The area that names the file `test`, or the innermost folder around it.

        A file that no area names depends on everything.
        """
        path = PurePosixPath(test)
        for place in (path, *path.parents):
            for area in self.areas:
                if str(place) in area.tests:
                    return area
        return Area((test,), (EVERYTHING,), (EVERYTHING,))


def covers(entries: Iterable[str], path: PurePosixPath) -> bool:
    """Whether one of `entries` is `path`, a folder around it, or "*"."""
    names = {str(path), *map(str, path.parents), EVERYTHING}
    return any(entry in names for entry in entries)


@dataclass(eq=False)
class Inputs:
    """Hashes of what tests depend on, as the clone and its channel are now.

    Attributes:
        root: The clone.
        table: What depends on what.
    """

    root: Path
    table: Table = field(default_factory=Table.read)

    @cached_property
    def files(self) -> dict[PurePosixPath, str]:
        """The state of each file that git tracks or would track."""
        return {
            PurePosixPath(file.relative_to(self.root).as_posix()): file_state(file)
            for file in listed_files(self.root, self.root)
        }

    @cached_property
    def _channel(self) -> dict[str, tuple[dict[str, str], set[str]]]:
        """By name of a package: the sha256 of its files, and the names that they depend on."""
        channel = self.root / "build" / "channel"
        try:
            current: dict[str, str] = json.loads((channel / "channel.json").read_text())["packages"]
        except FileNotFoundError:
            return {}
        packages: dict[str, tuple[dict[str, str], set[str]]] = {}
        for subdir in {name.partition("/")[0] for name in current}:
            repodata = json.loads((channel / subdir / "repodata.json").read_text())
            for file, record in {**repodata["packages"], **repodata["packages.conda"]}.items():
                if sha256 := current.get(f"{subdir}/{file}"):
                    files, depends = packages.setdefault(record["name"], ({}, set()))
                    files[file] = sha256
                    depends.update(spec.partition(" ")[0] for spec in record["depends"])
        return packages

    def package_names(self, area: Area) -> set[str]:
        """The packages that the tests of `area` use."""
        todo = set(self._channel) if EVERYTHING in area.packages else set(area.packages)
        left_out = set(area.without)
        names: set[str] = set()
        while todo:
            name = todo.pop()
            if name not in names | left_out and name in self._channel:
                names.add(name)
                todo |= self._channel[name][1]
        return names

    def packages(self, area: Area) -> dict[str, str]:
        """Files of these packages, with their sha256."""
        return {
            file: sha256
            for name in self.package_names(area)
            for file, sha256 in self._channel[name][0].items()
        }

    @cache  # noqa: B019  # one object a run
    def _shared(self, area: Area) -> dict[PurePosixPath, str]:
        entries = (*self.table.always, *area.files)
        return {
            path: state
            for path, state in self.files.items()
            if not is_test_file(path) and covers(entries, path)
        }

    def of(self, test: str) -> dict[PurePosixPath, str]:
        """Files of the clone that the tests of the file `test` depend on, with their state."""
        file = PurePosixPath(test)
        return {**self._shared(self.table.area(test)), file: self.files.get(file, "absent")}

    def key(self, test: str) -> str:
        """The hash of everything that the tests of the file `test` depend on.

        That is files of the clone, packages, and the machine's kernel, Python and user (root or another).
        """
        machine = (platform.python_version(), platform.release(), platform.machine(), str(os.geteuid() == 0))
        digest = hashlib.sha256("\0".join((test, *machine)).encode())
        for path, state in sorted(self.of(test).items()):
            digest.update(f"\0{path}\0{state}".encode())
        for name, sha256 in sorted(self.packages(self.table.area(test)).items()):
            digest.update(f"\0{name}\0{sha256}".encode())
        return digest.hexdigest()
