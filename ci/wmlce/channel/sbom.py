"""The bill of materials of a channel and of an environment, in CycloneDX.

Equal packages give equal bytes: the serial number follows from the packages, and the time is that of the
newest one.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.utils import canonicalize_name
from rattler import MatchSpec
from rattler.repo_data.record import RepoDataRecord
from rattler.repo_data.repo_data import RepoData

from wmlce import __version__
from wmlce.channel import package_files, published
from wmlce.recipes.license_policy import bundled, policy
from wmlce.recipes.licenses import canonical
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic

FILE = "sbom.cdx.json"
"""Its name in the channel."""

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_OID, "ibm-wml-ce bill of materials")
_DIST_INFO = re.compile(r"(?:^|/)([^/]+)-([^-/]+)\.(?:dist|egg)-info(?:/METADATA|/PKG-INFO)?$")


@dataclass(frozen=True)
class Part:
    """A package, as it counts for the bill.

    key:     `subdir/file`
    entry:   of the index, or the record in conda-meta
    files:   relative paths of all that it installs
    needs:   keys of the packages that can fulfil its requirements
    """

    key: str
    entry: Mapping[str, Any]
    files: Sequence[str]
    needs: Sequence[str] = field(default=())


def of_channel(folder: Path, name: str = "ibm-wml-ce channel") -> str:
    """The bill of all packages in the index of a channel, as JSON.

    A requirement that several packages of the channel can fulfil points to each of them.
    """
    records: dict[str, RepoDataRecord] = {}
    entries: dict[str, Mapping[str, Any]] = {}
    for subdir, listed in published.repodata(folder).items():
        data = RepoData.from_path(folder / subdir / "repodata.json")
        channel = _channel(folder)
        records |= {f"{subdir}/{record.file_name}": record for record in data.into_repo_data(channel)}
        entries |= {f"{subdir}/{file}": entry for file, entry in listed.items()}
    needs = _needs(records, entries)
    parts = [
        Part(key, entry, package_files.listed(folder / key, "the bill of materials"), needs[key])
        for key, entry in entries.items()
    ]
    return _document(name, parts)


def of_environment(prefix: Path) -> str:
    """The bill of the packages that are installed at `prefix`, as JSON."""
    documents = [json.loads(path.read_text()) for path in sorted((prefix / "conda-meta").glob("*.json"))]
    if not documents:
        raise WmlceError(f"{prefix} is not an environment", remedy="name one that `wmlce env list` shows")
    by_name = {str(entry["name"]): f"{entry['subdir']}/{entry['fn']}" for entry in documents}
    parts = [
        Part(
            f"{entry['subdir']}/{entry['fn']}",
            entry,
            [str(file) for file in entry.get("files", ())],
            sorted({by_name[need] for spec in entry["depends"] if (need := spec.split()[0]) in by_name}),
        )
        for entry in documents
    ]
    return _document(f"environment {prefix.name}", parts)


def write(path: Path, text: str) -> int:
    """Write a bill; returns how many packages are on it."""
    write_atomic(path, text)
    return len(json.loads(text).get("components", ()))


def _channel(folder: Path) -> Any:
    from rattler import Channel

    return Channel(folder.resolve().as_uri())


def _needs(
    records: Mapping[str, RepoDataRecord], entries: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    by_name: dict[str, list[str]] = {}
    for key, entry in entries.items():
        by_name.setdefault(str(entry["name"]), []).append(key)
    by_spec: dict[str, list[str]] = {}

    def fulfilling(spec: str) -> list[str]:
        if spec not in by_spec:
            candidates = by_name.get(spec.split()[0], ())
            match = MatchSpec(spec) if candidates else None
            by_spec[spec] = [key for key in candidates if match is not None and match.matches(records[key])]
        return by_spec[spec]

    return {
        key: sorted({dependency for spec in entry.get("depends", ()) for dependency in fulfilling(str(spec))})
        for key, entry in entries.items()
    }


def distributions(files: Iterable[str]) -> list[tuple[str, str]]:
    """Name and version of each Python distribution whose metadata are among `files`: one package may hold
    several.
    """
    matches = {match.group(1, 2) for file in files if (match := _DIST_INFO.search(file))}
    return sorted((canonicalize_name(name), version) for name, version in matches)


def _purl(part: Part) -> PackageURL:
    entry = part.entry
    subdir, file = part.key.split("/")
    return PackageURL(
        "conda",
        None,
        str(entry["name"]),
        str(entry["version"]),
        {"build": str(entry["build"]), "subdir": subdir, "type": file.rsplit(".", 1)[1]},
    )


def _licenses(entry: Mapping[str, Any]) -> list[LicenseExpression | DisjunctiveLicense]:
    stated = str(entry.get("license") or "").strip()
    if not stated:
        return []
    expression = canonical(stated)
    return [LicenseExpression(expression) if expression else DisjunctiveLicense(name=stated)]


def _component(part: Part) -> Component:
    purl = _purl(part)
    inside = [
        Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            purl=(package_url := PackageURL("pypi", None, name, version)),
            bom_ref=f"{purl.to_string()}#{package_url.to_string()}",
        )
        for name, version in distributions(part.files)
    ]
    inside += [
        Component(
            name=library,
            type=ComponentType.LIBRARY,
            bom_ref=f"{purl.to_string()}#{path}",
            licenses=_licenses({"license": policy().bundled.get(library)}),
            properties=[Property(name="ibm-wml-ce:path", value=path)],
        )
        for path, library in sorted(bundled(part.files).items())
    ]
    return Component(
        name=str(part.entry["name"]),
        version=str(part.entry["version"]),
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=str(part.entry["sha256"]))],
        licenses=_licenses(part.entry),
        components=inside,
        properties=[Property(name="ibm-wml-ce:file", value=part.key)],
    )


def _document(name: str, parts: Sequence[Part]) -> str:
    """Render the document as JSON in CycloneDX 1.6."""
    components = {part.key: _component(part) for part in parts}
    newest = max((int(part.entry.get("timestamp") or 0) for part in parts), default=0) / 1000
    content = "\n".join(sorted(f"{part.key} {part.entry['sha256']}" for part in parts))
    serial = uuid.uuid5(_NAMESPACE, f"{name}\n{__version__}\n{content}")
    whole = Component(name=name, version=__version__, type=ComponentType.PLATFORM, bom_ref=str(serial))
    tool = Component(name="wmlce", version=__version__, type=ComponentType.APPLICATION, bom_ref="wmlce")
    bom = Bom(
        serial_number=serial,
        metadata=BomMetaData(
            component=whole,
            timestamp=datetime.fromtimestamp(newest, UTC),
            tools=ToolRepository(components=[tool]),
        ),
        components=components.values(),
    )
    bom.register_dependency(whole, components.values())
    for part in parts:
        bom.register_dependency(components[part.key], [components[key] for key in part.needs])
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    return f"{text}\n"
