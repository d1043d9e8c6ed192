"""`wmlce outdated` against an index on this machine, and advisories in OSV's format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from local_wheels import make_wheel
from scratch_clone import Clone
from wmlce.upkeep.advisories import Advisories
from wmlce.upkeep.outdated import newest_of, root_comments
from wmlce.util.errors import WmlceError


def advisory(folder: Path, name: str, package: str, events: list[dict[str, str]], **more: object) -> None:
    folder.mkdir(exist_ok=True)
    affected = {
        "package": {"ecosystem": "PyPI", "name": package},
        "ranges": [{"type": "ECOSYSTEM", "events": events}],
    }
    (folder / f"{name}.json").write_text(json.dumps({"id": name, "affected": [affected], **more}))


@pytest.fixture
def locked(clone: Clone, tmp_path: Path) -> Clone:
    """A clone with locked wheels, and a pip that finds newer ones of some."""
    clone.without_build_root()
    files = tmp_path / "files"
    files.mkdir()
    for version in ("1.0", "1.5", "2.0", "3.0rc1"):
        make_wheel(files, "held", version)
        make_wheel(files, "root", version)
    make_wheel(files, "still", "1.0")
    clone.write(
        "recipes/wheels.yaml",
        "roots:\n  # held: 2 breaks our\n  # programs\n  - root==1.0\n\n  - still==1.0\n",
    )

    def wheel(name: str, **more: object) -> dict[str, object]:
        return {
            "name": name, "version": "1.0", "file": f"{name}-1.0-py3-none-any.whl", "sha256": "0" * 64, **more
        }  # fmt: skip

    packages = [
        wheel("held"), wheel("root"), wheel("still", requires=["held<2,>=1"]), wheel("vanished")
    ]  # fmt: skip
    lock = {"python": "3.11", "roots": ["root==1.0", "still==1.0"], "packages": packages}
    clone.write("recipes/wheels.lock.yaml", yaml.safe_dump(lock))
    clone.env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(files), "PIP_CONFIG_FILE": "/dev/null"}
    return clone


def test_what_moves_what_is_held_and_what_is_closed(locked: Clone, tmp_path: Path) -> None:
    folder = tmp_path / "osv"
    advisory(folder, "X-1", "Held", [{"introduced": "0"}, {"fixed": "1.2"}])
    advisory(folder, "X-2", "root", [{"introduced": "0.5"}, {"last_affected": "2.0"}])
    advisory(folder, "X-3", "root", [{"introduced": "1.5"}])
    advisory(folder, "X-4", "held", [{"introduced": "0"}], withdrawn="2026-01-01T00:00:00Z")
    page = tmp_path / "report.md"
    answer = locked.ok("outdated", "--advisories", str(folder), "--report", str(page))
    found = {item["package"]: item for item in answer["packages"]}
    assert {name: item["newest"] for name, item in found.items()} == {
        "held": "2.0",
        "root": "2.0",
        "still": "1.0",
        "vanished": None,
    }
    assert found["held"]["held"] == ["still 1.0 requires held<2,>=1"] and not found["held"]["root"]
    assert found["root"]["held"] == ["2 breaks our programs"] and found["root"]["root"]
    assert not found["still"]["moves"] and found["vanished"]["problem"]
    assert found["held"]["closes"] == ["X-1"] and found["held"]["remain"] == []
    assert found["root"]["closes"] == [] and found["root"]["remain"] == ["X-2"]
    text = page.read_text()
    assert "4 packages: 0 can move, 2 are held back, 1 are unknown. The moves close 1 advisories." in text
    assert "| held | the Python package index | 1.0 | 2.0 | still 1.0 requires held<2,>=1 | X-1 |" in text
    assert json.loads((tmp_path / "report.md.json").read_text()) == answer
    # nothing is changed by it
    assert "root==1.0" in (locked.root / "recipes/wheels.yaml").read_text()

    assert [item["package"] for item in locked.ok("outdated", "Still")["packages"]] == ["still"]
    assert "no lock file has nothing" in locked.fails("outdated", "nothing")


def test_what_recipes_and_variants_say(locked: Clone) -> None:
    """A comment in the recipe of a source, and what a variant's wheels take of the channel."""
    locked.write("recipes/gpu/variant.yaml", "summary: GPUs\npackage: gpu\n")
    locked.write("recipes/gpu/wheels.yaml", "roots: [own==1.0]\n")
    wheel = {"name": "own", "version": "1.0", "file": "own-1.0-py3-none-any.whl", "sha256": "0" * 64}
    lock = {"packages": [{**wheel, "requires": ["held<1.9", "own-too<2"]}]}
    locked.write("recipes/gpu/wheels.lock.yaml", yaml.safe_dump(lock))
    source = {"recipes": ["user"], "kind": "python", "package": "root", "version": "1.0"}
    source["files"] = [{"name": "root-1.0-py3-none-any.whl", "sha256": "0" * 64}]
    locked.write("recipes/sources.lock.yaml", yaml.safe_dump([source]))
    locked.write("recipes/user/recipe.yaml", "package:\n  version: 1.0  # held: for the user\n")
    found = {(item["package"], item["wheel"]): item for item in locked.ok("outdated")["packages"]}
    assert found["held", True]["holders"] == {
        "still": "still 1.0 requires held<2,>=1",
        "gpu:own": "gpu:own 1.0 requires held<1.9",
    }
    assert found["root", False]["held"] == ["for the user"] and found["root", False]["moves"]


