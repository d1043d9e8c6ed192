"""The same recipe gives the same bytes, wherever and whenever it is built."""

from __future__ import annotations

import hashlib
import io
import json
import os
import py_compile
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest
import zstandard
from local_wheels import make_wheel
from scratch_clone import Clone
from test_sources import digest, lock
from tree import ROOT, tracked
from wmlce.builder import source_date
from wmlce.builder.repack import finish
from wmlce.recipes.recipe_set import RecipeSet
from wmlce.util.errors import WmlceError
from wmlce.util.files import link_or_copy
from wmlce.util.layout import Layout


def packages(clone: Clone) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (clone.cache / "packages").glob("*/*.conda")}


def members(package: bytes) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """The files of a .conda package, info/ included; what a link holds is its target."""
    found = {}
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        for name in archive.namelist():
            if name.endswith(".tar.zst"):
                plain = zstandard.ZstdDecompressor().decompressobj().decompress(archive.read(name))
                with tarfile.open(fileobj=io.BytesIO(plain)) as stream:
                    for member in stream:
                        content = stream.extractfile(member) if member.isreg() else None
                        found[member.name] = (member, content.read() if content else member.linkname.encode())
    return found


def test_two_folders_and_two_hours_give_the_same_bytes(library_and_program: Clone, tmp_path: Path) -> None:
    one = library_and_program
    one.recipe(
        "prefixed",
        script=[
            "mkdir -p $PREFIX/bin $PREFIX/share",
            "printf '#!/bin/sh\\necho %s\\n' $PREFIX > $PREFIX/bin/where",
            "chmod 775 $PREFIX/bin/where",
            "printf 'at %s\\0 and more' $PREFIX > $PREFIX/share/binary",
            "date -u -d @$SOURCE_DATE_EPOCH > $PREFIX/share/date",
            "ln -s binary $PREFIX/share/link",
        ],
        test=["test $(where) = $PREFIX"],
    )
    two = Clone(tmp_path / "quite" / "another" / "place", tmp_path / "second-cache")
    subprocess.run(["cp", "-r", one.root / "recipes", one.root / "program", two.root], check=True)
    built = one.built()
    time.sleep(2)  # zip archives know every second one
    old_mask = os.umask(0o077)
    try:
        assert two.built() == built
    finally:
        os.umask(old_mask)
    assert packages(one).keys() == packages(two).keys()
    different = [name for name, content in packages(one).items() if packages(two)[name] != content]
    assert not different
    state = one.channel_state()
    assert one.built("--force", *built) == built
    assert one.channel_state() == state and packages(one) == packages(two)
    one.ok("env", "create", "prefixed")
    prefix = one.root / "build/envs/prefixed"
    assert subprocess.check_output([prefix / "bin/where"], text=True).strip() == str(prefix)
    assert (prefix / "share/binary").read_bytes().startswith(f"at {prefix}\0".encode())


def test_dates_are_those_of_the_sources(clone: Clone, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "links", "tiny", "1.0")  # of 2024-01-01
    lock(clone, "python", "tiny", "1.0", wheel.name, digest(wheel))
    clone.env["WMLCE_SOURCES"] = str(wheel.parent)
    clone.recipe("later", run=["user"], host=["user"])
    clone.recipe("undated")
    clone.built()
    new_year = 1_704_067_200
    channel = clone.root / "build/channel/linux-64"
    stamps = {
        entry["name"]: entry["timestamp"]
        for entry in json.loads((channel / "repodata.json").read_text())["packages.conda"].values()
    }
    # a package is no older than what it was made with
    first = source_date.FIRST * 1000
    assert stamps == {"user": new_year * 1000, "later": new_year * 1000, "undated": first}
    for member, _ in members(next(channel.glob("user-*.conda")).read_bytes()).values():
        assert (member.mtime, member.uid, member.gid) == (new_year, 0, 0)


