"""The bill of materials of a channel and of an environment, in CycloneDX and in SPDX.

Equal packages give equal bytes: the serial number follows from the packages, and the time is that of the
newest one.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType, Patch, PatchClassification, Pedigree
from cyclonedx.model.issue import IssueClassification, IssueType, IssueTypeSource
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
from wmlce.channel import package_files, published, shared_objects
from wmlce.channel.shared_objects import SharedObject
from wmlce.recipes import third_party
from wmlce.recipes.licenses import canonical
from wmlce.sources import debian_fixes
from wmlce.sources.debian_fixes import Fixed
from wmlce.sources.drift import upstream
from wmlce.util import conda_meta
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout

Form = Literal["cyclonedx", "spdx"]
FILE = "sbom.cdx.json"
"""Its name in the channel."""
FILES: dict[Form, str] = {"cyclonedx": FILE, "spdx": "sbom.spdx.json"}

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_OID, "ibm-wml-ce bill of materials")
_REFERENCE = re.compile(r"LicenseRef-[A-Za-z0-9.-]+")
_DIST_INFO = re.compile(r"(?:^|/)([^/]+)-([^-/]+)\.(?:dist|egg)-info(?:/METADATA|/PKG-INFO)?$")


@dataclass(frozen=True)
class Inside:
    """A distribution or a library inside a package.

    ref: what tells it from all others of the bill
    """

    ref: str
    name: str
    version: str | None
    purl: str
    license: str | None = None
    paths: tuple[str, ...] = ()
    linked: bool = False


@dataclass(frozen=True)
class Part:
    """A package, as it counts for the bill.

    key:     `subdir/file`
    entry:   of the index, or the record in conda-meta
    files:   relative paths of all that it installs
    needs:   keys of the packages that can fulfil its requirements
    objects: its shared objects
    fixed:   what Debian has fixed in it
    """

    key: str
    entry: Mapping[str, Any]
    files: Sequence[str]
    needs: Sequence[str] = field(default=())
    objects: Mapping[str, SharedObject] = field(default_factory=dict)
    fixed: Fixed | None = None

    @property
    def purl(self) -> PackageURL:
        subdir, file = self.key.split("/")
        return PackageURL(
            "conda",
            None,
            str(self.entry["name"]),
            str(self.entry["version"]),
            {"build": str(self.entry["build"]), "subdir": subdir, "type": file.rsplit(".", 1)[1]},
        )

    @property
    def inside(self) -> list[Inside]:
        whole = self.purl.to_string()
        pieces = []
        for name, version in distributions(self.files):
            purl = PackageURL("pypi", None, name, version).to_string()
            pieces.append(Inside(f"{whole}#{purl}", name, version, purl))
        versions = {path: item.versions for path, item in self.objects.items()}
        objects = {*self.objects, *third_party.bundled(self.files)}
        for part in third_party.inside(
            str(self.entry["name"]), str(self.entry["version"]), objects, versions
        ):
            plain = PackageURL.from_string(part.project.purl)
            purl = PackageURL(plain.type, plain.namespace, plain.name, part.version).to_string()
            ref = f"{whole}#{part.name}{'@' + part.version if part.version else ''}"
            pieces.append(
                Inside(
                    f"{ref}{' (linked)' if part.linked else ''}",
                    part.name,
                    part.version,
                    purl,
                    part.project.license,
                    part.paths,
                    part.linked,
                )
            )
        return pieces


def of_channel(layout: Layout, folder: Path, form: Form = "cyclonedx") -> str:
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
    fixed = _Fixes(layout, published.contents(folder))
    parts = []
    for key, entry in entries.items():
        files = package_files.listed(folder / key, "the bill of materials")
        held = shared_objects.of_package(layout, folder / key, entry)
        objects = held.objects if held else {}
        parts.append(Part(key, entry, files, needs[key], objects, fixed.of(key, entry)))
    return _render(form, "ibm-wml-ce channel", parts)


def of_environment(layout: Layout, prefix: Path, form: Form = "cyclonedx") -> str:
    """The bill of the packages that are installed at `prefix`, as JSON."""
    documents = list(conda_meta.all_of(prefix).values())
    if not documents:
        raise WmlceError(f"{prefix} is not an environment", remedy="name one that `wmlce env list` shows")
    by_name = {str(entry["name"]): f"{entry['subdir']}/{entry['fn']}" for entry in documents}
    fixed = _Fixes(layout, published.contents(layout.channel))
    parts = [
        Part(
            key := f"{entry['subdir']}/{entry['fn']}",
            entry,
            [str(file) for file in entry.get("files", ())],
            sorted({by_name[need] for spec in entry["depends"] if (need := spec.split()[0]) in by_name}),
            shared_objects.of_record(layout, prefix, entry).objects,
            fixed.of(key, entry),
        )
        for entry in documents
    ]
    return _render(form, f"environment {prefix.name}", parts)


def write(path: Path, text: str) -> int:
    """Write a bill; returns how many packages are on it."""
    write_atomic(path, text)
    document = json.loads(text)
    if "spdxVersion" in document:
        return sum("packageFileName" in item for item in document["packages"])
    return len(document.get("components", ()))


class _Fixes:
    """What Debian has fixed in the current packages of a channel: of earlier builds it is not known."""

    def __init__(self, layout: Layout, current: Container[str]) -> None:
        self.current = current
        self.by_package = {name: item for item in debian_fixes.read(layout.root) for name in item.packages}

    def of(self, key: str, entry: Mapping[str, Any]) -> Fixed | None:
        item = self.by_package.get(str(entry["name"]))
        if item is None or key not in self.current or upstream(item.version) != str(entry["version"]):
            return None
        return item


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


def _licenses(entry: Mapping[str, Any]) -> list[LicenseExpression | DisjunctiveLicense]:
    stated = str(entry.get("license") or "").strip()
    if not stated:
        return []
    expression = canonical(stated)
    return [LicenseExpression(expression) if expression else DisjunctiveLicense(name=stated)]


def _component(part: Part) -> Component:
    inside = [
        Component(
            name=item.name,
            version=item.version,
            type=ComponentType.LIBRARY,
            purl=PackageURL.from_string(item.purl),
            bom_ref=item.ref,
            licenses=_licenses({"license": item.license}),
            properties=[Property(name="ibm-wml-ce:path", value=path) for path in item.paths]
            + ([Property(name="ibm-wml-ce:linked", value="statically")] if item.linked else []),
        )
        for item in part.inside
    ]
    return Component(
        name=str(part.entry["name"]),
        version=str(part.entry["version"]),
        type=ComponentType.LIBRARY,
        purl=part.purl,
        bom_ref=part.purl.to_string(),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=str(part.entry["sha256"]))],
        licenses=_licenses(part.entry),
        components=inside,
        properties=[Property(name="ibm-wml-ce:file", value=part.key)],
        pedigree=_pedigree(part.fixed) if part.fixed else None,
    )


def _pedigree(fixed: Fixed) -> Pedigree:
    """Where it comes from, and which patches of Debian were applied to the authors' version."""
    purl = PackageURL(
        "deb", "debian", fixed.package, fixed.version, {"arch": "source", "distro": fixed.suite}
    )
    return Pedigree(
        ancestors=[
            Component(
                name=fixed.package,
                version=fixed.version,
                type=ComponentType.LIBRARY,
                purl=purl,
                bom_ref=f"source {purl.to_string()}",
            )
        ],
        patches=[
            Patch(
                type=PatchClassification.BACKPORT,
                resolves=[
                    IssueType(
                        type=IssueClassification.SECURITY,
                        id=name,
                        source=IssueTypeSource(name="Debian"),
                    )
                    for name in names
                ],
            )
            for names in fixed.patches.values()
            if names
        ],
        notes=f"of the patches of Debian {fixed.version}: {', '.join(fixed.patches)}",
    )


