"""Lock files of sources and environments: what is written is what is read, and nothing else is accepted."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from small_channel import index, make_package
from wmlce.channel import published
from wmlce.envs import explicit, locks
from wmlce.envs.locks import Format
from wmlce.sources import drift, store
from wmlce.sources.model import LockedArtifact, LockedSource, read_lock, read_source_locks, role
from wmlce.sources.settings import Settings
from wmlce.sources.store import SourceLock, replan_when_moved
from wmlce.util import platform
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock, flock

ZEROS, ONES = "0" * 64, "1" * 64
SUBDIR = platform.of_this_machine().subdir


def source(package: str = "thing", sha256: str = ZEROS, **values: Any) -> LockedSource:
    name = values.pop("name", f"{package}_1.0.tar.gz")
    entry = {
        "recipes": "a",
        "kind": "python",
        "package": package,
        "version": "1.0",
        "files": [{"name": name, "sha256": sha256}],
    }
    return LockedSource.model_validate({**entry, **values})


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    (tmp_path / "clone/recipes").mkdir(parents=True)
    return Layout(tmp_path / "clone", tmp_path / "cache")


# ------------------------------------------------------------------------------ sources


def test_a_file_that_is_locked_twice(layout: Layout) -> None:
    both = SourceLock(layout, [source(), source(recipes=["b", "c"])])
    assert both.require("thing_1.0.tar.gz", "b").file.sha256 == ZEROS
    with pytest.raises(WmlceError, match=r"thing_1\.0\.tar\.gz is locked twice .* \(a; b, c\)"):
        SourceLock(layout, [source(), source(sha256=ONES, recipes=["b", "c"])])


def test_a_file_that_is_not_locked(layout: Layout) -> None:
    with pytest.raises(WmlceError, match="recipe 'b' uses build/sources/other, which no lock file lists"):
        SourceLock(layout, [source()]).require("other", "b")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"origin": "debian"}, "debian has nothing of the kind python"),
        ({"kind": "debian-source", "origin": "pypi"}, "pypi has nothing of the kind debian-source"),
        ({"suite": "bookworm"}, "suite and snapshot are Debian's"),
        ({"snapshot": "20250101T000000Z"}, "suite and snapshot are Debian's"),
        ({"files": []}, "at least 1 item"),
        ({"package": "--index-url=x"}, "package"),
        ({"version": "-1"}, "version"),
        ({"name": "../thing"}, "name"),
        ({"sha256": "0" * 63}, "sha256"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_entries_that_are_none(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        source(**values)


def test_entries_as_written_by_hand() -> None:
    wheel = source(version=1)
    assert (wheel.origin, wheel.suite, wheel.recipes, wheel.version) == ("pypi", None, ["a"], "1")
    debian = source(kind="debian-binary", snapshot="20250101T000000Z")
    assert (debian.origin, debian.suite, debian.archive) == ("debian", "bookworm", "Debian bookworm")
    assert wheel.archive == "the Python package index" and wheel.title() == "thing 1" and wheel.redistribute
    assert LockedArtifact(source(recipes=["a", "b"]), wheel.files[0]).recipes() == "a, b"
    assert role("a_1.0.orig.tar.gz.asc") == "orig.tar.asc" and role("unknown.zip") == "unknown.zip"


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,8}", fullmatch=True)
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)


@settings(max_examples=20)
@given(
    entries=st.lists(
        st.builds(
            source,
            NAMES,
            DIGESTS,
            name=NAMES,
            version=NAMES,
            kind=st.sampled_from(["python", "debian-source"]),
        ),
        max_size=4,
    )
)
def test_a_written_source_lock_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, entries: list[LockedSource]
) -> None:
    path = tmp_path_factory.getbasetemp() / "sources.lock.yaml"
    path.write_text(yaml.safe_dump([entry.model_dump(exclude_none=True) for entry in entries]))
    assert read_lock(path) == entries


def test_damaged_source_locks_are_named(layout: Layout) -> None:
    path = layout.recipes / "build-root.lock.yaml"
    assert read_lock(path) == []
    path.write_text("")
    assert read_source_locks(layout) == []
    for text in ("{", "a: 1", "- {recipes: [a], kind: python}", "- 1"):
        path.write_text(text)
        with pytest.raises(WmlceError, match=r"recipes/build-root\.lock\.yaml is damaged") as error:
            read_source_locks(layout)
        assert "wmlce lock build-root" in str(error.value.remedy) and error.value.detail
    path.write_text(yaml.safe_dump([source().model_dump(exclude_none=True) | {"version": "-"}]))
    with pytest.raises(WmlceError) as error:
        read_lock(path)
    assert error.value.detail[0].startswith("version: ") and "(found '-')" in error.value.detail[0]


# ------------------------------------------------------------------------------ fetched files


def folder_settings(folder: Path | None, **values: bool) -> Settings:
    return Settings(folder=folder, **{"offline": True, "locked": False, **values})


CONTENT = b"content"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def lock(layout: Layout, tmp_path: Path) -> SourceLock:
    """Of one file, which is in a folder of files."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files/thing_1.0.tar.gz").write_bytes(CONTENT)
    return SourceLock(layout, [source(sha256=DIGEST)], folder_settings(tmp_path / "files"))


