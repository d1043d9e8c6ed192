"""All sources in one folder, and building from it with the network cut off."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from local_wheels import make_wheel
from scratch_clone import Clone
from wmlce.sources.relock_tools import SETS


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def wheels(clone: Clone, tmp_path: Path) -> list[Path]:
    """Three locked wheels that pip finds in a folder, two of them used by a recipe."""
    links = tmp_path / "links"
    made = [make_wheel(links, name, "1.0") for name in ("one", "two", "three")]
    entries = [
        {
            "recipes": ["user" if number < 2 else "other"],
            "kind": "python",
            "package": path.name.split("-")[0],
            "version": "1.0",
            "files": [{"name": path.name, "sha256": digest(path)}],
        }
        for number, path in enumerate(made)
    ]
    clone.write("recipes/sources.lock.yaml", yaml.safe_dump(entries))
    clone.recipe("user", source=[{"path": f"../../build/sources/{path.name}"} for path in made[:2]])
    clone.recipe("other", source=[{"path": f"../../build/sources/{made[2].name}"}])
    clone.env |= {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(links),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_EXTRA_INDEX_URL": "",
    }
    return made


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    """As a person would who got the folder from somewhere."""
    return subprocess.run(
        ["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, text=True, timeout=60
    )


def forget(clone: Clone) -> None:
    """As on another machine."""
    for path in clone.cache.iterdir():
        if not path.is_symlink():  # the build root
            shutil.rmtree(path)
    shutil.rmtree(clone.root / "build", ignore_errors=True)


def test_bundle_holds_every_locked_file(clone: Clone, wheels: list[Path], tmp_path: Path) -> None:
    clone.without_build_root()
    folder = tmp_path / "a b" / "bundle"
    answer = clone.ok("source", "bundle", str(folder))
    assert (answer["files"], answer["written"]) == (3, 3)
    assert answer["bytes"] == sum(path.stat().st_size for path in wheels)
    assert {path.name: digest(path) for path in folder.glob("*.whl")} == {p.name: digest(p) for p in wheels}
    assert check(folder).returncode == 0 and len(check(folder).stdout.splitlines()) == 3
    cached = next(clone.cache.glob(f"sources/*/{wheels[0].name}"))
    assert cached.stat().st_ino == (folder / wheels[0].name).stat().st_ino, "shared where it can be"


def test_bundle_goes_on_where_it_was(clone: Clone, wheels: list[Path], tmp_path: Path) -> None:
    clone.without_build_root()
    folder = tmp_path / "bundle"
    # one cannot be had: the others are in the folder all the same
    hidden = tmp_path / wheels[1].name
    shutil.move(wheels[1], hidden)
    assert wheels[1].name in clone.fails("source", "bundle", str(folder))
    assert {path.name for path in folder.glob("*.whl")} == {wheels[0].name, wheels[2].name}
    # a copy that was cut off
    kept = (folder / wheels[0].name).stat()
    (folder / wheels[2].name).unlink()
    (folder / wheels[2].name).write_bytes(b"half")
    shutil.move(hidden, wheels[1])
    assert clone.ok("source", "bundle", str(folder))["written"] == 2
    assert check(folder).returncode == 0
    again = (folder / wheels[0].name).stat()
    assert (again.st_ino, again.st_mtime_ns) == (kept.st_ino, kept.st_mtime_ns)


def test_bundle_of_one_recipe(clone: Clone, wheels: list[Path], tmp_path: Path) -> None:
    assert clone.ok("source", "bundle", str(tmp_path / "b"), "--recipe", "other")["files"] == 1
    assert [path.name for path in (tmp_path / "b").glob("*.whl")] == [wheels[2].name]


def test_bundle_where_a_file_is(clone: Clone, wheels: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is not a folder" in clone.fails("source", "bundle", str(tmp_path / "file"))


def without_network(clone: Clone, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a network namespace of its own, in which there is nothing."""
    unshare = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], timeout=30).returncode != 0:
        pytest.skip("this machine lets nobody cut off the network: unshare -n (package util-linux)")
    command = [*unshare, *clone.command(*arguments)]
    return subprocess.run(
        command, env=clone.environment(), capture_output=True, text=True, timeout=150, check=False
    )


def test_offline_build_without_a_network(clone: Clone, wheels: list[Path], tmp_path: Path) -> None:
    """No client of an archive is started: pip would write its log, apt-get is one that tells."""
    folder = tmp_path / "bundle"
    clone.ok("source", "bundle", str(folder), "--recipe", "user", "--recipe", "other")
    forget(clone)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "apt-get").write_text(f"#!/bin/sh\ntouch {tmp_path}/apt-was-started\nexit 1\n")
    (tools / "apt-get").chmod(0o755)
    clone.env |= {"PATH": f"{tools}:{os.environ['PATH']}", "PIP_LOG": str(tmp_path / "pip-was-started")}
    fetched = without_network(clone, "--offline", str(folder), "source", "fetch", "user", "other")
    assert fetched.returncode == 0, fetched.stderr
    placed = {path.name: digest(path) for path in (clone.root / "build/sources").iterdir()}
    assert placed == {path.name: digest(path) for path in wheels}
    # behind the command, where people write it
    built = without_network(clone, "channel", "build", "--offline", str(folder))
    assert built.returncode == 0, built.stderr
    assert len(clone.published()) == 2
    assert not (tmp_path / "apt-was-started").exists()
    assert not (tmp_path / "pip-was-started").exists()


def test_what_the_folder_has_not(clone: Clone, wheels: list[Path], tmp_path: Path) -> None:
    """Every missing file in one error, although pip would find it."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    shutil.copy(wheels[0], folder)
    error = clone.fails("--offline", str(folder), "channel", "build")
    assert wheels[1].name in error and wheels[2].name in error and "2 sources" in error
    assert digest(wheels[1]) in error and "wmlce source bundle" in error
    assert wheels[0].name not in error
    # a folder that is only looked into first leaves the rest to pip
    clone.env["WMLCE_SOURCES"] = str(folder)
    assert clone.built() == {"user", "other"}


def test_a_damaged_folder(clone: Clone, wheels: list[Path], tmp_path: Path) -> None:
    clone.without_build_root()
    folder = tmp_path / "bundle"
    clone.ok("source", "bundle", str(folder))
    forget(clone)
    for path in wheels[:2]:
        data = (folder / path.name).read_bytes()
        (folder / path.name).unlink()
        (folder / path.name).write_bytes(data[:-1] + b"x")
    error = clone.fails("--offline", str(folder), "source", "fetch")
    assert "wrong sha256" in error and "sha256sum" in error
    assert wheels[0].name in error and wheels[1].name in error and wheels[2].name not in error
    assert not list(clone.cache.glob(f"sources/*/{wheels[0].name}"))


def test_offline_says_what_it_forbids(clone: Clone, wheels: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    for command in (["lock", "sources"], ["lock", "wheels"], ["lock", "tools"]):
        clone.write("recipes/wheels.yaml", "roots: [one==1.0]\n")
        for name in SETS:
            clone.write(f"ci/{name}.in", "one\n")
        error = clone.fails(*command, "--offline", str(tmp_path / "bundle"))
        assert "--offline" in error and "network" in error, command
    assert "does not exist" in clone.fails("--offline", str(tmp_path / "nowhere"), "source", "fetch")
    clone.env["WMLCE_OFFLINE"] = str(tmp_path / "nowhere")
    assert "WMLCE_OFFLINE" in clone.fails("source", "fetch")
