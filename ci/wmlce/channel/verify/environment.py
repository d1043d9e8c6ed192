"""Checks of an installed environment: where its libraries come from, and whether its Python metadata
agree.
"""

from __future__ import annotations

import email.parser
import fnmatch
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict

from wmlce.channel.verify.check import Check
from wmlce.channel.verify.elf import Dynamic, read_dynamic
from wmlce.channel.verify.index import owners, pip_lines
from wmlce.util.errors import WmlceError
from wmlce.util.platform import PLATFORMS
from wmlce.util.python import TARGET


class AllowedUse(BaseModel):
    """A library that some files may find outside the environment, or already loaded."""

    model_config = ConfigDict(extra="forbid")
    library: str
    users: list[str]
    reason: str


class HostLibraries(BaseModel):
    """host_libraries.yaml."""

    model_config = ConfigDict(extra="forbid")
    host: dict[str, str]
    site: list[AllowedUse] = []
    preloaded: list[AllowedUse] = []


@cache
def host_libraries() -> HostLibraries:
    """The allow-list that is shipped with the tool."""
    text = (files("wmlce.channel.verify") / "host_libraries.yaml").read_text()
    libraries = HostLibraries.model_validate(yaml.safe_load(text))
    loader = "the loader; an executable names it by its absolute path"
    libraries.host.update({platform.loader_name: loader for platform in PLATFORMS.values()})
    return libraries


@dataclass(frozen=True)
class Problem:
    """A library that a file of the environment cannot find inside it."""

    user: str
    library: str
    reason: str


def elf_files(prefix: Path) -> Iterator[tuple[Path, Dynamic]]:
    """All dynamically linked files of an environment, each once."""
    for folder, folders, names in os.walk(prefix):
        folders[:] = [name for name in folders if name not in ("conda-meta", "pkgs", "__pycache__")]
        for name in names:
            path = Path(folder) / name
            if name.endswith((".py", ".pyc", ".h", ".hpp", ".txt", ".json")) or path.is_symlink():
                continue
            if not path.is_file():
                continue  # a pipe, which nobody may ever write to
            dynamic = read_dynamic(path)
            if dynamic is not None:
                yield path, dynamic


def scan(prefix: Path) -> dict[Path, Dynamic]:
    """All dynamically linked files of an environment."""
    if not (prefix / "conda-meta").is_dir():
        raise WmlceError(
            f"{prefix} is not an environment",
            remedy="give --env a prefix, or a name that `wmlce env list` shows",
        )
    return dict(elf_files(prefix.resolve()))


def libraries(prefix: Path, elf_info: dict[Path, Dynamic]) -> Check:
    """Every library that a file needs is found, by the file's own search path, inside the environment.

    Resolved here rather than with ldd, because ldd would find the build machine's libraries and be content.
    """
    prefix = prefix.resolve()
    problems, notes = resolve_all(prefix, elf_info)
    owner = owners(prefix)
    check = Check("libraries inside the environment", f"{len(elf_info)} ELF files")
    check.findings = [
        f"{owner.get(problem.user, '?')}: {problem.user} needs {problem.library}: {problem.reason}"
        for problem in problems
    ]
    check.notes = notes
    return check


def resolve_all(prefix: Path, elf_info: dict[Path, Dynamic]) -> tuple[list[Problem], list[str]]:
    """Problems, and notes on libraries that are left to the site on purpose."""
    allowed = host_libraries()
    by_name: dict[str, list[Path]] = {}
    for path in elf_info:
        by_name.setdefault(path.name, []).append(path)
    inherited = _inherited_paths(prefix, elf_info)
    problems = []
    notes: set[str] = set()
    for path, dynamic in sorted(elf_info.items()):
        user = str(path.relative_to(prefix))
        search_path = list(_expand(path, dynamic.runpath or dynamic.rpath))
        for folder in search_path:
            if not folder.is_relative_to(prefix):
                problems.append(Problem(user, str(folder), "its search path leads outside the environment"))
        for library in dynamic.needed:
            if library in allowed.host:
                continue
            if "/" in library:
                problems.append(Problem(user, library, "it is named by a path"))
                continue
            places = search_path + ([] if dynamic.runpath else inherited.get(path, []))
            if any(_inside(folder / library, prefix) for folder in places):
                continue
            exception = _matching(allowed.site, library, user)
            if exception is not None:
                notes.add(f"{library} is the site's: {exception.reason}")
                continue
            exception = _matching(allowed.preloaded, library, user)
            if exception is not None and (library in by_name or _inside(prefix / "lib" / library, prefix)):
                notes.add(f"{library} is loaded before: {exception.reason}")
                continue
            elsewhere = by_name.get(library, [])
            where = (
                f"it is in {elsewhere[0].relative_to(prefix)}, where its search path does not lead"
                if elsewhere
                else "no file of the environment provides it"
            )
            problems.append(Problem(user, library, where))
    return problems, sorted(notes)


def _matching(exceptions: Iterable[AllowedUse], library: str, user: str) -> AllowedUse | None:
    for exception in exceptions:
        if exception.library == library and any(
            fnmatch.fnmatch(user, pattern) for pattern in exception.users
        ):
            return exception
    return None