def test_advisories_of_debian_are_compared_as_dpkg_does(tmp_path: Path) -> None:
    events = [{"introduced": "0"}, {"fixed": "3.0.9-1+deb12u2"}]
    document = {
        "id": "D-1",
        "affected": [
            {
                "package": {"ecosystem": "Debian:12", "name": "openssl"},
                "ranges": [{"type": "ECOSYSTEM", "events": events}],
            }
        ],
    }
    (tmp_path / "a.json").write_text(json.dumps([document]))
    known = Advisories(tmp_path / "a.json")
    assert known.of("openssl", "bookworm", "3.0.9-1+deb12u1") and known.of("openssl", "bookworm", "3.0.9-1")
    assert not known.of("openssl", "bookworm", "3.0.9-1+deb12u10")
    assert not known.of("openssl", "bullseye", "3.0.9-1") and not known.of("openssl", None, "3.0.9")
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(WmlceError, match="it has no id"):
        Advisories(tmp_path)


def test_advisories_take_a_build_of_another_index_for_its_release(tmp_path: Path) -> None:
    events = [{"introduced": "2.0"}, {"last_affected": "2.13.0"}]
    affected = {"package": {"ecosystem": "PyPI", "name": "torch"}}
    document = {
        "id": "P-1",
        "affected": [{**affected, "ranges": [{"type": "ECOSYSTEM", "events": events}]}],
    }
    (tmp_path / "a.json").write_text(json.dumps(document))
    known = Advisories(tmp_path / "a.json")
    assert [item.id for item in known.of("torch", None, "2.13.0+cpu")] == ["P-1"]
    assert not known.of("torch", None, "2.13.1+cpu")


def test_newest_versions_and_comments() -> None:
    assert newest_of(["1.9", "1.10", "2.0b1", "nonsense"], "1.2") == "1.10"
    assert newest_of(["1.0"], "1.2") == "1.2"
    # the same release of another index is no news
    assert newest_of(["2.13.0"], "2.13.0+cpu") == "2.13.0+cpu"
    assert newest_of(["2.14.0"], "2.13.0+cpu") == "2.14.0"


def test_reasons_for_holding_roots() -> None:
    """A comment above is about the group, one behind about its root, and a heading about none."""
    text = """\
# held: not among roots
roots:
  # a heading
  - none==1
  # tables; held: as far as
  # the other takes them
  - A.b==1
  - c[extra]==2  # held: its own
  # next
  - d==3
  # held: both
  - e==1
  - f==1  # a remark

  - g==1
rename:
  # held: other
  - h
"""
    of_group = "as far as the other takes them"
    assert root_comments(text) == {"a-b": of_group, "c": "its own", "e": "both", "f": "both"}
