"""The bills of materials: what CycloneDX's own schema accepts, and what the packages say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from scratch_clone import Clone
from spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser import JsonLikeDictParser
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
from tree import ROOT
from wmlce.channel import published, sbom
from wmlce.sources import debian_fixes
from wmlce.upkeep.advisories import Advisories
from wmlce.util.errors import WmlceError
from wmlce.util.files import sha256_file
from wmlce.util.layout import Layout


def valid(text: str) -> dict[str, Any]:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document: dict[str, Any] = json.loads(text)
    return document


def valid_spdx(text: str) -> dict[str, Any]:
    """By SPDX's own tool."""
    document: dict[str, Any] = json.loads(text)
    parsed = JsonLikeDictParser().parse(document)
    assert [item.validation_message for item in validate_full_spdx_document(parsed, "SPDX-2.3")] == []
    return document


def components(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All of a bill, those inside others and those that others are made of among them."""
    for item in document.get("components", ()):
        yield item
        yield from components(item)
        yield from item.get("pedigree", {}).get("ancestors", ())


def scan(document: dict[str, Any], advisories: Advisories) -> set[tuple[str, str]]:
    """Names of components and the advisories on them, as a scanner matches them: by the purl's name and
    version, in the data of the archive that the purl names.
    """
    found = set()
    for item in components(document):
        purl = PackageURL.from_string(item["purl"])
        suite = dict(purl.qualifiers or {}).get("distro")
        if purl.type in ("pypi", "deb") and purl.version:
            for advisory in advisories.of(purl.name, suite, purl.version):
                found.add((str(item["name"]), advisory.id))
    return found


def graph(document: dict[str, Any]) -> dict[str, set[str]]:
    """Names of packages -> names of those that they need; the whole channel has no name here."""
    names = {item["bom-ref"]: item["name"] for item in document["components"]}
    return {
        names[item["ref"]]: {names[ref] for ref in item.get("dependsOn", ())}
        for item in document["dependencies"]
        if item["ref"] in names
    }


def test_the_channels_bill_is_written_when_it_passed(library_and_program: Clone) -> None:
    clone = library_and_program
    clone.recipe("odd", license_="LicenseRef-MPICH AND MIT")
    clone.built()
    clone.ok("channel", "verify")
    channel = clone.root / "build/channel"
    text = (channel / sbom.FILE).read_text()
    document = valid(text)
    items = {item["name"]: item for item in document["components"]}
    assert items.keys() == {"libanswer", "program", "odd"}
    assert graph(document) == {"libanswer": set(), "odd": set(), "program": {"libanswer"}}
    valid_spdx((channel / sbom.FILES["spdx"]).read_text())
    for name, item in items.items():
        [file] = channel.glob(f"linux-64/{name}-1.0-*.conda")
        assert item["hashes"] == [{"alg": "SHA-256", "content": sha256_file(file)}]
        build = file.stem.rsplit("-", 1)[1]
        assert item["purl"] == f"pkg:conda/{name}@1.0?build={build}&subdir=linux-64&type=conda"
    assert items["odd"]["licenses"] == [{"expression": "LicenseRef-MPICH AND MIT"}]
    [whole] = [
        d for d in document["dependencies"] if d["ref"] == document["metadata"]["component"]["bom-ref"]
    ]
    assert set(whole["dependsOn"]) == {item["bom-ref"] for item in items.values()}
    # made again: the same bytes; of other packages: another serial number
    clone.ok("channel", "verify")
    assert (channel / sbom.FILE).read_text() == text
    clone.recipe("more")
    clone.built()
    assert not (channel / sbom.FILE).exists(), "a bill of the channel before"
    clone.ok("channel", "verify")
    assert valid((channel / sbom.FILE).read_text())["serialNumber"] != document["serialNumber"]


def test_no_bill_of_what_did_not_pass(clone: Clone) -> None:
    clone.recipe("a")
    clone.built()
    clone.ok("channel", "verify")
    file = next((clone.root / "build/channel/linux-64").glob("a-*.conda"))
    file.unlink()
    clone.fails("channel", "verify")
    assert not (clone.root / "build/channel" / sbom.FILE).exists()


def test_bill_of_an_environment(library_and_program: Clone, tmp_path: Path) -> None:
    clone = library_and_program
    clone.recipe("other")
    clone.built()
    clone.ok("env", "create", "program")
    result = clone.run("env", "sbom", "program")
    document = valid(result.stdout)
    assert graph(document) == {"libanswer": set(), "program": {"libanswer"}}
    assert document["metadata"]["component"]["name"] == "environment program"
    file = tmp_path / "program.cdx.json"
    assert clone.ok("env", "sbom", "program", "--output", str(file)) == {"file": str(file), "packages": 2}
    assert file.read_text() == result.stdout
    assert "is not an environment" in clone.fails("env", "sbom", "absent")


def test_python_distributions_are_named_inside_their_packages() -> None:
    """Scanners know them by the names of the Python package index; one package may hold several."""
    files = [
        "lib/python3.11/site-packages/Foo_Bar-1.2.dist-info/METADATA",
        "lib/python3.11/site-packages/Foo_Bar-1.2.dist-info/RECORD",
        "site-packages/old-2.0rc1.egg-info/PKG-INFO",
        "lib/python3.11/site-packages/foo/dist-info.py",
    ]
    assert sbom.distributions(files) == [("foo-bar", "1.2"), ("old", "2.0rc1")]


def test_bill_of_this_channel_and_its_environment() -> None:
    channel = ROOT / "build/channel"
    layout = Layout.locate(ROOT)
    document = valid(sbom.of_channel(layout, channel))
    entries = published.repodata(channel)
    hashes = sorted(item["hashes"][0]["content"] for item in document["components"])
    assert hashes == sorted(str(e["sha256"]) for listed in entries.values() for e in listed.values())
    names = {item["name"]: item for item in document["components"]}
    parts = names["numpy"]["components"]
    assert "pkg:pypi/numpy" in {part["purl"].split("@")[0] for part in parts}
    assert "libgfortran" in {part["name"] for part in parts}
    needs = graph(document)
    assert "numpy" in needs["scipy"] and "python" in needs["numpy"]
    assert all(item.get("licenses") for item in document["components"])
    installed = valid(sbom.of_environment(layout, ROOT / "build/envs/powerai"))
    refs = {item["bom-ref"] for item in document["components"]}
    assert {item["bom-ref"] for item in installed["components"]} <= refs


def test_a_file_that_is_no_package_is_named(clone: Clone) -> None:
    clone.recipe("a")
    clone.built()
    channel = clone.root / "build/channel"
    [file] = channel.glob("linux-64/a-*.conda")
    file.unlink()
    file.write_text("not a package")
    with pytest.raises(WmlceError, match=r"a-1\.0-.*\.conda cannot be read"):
        sbom.of_channel(Layout.locate(clone.root), channel)


def test_what_is_inside_of_this_channel() -> None:
    """What lies beside Open MPI, what is linked into PyTorch and TensorFlow, with licences and versions; SPDX
    says the same.
    """
    layout, channel = Layout.locate(ROOT), ROOT / "build/channel"
    document = valid(sbom.of_channel(layout, channel))
    inside = {
        item["name"]: {part["name"] for part in item["components"]}
        for item in document["components"]
        if "components" in item
    }
    assert {"libevent", "hwloc", "UCX", "OpenPMIx", "PRRTE", "libfabric"} <= inside["powerai-openmpi"]
    assert {"Intel oneMKL", "oneDNN", "XNNPACK", "gloo", "Protocol Buffers"} <= inside["powerai-pytorch"]
    assert {"gRPC", "BoringSSL", "curl", "SQLite"} <= inside["powerai-tensorflow-base"]
    parts = {part["name"]: part for item in document["components"] for part in item.get("components", ())}
    assert parts["libevent"]["purl"] == "pkg:github/libevent/libevent@2.1.12"
    assert parts["Intel oneMKL"]["licenses"] == [{"expression": "LicenseRef-Intel-Simplified-Software"}]
    spdx = valid_spdx(sbom.of_channel(layout, channel, "spdx"))
    names = {item["name"] for item in spdx["packages"]}
    assert {item["name"] for item in components(document)} - {
        item.package for item in debian_fixes.read(ROOT)
    } <= names
    [openssl] = [item for item in spdx["packages"] if item["name"] == "openssl"]
    assert "; fixed: CVE-" in openssl["sourceInfo"]


def test_a_scan_finds_the_planted_hole_and_none_that_debian_has_fixed(tmp_path: Path) -> None:
    """Advisories in OSV's form: on a distribution inside a package, and on Debian's sources."""
    layout = Layout.locate(ROOT)
    document = valid(sbom.of_channel(layout, ROOT / "build/channel"))
    source = next(item for item in debian_fixes.read(ROOT) if "libexpat" in item.packages)

    def advisory(name: str, archive: str, package: str, fixed: str) -> None:
        events = [{"introduced": "0"}, {"fixed": fixed}]
        affected = {
            "package": {"ecosystem": archive, "name": package},
            "ranges": [{"type": "ECOSYSTEM", "events": events}],
        }
        (tmp_path / f"{name}.json").write_text(json.dumps({"id": name, "affected": [affected]}))

    advisory("PLANTED", "PyPI", "numpy", "999")
    advisory("OLD", "PyPI", "numpy", "0.1")
    advisory("FIXED-BY-DEBIAN", "Debian:12", "expat", source.version)
    advisory("NOT-YET", "Debian:12", "expat", f"{source.version}.1")
    assert scan(document, Advisories(tmp_path)) == {("numpy", "PLANTED"), ("expat", "NOT-YET")}
    [expat] = [item for item in document["components"] if item["name"] == "libexpat"]
    solved = {issue["id"] for patch in expat["pedigree"]["patches"] for issue in patch["resolves"]}
    assert "CVE-2024-45490" in solved and solved == set(source.cves)