def _expand(path: Path, entries: Iterable[str]) -> Iterator[Path]:
    for entry in entries:
        text = entry.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", str(path.parent))
        yield Path(os.path.normpath(text if os.path.isabs(text) else path.parent / text))


def _inside(candidate: Path, prefix: Path) -> bool:
    return candidate.exists() and candidate.resolve().is_relative_to(prefix)


def _inherited_paths(prefix: Path, elf_info: dict[Path, Dynamic]) -> dict[Path, list[Path]]:
    """DT_RPATH of a file also serves what it loads: for each library the paths of those that need it,
    transitively.
    """
    inherited: dict[Path, list[Path]] = {}
    todo = [path for path, dynamic in elf_info.items() if dynamic.rpath and not dynamic.runpath]
    for start in todo:
        paths = list(_expand(start, elf_info[start].rpath))
        queue = [start]
        seen = {start}
        while queue:
            current = queue.pop()
            dynamic = elf_info[current]
            search_path = list(_expand(current, dynamic.runpath or dynamic.rpath))
            for library in dynamic.needed:
                for folder in [*search_path, *paths]:
                    candidate = folder / library
                    if _inside(candidate, prefix):
                        real = candidate.resolve()
                        if real in elf_info and real not in seen:
                            seen.add(real)
                            inherited.setdefault(real, []).extend(paths)
                            queue.append(real)
                        break
    return inherited


class Libraries:
    """Which file of an environment each file gets for a library that it needs."""

    def __init__(self, prefix: Path, elf_info: Mapping[Path, Dynamic]) -> None:
        self.prefix = prefix
        self.elf_info = elf_info
        self._inherited = _inherited_paths(prefix, dict(elf_info))
        self._by_name: dict[str, Path] = {}
        for path in sorted(elf_info):
            self._by_name.setdefault(path.name, path)

    def find(self, user: Path, library: str) -> Path | None:
        """By its search path, else wherever it lies: another file has loaded it then."""
        dynamic = self.elf_info[user]
        places = list(_expand(user, dynamic.runpath or dynamic.rpath))
        for folder in places + ([] if dynamic.runpath else self._inherited.get(user, [])):
            if _inside(folder / library, self.prefix):
                return (folder / library).resolve()
        if library in host_libraries().host:
            return None
        common = self.prefix / "lib" / library
        return self._by_name.get(library) or (common.resolve() if _inside(common, self.prefix) else None)

    def reached(self, user: Path) -> tuple[list[Path], set[str], list[str]]:
        """All files that are loaded with one; libraries of the host among them; and those that are not
        there.
        """
        seen, todo = {user}, [user]
        host: set[str] = set()
        absent: set[str] = set()
        while todo:
            current = todo.pop()
            for library in self.elf_info[current].needed:
                place = self.find(current, library)
                if place is None:
                    (host if library in host_libraries().host else absent).add(library)
                elif place not in seen and place in self.elf_info:
                    seen.add(place)
                    todo.append(place)
        return sorted(seen), host, sorted(absent)


def pip_check(prefix: Path) -> Check:
    """`pip check` in the environment: the metadata of its Python packages agree with each other."""
    check = Check("pip check", "")
    python = prefix / "bin" / "python"
    if not python.exists():
        check.summary = "no Python in the environment"
        return check
    # the tool's own pip looks into the environment, which need not hold pip
    command = [
        sys.executable,
        "-I",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(python),
        "check",
    ]
    code, lines = pip_lines(command)
    check.summary = lines[-1] if lines and code == 0 else "pip check"
    if code != 0:
        check.findings = lines or [f"exit code {code}"]
    return check


def python_requirements(prefix: Path) -> Check:
    """What each Python distribution's METADATA requires on this host is there, in a version that fits; also
    where the environment has no Python to ask.
    """
    owner = owners(prefix)
    versions: dict[str, str] = {}
    requirements: list[tuple[str, str, Requirement]] = []
    findings = []
    for file in sorted(file for file in owner if file.endswith(".dist-info/METADATA")):
        path = prefix / file
        if not path.is_file():
            continue
        try:
            metadata = email.parser.HeaderParser().parsestr(path.read_text(errors="replace"))
            name, version = canonicalize_name(metadata["Name"]), str(Version(metadata["Version"]))
            needs = [Requirement(text) for text in metadata.get_all("Requires-Dist") or ()]
        except (TypeError, InvalidVersion, InvalidRequirement) as error:
            findings.append(f"{owner[file]}: {file} cannot be understood: {error}")
            continue
        versions[name] = version
        who = f"{metadata['Name']} {version} (package {owner[file]})"
        requirements += [(who, name, need) for need in needs]
    marks = {"python_version": str(TARGET), "python_full_version": f"{TARGET}.0", "extra": ""}
    for who, _, need in requirements:
        if need.marker is not None and not need.marker.evaluate(marks):
            continue
        installed = versions.get(canonicalize_name(need.name))
        if installed is None:
            findings.append(f"{who} requires {need}: it is not there")
        elif not need.specifier.contains(installed, prereleases=True):
            findings.append(f"{who} requires {need}: {need.name} is {installed}")
    return Check(
        "metadata of Python distributions",
        f"{len(versions)} distributions, {len(requirements)} requirements",
        sorted(findings),
    )
