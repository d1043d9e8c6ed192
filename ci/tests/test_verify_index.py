"""The index of a channel against its files, and the oldest C library: what `wmlce verify` finds in them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from small_channel import index, make_package
from wmlce.builder import build_root
from wmlce.channel import published
from wmlce.channel.published import Earlier, Published
from wmlce.channel.verify import floor
from wmlce.channel.verify.check import Check
from wmlce.channel.verify.index import build_strings, matches_files, owners, pip_lines
from wmlce.util import conda_meta
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_json
from wmlce.util.layout import Layout

LOW, TOP, OLD = "noarch/low-1.0-0.conda", "linux-64/top-1.0-0.conda", "noarch/low-0.9-0.conda"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    """A channel with two packages and an earlier build that is in the index."""
    folder = tmp_path / "channel"
    make_package(folder, "low")
    make_package(folder, "low", "0.9")
    make_package(folder, "top", subdir="linux-64", depends=["low >=1.0", "__glibc >=2.17,<3.0.a0"])
    index(folder)
    record(folder)
    return folder


def record(folder: Path, indexed: bool = True) -> None:
    packages = {key: digest(folder / key) for key in (LOW, TOP)}
    earlier = Earlier(sha256=digest(folder / OLD), replaced="2026-01-01", indexed=indexed)
    Published(packages, {OLD: earlier}).write(folder)


def test_a_channel_in_order(channel: Path) -> None:
    check = matches_files(channel)
    assert check.ok and check.notes == []
    assert check.summary == "3 packages, 0 MB, 1 of them earlier builds"
    assert check.to_json()["summary"] == check.summary and check.to_json()["ok"]


def spoil(key: str) -> Callable[[Path], object]:
    def change(channel: Path) -> None:
        content = bytearray((channel / key).read_bytes())
        content[-1] ^= 1
        (channel / key).write_bytes(content)

    return change


def unlist(channel: Path, key: str = LOW) -> None:
    subdir, name = key.split("/")
    entries = published.repodata(channel)[subdir]
    document = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": entries}
    del entries[name]
    write_json(channel / subdir / "repodata.json", document)


def reindex_another(channel: Path) -> None:
    """An index of a file that is not the one that was published, beside the published file."""
    right = (channel / LOW).read_bytes()
    (channel / LOW).unlink()
    make_package(channel, "low", size=9)
    index(channel)
    (channel / LOW).write_bytes(right)


def make_older(channel: Path) -> None:
    plain = (channel / "noarch/repodata.json").stat()
    for name, seconds in (("repodata.json.zst", 3), ("repodata_shards.msgpack.zst", 1)):
        os.utime(channel / "noarch" / name, (0, plain.st_mtime - seconds))


@pytest.mark.parametrize(
    ("change", "findings"),
    [
        (spoil(LOW), [f"{LOW}: its sha256 is not that of the package that was published"]),
        (spoil(OLD), [f"{OLD}: its sha256 is not that of the package that was published"]),
        (lambda folder: (folder / TOP).unlink(), [f"{TOP} is in the index but missing"]),
        (unlist, [f"{LOW} is not in the index"]),
        (lambda folder: unlist(folder, OLD), [f"{OLD} is not in the index"]),
        (lambda folder: (unlist(folder), (folder / LOW).unlink()), [f"{LOW} was published, and is missing"]),
        (
            lambda folder: (folder / "noarch/repodata.json.zst").unlink(),
            ["noarch/repodata.json.zst is missing; clients that prefer it find no packages"],
        ),
        (
            make_older,
            ["noarch/repodata.json.zst is older than repodata.json: run `wmlce channel index`"],
        ),
    ],
)
def test_findings(channel: Path, change: Callable[[Path], object], findings: list[str]) -> None:
    change(channel)
    assert matches_files(channel).findings == findings


def test_an_index_of_another_file(channel: Path) -> None:
    reindex_another(channel)
    findings = matches_files(channel).findings
    assert findings[0] == f"{LOW}: the index has another sha256 than was published"
    assert len(findings) == 2 and "bytes, the index says" in findings[1]


def test_an_earlier_build_may_be_out_of_the_index(channel: Path) -> None:
    record(channel, indexed=False)
    unlist(channel, OLD)
    assert matches_files(channel).ok


def test_a_build_of_a_python_that_the_package_does_not_need(tmp_path: Path) -> None:
    make_package(tmp_path, "texts", build="py311h01234567_0")
    make_package(tmp_path, "module", build="cpu_py311h01234567_0", depends=["python >=3.11,<3.12"])
    make_package(tmp_path, "pure", build="pyh01234567_0")
    [finding] = build_strings(index(tmp_path)).findings
    assert finding.startswith(
        "noarch/texts-1.0-py311h01234567_0.conda: its build names a Python, and it depends on none"
    )


def test_a_package_that_was_put_there_by_hand(channel: Path) -> None:
    make_package(channel, "more")
    index(channel)
    check = matches_files(channel)
    key = "noarch/more-1.0-0.conda"
    assert check.ok and check.notes == [f"{key} was put there by hand: no build is on record for it"]
    spoil(key)(channel)
    assert matches_files(channel).findings == [
        f"{key}: its sha256 is not that of the package that was published"
    ]


def test_a_part_of_a_channel(channel: Path) -> None:
    """A variant's folder holds some of the packages that are recorded beside it."""
    part = channel / "part"
    for key in (LOW, OLD):
        (part / key).parent.mkdir(parents=True, exist_ok=True)
        (part / key).write_bytes((channel / key).read_bytes())
    index(part)
    assert matches_files(part, {LOW, OLD}).ok
    assert matches_files(part, {LOW, TOP}).findings == [f"{TOP} was published, and is missing"]