def test_a_folder_of_sources(lock: SourceLock, tmp_path: Path) -> None:
    item = lock.require("thing_1.0.tar.gz", "a")
    assert not lock.present(item)
    said: list[str] = []
    lock.tell_size([item], said.append)
    assert lock.fetch([item], said.append) == [item] and lock.present(item) and said == []
    assert lock.fetch([item], said.append) == []
    assert lock.checked(item).read_bytes() == CONTENT
    lock.place([item])
    placed = lock.layout.sources / "thing_1.0.tar.gz"
    assert placed.read_bytes() == CONTENT
    placed.unlink()
    placed.write_bytes(b"other content")
    lock.place([item])
    assert placed.read_bytes() == CONTENT
    lock.cached(item).write_bytes(b"damaged")
    with pytest.raises(WmlceError, match=r"the cached source thing_1\.0\.tar\.gz of recipe 'a' was damaged"):
        lock.checked(item)
    assert not lock.present(item)
    with pytest.raises(WmlceError, match="was damaged"):
        lock.checked(item)


def test_a_damaged_folder_of_sources(lock: SourceLock, tmp_path: Path) -> None:
    item = lock.require("thing_1.0.tar.gz", "a")
    file = tmp_path / "files/thing_1.0.tar.gz"
    file.write_bytes(b"other")
    with pytest.raises(WmlceError, match=r"wrong sha256 for thing_1\.0\.tar\.gz of recipe 'a'"):
        lock.fetch([item], lambda _: None)
    assert not lock.present(item)
    file.unlink()
    with pytest.raises(WmlceError, match="thing"):
        lock.fetch([item], lambda _: None)


def test_what_is_fetched_is_checked(lock: SourceLock, tmp_path: Path) -> None:
    item = lock.require("thing_1.0.tar.gz", "a")
    file = tmp_path / "fetched"
    file.write_bytes(b"other")
    with pytest.raises(WmlceError, match=r"wrong sha256 for .* \(from the index\)") as error:
        lock.accept(item, file, "the index")
    assert error.value.detail == [f"locked: {DIGEST}", f"found:  {hashlib.sha256(b'other').hexdigest()}"]
    assert not lock.present(item)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "files/thing_1.0.tar.gz")
    lock.accept(item, link, "the index")
    assert lock.present(item) and not lock.cached(item).is_symlink()
    assert (tmp_path / "files/thing_1.0.tar.gz").is_file()


def test_a_full_disk_is_said_before_anything_is_fetched(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = source(files=[{"name": "a", "sha256": ZEROS, "size": 10**10}, {"name": "b", "sha256": ONES}])
    lock = SourceLock(layout, [entry], folder_settings(None))
    free = [10**10]
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: type("Usage", (), {"free": free[0]}))
    said: list[str] = []
    lock.tell_size(lock.by_file.values(), said.append)
    assert said == ["2 sources to fetch; the wheels among them whose size is locked have 10.00 GB"]
    free[0] -= 1
    with pytest.raises(WmlceError, match=r"10\.00 GB of sources have no room in .*: 10\.00 GB are free"):
        lock.tell_size(lock.by_file.values(), said.append)


# ------------------------------------------------------------------------------ Debian has moved on