def _render(form: Form, name: str, parts: Sequence[Part]) -> str:
    newest = max((int(part.entry.get("timestamp") or 0) for part in parts), default=0) / 1000
    content = "\n".join(sorted(f"{part.key} {part.entry['sha256']}" for part in parts))
    serial = uuid.uuid5(_NAMESPACE, f"{name}\n{__version__}\n{content}")
    time = datetime.fromtimestamp(newest, UTC)
    return (_cyclonedx if form == "cyclonedx" else _spdx)(name, parts, serial, time)


def _cyclonedx(name: str, parts: Sequence[Part], serial: uuid.UUID, time: datetime) -> str:
    """CycloneDX 1.6."""
    components = {part.key: _component(part) for part in parts}
    whole = Component(name=name, version=__version__, type=ComponentType.PLATFORM, bom_ref=str(serial))
    tool = Component(name="wmlce", version=__version__, type=ComponentType.APPLICATION, bom_ref="wmlce")
    bom = Bom(
        serial_number=serial,
        metadata=BomMetaData(component=whole, timestamp=time, tools=ToolRepository(components=[tool])),
        components=components.values(),
    )
    bom.register_dependency(whole, components.values())
    for part in parts:
        bom.register_dependency(components[part.key], [components[key] for key in part.needs])
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    return f"{text}\n"


