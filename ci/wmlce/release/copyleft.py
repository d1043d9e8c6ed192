"""Which files of a release are under the GNU licences, and where their sources are.

Who passes on such a binary has to pass on its source, too. Of what is compiled here, that is what its recipe
uses; of a binary that a recipe takes from others, what recipes/binary-sources.yaml declares. A file with
neither stops a release, and a check of one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wmlce.channel import package_files, published
from wmlce.recipes import license_policy, licenses
from wmlce.recipes.model import Recipe
from wmlce.recipes.recipe_set import RecipeSet
from wmlce.sources import binary_sources
from wmlce.sources.binary_sources import WHOLE, Declared, Source
from wmlce.sources.model import LockedSource
from wmlce.sources.store import SourceLock
from wmlce.util.errors import WmlceError

_GNU = re.compile(r"\b[AL]?GPL-[A-Za-z0-9.-]+(?: WITH [A-Za-z0-9.-]+)?")
_BINARY = (".whl", ".deb")


@dataclass(frozen=True, order=True)
class File:
    """package, version: of the channel. file: a path in it, or `*`. license: what of it is a GNU licence."""

    package: str
    version: str
    file: str
    license: str


@dataclass(frozen=True)
class Item:
    """A file and its source: name, version and files of it, or why there is none."""

    package: str
    version: str
    file: str
    license: str
    source: str | None
    files: list[str]
    without: str | None


def shipped(channel: Path, entries: Iterable[Mapping[str, Any]]) -> list[File]:
    """List what a channel's packages ship under a GNU licence: `*` for a whole package, and the libraries
    that wheels bundle. Links are not counted.
    """
    files = set()
    for entry in entries:
        name, version = str(entry["name"]), str(entry["version"])
        stated = set(_gnu_licenses(str(entry.get("license") or "")))
        inside: dict[str, str] = {}
        for path, library in license_policy.bundled(_own_files(channel, entry)).items():
            license_ = license_policy.policy().bundled.get(library, "")
            if gnu := _gnu_licenses(license_):
                inside[path] = " AND ".join(gnu)
        files |= {File(name, version, path, license_) for path, license_ in inside.items()}
        # a wheel's licence names those of its libraries as well
        rest = stated - {license_name for text in inside.values() for license_name in text.split(" AND ")}
        if rest:
            files.add(File(name, version, WHOLE, " AND ".join(sorted(rest))))
    return sorted(files)


def _gnu_licenses(expression: str) -> list[str]:
    """GNU licences that hold: where another licence may be chosen (OR), that one is."""
    terms = licenses.terms(expression) or {expression: []}  # what is no expression may name one as well
    return [
        gnu
        for term, alternatives in terms.items()
        if all(_GNU.search(alternative) for alternative in alternatives or [term])
        for gnu in _GNU.findall(term)
    ]


def _own_files(channel: Path, entry: Mapping[str, Any]) -> list[str]:
    package = channel / str(entry["subdir"]) / f"{entry['name']}-{entry['version']}-{entry['build']}.conda"
    listed = package_files.entries(package, "the list of files under the GNU licences")
    return [str(file.relative_path) for file in listed if file.path_type.hardlink]


def items(
    files: Iterable[File],
    recipes: RecipeSet,
    lock: SourceLock,
    declared: Iterable[Declared],
    locked: Mapping[Source, LockedSource],
    tree: str,
) -> list[Item]:
    """The source of each file, or an error that names those of which nobody knows. tree: the archive of the
    commit, which is the source of what a recipe makes out of nothing else.
    """
    declarations = list(declared)
    result = []
    unknown = []
    for entry in files:
        recipe = recipes.by_output.get(entry.package)
        names = _locked_files(recipe, lock) if recipe is not None else []
        compiled = [name for name in names if not name.endswith(_BINARY)]
        saying = next(
            (declaration for declaration in declarations if declaration.covers(entry.package, entry.file)),
            None,
        )
        if entry.file == WHOLE and recipe is not None and (compiled or not names):
            result.append(Item(**asdict(entry), source=None, files=compiled or [tree], without=None))
        elif saying is None or (entry.file == WHOLE and saying.files != WHOLE):
            unknown.append(entry)
        elif saying.source is None:
            result.append(Item(**asdict(entry), source=None, files=[], without=saying.without))
        else:
            source = saying.source
            if saying.files == WHOLE and _upstream(source.version) != entry.version:
                raise WmlceError(
                    f"{entry.package} {entry.version} is declared to come from another version, "
                    f"{source.package} {source.version}",
                    remedy=f"correct recipes/{binary_sources.DECLARED}, then: wmlce lock binary-sources",
                )
            title = f"{source.package} {source.version}"
            sources = [file.name for file in locked[source].files]
            result.append(Item(**asdict(entry), source=title, files=sources, without=None))
    if unknown:
        raise WmlceError(
            f"{len(unknown)} files are under the GNU licences, and nothing says where their sources are: "
            f"{unknown[0].package} {unknown[0].version}: {unknown[0].file}",
            detail=[
                f"{entry.package} {entry.version}: {entry.file} ({entry.license})" for entry in unknown[1:20]
            ],
            remedy=f"declare their source, or why there is none, in recipes/{binary_sources.DECLARED}",
        )
    return result


def _locked_files(recipe: Recipe, lock: SourceLock) -> list[str]:
    """The locked files that a recipe uses; binaries of the build root are locked with that."""
    names = {Path(str(entry["path"])).name for entry in recipe.source_entries() if "path" in entry}
    return sorted(names & lock.by_file.keys())


def _upstream(version: str) -> str:
    """Without Debian's revision."""
    return version.rpartition("-")[0] or version


def check(folder: Path, record: Mapping[str, Any], available: Collection[str]) -> int:
    """Check that each file under a GNU licence has its source in the release, or a reason for having none.

    Looks into the packages themselves. available: the files of the release

    Returns: How many files are under the GNU licences.
    """
    channel = folder / "channel"
    files = shipped(channel, published.entries(channel).values())
    by_file = {
        (entry["package"], entry["version"], entry["file"]): entry for entry in record.get("gnu_licenses", ())
    }
    with_sources = bool(record.get("made_of", {}).get("sources"))
    wrong = []
    for file in files:
        item = by_file.get((file.package, file.version, file.file))
        title = f"{file.package} {file.version}: {file.file}"
        if item is None or not (item.get("files") or item.get("without")):
            wrong.append(f"{title}: neither a source nor a reason why there is none")
            continue
        if with_sources:
            absent = [name for name in item["files"] if not {name, f"sources/{name}"} & set(available)]
            wrong += [f"{title}: its source {name} is not in the release" for name in absent]
    if wrong:
        raise WmlceError(
            f"{folder} passes on files under the GNU licences without their sources: {wrong[0]}",
            detail=wrong[1:20],
            remedy="get a whole release from its maker",
        )
    return len(files)