def moved(**values: Any) -> drift.MovedSource:
    file = drift.MovedFile(
        name="thing_1.0.tar.gz", sha256=ONES, locked_sha256=ZEROS, archive_name="thing_1.1.tar.gz"
    )
    fields = {
        "recipes": ["a"],
        "kind": "debian-source",
        "suite": "bookworm",
        "package": "thing",
        "locked": "1.0",
        "version": "1.1",
        "files": [file],
    }
    return drift.MovedSource.model_validate({**fields, **values})


def test_a_moved_source_stands_for_the_entry_that_was_locked() -> None:
    entry = source(kind="debian-source")
    assert moved().stands_for(entry) and moved().title() == "thing 1.1 instead of 1.0"
    others = [
        {"kind": "debian-binary"},
        {"suite": "sid"},
        {"package": "other"},
        {"locked": "0.9"},
    ]
    assert not any(moved(**values).stands_for(entry) for values in others)
    assert not moved().stands_for(source(kind="debian-source", sha256=ONES))
    (taken,) = drift.artifacts(entry, [moved(suite="sid"), moved()])
    assert (taken.file.name, taken.file.sha256, taken.entry.version) == ("thing_1.0.tar.gz", ONES, "1.1")
    assert (taken.fetched_name, taken.replaces) == ("thing_1.1.tar.gz", "1.0")
    (plain,) = drift.artifacts(entry, [])
    assert (plain.file.sha256, plain.fetched_name, plain.replaces) == (ZEROS, "thing_1.0.tar.gz", None)
    assert drift.notes([taken, plain]) == ["thing is Debian's 1.1, not the locked 1.0"]


def test_moved_sources_are_used_while_the_lock_names_what_they_replace(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert drift.read(layout) == [] and drift.in_use(layout) == []
    drift.add(layout, [moved(), moved(package="other")])
    drift.add(layout, [moved(version="1.2")])
    assert [item.title() for item in drift.read(layout)] == [
        "thing 1.2 instead of 1.0",
        "other 1.1 instead of 1.0",
    ]
    assert drift.in_use(layout) == []
    text = yaml.safe_dump([source(kind="debian-source").model_dump(exclude_none=True)])
    (layout.recipes / "sources.lock.yaml").write_text(text)
    assert [item.version for item in drift.in_use(layout)] == ["1.2"]
    assert SourceLock(layout, read_source_locks(layout)).stand_ins() == [
        "thing is Debian's 1.2, not the locked 1.0"
    ]
    monkeypatch.setenv("WMLCE_LOCKED", "1")
    assert drift.in_use(layout) == []
    drift.record(layout).write_text("- 1\n")
    with pytest.raises(WmlceError, match=r"build/moved-sources\.lock\.yaml is damaged"):
        drift.read(layout)


@pytest.mark.parametrize(
    ("version", "program"),
    [
        ("1.2", "1.2"),
        ("1:1.2-3", "1.2"),
        ("1.2-rc1-3", "1.2-rc1"),
        ("1.2+deb12u3", "1.2"),
        ("1.2~deb12u3-1", "1.2"),
        ("1.2.dfsg-1", "1.2"),
        ("1.2+ds1-1", "1.2"),
        ("1.2~repack", "1.2"),
    ],
)
def test_the_version_of_the_program_itself(version: str, program: str) -> None:
    assert drift.upstream(version) == program


def test_a_recipes_text_names_the_version_that_is_used() -> None:
    text = "version: 1.0\nurl: a-1.0.tar 1.0.1 11.0 1.0~x"
    assert drift.recipe_text(text, "a", [moved()]) == "version: 1.1\nurl: a-1.0.tar 1.0.1 11.0 1.0~x"
    assert drift.recipe_text(text, "b", [moved()]) == text
    assert drift.recipe_text(text, "a", [moved(version="1.0-2")]) == text


def test_planning_again_ends() -> None:
    said: list[str] = []
    attempts = [0]

    def attempt() -> int:
        attempts[0] += 1
        if attempts[0] < last:
            raise drift.SourcesMoved([moved()])
        return attempts[0]

    last = 6
    assert replan_when_moved(attempt, said.append) == 6
    assert said == ["planning again with thing 1.1 instead of 1.0"] * 5
    attempts[0], last = 0, 100
    with pytest.raises(drift.SourcesMoved):
        replan_when_moved(attempt, said.append)
    assert attempts[0] == 6


# ------------------------------------------------------------------------------ locks of environments


def environment(folder: Path, packages: Mapping[str, str]) -> Path:
    """The records of an installed environment; names -> digests."""
    for name, sha256 in packages.items():
        record = {
            **{"name": name, "version": "1.0", "build": "0", "build_number": 0, "subdir": SUBDIR},
            **{"fn": f"{name}-1.0-0.conda", "sha256": sha256, "depends": ["low >=1", "__unix", "bare"]},
            **{"url": f"file:///elsewhere/{name}-1.0-0.conda", "channel": "elsewhere", "files": []},
            **{"paths_data": {"paths_version": 1, "paths": []}, "md5": "0" * 32},
        }
        path = folder / "conda-meta" / f"{name}-1.0-0.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))
    return folder


PACKAGES = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9_-]{0,6}", fullmatch=True), DIGESTS, min_size=1, max_size=4
)


