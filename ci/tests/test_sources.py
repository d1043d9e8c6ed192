"""Fetching exactly what the lock says, by the archives' own clients."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest
import yaml
from local_wheels import make_wheel
from scratch_clone import Clone
from wmlce.sources.model import role


def lock(clone: Clone, kind: str, package: str, version: str, name: str, sha256: str) -> None:
    entry = {
        "recipes": ["user"],
        "kind": kind,
        "package": package,
        "version": version,
        "files": [{"name": name, "sha256": sha256}],
    }
    clone.write("recipes/sources.lock.yaml", yaml.safe_dump([entry]))
    clone.recipe("user", source=[{"path": f"../../build/sources/{name}"}])


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def wheel(clone: Clone, tmp_path: Path) -> Path:
    """A locked wheel that pip finds in a local folder."""
    path = make_wheel(tmp_path / "links", "tiny", "1.0")
    clone.env |= {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(path.parent),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_EXTRA_INDEX_URL": "",
    }
    lock(clone, "python", "tiny", "1.0", path.name, digest(path))
    return path


def test_fetch_with_pip(clone: Clone, wheel: Path) -> None:
    assert clone.ok("source", "fetch", "user")["fetched"] == [wheel.name]
    placed = clone.root / "build/sources" / wheel.name
    assert digest(placed) == digest(wheel)
    assert clone.ok("source", "fetch", "user")["fetched"] == []
    # a second clone does without the archive
    shutil.rmtree(clone.root / "build")
    clone.env["PIP_FIND_LINKS"] = "/nowhere"
    assert clone.built() == {"user"}


def test_wrong_sha256(clone: Clone, wheel: Path) -> None:
    make_wheel(wheel.parent, "tiny", "1.0", files={"tiny/__init__.py": "replaced = True\n"})
    error = clone.fails("channel", "build")
    assert "wrong sha256" in error and wheel.name in error and "'user'" in error
    assert not list(clone.cache.glob("sources/*/*.whl"))
    assert not (clone.root / "build/channel").exists()


def test_missing_release(clone: Clone, wheel: Path) -> None:
    wheel.unlink()
    error = clone.fails("source", "fetch", "user")
    assert wheel.name in error and "'user'" in error and "remedy" in error


def test_no_network(clone: Clone, wheel: Path) -> None:
    clone.env |= {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    clone.env |= {"PIP_RETRIES": "1", "PIP_TIMEOUT": "2", "no_proxy": "*"}
    error = clone.fails("source", "fetch", "user")
    assert wheel.name in error and "not reachable" in error and "wmlce doctor" in error


def test_folder_of_sources(clone: Clone, wheel: Path, tmp_path: Path) -> None:
    """A machine without a network: files carried there, checked like any other."""
    carried = tmp_path / "carried"
    carried.mkdir()
    shutil.move(wheel, carried / wheel.name)
    clone.env["WMLCE_SOURCES"] = str(carried)
    assert clone.ok("source", "fetch", "user")["fetched"] == [wheel.name]
    shutil.rmtree(clone.cache)
    (carried / wheel.name).write_text("something else")
    assert "wrong sha256" in clone.fails("source", "fetch", "user")


def test_damaged_cached_source(clone: Clone, wheel: Path) -> None:
    clone.ok("source", "fetch", "user")
    cached = next(clone.cache.glob("sources/*/*.whl"))
    cached.write_bytes(b"rot" + cached.read_bytes()[3:])
    assert "damaged" in clone.fails("channel", "build")
    assert clone.built() == {"user"}


@pytest.mark.parametrize(
    "text",
    [
        "- {recipes: [a], kind: python}",
        "{",
        "- {recipes: [a], kind: python, package: --index-url=x, version: '1', files: []}",
    ],
)
def test_damaged_lock(clone: Clone, text: str) -> None:
    clone.write("recipes/sources.lock.yaml", text)
    assert "sources.lock.yaml is damaged" in clone.fails("source", "fetch")


def test_roles_of_debian_files() -> None:
    assert role("zlib_1.2.13.dfsg.orig.tar.bz2") == "orig.tar"
    assert role("python3.11_3.11.2-6+deb12u8.debian.tar.xz") == "debian.tar"
    assert role("a_1.0.orig-extra.tar.gz") == "orig-extra.tar"
    assert role("native_2.1.tar.xz") == "tar"
    assert role("a_1.0.orig.tar.gz.asc") == "orig.tar.asc"
    assert role("a_1.0-1.dsc") == "dsc"


@pytest.fixture
def debian(clone: Clone) -> Clone:
    """A clone that has locked bzip2's Debian source with the real apt."""
    if shutil.which("apt-get") is None:
        pytest.skip("this machine has no apt-get")
    if clone.run("-q", "--json", "doctor").stdout.count('"level": "problem"') and (
        "Debian's mirror is reached" in clone.run("-q", "doctor").stderr
    ):
        pytest.skip("the machine's Debian mirror is not reachable")
    clone.without_build_root().recipe("user")
    clone.ok("lock", "sources", "--add", "debian-source:bzip2", "--recipe", "user")
    return clone


def test_debian_source(debian: Clone) -> None:
    """Lock and fetch through apt, with a state of its own: the machine's lists are not touched."""
    before = sorted((path.name, path.stat().st_mtime_ns) for path in Path("/var/lib/apt/lists").glob("*"))
    path = debian.root / "recipes/sources.lock.yaml"
    entry = yaml.safe_load(path.read_text())[0]
    name = entry["files"][0]["name"]
    assert re.fullmatch(r"bzip2_.*\.orig\.tar\.\w+", name)
    shutil.rmtree(debian.cache / "sources")
    assert debian.ok("source", "fetch")["fetched"] == [name]
    assert digest(debian.root / "build/sources" / name) == entry["files"][0]["sha256"]
    assert sorted((p.name, p.stat().st_mtime_ns) for p in Path("/var/lib/apt/lists").glob("*")) == before

    # the archive has moved on: another revision with the same tarball serves, another tarball does not
    shutil.rmtree(debian.cache / "sources")
    path.write_text(path.read_text().replace(str(entry["version"]), "1.0.1-0"))
    assert debian.ok("source", "fetch")["fetched"] == [name]
    shutil.rmtree(debian.cache / "sources")
    path.write_text(path.read_text().replace(entry["files"][0]["sha256"], "f" * 64))
    error = debian.fails("--locked", "source", "fetch")
    assert "has moved on" in error and "wmlce lock sources user" in error and "1.0.1-0" in error
    # and the remedy is one
    debian.ok("lock", "sources", "user")
    assert debian.ok("source", "fetch")["files"] == [name]


def test_builds_of_the_clones_own_sources_alone_share_compilations(clone: Clone, wheel: Path) -> None:
    """What a build of fetched sources left among them would get into packages of other recipes."""
    own = ["test -w /ccache", 'test "$CCACHE_DIR $CMAKE_CXX_COMPILER_LAUNCHER" = "/ccache ccache"']
    clone.recipe("own", script=own)
    fetched = ["test ! -e /ccache", 'test -z "${CCACHE_DIR:-}${CMAKE_CXX_COMPILER_LAUNCHER:-}"']
    clone.recipe("user", source=[{"path": f"../../build/sources/{wheel.name}"}], script=fetched)
    assert clone.built() == {"own", "user"}
