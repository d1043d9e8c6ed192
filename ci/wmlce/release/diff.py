"""What a release (or a channel) changes for the users of another one."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version
from rattler import Version as CondaVersion
from rattler.package.paths_json import PathsJson

from wmlce.channel import published
from wmlce.release import check, contents, manifest, signature
from wmlce.util.errors import WmlceError
from wmlce.util.host import cpu_count
from wmlce.util.templates import rendered

_FORMS = {".html": "html", ".md": "md"}


@dataclass(frozen=True)
class Package:
    """The current builds of one name. versions: of all of them, the oldest one first. files: `subdir/file` ->
    sha256.
    """

    name: str
    versions: list[str]
    files: dict[str, str]
    size: int
    license: str
    glibc: Version

    @property
    def version_text(self) -> str:
        return ", ".join(self.versions)


@dataclass(frozen=True)
class Side:
    """One of the two. verification: yes, no or unknown, in words."""

    name: str
    channel: Path
    packages: dict[str, Package]
    verification: str
    key: str | None
    commit: str | None

    @property
    def size(self) -> int:
        return sum(package.size for package in self.packages.values())

    @property
    def glibc(self) -> Version:
        return max((package.glibc for package in self.packages.values()), default=Version("0"))


@dataclass
class Change:
    """The difference of one package."""

    name: str
    kind: str
    """added, removed, updated, downgraded or rebuilt"""
    old: str | None
    """Its versions in the old release; None if it was not there."""
    new: str | None
    old_size: int | None
    new_size: int | None
    removed_files: list[str] = field(default_factory=list)

    @property
    def growth(self) -> int:
        return (self.new_size or 0) - (self.old_size or 0)


@dataclass
class Difference:
    """licenses, glibc, release: what it was and is now, by package or by name of the fact."""

    old: str
    new: str
    packages: list[Change]
    licenses: dict[str, tuple[str, str]]
    glibc: dict[str, tuple[str, str]]
    release: dict[str, tuple[str, str]]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read(folder: Path) -> Side:
    """A release's folder, or a channel's."""
    record = check.read_record(folder)
    channel = folder / check.CHANNEL if record is not None else folder
    if not published.is_channel(channel):
        raise WmlceError(
            f"{folder} is neither a release nor a channel: it has no repodata.json",
            remedy="name a folder of `wmlce release make`, or a channel such as build/channel",
        )
    try:
        packages = _packages(channel)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WmlceError(f"the index of {channel} cannot be read: {error}", remedy="get it again") from error
    listed = folder / manifest.NAME
    signed = signature.signature_of(listed).is_file()
    return Side(
        name=str(record["version"]) if record and "version" in record else folder.name,
        channel=channel,
        packages=packages,
        verification=_verification(record, channel),
        key=signature.fingerprint(signature.key_of(listed)) if signed else None,
        commit=str(record["commit"]) if record and "commit" in record else None,
    )


def _packages(channel: Path) -> dict[str, Package]:
    earlier = published.read(channel).earlier
    by_name: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for key, entry in published.entries(channel).items():
        if key not in earlier:
            by_name.setdefault(str(entry["name"]), []).append((key, entry))
    packages = {}
    for name, several in by_name.items():
        packages[name] = Package(
            name,
            sorted({str(entry["version"]) for _, entry in several}, key=CondaVersion),
            {key: str(entry.get("sha256")) for key, entry in several},
            sum(int(entry.get("size") or 0) for _, entry in several),
            " | ".join(sorted({str(entry.get("license") or "none named") for _, entry in several})),
            max(contents.floor_of(entry.get("depends", [])) for _, entry in several),
        )
    return packages


def _verification(record: Mapping[str, Any] | None, channel: Path) -> str:
    """What the release says, or what `wmlce channel verify` has written beside a channel."""
    import json

    if record is not None:
        state = record.get("verification") or {}
        return "passed" if state.get("ok") else "not verified"
    try:
        document = json.loads((channel / "verify.json").read_text())
    except (OSError, ValueError):
        return "not verified"
    return "passed" if document.get("ok") else "did not pass"


def compare(old: Side, new: Side) -> Difference:
    """Everything that users may notice; no difference gives empty lists."""
    result = Difference(old.name, new.name, [], {}, {}, {}, [])
    names = sorted(old.packages.keys() | new.packages.keys())
    pairs = {name: (old.packages.get(name), new.packages.get(name)) for name in names}
    for name, (was, now) in pairs.items():
        if was and now and was.files == now.files:
            continue
        result.packages.append(
            Change(
                name,
                _kind(was, now),
                was.version_text if was else None,
                now.version_text if now else None,
                was.size if was else None,
                now.size if now else None,
            )
        )
        if was and now:
            if was.license != now.license:
                result.licenses[name] = (was.license, now.license)
            if was.glibc != now.glibc:
                result.glibc[name] = (str(was.glibc), str(now.glibc))
    _removed_files(old, new, result)
    facts = {
        "glibc": (str(old.glibc), str(new.glibc)),
        "verification": (old.verification, new.verification),
        "signed by": (old.key or "nobody", new.key or "nobody"),
        "commit": (old.commit or "unknown", new.commit or "unknown"),
        "packages": (str(len(old.packages)), str(len(new.packages))),
        "MB": (f"{old.size / 1e6:.1f}", f"{new.size / 1e6:.1f}"),
    }
    result.release = {name: pair for name, pair in facts.items() if pair[0] != pair[1]}
    return result


def _kind(was: Package | None, now: Package | None) -> str:
    if was is None or now is None:
        return "removed" if now is None else "added"
    newest = CondaVersion(was.versions[-1]), CondaVersion(now.versions[-1])
    if was.versions == now.versions:
        return "rebuilt"
    return "downgraded" if newest[1] < newest[0] else "updated"


def _paths(side: Side, name: str) -> set[str] | None:
    """The files that a package installs; None where it cannot be read, as in a mirror of the index alone."""
    try:
        return {
            str(entry.relative_path)
            for key in side.packages[name].files
            for entry in PathsJson.from_package_archive(side.channel / key).paths
        }
    except Exception:  # what py-rattler raises has no common type
        return None


def _removed_files(old: Side, new: Side, result: Difference) -> None:
    """Files that changed packages no longer have, and that none of the new packages brings instead."""
    both = [change for change in result.packages if change.old is not None and change.new is not None]
    added = [change.name for change in result.packages if change.new is not None]
    with ThreadPoolExecutor(cpu_count()) as pool:
        before = dict(
            zip(
                (change.name for change in both),
                pool.map(lambda change: _paths(old, change.name), both),
                strict=True,
            )
        )
        after = dict(zip(added, pool.map(lambda name: _paths(new, name), added), strict=True))
    remaining = set().union(*(paths for paths in after.values() if paths))
    unread = []
    for change in both:
        was, now = before[change.name], after[change.name]
        if was is None or now is None:
            unread.append(change.name)
        else:
            change.removed_files = sorted(was - remaining)
    if unread:
        result.notes.append(
            f"files are not compared of {len(unread)} packages that are not there or cannot be read: "
            + ", ".join(unread[:5])
        )


def render(difference: Difference, form: str) -> str:
    """A page of its own: html or md."""
    filters = {
        "mb": lambda size: "" if size is None else f"{size / 1e6:.2f}",
        "cell": lambda text: str(text).replace("|", "\\|"),
    }
    return rendered("wmlce.release", f"diff.{form}.j2", filters, difference=difference)


def form_of(path: Path) -> str:
    """By the name of the file to write."""
    form = _FORMS.get(path.suffix.lower())
    if form is None:
        raise WmlceError(f"{path} ends neither in .html nor in .md", remedy="name the page so")
    return form