@pytest.mark.parametrize("form", ["x.tar.gz", "x.tar.xz", "x.zip", "x.deb", "x.txt"])
def test_date_of_an_archive(tmp_path: Path, form: str) -> None:
    path = tmp_path / form
    if form.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(zipfile.ZipInfo("a", (2020, 2, 3, 4, 5, 6)), "a")
            archive.writestr(zipfile.ZipInfo("b", (2019, 1, 1, 0, 0, 0)), "b")
    elif form.endswith(".deb"):
        path.write_bytes(b"!<arch>\n" + b"debian-binary   1580702706  0     0     100644  4         `\n2.0\n")
    elif form.endswith(".txt"):
        path.write_text("no archive")
    else:
        with tarfile.open(path, f"w:{form.rsplit('.', 1)[1]}") as stream:
            for name, date in (("a", 1_580_702_706), ("b", 5)):
                member = tarfile.TarInfo(name)
                member.mtime = date
                stream.addfile(member)
    expected = source_date.FIRST if form == "x.txt" else 1_580_702_706
    assert source_date.of_archive(path) == expected


INDEX = {"name": "p", "version": "1", "build": "0", "build_number": 0, "subdir": "noarch"}


def package_of_module(folder: Path, mode: PycInvalidationMode) -> tuple[Path, bytes]:
    """A package of a module and of what Python compiles of it, and the compiled module."""
    source = folder / "module.py"
    source.write_text("answer = 42\n")
    os.utime(source, (1_600_000_000, 1_600_000_000))
    pyc = folder / "module.pyc"
    py_compile.compile(str(source), str(pyc), invalidation_mode=mode)
    path = folder / "p-1-0.conda"
    content = {"module.py": source.read_bytes(), "__pycache__/module.cpython-311.pyc": pyc.read_bytes()}
    paths = [
        {"_path": name, "path_type": "hardlink", "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in content.items()
    ]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("pkg-p-1-0.tar.zst", packed(content))
        about = {
            "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}).encode(),
            "info/index.json": json.dumps(INDEX).encode(),
        }
        archive.writestr("info-p-1-0.tar.zst", packed(about))
    return path, pyc.read_bytes()


def test_compiled_modules_stay_valid(tmp_path: Path) -> None:
    """They name the date of their source: when that is normalized, theirs is too, and the recorded digest."""
    path, before = package_of_module(tmp_path, PycInvalidationMode.TIMESTAMP)
    entry = finish(path, 1_700_000_000)
    assert entry["sha256"] == digest(path) and entry["size"] == path.stat().st_size
    found = members(path.read_bytes())
    member, _ = found["module.py"]
    _, compiled = found["__pycache__/module.cpython-311.pyc"]
    assert member.mtime == int.from_bytes(compiled[8:12], "little") == 1_700_000_000
    assert compiled[12:] == before[12:]
    recorded = json.loads(found["info/paths.json"][1])["paths"][1]["sha256"]
    assert recorded == hashlib.sha256(compiled).hexdigest()


def test_compiled_modules_that_hide_an_edit_are_refused(tmp_path: Path) -> None:
    path, _ = package_of_module(tmp_path, PycInvalidationMode.UNCHECKED_HASH)
    before = digest(path)
    with pytest.raises(
        WmlceError, match=r"module\.cpython-311\.pyc .* never compares with its source"
    ) as refused:
        finish(path, 1_700_000_000)
    assert "--invalidation-mode timestamp" in (refused.value.remedy or "")
    assert digest(path) == before and list(tmp_path.glob("*.part")) == []


def test_order_of_dependencies_is_that_of_their_names(tmp_path: Path) -> None:
    """rattler-build gives those that come from run exports in another order at every build."""
    given = ["zlib", "ddl ==2.0.0", "python_abi 3.11.* *_cp311", "__glibc >=2.14,<3.0.a0"]
    entries = []
    for number, order in enumerate((given, [given[2], given[3], given[1], given[0]])):
        path = tmp_path / str(number) / "p-1-0.conda"
        path.parent.mkdir()
        about = json.dumps({**INDEX, "depends": order, "constrains": order[::-1]})
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("metadata.json", "{}")
            archive.writestr("pkg-p-1-0.tar.zst", packed({}))
            files = {
                "info/paths.json": b'{"paths": [], "paths_version": 1}',
                "info/index.json": about.encode(),
            }
            archive.writestr("info-p-1-0.tar.zst", packed(files))
        entries.append(finish(path, 1_700_000_000))
    assert entries[0]["depends"] == ["ddl ==2.0.0", "python_abi 3.11.* *_cp311", "zlib"]
    assert entries[0] == entries[1]


def packed(files: dict[str, bytes]) -> bytes:
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return zstandard.ZstdCompressor().compress(result.getvalue())


CHANNEL = ROOT / "build/channel"
OURS = sorted(
    path.parent.name
    for path in (ROOT / "recipes").glob("*/recipe.yaml")
    if any(word in path.read_text() for word in ("../../ddl-core", "../../validation", "name: powerai\n"))
)
"""Recipes of the project's own code, and of the packages that users install."""


def test_which_recipes_are_ours() -> None:
    assert {"ddl", "ddl-bench", "ddl-pytorch", "ddl-tensorflow", "libddl", "nmt", "powerai"} <= set(OURS)
    assert not {"python", "zlib", "tensorflow"} & set(OURS)


@pytest.mark.parametrize("recipe", OURS)
def test_our_own_packages_hold_no_time_and_no_owner_of_a_build(recipe: str) -> None:
    """Every date in a published package is the one of its sources, which the index has too."""
    if not (CHANNEL / "channel.json").is_file():
        pytest.skip(f"no channel in {CHANNEL}: wmlce channel build")
    current = json.loads((CHANNEL / "channel.json").read_text())["packages"]
    names = {output.name for output in RecipeSet(Layout.locate(ROOT)).by_name[recipe].outputs}
    entries = {
        f"{subdir}/{file}": entry
        for subdir in ("linux-64", "noarch")
        for file, entry in json.loads((CHANNEL / subdir / "repodata.json").read_text())[
            "packages.conda"
        ].items()
    }
    found = {key: entry for key, entry in entries.items() if entry["name"] in names and key in current}
    assert {entry["name"] for entry in found.values()} == names
    for key, entry in found.items():
        date = entry["timestamp"] // 1000
        files = members((CHANNEL / key).read_bytes())
        wrong = [
            name
            for name, (member, _) in files.items()
            if (member.mtime, member.uid, member.gid, member.uname, member.gname) != (date, 0, 0, "", "")
        ]
        assert not wrong, f"{key}: {wrong[:5]}"
        # compiled modules name the date of their source, if they do not name its content (a flag)
        stale = [
            name
            for name, (_, content) in files.items()
            if name.endswith(".pyc")
            and not content[4] & 1
            and int.from_bytes(content[8:12], "little") != date
        ]
        assert not stale, f"{key}: {stale[:5]}"


@pytest.mark.long
def test_every_package_gives_the_same_bytes_again(tmp_path: Path) -> None:
    """Built in another clone in a longer path, with a cache, a time zone, a language and a umask of its own,
    and in another order than those of the channel.
    """
    if not (CHANNEL / "channel.json").is_file():
        pytest.skip(f"no channel in {CHANNEL}: wmlce channel build")
    before = json.loads((CHANNEL / "channel.json").read_text())["packages"]
    copy, cache = tmp_path / "another" / "clone-of-the-tree", tmp_path / "cache"
    for path in tracked():
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        target.chmod(path.stat().st_mode)
    sources = Layout.locate(ROOT).cache / "sources"
    for path in sources.rglob("*"):
        if path.is_file():
            link_or_copy(path, cache / "sources" / path.relative_to(sources))
    environment = {
        **os.environ,
        "WMLCE_CACHE": str(cache),
        "TZ": "Asia/Tokyo",
        "LANG": "de_DE.UTF-8",
        "LC_ALL": "",
    }
    command = [
        sys.executable,
        "-m",
        "wmlce",
        "--root",
        str(copy),
        "--json",
        "channel",
        "build",
        "--jobs",
        "3",
    ]
    if not {"powerai-all", "chainer"} & {name.rpartition("/")[2].rsplit("-", 2)[0] for name in before}:
        command += ["powerai", "conda-forge-names"]  # as ci/quickstart built
    with (tmp_path / "log").open("w") as log:
        done = subprocess.run(
            command, env=environment, stdout=log, stderr=log, timeout=4 * 3600, check=False, umask=0o077
        )
    assert done.returncode == 0, (tmp_path / "log").read_text()[-3000:]
    after = json.loads((copy / "build/channel/channel.json").read_text())["packages"]
    assert {name: digest for name, digest in after.items() if before.get(name) != digest} == {}
    assert len(after) > 100
