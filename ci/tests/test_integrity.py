"""Nothing that was changed behind the tool's back is taken for what was built."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from scratch_clone import Clone
from test_interruption import STEP_S, at_the_gate, gate, wait_for
from test_verify import findings, verify
from tree import ROOT


def changed(content: bytes) -> bytes:
    """Other bytes of the same size that are still a package: the date of a member."""
    at = content.index(b"PK\x01\x02") + 12
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def poison(path: Path) -> None:
    """What an attacker leaves; other links to the file are left alone."""
    content = changed(path.read_bytes())
    path.unlink()
    path.write_bytes(content)


def test_a_poisoned_cache_is_noticed_and_built_again(clone: Clone) -> None:
    clone.recipe("a")
    clone.built()
    package = next((clone.cache / "packages/linux-64").glob("a-*.conda"))
    good = package.read_bytes()
    poison(package)
    (clone.root / "build/channel").rename(clone.root / "aside")
    result = clone.run("channel", "build")
    assert result.returncode == 0, result.stderr
    assert package.name in result.stderr and "sha256" in result.stderr
    assert package.read_bytes() == good
    assert verify(clone)["ok"]


def test_a_file_changed_in_place_is_noticed_in_cache_and_channel(clone: Clone) -> None:
    """The cache and the channel share files by hard links: a change in place hits both."""
    clone.recipe("a")
    clone.built()
    package = next((clone.cache / "packages/linux-64").glob("a-*.conda"))
    good = package.read_bytes()
    package.write_bytes(changed(good))
    assert findings(verify(clone), "index")
    clone.built()
    assert package.read_bytes() == good
    assert next((clone.root / "build/channel/linux-64").glob("a-*.conda")).read_bytes() == good
    assert verify(clone)["ok"]


def test_an_index_of_a_changed_file_does_not_make_it_good(clone: Clone) -> None:
    """`channel verify` compares with what was recorded at publication, not with an index of the bad file."""
    clone.recipe("a")
    clone.built()
    folder = clone.root / "build/channel"
    package = next(folder.glob("linux-64/a-*.conda"))
    poison(package)
    # an index as anybody can make one
    index_it(folder)
    found = findings(verify(clone), "index")
    assert len(found) == 1 and package.name in found[0] and "published" in found[0]
    error = clone.fails("channel", "index")
    assert package.name in error and "wmlce channel build" in error
    clone.built()
    assert verify(clone)["ok"]


def test_a_file_that_is_no_package_does_not_stop_with_a_traceback(clone: Clone) -> None:
    clone.recipe("a")
    clone.built()
    clone.write("build/channel/noarch/odd-1.0-0.conda", "not a package")
    error = clone.fails("channel", "index")
    assert "noarch/odd-1.0-0.conda cannot be read" in error
    assert (clone.root / "build/channel/noarch/odd-1.0-0.conda").exists()


def index_it(folder: Path) -> None:
    import asyncio

    from rattler.index import index_fs

    asyncio.run(index_fs(folder, force=True, write_zst=True, write_shards=True))


def test_a_package_put_there_by_hand_is_mentioned(clone: Clone, tmp_path: Path) -> None:
    other = Clone(tmp_path / "other", clone.cache)
    other.recipe("foreign")
    other.built()
    clone.recipe("a")
    clone.built()
    package = next(other.root.glob("build/channel/linux-64/foreign-*.conda"))
    (clone.root / "build/channel/linux-64" / package.name).write_bytes(package.read_bytes())
    assert clone.ok("channel", "index") == {"packages": 2}
    document = verify(clone)
    assert document["ok"]
    assert any(package.name in note and "by hand" in note for c in document["checks"] for note in c["notes"])


def edit_recipe_script(clone: Clone) -> None:
    clone.write("recipes/late/build.sh", "mkdir -p $PREFIX/share\necho new > $PREFIX/share/late\n")


def edit_project_file(clone: Clone) -> None:
    clone.write("program/main.txt", "new\n")


def add_project_file(clone: Clone) -> None:
    clone.write("program/more.txt", "new\n")


def edit_variants(clone: Clone) -> None:
    clone.write("recipes/variants.yaml", "flavour:\n  - new\n")


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (edit_recipe_script, "recipes/late/build.sh"),
        (edit_project_file, "program/main.txt"),
        (add_project_file, None),
        (edit_variants, None),
    ],
)
def test_an_edit_during_a_build_is_never_cached_under_the_old_hash(
    clone: Clone, edit: Callable[[Clone], None], named: str | None
) -> None:
    """What changes after the hashes were taken is an error that names it, or does not enter this build."""
    opened = gate(clone)
    clone.write("recipes/variants.yaml", "flavour:\n  - old\n")
    clone.write("program/main.txt", "old\n")
    clone.recipe(
        "late",
        host=["slow"],
        source=[{"path": "../../program"}],
        extra={"build": {"script": "build.sh", "variant": {"use_keys": ["flavour"]}}},
        test=["true"],
    )
    clone.write(
        "recipes/late/build.sh",
        "mkdir -p $PREFIX/share\n(cat *.txt; echo script old; echo $flavour) > $PREFIX/share/late\n",
    )
    process = clone.start("channel", "build", "--jobs", "1")
    wait_for(lambda: at_the_gate(clone), "the build before")
    edit(clone)
    opened.touch()
    _, said = process.communicate(timeout=STEP_S)
    if named is not None:
        assert process.returncode == 1 and f"{named} changed" in said, said
        assert not list((clone.cache / "packages").glob("*/late-*.conda"))
        assert clone.built() == {"late"}
    else:
        assert process.returncode == 0, said
        clone.ok("env", "create", "late")
        kept = (clone.root / "build/envs/late/share/late").read_text()
        assert "new" not in kept and "old" in kept, kept
        assert clone.built() == {"late"}
    clone.ok("env", "create", "late")
    assert "new" in (clone.root / "build/envs/late/share/late").read_text()


def test_index_and_build_wait_for_each_other(clone: Clone) -> None:
    clone.recipe("early")
    clone.built()
    opened = gate(clone)
    building = clone.start("channel", "build")
    wait_for(lambda: at_the_gate(clone), "the build")
    indexing = clone.start("channel", "index")
    wait_for(lambda: _waits(indexing), "the index to wait")
    opened.touch()
    _, said = building.communicate(timeout=STEP_S)
    assert building.returncode == 0, said
    _, told = indexing.communicate(timeout=STEP_S)
    assert indexing.returncode == 0, told
    assert f"waiting for process {building.pid}" in told
    assert {name.split("-")[0] for name in clone.published()} == {"early", "first", "slow"}


def _waits(process: object) -> bool:
    """Has the process opened the channel's lock?"""
    pid = getattr(process, "pid")  # noqa: B009
    try:
        return any(
            os.readlink(f"/proc/{pid}/fd/{fd}").endswith("channel.lock")
            for fd in os.listdir(f"/proc/{pid}/fd")
        )
    except OSError:
        return False