def test_a_folder_without_an_index(channel: Path) -> None:
    (channel / "linux-64/repodata.json").unlink()
    assert matches_files(channel).findings == ["linux-64/repodata.json is missing"]


def test_findings_are_counted() -> None:
    assert Check("a", "3 packages", ["x", "y"]).to_json()["summary"] == "2 findings; 3 packages"


def test_programs_that_fail(tmp_path: Path) -> None:
    assert pip_lines(["sh", "-c", "echo a; echo; echo b >&2; exit 3"]) == (3, ["a", "b"])
    code, lines = pip_lines([str(tmp_path / "absent")])
    assert code == 1 and lines[0].startswith(f"{tmp_path}/absent: ")


def test_the_records_of_an_environment(tmp_path: Path) -> None:
    for name in ("b", "a"):
        record = {"name": name, "version": "1", "subdir": "noarch", "paths_data": {"paths": []}}
        record["files"] = [f"bin/{name}"]
        write_json(tmp_path / "conda-meta" / f"{name}.json", record)
    assert [item["name"] for item in conda_meta.readable(tmp_path)] == ["a", "b"]
    assert owners(tmp_path) == {"bin/a": "a", "bin/b": "b"}
    write_json(tmp_path / "conda-meta/c.json", {"name": "c"})
    assert [item["name"] for item in conda_meta.readable(tmp_path)] == ["a", "b"]
    with pytest.raises(WmlceError, match=r"c\.json is no record of an installed package"):
        conda_meta.all_of(tmp_path)


# ------------------------------------------------------------------------------ the oldest C library


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    config = build_root.BuildRootConfig(suite="bullseye", patchelf="0", glibc="2.17", packages=["libc6"])
    monkeypatch.setattr(build_root, "read_config", lambda _: config)
    return Layout(tmp_path, tmp_path)


def test_packages_that_need_a_newer_glibc(channel: Path, layout: Layout) -> None:
    assert floor.packages(layout, channel).summary == "3 packages, none above 2.17"
    make_package(channel, "new", depends=["__glibc >=2.18,<3.0.a0"])
    make_package(channel, "other", depends=["__glibc <3", "glibc >=9", "__glibc"])
    make_package(channel, "older", depends=["__glibc >=2.4"])
    index(channel)
    assert floor.packages(layout, channel).findings == [
        "new-1.0-0.conda: needs glibc 2.18, the floor is 2.17"
    ]


def test_files_that_need_a_newer_glibc(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "prefix"
    prefix.mkdir()
    for name, content in (("b", b"\x7fELF218"), ("a", b"\x7fELF219"), ("c", b"\x7fELF217"), ("d", b"text")):
        (prefix / name).write_bytes(content)
    (prefix / "e").write_bytes(b"\x7fELF")
    (prefix / "link").symlink_to("b")

    def needed(stream: object) -> tuple[int, ...] | None:
        text = stream.read()  # type: ignore[attr-defined]
        return (2, int(text[1:])) if text else None

    monkeypatch.setattr(floor.glibc, "needed_by_file", needed)
    check = floor.environment(layout, prefix)
    assert check.findings == ["a: needs glibc 2.19", "b: needs glibc 2.18"]
    assert check.summary == "4 files, the newest needs 2.19"
