"""What packages hold beyond their own project: third_party.yaml."""

from __future__ import annotations

import fnmatch
import mmap
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml
from pydantic import BaseModel, ConfigDict, model_validator

FILE = "ci/wmlce/recipes/third_party.yaml"
_BUNDLED = re.compile(r"(?:^|/)[^/]+\.libs/(lib[^/]+?)(?:[-.][0-9a-f]{8})*\.so[^/]*$")
_LIBRARY = re.compile(r"^lib([^/]+?)[-\d.]*\.so(?:\.[\d.]+)?$")
_NO_LETTERS = re.compile(r"[^a-z0-9]")


class Project(BaseModel):
    """A project.

    license: SPDX expression
    purl:    without the version
    version: a pattern of the text in its files that names the version; its groups are joined by dots
    """

    model_config = ConfigDict(extra="forbid")
    license: str
    purl: str
    version: str | None = None


class Contents(BaseModel):
    """What is in a package.

    project_files: shared objects of its own project, as patterns
    holds:  project -> those that are that project's
    linked: shared objects, as a pattern -> projects that were linked into them, each `NAME` or `NAME VERSION`
    seen:   the package's version in which `linked` was looked up
    """

    model_config = ConfigDict(extra="forbid")
    project_files: list[str] = []
    holds: dict[str, list[str]] = {}
    linked: dict[str, list[str]] = {}
    seen: str | None = None


class ThirdParty(BaseModel):
    """third_party.yaml."""

    model_config = ConfigDict(extra="forbid")
    projects: dict[str, Project]
    libraries: dict[str, str]
    packages: dict[str, Contents]
    debian: dict[str, str] = {}

    @model_validator(mode="after")
    def _projects_are_known(self) -> ThirdParty:
        named = {*self.libraries.values()}
        for contents in self.packages.values():
            named |= {
                *contents.holds,
                *(_split(text)[0] for texts in contents.linked.values() for text in texts),
            }
            if contents.linked and contents.seen is None:
                raise ValueError("`linked` needs `seen`, the version of the package that was looked at")
        if unknown := sorted(named - self.projects.keys()):
            raise ValueError(f"no project of these names is declared: {', '.join(unknown)}")
        return self

    def contents(self, package: str) -> Contents:
        """What is declared of a package: by its name, else by the first pattern that fits."""
        if package in self.packages:
            return self.packages[package]
        fitting = (item for pattern, item in self.packages.items() if fnmatch.fnmatchcase(package, pattern))
        return next(fitting, Contents())


@cache
def declared() -> ThirdParty:
    """The table that is shipped with the tool."""
    text = (files("wmlce.recipes") / "third_party.yaml").read_text()
    return ThirdParty.model_validate(yaml.safe_load(text))


def bundled(paths: Iterable[str]) -> dict[str, str]:
    """Libraries in the folders NAME.libs of wheels: path -> name, without the hash and version in it."""
    return {path: match[1] for path in paths if (match := _BUNDLED.search(path))}


def owner(package: str, path: str, soname: str | None) -> str | None:
    """Whose a shared object is, by its path and SONAME: the package's name, a project's, or None.

    Where a pattern gives the path, the SONAME has to fit it, too: a library under another's name is nobody's.
    """
    table = declared()
    contents = table.contents(package)
    if any(_fits(path, soname, pattern) for pattern in contents.project_files):
        return package
    for project, patterns in contents.holds.items():
        if any(_fits(path, soname, pattern) for pattern in patterns):
            return project
    if library := bundled([path]).get(path):
        return table.libraries.get(library) if soname in (None, path.rpartition("/")[2]) else None
    name = _LIBRARY.match(soname or path.rpartition("/")[2])
    return package if name is not None and _plain(name[1]) == _plain(package) else None


def _fits(path: str, soname: str | None, pattern: str) -> bool:
    return fnmatch.fnmatchcase(path, pattern) and (
        soname is None or fnmatch.fnmatchcase(soname, pattern.rpartition("/")[2])
    )


def _plain(name: str) -> str:
    return _NO_LETTERS.sub("", name.lower().removeprefix("lib"))


@dataclass(frozen=True)
class Inside:
    """A project inside a package.

    paths:  the files that are its, or that it was linked into
    linked: was it linked into files of others?
    """

    name: str
    version: str | None
    paths: tuple[str, ...]
    linked: bool

    @property
    def project(self) -> Project:
        return declared().projects[self.name]


def inside(
    package: str,
    version: str,
    paths: Iterable[str],
    text_versions: Mapping[str, Mapping[str, str]] | None = None,
) -> list[Inside]:
    """The projects inside a package beside its own, by the paths of its files; a library in several versions
    counts once for each.

    text_versions: path -> project -> the version that the file names
    """
    contents = declared().contents(package)
    places_of: dict[tuple[str, str, bool], list[str]] = {}
    for path in sorted(paths):
        in_text = (text_versions or {}).get(path, {})
        project = owner(package, path, None)
        if project is not None and project != package:
            places_of.setdefault((project, in_text.get(project, ""), False), []).append(path)
        for name, stated in _linked(contents, path):
            part_version = in_text.get(name) or (stated if contents.seen == version else None)
            places_of.setdefault((name, part_version or "", True), []).append(path)
    for name, part_version, linked in sorted(places_of):
        same = [key for key in places_of if key[0] == name and key[2] == linked and key[1]]
        if not part_version and len(same) == 1:  # of the libraries of one project, one tells for all
            places_of[same[0]] = sorted([*places_of[same[0]], *places_of.pop((name, part_version, linked))])
    return [
        Inside(name, part_version or None, tuple(places), linked)
        for (name, part_version, linked), places in sorted(places_of.items())
    ]


def _linked(contents: Contents, path: str) -> Iterator[tuple[str, str | None]]:
    for pattern, texts in contents.linked.items():
        if fnmatch.fnmatchcase(path, pattern):
            yield from map(_split, texts)


def _split(text: str) -> tuple[str, str | None]:
    """oneDNN, 3.12.0 of `oneDNN 3.12.0`."""
    name, _, last = text.rpartition(" ")
    return (name, last) if name and last[0].isdigit() else (text, None)


def versions(package: str, path: str, content: bytes | mmap.mmap) -> dict[str, str]:
    """The versions of others' projects that a file of a package names in its text."""
    contents = declared().contents(package)
    projects = {name for name, _ in _linked(contents, path)}
    project = owner(package, path, None)
    named_versions = {}
    for name in sorted(projects | ({project} if project not in (None, package) else set())):
        pattern = declared().projects[str(name)].version
        match = re.search(pattern.encode(), content) if pattern else None
        if match is not None:
            named_versions[str(name)] = ".".join(group.decode() for group in match.groups())
    return named_versions