@settings(max_examples=25)
@given(packages=PACKAGES, form=st.sampled_from(Format))
def test_a_written_lock_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, packages: dict[str, str], form: Format
) -> None:
    folder = tmp_path_factory.mktemp("round-trip")
    text = locks.of_environment(environment(folder, packages), "https://site.example/channel/", form)
    path = folder / "lock"
    path.write_text(text)
    lock = locks.read(path)
    assert lock.packages == {f"{SUBDIR}/{name}-1.0-0.conda": digest for name, digest in packages.items()}
    assert "channel//" not in text and "elsewhere" not in text
    shuffled = explicit.Lock(dict(reversed(list(lock.packages.items()))))
    assert shuffled.digest == lock.digest
    first = next(iter(lock.packages))
    assert explicit.Lock({**lock.packages, first: ZEROS[1:] + "2"}).digest != lock.digest


def test_what_a_lock_of_conda_lock_says(tmp_path: Path) -> None:
    prefix = environment(tmp_path, {"top": ZEROS})
    document = yaml.safe_load(locks.of_environment(prefix, "https://site.example", Format.CONDA_LOCK))
    (package,) = document["package"]
    assert package["dependencies"] == {"low": ">=1", "bare": ""} and package["optional"] is False
    assert package["hash"] == {"md5": "0" * 32, "sha256": ZEROS}
    digest = explicit.Lock({package["url"]: ZEROS}).digest
    assert document["metadata"]["content_hash"] == {SUBDIR: digest}


def test_an_environment_that_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(WmlceError, match="is not an environment"):
        explicit.of_environment(tmp_path, "https://site.example")
    environment(tmp_path, {"top": ""})
    with pytest.raises(WmlceError, match=r"no sha256 is known of top-1\.0-0\.conda"):
        explicit.of_environment(tmp_path, "https://site.example")


