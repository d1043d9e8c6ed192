"""Mirrors of a channel: whole at every moment, whatever interrupts the command that makes them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zstandard
from scratch_clone import Clone
from small_channel import index, make_package
from web_server import Files
from wmlce.channel import conda_forge_overlay
from wmlce.envs.environments import solve_channel
from wmlce.util import platform
from wmlce.util.files import sha256_file

# Ends its own process before the so-manieth rename that clients see, as SIGKILL from outside would.
_KILLED = """\
import os, signal, sys
from pathlib import Path
from wmlce.mirror.mirroring import mirror
from wmlce.util.layout import Layout

left, replace = int(sys.argv[1]), os.replace
def counted(source, target):
    global left
    place = Path(target)
    if place.parent.parent == Path(sys.argv[4]) and place.suffix in (".conda", ".json"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return replace(source, target)
os.replace = counted
mirror(Layout.locate(Path(sys.argv[2])), Path(sys.argv[4]), lambda text: None, source=sys.argv[3])
os._exit(0)
"""


def listed(channel: Path) -> dict[str, dict[str, object]]:
    """What the index lists; every file is there with its content, in both forms of the index."""
    found = {}
    for path in channel.glob("*/repodata.json"):
        document = json.loads(path.read_text())
        packed = zstandard.ZstdDecompressor().stream_reader(path.with_suffix(".json.zst").open("rb")).read()
        for form in (document, json.loads(packed)):
            for file, entry in form["packages.conda"].items():
                assert sha256_file(path.parent / file) == entry["sha256"], file
        for file, entry in document["packages.conda"].items():
            found[f"{path.parent.name}/{file}"] = entry
    return found


def names(channel: Path) -> set[str]:
    return {key.split("/")[1].removesuffix("-0.conda") for key in listed(channel)}


def versions(channel: Path, spec: str) -> set[str]:
    return {f"{r.name.normalized}-{r.version}" for r in solve_channel(channel, [spec])}


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    """top needs low at its very version, and they lie in different subdirs."""
    folder = tmp_path / "channel"
    make_package(folder, "low", depends=["side"])
    make_package(folder, "side")
    make_package(folder, "top", depends=["low ==1.0"], subdir="linux-64", size=400_000)
    make_package(folder, "secret", depends=["side"], license_family="PROPRIETARY")
    return index(folder)


def update(folder: Path) -> None:
    for path in (*folder.glob("*/low-*"), *folder.glob("*/top-*")):
        path.unlink()
    make_package(folder, "low", "2.0")
    make_package(folder, "top", "2.0", depends=["low ==2.0"], subdir="linux-64")
    index(folder)


def test_a_mirror_has_the_folders_of_every_platform(clone: Clone, channel: Path, tmp_path: Path) -> None:
    make_package(channel, "top", depends=["low ==1.0"], subdir="linux-aarch64")
    make_package(channel, "only", subdir="linux-ppc64le")
    index(channel)
    target = tmp_path / "mirror"
    clone.ok("channel", "mirror", str(target), "--from", str(channel))
    wanted = {"linux-64/top-1.0-0.conda", "linux-aarch64/top-1.0-0.conda", "linux-ppc64le/only-1.0-0.conda"}
    assert wanted < set(listed(target))
    found = solve_channel(target, ["top"])
    assert {record.subdir for record in found} == {platform.of_this_machine().subdir, "noarch"}

    # a platform that is no longer offered goes, and the others stay
    shutil.rmtree(channel / "linux-ppc64le")
    (channel / "linux-64/top-1.0-0.conda").unlink()
    index(channel)
    clone.ok("channel", "mirror", str(target), "--from", str(channel), "--prune")
    assert set(listed(target)) & wanted == {"linux-aarch64/top-1.0-0.conda"}
    assert not list(target.glob("linux-ppc64le/*.conda"))

    # and of a channel for others alone this machine's folder is not made
    shutil.rmtree(channel / "linux-64")
    clone.ok("channel", "mirror", str(tmp_path / "arm"), "--from", str(channel))
    folders = {path.parent.name for path in (tmp_path / "arm").glob("*/repodata.json")}
    assert folders == {"linux-aarch64", "noarch"}


def test_a_mirror_is_for_everybody_whatever_the_umask_is(clone: Clone, channel: Path, tmp_path: Path) -> None:
    target = tmp_path / "new/mirror"
    old = os.umask(0o077)
    try:
        clone.ok("channel", "mirror", str(target), "--from", str(channel))
        clone.ok("channel", "mirror", str(target), "--from", str(channel), "--prune")
    finally:
        os.umask(old)
    for path in [target.parent, *target.parent.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644), path


def test_a_mirror_holds_what_may_be_passed_on(clone: Clone, channel: Path, tmp_path: Path) -> None:
    target = tmp_path / "mirror"
    planned = clone.ok("channel", "mirror", str(target), "--from", str(channel), "--dry-run")
    sizes = {f"{path.parent.name}/{path.name}": path.stat().st_size for path in channel.glob("*/*.conda")}
    secret = "noarch/secret-1.0-0.conda"
    assert planned["restricted"] == {secret: sizes.pop(secret)}
    assert planned["fetch"] == sizes and planned["bytes"] == sum(sizes.values())
    assert not target.exists()

    said = clone.run("channel", "mirror", str(target), "--from", channel.as_uri())
    assert said.returncode == 0 and "noarch/secret-1.0-0.conda (LicenseRef-Own)" in said.stdout, said.stderr
    assert names(target) == {"low-1.0", "side-1.0", "top-1.0"} and not list(target.rglob("secret*"))
    assert versions(target, "top") == {"top-1.0", "low-1.0", "side-1.0"}
    again = clone.ok("channel", "mirror", str(target), "--from", str(channel))
    assert again["fetch"] == {}
    (target / "noarch/side-1.0-0.conda").write_bytes(b"damaged")
    assert list(clone.ok("channel", "mirror", str(target), "--from", str(channel))["fetch"]) == [
        "noarch/side-1.0-0.conda"
    ]
    listed(target)
    assert (
        clone.ok("channel", "mirror", str(target), "--from", str(channel), "--include-restricted")[
            "restricted"
        ]
        == {}
    )
    assert "secret-1.0" in names(target)


def test_some_packages_with_what_they_need_and_old_ones_go_on_request(
    clone: Clone, channel: Path, tmp_path: Path
) -> None:
    target = tmp_path / "mirror"
    some = ["channel", "mirror", str(target), "--from", str(channel), "--packages", "low"]
    clone.ok(*some)
    assert names(target) == {"low-1.0", "side-1.0"}
    update(channel)
    clone.ok(*some)
    assert names(target) == {"low-2.0"} and (target / "noarch/low-1.0-0.conda").is_file()
    removed = clone.ok(*some, "--prune")["pruned"]
    assert removed == ["noarch/low-1.0-0.conda", "noarch/side-1.0-0.conda"]
    assert names(target) == {"low-2.0"}
    assert "has no package lwo" in clone.fails("channel", "mirror", str(target), "--from", str(channel),
                                               "--packages", "lwo")  # fmt: skip


def test_the_part_beside_conda_forge_is_mirrored_too(clone: Clone, channel: Path, tmp_path: Path) -> None:
    part = channel / conda_forge_overlay.FOLDER
    (part / "noarch").mkdir(parents=True)
    for name in ("low", "secret"):
        os.link(channel / f"noarch/{name}-1.0-0.conda", part / f"noarch/{name}-1.0-0.conda")
    index(part)
    target = tmp_path / "mirror"
    clone.ok("channel", "mirror", str(target), "--from", str(channel))
    assert names(target / conda_forge_overlay.FOLDER) == {"low-1.0"}
    assert (target / conda_forge_overlay.FOLDER / "noarch/low-1.0-0.conda").samefile(
        target / "noarch/low-1.0-0.conda"
    )


def test_a_mirror_says_what_packages_export(clone: Clone, channel: Path, tmp_path: Path) -> None:
    exports = {"weak": ["lib >=1.0"]}
    files = {"info/run_exports.json": json.dumps(exports)}
    make_package(channel, "lib", subdir="linux-64", files=files)
    index(channel)
    target = tmp_path / "mirror"
    clone.ok("channel", "mirror", str(target), "--from", str(channel))
    place = "linux-64/run_exports.json"
    assert (target / place).read_bytes() == (channel / place).read_bytes()
    assert json.loads((target / place).read_text())["packages.conda"]["lib-1.0-0.conda"] == {
        "run_exports": exports
    }
    for wrong in ("[]", '{"packages.conda": {"lib-1.0-0.conda": {"run_exports": {"weak": [1]}}}}'):
        (channel / place).write_text(wrong)
        assert place in clone.fails("channel", "mirror", str(target), "--from", str(channel))


@pytest.mark.slow
def test_killed_anywhere_a_mirror_can_be_installed_from_and_goes_on(
    clone: Clone, channel: Path, tmp_path: Path
) -> None:
    first = tmp_path / "first"
    clone.ok("channel", "mirror", str(first), "--from", str(channel))
    update(channel)
    seen = []
    for point in range(20):
        target = tmp_path / f"mirror-{point}"
        shutil.copytree(first, target)
        command = [sys.executable, "-c", _KILLED, str(point), str(clone.root), str(channel), str(target)]
        code = subprocess.run(command, env=clone.environment(), timeout=120).returncode
        assert code in (0, -signal.SIGKILL)
        listed(target)
        found = versions(target, "top")
        assert found in ({"top-1.0", "low-1.0", "side-1.0"}, {"top-2.0", "low-2.0"})
        seen.append("top-2.0" in found)
        if code == 0:
            break
        if point == 4:
            clone.ok("channel", "mirror", str(target), "--from", str(channel))
            assert names(target) == {"low-2.0", "top-2.0", "side-1.0"}
            assert not list(target.rglob("*.part*"))
    assert len(seen) == 11 and not seen[0] and seen[-1]


def test_killed_within_a_file_the_rest_of_it_is_fetched(clone: Clone, channel: Path, tmp_path: Path) -> None:
    target = tmp_path / "mirror"
    file = "linux-64/top-1.0-0.conda"
    size = (channel / file).stat().st_size
    with Files(channel, pause_s=0.05).served() as files:
        process = clone.start("channel", "mirror", str(target), "--from", files.url)
        deadline = time.monotonic() + 60
        while sum(path.stat().st_size for path in target.glob("linux-64/.top*.part")) < 100_000:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        process.kill()
        process.communicate(timeout=30)
    assert not (target / "linux-64/repodata.json").exists()
    (part,) = target.glob("linux-64/.top*.part")
    there = part.stat().st_size
    assert 0 < there < size
    with Files(channel).served() as files:
        clone.ok("channel", "mirror", str(target), "--from", files.url)
    assert f"/{file} bytes={there}-" in files.requests
    assert names(target) == {"low-1.0", "side-1.0", "top-1.0"} and not list(target.rglob("*.part*"))


@pytest.mark.parametrize("ranges", [True, False])
def test_a_part_of_something_else_is_fetched_anew(
    clone: Clone, channel: Path, tmp_path: Path, ranges: bool
) -> None:
    target = tmp_path / "mirror"
    clone.ok("channel", "mirror", str(target), "--from", str(channel))
    path = target / "linux-64/top-1.0-0.conda"
    path.with_name(f".{path.name}.{sha256_file(path)[:16]}.part").write_bytes(b"x" * 1000)
    path.unlink()
    with Files(channel, ranges=ranges).served() as files:
        clone.ok("channel", "mirror", str(target), "--from", files.url)
    assert names(target) == {"low-1.0", "side-1.0", "top-1.0"}


def test_a_file_that_is_cut_off_or_changed_is_named_and_the_old_index_stays(
    clone: Clone, channel: Path, tmp_path: Path
) -> None:
    target = tmp_path / "mirror"
    clone.ok("channel", "mirror", str(target), "--from", str(channel))
    update(channel)
    file = channel / "linux-64/top-2.0-0.conda"
    whole = file.read_bytes()
    file.write_bytes(whole[:-50])
    told = clone.fails("channel", "mirror", str(target), "--from", str(channel))
    assert f"linux-64/top-2.0-0.conda cannot be fetched from {channel}" in told
    assert f"it ends after {len(whole) - 50} of {len(whole)} bytes" in told
    assert names(target) == {"low-1.0", "side-1.0", "top-1.0"}
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    told = clone.fails("channel", "mirror", str(target), "--from", str(channel))
    assert "has not the sha256 of the index" in told
    file.write_bytes(whole)
    clone.ok("channel", "mirror", str(target), "--from", str(channel))
    assert names(target) == {"low-2.0", "side-1.0", "top-2.0"}


def test_what_is_no_channel_is_refused(clone: Clone, channel: Path, tmp_path: Path) -> None:
    target, empty = str(tmp_path / "mirror"), tmp_path / "empty"
    empty.mkdir()
    assert "is not a channel" in clone.fails("channel", "mirror", target, "--from", str(empty))
    assert "is not a folder" in clone.fails("channel", "mirror", target, "--from", str(tmp_path / "none"))
    assert "cannot be mirrored from oci://" in clone.fails("channel", "mirror", target, "--from", "oci://a/b")
    assert "is the channel itself" in clone.fails("channel", "mirror", str(channel), "--from", str(channel))
    repodata = channel / "noarch/repodata.json"
    document = json.loads(repodata.read_text())
    repodata.write_text('{"packages.conda": []}')
    assert "is not a channel index" in clone.fails("channel", "mirror", target, "--from", str(channel))
    assert "is not a channel index" in clone.fails("env", "create", "e", "low", "--from", str(channel))
    document["packages.conda"]["../../escaped.conda"] = document["packages.conda"]["side-1.0-0.conda"]
    repodata.write_text(json.dumps(document))
    assert "'../../escaped.conda'" in clone.fails("channel", "mirror", target, "--from", str(channel))
    assert not (tmp_path / "escaped.conda").exists()
