"""Locks in every format: the same packages come back with the same bytes, and nothing else is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from rattler.lock import LockFile
from scratch_clone import Clone
from small_channel import index, make_package

FORMATS = ["explicit", "conda-lock", "pixi"]


@pytest.fixture
def locking(clone: Clone) -> Clone:
    """A clone with a channel, and with the environment `first` out of it."""
    channel = clone.root / "build/channel"
    make_package(channel, "low", size=5000)
    make_package(channel, "top", depends=["low >=1.0", "__unix"], subdir="linux-64")
    index(channel)
    clone.ok("env", "create", "first", "top")
    return clone


def content(prefix: Path) -> dict[str, bytes]:
    return {str(p.relative_to(prefix)): p.read_bytes() for p in (prefix / "share").rglob("*") if p.is_file()}


def locked(clone: Clone, form: str) -> Path:
    path = clone.root / f"lock.{form}"
    options = ["--format", form, "--channel", "https://site.example/channel/", "--output", str(path)]
    assert clone.ok("env", "lock", "first", *options)["packages"] == 2
    return path


def test_every_format_brings_the_same_bytes(locking: Clone) -> None:
    paths = {form: locked(locking, form) for form in FORMATS}
    # others' readers of the two formats that have one here
    document = yaml.safe_load(paths["conda-lock"].read_text())
    assert [(item["name"], item["version"], item["dependencies"]) for item in document["package"]] == [
        ("low", "1.0", {}),
        ("top", "1.0", {"low": ">=1.0"}),
    ]
    environment = LockFile.from_path(paths["pixi"]).default_environment()
    assert environment is not None
    (records,) = environment.conda_repodata_records().values()
    assert [record.url for record in records] == [
        "https://site.example/channel/linux-64/top-1.0-0.conda",
        "https://site.example/channel/noarch/low-1.0-0.conda",
    ]
    # a newer package is in the channel meanwhile
    make_package(locking.root / "build/channel", "low", "2.0")
    index(locking.root / "build/channel")
    wanted = content(locking.root / "build/envs/first")
    for form, path in paths.items():
        name = f"again-{form}"
        locking.ok("env", "create", name, "--lock", str(path))
        assert content(locking.root / "build/envs" / name) == wanted
    locking.ok("env", "create", "newest", "top")
    assert content(locking.root / "build/envs/newest") != wanted
    assert locking.run("env", "lock", "first", "--format", "conda").returncode == 2


def test_other_content_than_the_locked_one_is_refused(locking: Clone) -> None:
    paths = {form: locked(locking, form) for form in FORMATS}
    digest = yaml.safe_load(paths["conda-lock"].read_text())["package"][0]["hash"]["sha256"]
    for form, path in paths.items():
        text = path.read_text()
        path.write_text(text.replace(digest, "0" * 64))
        told = locking.fails("env", "create", "again", "--lock", str(path))
        assert "noarch/low-1.0-0.conda" in told, form
        path.write_text(text.replace(digest, digest[:-1]))
        locking.fails("env", "create", "again", "--lock", str(path))
        path.write_text(text.replace("low-1.0-0.conda", "low-1.0-0.whl"))
        locking.fails("env", "create", "again", "--lock", str(path))
        path.write_text(text)
    package = locking.root / "build/channel/noarch/low-1.0-0.conda"
    package.write_bytes(package.read_bytes()[:-1] + b"x")
    for path in paths.values():
        told = locking.fails("env", "create", "again", "--lock", str(path))
        assert "noarch/low-1.0-0.conda" in told
    assert not (locking.root / "build/envs/again").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("version: 1\nmetadata: {}\npackage: []\n", "names no package for linux-64"),
        ("version: 2\nmetadata: {}\npackage: []\n", "is not a lock file of conda-lock version 1"),
        ("version: 99\nenvironments: {}\n", "cannot be read as pixi's lock"),
        ("version: 1\nmetadata: [\n", "is not YAML"),
        (
            "version: 1\nmetadata: {}\npackage:\n- {name: x, platform: linux-64, manager: pip}\n",
            "names x, which is not a conda package",
        ),
    ],
)
def test_what_is_no_lock_is_told(clone: Clone, tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "lock"
    path.write_text(text)
    assert told in clone.fails("env", "create", "again", "--lock", str(path))
