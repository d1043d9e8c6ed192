"""Updates reach every client, and what was published before can still be installed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from scratch_clone import Clone
from test_verify import findings, verify
from wmlce.builder.build_numbers import of_revision


def content(clone: Clone, name: str, environment: str = "") -> str:
    return (clone.root / "build/envs" / (environment or name) / "share" / name).read_text().strip()


def say(clone: Clone, name: str, text: str, **more: object) -> None:
    clone.recipe(name, script=["mkdir -p $PREFIX/share", f"echo {text} > $PREFIX/share/{name}"], **more)  # type: ignore[arg-type]


def numbers(clone: Clone) -> dict[str, list[int]]:
    """Build numbers in the index, by package."""
    found: dict[str, list[int]] = {}
    for path in (clone.root / "build/channel").glob("*/repodata.json"):
        for entry in json.loads(path.read_text())["packages.conda"].values():
            found.setdefault(entry["name"], []).append(entry["build_number"])
    return {name: sorted(values) for name, values in found.items()}


@pytest.mark.parametrize(
    "versions",
    [
        [
            "1.2-1~deb12u2",
            "1.2-1",
            "1.2-1+b1",
            "1.2-1+deb12u3",
            "1.2-1+deb12u12",
            "1.2-1.1",
            "1.2-2",
            "1.2-10",
        ],
        ["1:2.39.5-0+deb12u2", "1:2.39.5-0+deb12u3", "1:2.39.5-1"],
        ["20230508", "20230508+deb12u1", "20230508+deb12u2"],
        ["3.0.20-1~deb12u2", "3.0.20-1~deb12u3", "3.0.20-2"],
    ],
)
def test_numbers_rise_with_debians_revisions(versions: list[str]) -> None:
    found = [of_revision(version) for version in versions]
    assert found == sorted(set(found)), dict(zip(versions, found, strict=True))


@pytest.fixture
def debian(clone: Clone, tmp_path: Path) -> Iterator[Clone]:
    """A recipe of a Debian source, whose files lie in a folder."""
    folder = tmp_path / "debian"
    folder.mkdir()
    clone.env["WMLCE_SOURCES"] = str(folder)
    renew(clone, folder, "1.0-6+deb12u8")
    yield clone


def renew(clone: Clone, folder: Path, version: str) -> None:
    """Debian has this revision now, and the recipe follows."""
    files = {"tool_1.0.orig.tar": "upstream", f"tool_{version}.debian.tar": f"fixes of {version}"}
    for name, text in files.items():
        (folder / name).write_text(text)
    entry = {
        "recipes": ["tool"],
        "kind": "debian-source",
        "package": "tool",
        "version": version,
        "files": [
            {"name": name, "sha256": hashlib.sha256(text.encode()).hexdigest()}
            for name, text in files.items()
        ],
    }
    clone.write("recipes/sources.lock.yaml", yaml.safe_dump([entry]))
    clone.recipe(
        "tool",
        source=[{"path": f"../../build/sources/{name}", "file_name": name} for name in files],
        script=["mkdir -p $PREFIX/share", "cat *.debian.tar > $PREFIX/share/tool"],
    )


def test_a_new_debian_revision_is_newer_for_every_client(debian: Clone, tmp_path: Path) -> None:
    clone = debian
    clone.recipe("user", run=["tool"])
    clone.recipe("compiled", host=["tool"])
    clone.built()
    clone.ok("env", "create", "e", "user")
    assert content(clone, "tool", "e") == "fixes of 1.0-6+deb12u8"
    renew(clone, tmp_path / "debian", "1.0-6+deb12u9")
    assert clone.built() == {"tool", "compiled"}
    assert numbers(clone)["tool"] == [6008, 6009]
    assert clone.ok("env", "create", "e", "user")["changed"]
    assert content(clone, "tool", "e") == "fixes of 1.0-6+deb12u9"
    # the one before can be asked for
    clone.ok("env", "create", "old", "tool =*=*_6008")
    assert content(clone, "tool", "old") == "fixes of 1.0-6+deb12u8"
    assert verify(clone)["ok"]


def test_a_change_without_a_new_number_is_the_only_choice(clone: Clone) -> None:
    """Clients could not tell which of the two is newer: the index holds the current one."""
    say(clone, "a", "first")
    clone.built()
    clone.ok("env", "create", "a")
    before = clone.published()
    say(clone, "a", "second")
    result = clone.run("channel", "build")
    assert "not in version or build number: a" in result.stderr and "wmlce lock numbers" in result.stderr
    assert clone.earlier() == before and numbers(clone) == {"a": [0]}
    clone.ok("env", "create", "a")
    assert content(clone, "a") == "second"
    document = verify(clone)
    assert document["ok"] and document["packages"] == 1
    # what was taken back becomes current again
    say(clone, "a", "first")
    assert clone.built() == set()
    assert clone.published() == before
    clone.ok("env", "create", "a")
    assert content(clone, "a") == "first"


def test_a_withdrawn_version_is_not_chosen(clone: Clone) -> None:
    say(clone, "a", "two", extra={"package": {"version": "2.0"}})
    clone.recipe("gone")
    clone.built()
    say(clone, "a", "one")
    for path in (clone.root / "recipes/gone").iterdir():
        path.unlink()
    clone.built()
    clone.ok("env", "create", "a")
    assert content(clone, "a") == "one"
    # a package that no recipe makes any more has no newer one, and old releases may need it
    clone.ok("env", "create", "gone")


def test_numbers_of_a_release(clone: Clone) -> None:
    """`lock numbers` raises what has changed since the last time, and what was built with it, and nothing
    else.
    """
    say(clone, "library", "first")
    clone.recipe("user", host=["library"], run=["library"])
    clone.recipe("other", extra={"build": {"number": 7}})
    clone.ok("lock", "numbers")
    clone.built()
    assert numbers(clone) == {"library": [0], "user": [0], "other": [7]}
    assert clone.ok("lock", "numbers") == {"changes": []}
    say(clone, "library", "second")
    assert clone.ok("lock", "numbers")["changes"] == ["library 1.0: 0 -> 1", "user 1.0: 0 -> 1"]
    assert clone.built() == {"library", "user"}
    assert numbers(clone) == {"library": [0, 1], "user": [0, 1], "other": [7]}
    clone.ok("env", "create", "user")
    assert content(clone, "library", "user") == "second"
    # a new version starts again; the recipe's own number counts
    say(clone, "library", "third", extra={"package": {"version": "1.1"}, "build": {"number": 2}})
    changes = clone.ok("lock", "numbers")["changes"]
    assert changes == ["library 1.1: 1 -> 2", "user 1.0: 1 -> 2"]
    clone.write("recipes/numbers.lock.yaml", "library: [half")
    assert "numbers.lock.yaml is damaged" in clone.fails("channel", "build")


def test_a_lock_of_an_old_release_still_installs(clone: Clone, tmp_path: Path) -> None:
    say(clone, "a", "first")
    clone.recipe("user", run=["a"])
    clone.built()
    clone.ok("env", "create", "user")
    lock = tmp_path / "release.lock"
    assert clone.ok("env", "lock", "user", "--output", str(lock))["packages"] == 2
    say(clone, "a", "second")
    clone.built()
    clone.ok("env", "create", "user")
    assert content(clone, "a", "user") == "second"
    assert clone.ok("env", "create", "old", "--lock", str(lock))["changed"]
    assert content(clone, "a", "old") == "first"
    assert not clone.ok("env", "create", "old", "--lock", str(lock))["changed"]
    # the same packages, so the same lock, wherever the channel is
    again = clone.ok("env", "lock", "old", "--channel", "https://example.invalid/channel")["lock"]
    assert "https://example.invalid/channel/linux-64/a-1.0-" in again
    assert sorted(line.rpartition("/")[2] for line in again.splitlines() if "#sha256:" in line) == sorted(
        line.rpartition("/")[2] for line in lock.read_text().splitlines() if "#sha256:" in line
    )
    # rattler reads it too
    from rattler.explicit_environment import ExplicitEnvironmentSpec

    assert len(ExplicitEnvironmentSpec.from_path(lock).packages) == 2


def test_bad_locks(clone: Clone, tmp_path: Path) -> None:
    clone.recipe("a")
    clone.built()
    clone.ok("env", "create", "a")
    lock = tmp_path / "a.lock"
    clone.ok("env", "lock", "a", "--output", str(lock))
    text = lock.read_text()
    digest = text.rpartition(":")[2].strip()
    lock.write_text(text.replace(digest, "0" * 64))
    error = clone.fails("env", "create", "b", "--lock", str(lock))
    assert "another content" in error and "a-1.0" in error
    lock.write_text(text.replace(f"#sha256:{digest}", ""))
    assert f"{lock}:5 names no package with its sha256" in clone.fails(
        "env", "create", "b", "--lock", str(lock)
    )
    lock.write_text(text.replace("linux-64/a", "linux-64/../../a"))
    assert "names no package" in clone.fails("env", "create", "b", "--lock", str(lock))
    lock.write_text("@EXPLICIT\n")
    assert "names no package" in clone.fails("env", "create", "b", "--lock", str(lock))
    assert "cannot be read" in clone.fails("env", "create", "b", "--lock", str(tmp_path / "none"))
    assert not (clone.root / "build/envs/b").exists()


def test_prune(clone: Clone, tmp_path: Path) -> None:
    for text in ("first", "second", "third"):
        say(clone, "a", text)
        clone.built()
        clone.ok("env", "create", "a")
        clone.ok("env", "lock", "a", "--output", str(tmp_path / text))
    assert len(clone.earlier()) == 2
    assert clone.ok("channel", "prune", "--older-than", "1")["removed"] == []
    removed = clone.ok("channel", "prune", "--keep", "1")["removed"]
    assert len(removed) == 1 and len(clone.earlier()) == 1
    assert verify(clone)["ok"]
    assert len(clone.ok("channel", "prune")["removed"]) == 1 and clone.earlier() == set()
    assert [path.name for path in (clone.root / "build/channel/linux-64").glob("*.conda")] == list(
        clone.published()
    )
    # another clone's cache does not have them
    os.rename(clone.cache / "packages", tmp_path / "packages")
    error = clone.fails("env", "create", "old", "--lock", str(tmp_path / "first"))
    assert "1 of 1 are missing" in error and "pruned" in error


def test_an_earlier_build_that_is_damaged_is_found_and_left_out(clone: Clone) -> None:
    from test_integrity import poison

    say(clone, "a", "first", extra={"package": {"version": "0.9"}})
    clone.built()
    (earlier,) = clone.published()
    say(clone, "a", "second")
    clone.built()
    poison(clone.root / "build/channel/linux-64" / earlier)
    found = findings(verify(clone), "index")
    assert len(found) == 1 and earlier in found[0]
    say(clone, "a", "third", extra={"build": {"number": 1}})
    result = clone.run("channel", "build")
    assert result.returncode == 0 and f"{earlier}, an earlier build, is damaged" in result.stderr
    assert earlier not in clone.earlier() and len(clone.earlier()) == 1
    assert verify(clone)["ok"]
