"""What a release changes for users, of two small channels with every kind of change."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from scratch_clone import Clone
from test_release import SMALL, committed, git

pytestmark = pytest.mark.slow


def two_files(clone: Clone, name: str, *files: str, version: str = "1.0", license_: str = "MIT") -> None:
    clone.recipe(
        name,
        script=[
            "mkdir -p $PREFIX/share",
            *(f"echo {file} {version} > $PREFIX/share/{file}" for file in files),
        ],
        license_=license_,
        extra={"package": {"version": version}},
    )


@pytest.fixture(scope="module")
def channels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Clone, Path, Path]:
    """A channel before and after."""
    place = tmp_path_factory.mktemp("two")
    clone = Clone(place / "clone", place / "cache")
    two_files(clone, "same", "same")
    two_files(clone, "gone", "gone")
    two_files(clone, "newer", "kept", "dropped", "moved", version="1.9", license_="MIT")
    two_files(clone, "older", "older", version="3.0")
    two_files(clone, "again", "again")
    two_files(clone, "floor", "floor")
    clone.built()
    old = place / "before"
    shutil.copytree(clone.root / "build/channel", old)
    shutil.rmtree(clone.root / "recipes/gone")
    two_files(clone, "newer", "kept", version="1.10", license_="Apache-2.0")
    two_files(clone, "added", "moved", license_="BSD-3-Clause")
    two_files(clone, "older", "older", version="2.0")
    clone.recipe("again", script=["mkdir -p $PREFIX/share", "echo other > $PREFIX/share/again"])
    shutil.rmtree(clone.root / "recipes/floor")
    clone.library_for_glibc_2_27("floor")
    clone.built()
    return clone, old, clone.root / "build/channel"


def test_every_kind_of_change(channels: tuple[Clone, Path, Path]) -> None:
    clone, old, new = channels
    found = clone.ok("release", "diff", str(old), str(new))
    changes = {change["name"]: change for change in found["packages"]}
    assert {name: change["kind"] for name, change in changes.items()} == {
        "added": "added",
        "again": "rebuilt",
        "floor": "rebuilt",
        "gone": "removed",
        "newer": "updated",  # 1.10 is newer than 1.9
        "older": "downgraded",
    }
    newer = changes["newer"]
    assert (newer["old"], newer["new"]) == ("1.9", "1.10")
    # what another package brings now is not gone
    assert newer["removed_files"] == ["share/dropped"]
    assert {name for name, change in changes.items() if change["removed_files"]} == {"newer", "floor"}
    assert newer["old_size"] == next((old / "linux-64").glob("newer-*.conda")).stat().st_size
    assert (changes["added"]["old"], changes["gone"]["new_size"]) == (None, None)
    assert found["licenses"] == {"newer": ["MIT", "Apache-2.0"]}
    assert found["glibc"] == {"floor": ["0", "2.27"]} and found["release"]["glibc"] == ["0", "2.27"]
    assert found["notes"] == [] and "verification" not in found["release"]
    # the other way round
    back = clone.ok("release", "diff", str(new), str(old))
    assert {c["name"]: c["kind"] for c in back["packages"]}["older"] == "updated"


def test_no_difference(channels: tuple[Clone, Path, Path]) -> None:
    clone, old, _ = channels
    found = clone.ok("release", "diff", str(old), str(old))
    assert found["packages"] == [] and found["release"] == {}
    assert "no difference" in clone.run("release", "diff", str(old), str(old)).stdout


def test_text_and_pages(channels: tuple[Clone, Path, Path], tmp_path: Path) -> None:
    clone, old, new = channels
    done = clone.run("release", "diff", str(old), str(new))
    assert done.returncode == 0 and "1 added, 1 downgraded, 2 rebuilt, 1 removed, 1 updated" in done.stdout
    assert "newer: no longer share/dropped" in done.stdout and re.search(r"1\.9\s+│ 1\.10", done.stdout)
    clone.ok("release", "diff", str(old), str(new), "--output", str(tmp_path / "page.md"))
    text = (tmp_path / "page.md").read_text()
    assert "| newer | updated | 1.9 | 1.10 |" in text and "| newer | MIT | Apache-2.0 |" in text
    assert "- `share/dropped`" in text
    clone.ok("release", "diff", str(old), str(new), "--output", str(tmp_path / "page.html"))
    cells, addresses = _read_page((tmp_path / "page.html").read_text())
    assert not addresses, "it needs nothing else"
    assert {"newer", "1.10", "Apache-2.0", "share/dropped"} <= cells
    assert "neither in .html nor in .md" in clone.fails(
        "release", "diff", str(old), str(new), "--output", str(tmp_path / "page.pdf")
    )


def _read_page(text: str) -> tuple[set[str], list[str]]:
    cells: set[str] = set()
    addresses: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            addresses.extend(str(value) for name, value in attrs if name in ("src", "href"))

        def handle_data(self, data: str) -> None:
            cells.add(data.strip())

    Reader().feed(text)
    return cells, addresses


def test_channels_without_their_packages(channels: tuple[Clone, Path, Path], tmp_path: Path) -> None:
    """As a mirror of an index is: the rest can still be compared, and a note says what cannot."""
    clone, old, new = channels
    bare = tmp_path / "bare"
    shutil.copytree(old, bare, ignore=shutil.ignore_patterns("*.conda"))
    found = clone.ok("release", "diff", str(bare), str(new))
    assert len(found["packages"]) == 6 and "not compared of 4 packages" in found["notes"][0]
    index = bare / "linux-64/repodata.json"
    document = json.loads(index.read_text())
    next(iter(document["packages.conda"].values())).pop("version")
    index.write_text(json.dumps(document))
    assert "index of" in clone.fails("release", "diff", str(bare), str(new))
    assert "is neither a release nor a channel" in clone.fails("release", "diff", str(tmp_path), str(new))


def test_two_releases(channels: tuple[Clone, Path, Path], tmp_path: Path) -> None:
    """Verification, key and commit are compared too; names of a release are its versions."""
    clone, _, _ = channels
    committed(clone)
    small = [word if word != "user" else "same" for word in SMALL]
    key = tmp_path / "key"
    name = clone.ok("release", "key", "new", str(key), "--no-passphrase")["id"]
    one = clone.ok("release", "make", *small)["folder"]
    clone.write("VERSION", "2.0.0\n")
    git(clone.root, "commit", "-q", "-a", "-m", "The next one")
    two = clone.ok("release", "make", *small, "--key", str(key))["folder"]
    found = clone.ok("release", "diff", one, two)
    assert (found["old"], found["new"], found["packages"]) == ("1.0.0", "2.0.0", [])
    assert found["release"].keys() == {"signed by", "commit"}
    assert found["release"]["signed by"] == ["nobody", name]
    record = Path(one) / "release.json"
    document = json.loads(record.read_text())
    document["verification"]["ok"] = False
    record.unlink()
    record.write_text(json.dumps(document))
    assert clone.ok("release", "diff", one, two)["release"]["verification"] == ["not verified", "passed"]
