"""Environments: installed from the channel alone, whole or marked as not, relocatable, quick when nothing
changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from scratch_clone import Clone
from small_channel import index, make_package
from without_flock import library_without_flock


def altered(prefix: Path) -> list[str]:
    """What `conda doctor` calls altered: files whose content, read through links, is not as recorded."""
    found = []
    for record in sorted((prefix / "conda-meta").glob("*.json")):
        for entry in json.loads(record.read_text())["paths_data"]["paths"]:
            path, digest = prefix / entry["_path"], entry.get("sha256_in_prefix")
            if digest is None or path.suffix in (".pyc", ".pyo") or not path.is_file():
                continue
            if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                found.append(f"{record.name}: {entry['_path']}")
    return found


def test_conda_doctor_finds_no_altered_file(library_and_program: Clone, tmp_path: Path) -> None:
    """Links, and files that name the prefix, also where the environment was cloned."""
    clone = library_and_program
    clone.recipe(
        "configured",
        script=["mkdir -p $PREFIX/share", "echo $PREFIX > $PREFIX/share/where"],
        run=["program"],
    )
    clone.built()
    clone.ok("env", "create", "e", "configured")
    prefix = clone.root / "build/envs/e"
    assert (prefix / "lib/libanswer.so").is_symlink() and altered(prefix) == []
    records = {path.name: path.read_text() for path in (prefix / "conda-meta").glob("*.json")}
    clone.ok("env", "clone", "e", str(tmp_path / "copy"))
    assert (tmp_path / "copy/share/where").read_text() == f"{tmp_path / 'copy'}\n"
    assert altered(tmp_path / "copy") == [] and altered(prefix) == []
    assert {path.name: path.read_text() for path in (prefix / "conda-meta").glob("*.json")} == records
    (prefix / "share/where").write_text("changed")
    assert [found.partition(": ")[2] for found in altered(prefix)] == ["share/where"]


def test_create_and_run(library_and_program: Clone) -> None:
    clone = library_and_program
    clone.built()
    result = clone.ok("env", "create", "e", "program")
    assert result["changed"] is True
    answer = subprocess.run(
        [clone.root / "build/envs/e/bin/program"], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "42\n"
    prefix = clone.root / "build/envs/e"
    others = {path.stat().st_mode & 0o044 for path in (prefix / "conda-meta").glob("*.json")}
    assert others == {prefix.stat().st_mode & 0o044}  # whoever may look into it may read what is in it
    assert clone.ok("env", "create", "e", "program")["changed"] is False
    listed = clone.ok("env", "list")
    assert [(item["name"], item["complete"], item["packages"]) for item in listed] == [("e", True, 2)]


def test_environment_follows_the_channel(library_and_program: Clone) -> None:
    clone = library_and_program
    clone.built()
    clone.ok("env", "create", "program")
    clone.write("recipes/libanswer/answer.c", "int answer(void) { return 43; }\n")
    path = clone.root / "recipes/program/recipe.yaml"
    path.write_text(path.read_text().replace("= 42", "= 43"))
    clone.built()
    assert clone.ok("env", "create", "program")["changed"] is True
    prefix = clone.root / "build/envs/program"
    assert subprocess.check_output([prefix / "bin/program"], text=True) == "43\n"
    # changed wishes change it too, and what is no longer wished for goes
    clone.ok("env", "create", "program", "libanswer")
    assert not (prefix / "bin/program").exists() and (prefix / "lib/libanswer.so.1").exists()


def test_interrupted_installation_is_not_taken_for_whole(library_and_program: Clone) -> None:
    clone = library_and_program
    clone.built()
    clone.ok("env", "create", "program")
    prefix = clone.root / "build/envs/program"
    (prefix / "conda-meta/.wmlce-complete").unlink()
    (prefix / "bin/program").unlink()
    assert clone.ok("env", "list")[0]["complete"] is False
    assert clone.ok("env", "create", "program")["changed"] is True
    assert (prefix / "bin/program").exists()


def test_a_package_cannot_say_that_the_environment_is_whole(clone: Clone, tmp_path: Path) -> None:
    """One that makes the installation fail after its files are there."""
    marker = json.dumps({"signed": True})
    files = {"conda-meta/.wmlce-complete": marker, "conda-meta/zz.json": "{}"}
    make_package(tmp_path / "channel", "top", files=files)
    clone.fails("env", "create", "e", "top", "--from", str(index(tmp_path / "channel")))
    prefix = clone.root / "build/envs/e"
    assert (prefix / "conda-meta/zz.json").exists() and not (prefix / "conda-meta/.wmlce-complete").exists()


def test_moved_clone_makes_its_environments_anew(library_and_program: Clone, tmp_path: Path) -> None:
    """What a person does with a clone: mv it, and go on. And packages must not know where they were built."""
    clone = library_and_program
    clone.recipe(
        "configured",
        script=[
            "mkdir -p $PREFIX/bin",
            "printf '#!/bin/sh\\necho %s\\n' $PREFIX > $PREFIX/bin/where",
            "chmod +x $PREFIX/bin/where",
        ],
        test=["test $(where) = $PREFIX"],
    )
    clone.built()
    clone.ok("env", "create", "e", "program", "configured")
    moved = tmp_path / "elsewhere" / "with-a-longer-name"
    moved.parent.mkdir()
    shutil.move(clone.root, moved)
    clone.root = moved
    assert clone.ok("env", "list")[0]["complete"] is False
    assert clone.built() == set()
    clone.ok("env", "create", "e", "program", "configured")
    prefix = moved / "build/envs/e"
    assert subprocess.check_output([prefix / "bin/program"], text=True) == "42\n"
    assert subprocess.check_output([prefix / "bin/where"], text=True).strip() == str(prefix)
    linked = subprocess.check_output(["ldd", prefix / "bin/program"], text=True)
    assert f"{prefix}/" in linked and "not found" not in linked


def test_nothing_to_install_from(clone: Clone) -> None:
    assert "wmlce channel build" in clone.fails("env", "create", "powerai")


def test_impossible_and_bad_wishes(clone: Clone) -> None:
    clone.recipe("a")
    clone.built()
    error = clone.fails("env", "create", "e", "a >=2")
    assert "a >=2" in error
    assert clone.fails("env", "create", "e", "nothing-of-that-name")
    assert not (clone.root / "build/envs/e").exists()
    assert "not a valid environment name" in clone.fails("env", "create", "../a", "a")


def test_a_clone_or_cache_in_a_path_with_a_blank(clone: Clone, tmp_path: Path) -> None:
    """Builds and programs take it for two words: said before anything is fetched or built."""
    made = Clone(tmp_path / "a b/clone", tmp_path / "cache")
    make_package(made.root / "build/channel", "a")
    index(made.root / "build/channel")
    assert "cannot cope with ' ' in paths" in made.fails("env", "create", "a")
    made.recipe("a")
    assert "a clone cannot lie in" in made.fails("channel", "build")
    clone.recipe("a")
    clone.cache = tmp_path / "a (b)"
    assert "the cache (WMLCE_CACHE) cannot lie in" in clone.fails("channel", "build")
    assert not clone.cache.exists() and not (clone.root / "build/channel").exists()


def test_an_environment_is_for_others_whatever_the_umask_is(clone: Clone, tmp_path: Path) -> None:
    make_package(clone.root / "build/channel", "a")
    index(clone.root / "build/channel")
    old = os.umask(0o077)
    try:
        clone.ok("env", "create", "a")
        clone.ok("env", "clone", "a", str(tmp_path / "new/folder/b"))
    finally:
        os.umask(old)
    for top in (clone.root / "build/envs/a", tmp_path / "new"):
        for path in [top, *top.rglob("*")]:
            if path.name != ".wmlce-complete":
                # files that are the cache's, too, cannot be written
                mode = path.stat().st_mode & 0o777 | 0o200
                assert mode == (0o755 if path.is_dir() else 0o644), path


def test_without_locks_it_says_so(clone: Clone, tmp_path: Path) -> None:
    make_package(clone.root / "build/channel", "a")
    index(clone.root / "build/channel")
    clone.env["LD_PRELOAD"] = str(library_without_flock(tmp_path, "EOPNOTSUPP"))
    error = clone.fails("env", "create", "a")
    assert "env-a.lock cannot be locked" in error and "-o flock" in error


def test_no_place_for_a_cache(public_folder: Path) -> None:
    """As a container's user whom the system does not know, and without HOME."""
    if os.geteuid() != 0:
        pytest.skip("being a user whom the system does not know needs root")
    clone = Clone(public_folder / "clone", public_folder / "cache")
    env = {key: value for key, value in clone.environment().items() if key not in ("HOME", "WMLCE_CACHE")}
    result = subprocess.run(
        ["setpriv", "--reuid=54321", "--clear-groups", *clone.command("env", "list")],
        env=env | {"XDG_CACHE_HOME": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1 and "WMLCE_CACHE=FOLDER" in result.stderr, result.stderr


def test_remove(clone: Clone) -> None:
    clone.recipe("a")
    clone.built()
    clone.ok("env", "create", "a")
    assert clone.ok("env", "remove", "a") == {"removed": "a"}
    assert clone.ok("env", "list") == []
    assert "there is no environment a" in clone.fails("env", "remove", "a")


@pytest.mark.parametrize("content", [None, "[]", '{"name": "x"}', "\xff"])
def test_a_broken_record_is_one_error(
    library_and_program: Clone, tmp_path: Path, content: str | None
) -> None:
    """Of a package's record, whoever reads it; None: a pipe, which nobody writes to."""
    clone = library_and_program
    clone.built()
    clone.ok("env", "create", "e", "program")
    record = clone.root / "build/envs/e/conda-meta/broken.json"
    if content is None:
        os.mkfifo(record)
    else:
        record.write_bytes(content.encode("latin-1"))
    for command in (("clone", "e", str(tmp_path / "copy")), ("sbom", "e"), ("lock", "e")):
        assert f"{record} is no record of an installed package" in clone.fails("env", *command)
    assert not (tmp_path / "copy").exists()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


BROKEN_CHANNELS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a package that is a pipe": (
        lambda channel: [_pipe(path) for path in channel.glob("*/lib*.conda")],
        "is missing, or no file",
    ),
    "an index that is a pipe": (
        lambda channel: _pipe(channel / "noarch/repodata.json"),
        "noarch/repodata.json cannot be read: no file",
    ),
    "no noarch": (lambda channel: shutil.rmtree(channel / "noarch"), "noarch/repodata.json cannot be read"),
}


@pytest.mark.parametrize("case", BROKEN_CHANNELS)
def test_a_broken_channel_is_one_error(library_and_program: Clone, tmp_path: Path, case: str) -> None:
    clone = library_and_program
    clone.built()
    channel = tmp_path / "channel"
    shutil.copytree(clone.root / "build/channel", channel)
    break_it, message = BROKEN_CHANNELS[case]
    break_it(channel)
    assert message in clone.fails("env", "create", "e", "program", "--from", str(channel))
    lock = tmp_path / "lock"
    os.mkfifo(lock)
    assert f"{lock} cannot be read" in clone.fails("env", "create", "e", "--lock", str(lock))