def _spdx(name: str, parts: Sequence[Part], serial: uuid.UUID, time: datetime) -> str:
    """SPDX 2.3."""
    whole = "SPDXRef-whole"
    packages = [_spdx_package(whole, name, __version__, None, None)]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", whole)]
    ids = {part.key: f"SPDXRef-package-{n}" for n, part in enumerate(parts)}
    for part in parts:
        about, package_id = part.entry, ids[part.key]
        item = _spdx_package(
            package_id, about["name"], about["version"], about.get("license"), part.purl.to_string()
        )
        item["packageFileName"] = part.key
        item["checksums"] = [{"algorithm": "SHA256", "checksumValue": str(about["sha256"])}]
        if part.fixed:
            cves = f"; fixed: {', '.join(part.fixed.cves)}" if part.fixed.cves else ""
            item["sourceInfo"] = (
                f"compiled of Debian's {part.fixed.package} {part.fixed.version} with its patches "
                f"{', '.join(part.fixed.patches)}{cves}"
            )
        packages.append(item)
        relations.append((whole, "CONTAINS", package_id))
        relations += [(package_id, "DEPENDS_ON", ids[key]) for key in part.needs]
        for number, inner in enumerate(part.inside):
            ref = f"{package_id}-{number}"
            text = _spdx_package(ref, inner.name, inner.version, inner.license, inner.purl)
            if inner.paths:
                text["comment"] = f"{'linked into ' if inner.linked else ''}{', '.join(inner.paths)}"
            packages.append(text)
            relations.append((package_id, "STATIC_LINK" if inner.linked else "CONTAINS", ref))
    references = sorted({ref for item in packages for ref in _REFERENCE.findall(item["licenseDeclared"])})
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"urn:uuid:{serial}",
        "creationInfo": {
            "created": f"{time:%Y-%m-%dT%H:%M:%SZ}",
            "creators": [f"Tool: wmlce-{__version__}"],
        },
        "packages": packages,
        "relationships": [
            {"spdxElementId": subject, "relationshipType": kind, "relatedSpdxElement": target}
            for subject, kind, target in relations
        ],
        "hasExtractedLicensingInfos": [
            {"licenseId": ref, "name": ref, "extractedText": "The text is in the package: info/licenses."}
            for ref in references
        ],
    }
    return f"{json.dumps(document, indent=1)}\n"


def _spdx_package(ref: str, name: str, version: str | None, license_: str | None, purl: str | None) -> Any:
    declared = canonical(license_) if license_ else None
    item: dict[str, Any] = {
        "SPDXID": ref,
        "name": name,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": declared or "NOASSERTION",
        "copyrightText": "NOASSERTION",
    }
    if version:
        item["versionInfo"] = version
    if purl:
        item["externalRefs"] = [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": purl,
            }
        ]
    return item
