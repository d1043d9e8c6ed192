"""Licences: every package has one that the policy allows, and so has every project inside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conda_package_streaming.package_streaming import stream_conda_component

from wmlce.channel import package_files, published
from wmlce.channel.verify.check import Check, Say
from wmlce.recipes import license_policy, licenses, third_party
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.host import cpu_count

_TEXT = re.compile(r"\.dist-info/(?:licenses/.+|(?:LICEN[CS]E|COPYING|NOTICE|AUTHORS)[^/]*)$", re.IGNORECASE)
_IN_INFO = "info/licenses/"


def allowed(folder: Path) -> Check:
    """Every package names its licence as an SPDX expression, and the policy allows it and those of the
    projects inside, whether they are files of their own or linked in; libraries of wheels are declared. A
    current build names the licences of what is inside.
    """
    check = Check("licences", "")
    counts: dict[str, int] = {}
    conditions: dict[str, set[str]] = {}
    earlier = published.read(folder).earlier
    entries = dict(sorted(published.entries(folder).items()))
    with ThreadPoolExecutor(cpu_count()) as pool:
        contents = dict(zip(entries, pool.map(lambda key: _paths(folder / key), entries), strict=True))
    parts = 0
    for key, entry in entries.items():
        license_ = str(entry.get("license") or "").strip()
        counts[license_] = counts.get(license_, 0) + 1
        if not license_:
            check.findings.append(f"{key} names no licence: add about.license to its recipe")
            continue
        judged = license_policy.judge(license_)
        check.findings += [f"{key}: {problem}" for problem in judged.problems]
        for condition in judged.conditions:
            conditions.setdefault(condition, set()).add(str(entry["name"]))
        for path, library in third_party.bundled(contents[key]).items():
            if library not in third_party.declared().libraries:
                check.findings.append(
                    f"{key}: it brings {path}, and the licence of {library} is unknown: "
                    f"declare it in {third_party.FILE}"
                )
        for part in third_party.inside(str(entry["name"]), str(entry["version"]), contents[key]):
            parts += 1
            inside = license_policy.judge(part.project.license)
            unnamed = licenses.unnamed(part.project.license, license_)
            if unnamed and key not in earlier:
                check.findings.append(
                    f"{key}: {part.name} is in {part.paths[0]} under {', '.join(unnamed)}, "
                    "which the package does not name: add it to about.license, and its text, or leave it out"
                )
            check.findings += [f"{key}: {part.paths[0]}: {part.name}: {text}" for text in inside.problems]
            for condition in inside.conditions:
                conditions.setdefault(condition, set()).add(f"{entry['name']} ({part.name})")
    check.notes = [
        f"{condition} ({', '.join(sorted(names))})" for condition, names in sorted(conditions.items())
    ]
    check.summary = (
        f"{sum(counts.values())} packages under {len(counts)} licences, {parts} projects of others inside"
    )
    return check


def _paths(package: Path) -> list[str]:
    """The paths in a package that count here; none if it cannot be read, which other checks report."""
    try:
        return package_files.listed(package, "the licences of what it brings")
    except WmlceError:
        return []


def collect(folder: Path, target: Path, say: Say) -> int:
    """Write all texts of licences that the channel's packages bring to TARGET/PACKAGE/FILE; returns their
    number.
    """
    count = 0
    packages = [folder / key for key in sorted(published.entries(folder)) if (folder / key).is_file()]
    for done, package in enumerate(packages, 1):
        for name, text in texts(package):
            write_atomic(target / package.stem / name, text)
            count += 1
        if done % 25 == 0:
            say(f"read the licences of {done} of {len(packages)} packages")
    return count


def texts(package: Path) -> Iterator[tuple[str, bytes]]:
    """The texts that a package brings: those that its recipe names, and those in the metadata of wheels,
    which also tell of the libraries inside.
    """
    seen: set[bytes] = set()
    in_files = any(_TEXT.search(path) for path in _paths(package))
    for component in ("info", "pkg") if in_files else ("info",):
        for archive, member in stream_conda_component(str(package), component=component):
            if not member.isfile():
                continue
            if component == "info":
                if not member.name.startswith(_IN_INFO):
                    continue
                name = member.name.removeprefix(_IN_INFO)
            elif match := _TEXT.search(member.name):
                name = match[0].removeprefix(".dist-info/").removeprefix("licenses/")
            else:
                continue
            stream = archive.extractfile(member)
            text = stream.read() if stream else b""
            parts = [part for part in name.split("/") if part not in ("", ".", "..")]
            if text and parts and text not in seen:
                seen.add(text)
                yield "/".join(parts), text