HEAD = "version: 1\nmetadata: {}\n"
ENTRY = f"- {{name: x, manager: conda, platform: {SUBDIR}, hash: {{sha256: '{ZEROS}'}}, "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"lock names no package\n"),
        ("# nothing\n@EXPLICIT\n", r"lock names no package\n"),
        ("@EXPLICIT\nhttps://a/noarch/a-1-0.conda\n", ":2 names no package with its sha256"),
        (f"https://a/noarch/a-1-0.conda#{ZEROS}0\n", ":1 names no package with its sha256"),
        (f"https://a/noarch/a-1-0.whl#{ZEROS}\n", ":1 names no package with its sha256"),
        ("version: 1\nmetadata: [\n", "is not YAML"),
        ("- a\nversion: 1\n", "is not YAML"),
        (f"{HEAD}package: []\n", f"names no package for {SUBDIR}"),
        (f"{HEAD}package: {{}}\n", "is not a lock file of conda-lock version 1"),
        ("version: 2\nmetadata: {}\npackage: []\n", "is not a lock file of conda-lock version 1"),
        (f"{HEAD}package: [a]\n", "has an invalid entry: a"),
        (f"{HEAD}package:\n- {{name: x, platform: win-64, manager: pip}}\n", "names no package for"),
        (
            f"{HEAD}package:\n- {{name: x, platform: {SUBDIR}, manager: pip}}\n",
            "x, which is not a conda package",
        ),
        (f"{HEAD}package:\n- {{platform: {SUBDIR}, manager: conda}}\n", "has no package with its sha256"),
        (f"{HEAD}package:\n{ENTRY} url: https://a/noarch/x.tar.bz2}}\n", "has no package with its sha256"),
        ("version: 99\nenvironments: {}\n", "cannot be read as pixi's lock"),
    ],
)
def test_what_is_no_lock(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "lock"
    path.write_text(text)
    with pytest.raises(WmlceError, match=message):
        locks.read(path)


def test_locks_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    for name in ("absent", "bytes"):
        for read in (locks.read, explicit.read):
            with pytest.raises(WmlceError, match="cannot be read"):
                read(tmp_path / name)


def test_forms_of_lines_of_an_explicit_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text(
        f"@EXPLICIT\n noarch/a-1-0.conda#{ZEROS}\n\n# x\nhttps://a/b/noarch/b-1-0.conda#sha256:{ONES}\n"
    )
    assert explicit.read(path).packages == {"noarch/a-1-0.conda": ZEROS, "noarch/b-1-0.conda": ONES}
    path.write_text(f"{HEAD}package:\n{ENTRY} url: 'https://a/noarch/x-1%2B2-0.conda'}}\n")
    assert locks.read(path).packages == {"noarch/x-1+2-0.conda": ZEROS}


def test_locked_packages_are_found_by_their_content(layout: Layout, tmp_path: Path) -> None:
    package = make_package(layout.channel, "low")
    index(layout.channel)
    key = f"noarch/{package.name}"
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    (record,) = explicit.records(layout, explicit.Lock({key: digest}), layout.channel)
    assert record.name.normalized == "low"
    # another build of the same name has its place in the channel: the cache has the locked one
    cached = layout.cached_packages / key
    cached.parent.mkdir(parents=True)
    package.rename(cached)
    other = make_package(layout.channel, "low", size=7)
    published.Published({key: hashlib.sha256(other.read_bytes()).hexdigest()}).write(layout.channel)
    index(layout.channel)
    assert explicit.records(layout, explicit.Lock({key: digest}), layout.channel)
    cached.unlink()
    lock = explicit.Lock({key: digest, "noarch/none-1-0.conda": ZEROS})
    with pytest.raises(WmlceError, match="2 of 2 are missing") as error:
        explicit.records(layout, lock, layout.channel)
    assert error.value.detail == [f"{key}: another content", "noarch/none-1-0.conda"]


# ------------------------------------------------------------------------------ locks between processes


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "folder/lock"
    said: list[str] = []
    with file_lock(path, "trying", say=said.append):
        assert path.read_text() == f"{os.getpid()}\n"
        with (
            pytest.raises(WmlceError, match=rf"process {os.getpid()} still holds .* \(trying\) after 0 s"),
            file_lock(path, "trying", say=said.append, limit_s=0.15),
        ):
            pass
        assert said == [f"waiting for process {os.getpid()} (trying), 0 s so far"]
        stop = threading.Event()
        stop.set()
        with (
            pytest.raises(WmlceError, match="stopped while waiting"),
            file_lock(path, "x", say=said.append, stop=stop),
        ):
            pass
    with file_lock(path, "trying", say=said.append, limit_s=0):
        pass


def test_holders_that_share(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        file_lock(path, "one", say=pytest.fail, shared=True),
        file_lock(path, "two", say=pytest.fail, shared=True, limit_s=0),
    ):
        assert path.read_text() == ""
        said: list[str] = []
        with (
            pytest.raises(WmlceError, match="another process still holds"),
            file_lock(path, "three", say=said.append, limit_s=0.15),
        ):
            pass
    with file_lock(path, "four", say=pytest.fail, limit_s=0):
        pass


def test_a_lock_that_is_no_plain_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    for name in ("", "link"):
        with (
            pytest.raises(WmlceError, match="is not a plain file"),
            file_lock(tmp_path / name, "x", say=pytest.fail),
        ):
            pass

    def refuse(number: int) -> None:
        def call(handle: int, operation: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", call)

    for code in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
        refuse(code)
        with pytest.raises(WmlceError, match="cannot be locked"):
            flock(0, fcntl.LOCK_EX, tmp_path)
    refuse(errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        flock(0, fcntl.LOCK_EX, tmp_path)