def test_a_channel_is_not_swapped_under_its_reader(clone: Clone) -> None:
    """An environment is installed from the channel that it was solved with, all of it."""
    from wmlce.channel import published
    from wmlce.util.layout import Layout

    clone.recipe("a")
    clone.built()
    layout = Layout(clone.root, clone.cache)
    inode = (clone.root / "build/channel").stat().st_ino
    clone.recipe("a", test=["true", "true"])
    with published.reading(layout, layout.channel, lambda _: None):
        process = clone.start("channel", "build")
        time.sleep(0.1)
        wait_for(lambda: (clone.root / "build/logs/a.log").is_file(), "the build")
        wait_for(lambda: len(list((clone.cache / "packages/linux-64").glob("a-*.conda"))) == 2, "the package")
        time.sleep(2)
        assert process.poll() is None
        assert (clone.root / "build/channel").stat().st_ino == inode
    _, said = process.communicate(timeout=STEP_S)
    assert process.returncode == 0, said
    assert (clone.root / "build/channel").stat().st_ino != inode


def test_a_cut_off_publication_is_mended_under_the_lock(clone: Clone) -> None:
    """A reader must not take the moment between two renames for a killed publication."""
    from wmlce.channel import published
    from wmlce.util.layout import Layout

    clone.recipe("a")
    clone.built()
    layout = Layout(clone.root, clone.cache)
    with published.changing(layout, lambda _: None):
        # as `_swap` stands between its renames
        layout.channel.rename(layout.build / ".channel-old")
        reader = clone.start("env", "create", "a")
        time.sleep(2)
        assert reader.poll() is None and not layout.channel.exists()
        (layout.build / ".channel-old").rename(layout.channel)
    _, said = reader.communicate(timeout=STEP_S)
    assert reader.returncode == 0, said


def test_force_with_other_bytes_is_refused(clone: Clone) -> None:
    """One file name, one content: clients keep packages by their name."""
    clone.recipe("random", script=["mkdir -p $PREFIX/share", "head -c 8 /dev/urandom > $PREFIX/share/random"])
    clone.built()
    package = next((clone.cache / "packages/linux-64").glob("random-*.conda"))
    before = package.read_bytes()
    state = clone.channel_state()
    error = clone.fails("channel", "build", "--force", "random")
    assert package.name in error and "number" in error
    assert package.read_bytes() == before and clone.channel_state() == state
    assert clone.built() == set()


