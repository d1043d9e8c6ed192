"""Owners of shared objects: whose each is, and which one is nobody's."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_channel import index, make_package
from tree import ROOT
from wmlce.channel import published, shared_objects
from wmlce.channel.verify import origins
from wmlce.recipes import license_policy, third_party
from wmlce.util.layout import Layout

SITE = "lib/python3.11/site-packages"
LIBRARY = (ROOT / "build/envs/powerai/lib/libz.so.1").read_bytes()
MODULE = next((ROOT / f"build/envs/powerai/{SITE}/markupsafe").glob("_speedups.*.so"))
PROGRAM = (ROOT / "build/envs/powerai/bin/xz").read_bytes()


def check(channel: Path, tmp_path: Path) -> list[str]:
    layout = Layout(ROOT, tmp_path / "cache")
    first = origins.every_object(layout, index(channel), lambda _: None)
    again = origins.every_object(layout, channel, lambda _: None)
    assert (again.findings, again.summary) == (first.findings, first.summary)
    return first.findings


def test_a_planted_library_that_nobody_declared(tmp_path: Path) -> None:
    """Under whatever name, in whichever package: also under the name of a library that is declared."""
    openmpi, folder = "lib/openmpi/libhwloc.so.15", f"{SITE}/more.libs"
    channel = tmp_path / "channel"
    make_package(channel, "plain", files={"lib/libplain.so.1": LIBRARY, "share/data.bin": LIBRARY})
    make_package(channel, "powerai-openmpi", files={openmpi: LIBRARY, "lib/openmpi/libnew.so": LIBRARY})
    make_package(channel, "more", files={f"{folder}/libpng16-0123abcd.so.16": LIBRARY})
    make_package(channel, "damaged", files={"lib/libdamaged.txt": b"\x7fELF" + b"x" * 100})
    found = check(channel, tmp_path)
    places = [text.partition(": nobody says whose it is")[0] for text in found]
    name = "(SONAME libz.so.1)"
    assert places == [
        "noarch/damaged-1.0-0.conda: lib/libdamaged.txt",
        f"noarch/more-1.0-0.conda: {folder}/libpng16-0123abcd.so.16 {name}",
        f"noarch/plain-1.0-0.conda: lib/libplain.so.1 {name}",
        f"noarch/plain-1.0-0.conda: share/data.bin {name}",
        f"noarch/powerai-openmpi-1.0-0.conda: {openmpi} {name}",
        f"noarch/powerai-openmpi-1.0-0.conda: lib/openmpi/libnew.so {name}",
    ]
    assert all(text.endswith(f"leave it out, or declare it in {third_party.FILE}") for text in found)


def test_own_libraries_modules_and_programs(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    module, record = f"{SITE}/a/{MODULE.name}", f"{SITE}/a-1.0.dist-info/RECORD"
    make_package(channel, "z", files={"lib/libz.so.1.2.13": LIBRARY, "bin/z": PROGRAM})
    make_package(channel, "a", files={module: MODULE.read_bytes(), record: f"a/{MODULE.name},,\n"})
    assert check(channel, tmp_path) == []
    # a module under another name than its own, or in no RECORD, is as good as any library
    make_package(channel, "b", files={f"{SITE}/b/_b.so": MODULE.read_bytes(), record: "b/_b.so,,\n"})
    make_package(channel, "c", files={module: MODULE.read_bytes(), record: "a/other.so,,\n"})
    assert [text.split(": ")[1] for text in check(channel, tmp_path)] == [f"{SITE}/b/_b.so", module]


def test_what_was_looked_up_in_another_version_is_said(tmp_path: Path) -> None:
    place = f"{SITE}/torch/lib/libtorch_cpu.so"
    make_package(tmp_path / "channel", "powerai-pytorch", "3.0", files={place: b"\x7fELF"})
    layout = Layout(ROOT, tmp_path / "cache")
    seen = third_party.declared().packages["powerai-pytorch"].seen
    [note] = origins.every_object(layout, index(tmp_path / "channel"), lambda _: None).notes
    assert f"what is linked into it was looked up in {seen}: look again" in note
    parts = {part.name: part.version for part in third_party.inside("powerai-pytorch", "3.0", [place])}
    assert parts["oneDNN"] is None
    parts = {part.name: part.version for part in third_party.inside("powerai-pytorch", str(seen), [place])}
    assert parts["oneDNN"] == "3.12.0"


def test_the_table_is_consistent() -> None:
    table = third_party.declared()
    for name, project in table.projects.items():
        assert not license_policy.judge(project.license).problems, name
    used = {*table.libraries.values()}
    for contents in table.packages.values():
        for text in (text for texts in contents.linked.values() for text in texts):
            used |= {name for name in table.projects if text == name or text.startswith(f"{name} ")}
        used |= contents.holds.keys()
    assert not table.projects.keys() - used, "declared and in no package"
    with pytest.raises(ValueError, match="no project of these names is declared: absent"):
        third_party.ThirdParty(projects={}, libraries={"libabsent": "absent"}, packages={})


def test_this_channel() -> None:
    """All of it, and the versions that the files themselves tell."""
    layout, channel = Layout.locate(ROOT), ROOT / "build/channel"
    found = origins.every_object(layout, channel, lambda _: None)
    assert not found.findings and not found.notes
    told: dict[str, str] = {}
    for key, entry in published.entries(channel).items():
        held = shared_objects.of_package(layout, channel / key, entry)
        assert held is not None
        for item in held.objects.values():
            told |= {f"{entry['name']}: {name}": version for name, version in item.versions.items()}
    assert {"numpy: OpenBLAS", "powerai-openmpi: hwloc", "powerai-openmpi: libevent"} <= told.keys()
    assert told["powerai-tensorflow-base: zlib"] >= "1.3"