def test_what_is_published_keeps_its_bytes_when_the_cache_is_lost(clone: Clone) -> None:
    clone.recipe("random", script=["mkdir -p $PREFIX/share", "head -c 8 /dev/urandom > $PREFIX/share/random"])
    clone.built()
    state = clone.channel_state()
    clone.cache.rename(clone.cache.with_name("lost"))
    result = clone.run("channel", "build")
    assert result.returncode == 0 and "keeps" in result.stderr, result.stderr
    assert clone.channel_state() == state
    assert clone.built() == set()
    assert verify(clone)["ok"]
    recorded = json.loads((clone.root / "build/channel/channel.json").read_text())["packages"]
    (cached,) = (clone.cache / "packages/finished/random").glob("*.json")
    assert json.loads(cached.read_text())["packages"][0]["entry"]["sha256"] in recorded.values()


def _written(path: Path, text: str = "POISON") -> None:
    path.chmod(0o644)
    path.write_text(text)


def _changed_list(package: Path) -> None:
    """The file, and the list of files with it."""
    before, after = (hashlib.sha256(text).hexdigest() for text in (b"right", b"POISON"))
    _written(package / "share/data")
    _written(package / "info/paths.json", (package / "info/paths.json").read_text().replace(before, after))


def _moved(path: Path) -> None:
    """What it names is elsewhere, and can be changed there."""
    target = path.parent.parent / f"elsewhere-{path.name}"
    path.rename(target)
    path.symlink_to(target)


#: Changes of an unpacked package in the cache, whose files environments share.
HOSTILE_CACHES: dict[str, Callable[[Path], object]] = {
    "a file": lambda package: _written(package / "share/data"),
    "a file and the list": _changed_list,
    "a file that is a link": lambda package: (
        _written(package / "share/data"),
        _moved(package / "share/data"),
    ),
    "a folder that is a link": lambda package: (_written(package / "share/data"), _moved(package / "share")),
    "a package that is a link": lambda package: (_written(package / "share/data"), _moved(package)),
    "a link to another file": lambda package: (
        (package / "share/link").unlink(),
        (package / "share/link").symlink_to("more"),
    ),
    "no execute permission": lambda package: (package / "bin/program").chmod(0o644),
}


@pytest.fixture
def cached(clone: Clone) -> Clone:
    """A clone with the package `lib`, from which an environment was made."""
    script = [
        "mkdir -p $PREFIX/share $PREFIX/bin",
        "printf right > $PREFIX/share/data",
        "printf more > $PREFIX/share/more",
        "ln -s data $PREFIX/share/link",
        "cp /bin/true $PREFIX/bin/program",
    ]
    clone.recipe("lib", script=script)
    shutil.copytree(ROOT / "modulefiles", clone.root / "modulefiles")
    clone.built()
    clone.ok("env", "create", "one", "lib")
    return clone


@pytest.mark.parametrize("case", HOSTILE_CACHES)
def test_a_hostile_cache(cached: Clone, case: str) -> None:
    """What is for others is not installed from it."""
    file = cached.root / "build/envs/one/share/data"
    assert not file.stat().st_mode & 0o222, "programs do not change it by mistake"
    [package] = (path for path in cached.cache.glob("pkgs/lib-*") if path.is_dir())
    assert (package / "share/data").samefile(file)
    HOSTILE_CACHES[case](package)
    install = (
        "module",
        "install",
        "--prefix",
        str(cached.root / "sw"),
        "--version",
        "1",
        "--no-compile",
        "lib",
    )
    made = cached.run(*install)
    assert made.returncode == 0, made.stderr
    home = cached.root / "sw/ibm-wml-ce/1"
    assert (home / "share/data").read_text() == (home / "share/link").read_text() == "right"
    assert (home / "bin/program").stat().st_mode & 0o111 and not (home / "share/data").is_symlink()
    [record] = (home / "conda-meta").glob("lib-*.json")
    assert json.loads(record.read_text())["url"].startswith((cached.root / "build/channel").as_uri())
    assert list(cached.cache.glob("unpacked/*")) == []


def test_a_package_that_is_not_the_one_of_the_index(cached: Clone) -> None:
    """Its file in the cache is that of the channel, too."""
    [package] = cached.cache.glob("packages/*/lib-*.conda")
    content = changed(package.read_bytes())
    with package.open("r+b") as stream:
        stream.write(content)
    error = cached.fails(
        "module", "install", "--prefix", str(cached.root / "sw"), "--version", "1", "--no-compile", "lib"
    )
    assert "is not the package that the index has" in error
    assert not (cached.root / "sw/ibm-wml-ce/1").exists()
