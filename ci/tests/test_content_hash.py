"""Content hashes: whatever decides what is built changes them, and nothing else does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rattler_build import VariantConfig
from wmlce.builder import build_numbers, build_root, plan
from wmlce.builder.plan import Plan
from wmlce.recipes.model import Recipe
from wmlce.recipes.recipe_set import RecipeSet, load_source_lock
from wmlce.sources import drift
from wmlce.sources.model import LockedArtifact, LockedFile, LockedSource
from wmlce.util import project_files
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

ZEROS, ONES = "0" * 64, "1" * 64


class Project:
    """The recipes of a clone, planned in this process and never built."""

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder / "clone", folder / "cache")
        self.write("VERSION", "1.0\n")
        self.root()

    def write(self, name: str, text: str) -> Path:
        path = self.layout.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def root(self, glibc: str = "2.28", **file: str) -> None:
        """A build root of one package."""
        config = {"suite": "bullseye", "patchelf": "0.17", "glibc": glibc, "packages": ["libc6"]}
        self.write("recipes/build-root.yaml", yaml.safe_dump(config))
        entry = {
            "recipes": "build-root",
            "kind": "debian-binary",
            "package": "libc6",
            "version": "2.31-1",
            "files": [{"name": "libc6_2.31-1_amd64.deb", "sha256": ZEROS, **file}],
        }
        self.write("recipes/build-root.lock.yaml", yaml.safe_dump([entry]))

    def recipe(
        self,
        name: str,
        *,
        host: Sequence[str] = (),
        run: Sequence[str] = (),
        needed_by_test: Sequence[str] = (),
        script: str = "true",
        source: Sequence[Mapping[str, Any]] = (),
        number: int = 0,
        version: str = "1.0",
    ) -> None:
        body = {
            "package": {"name": name, "version": version},
            "source": list(source),
            "build": {"script": [script], "number": number},
            "requirements": {"host": list(host), "run": list(run)},
            "tests": [{"script": ["true"], "requirements": {"run": list(needed_by_test)}}],
            "about": {"license": "MIT"},
        }
        self.write(f"recipes/{name}/recipe.yaml", json.dumps(body))

    def lock(self, sha256: str = ZEROS, version: str = "1.0", kind: str = "python", **file: Any) -> None:
        """A source of the recipe a."""
        entry = {
            "recipes": ["a"],
            "kind": kind,
            "package": "thing",
            "version": version,
            "files": [{"name": f"thing_{version}.tar.gz", "sha256": sha256, **file}],
        }
        self.write("recipes/sources.lock.yaml", yaml.safe_dump([entry]))

    def plan(self, *requested: str) -> Plan:
        project_files.tree_state.cache_clear()
        return Plan(self.layout, RecipeSet(self.layout), load_source_lock(self.layout), requested)

    def hashes(self) -> dict[str, str]:
        made = self.plan()
        return {name: made.content_hash(name) for name in made.order}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


SOURCE = [{"path": "../../build/sources/thing_1.0.tar.gz"}]
BOTH = [*SOURCE, {"path": "../../program"}]


@pytest.mark.parametrize(
    "change",
    [
        lambda project: project.lock(sha256=ONES),
        lambda project: project.root(glibc="2.29"),
        lambda project: project.root(sha256=ONES),
        lambda project: project.root(name="libc6_2.31-2_amd64.deb"),
        lambda project: project.recipe("a", source=BOTH, script="false"),
        lambda project: project.recipe("a", source=BOTH, number=1),
        lambda project: project.recipe("a", source=BOTH, version="1.1"),
        lambda project: project.write("program/main.c", "int other;\n"),
        lambda project: project.write("recipes/a/fix.patch", "other\n"),
        lambda project: project.write("recipes/a/second.patch", "\n"),
        lambda project: (project.layout.recipes / "a/fix.patch").chmod(0o755),
    ],
    ids=[
        "sha256",
        "glibc",
        "root",
        "root-file",
        "script",
        "number",
        "version",
        "project",
        "file",
        "new",
        "mode",
    ],
)
def test_what_decides_what_is_built_changes_the_hash(
    project: Project, change: Callable[[Project], object]
) -> None:
    project.lock()
    project.recipe("a", source=BOTH)
    project.write("recipes/a/fix.patch", "one\n")
    project.write("program/main.c", "int main;\n")
    before = project.hashes()
    assert set(before) == {"a"} and len(before["a"]) == 10
    change(project)
    assert project.hashes()["a"] != before["a"]


def test_the_build_root_counts_in_every_hash(project: Project) -> None:
    project.recipe("a")
    project.recipe("b", host=["a"])
    before = project.hashes()
    project.root(glibc="2.30")
    after = project.hashes()
    assert before.keys() == after.keys() == {"a", "b"}
    assert not set(before.values()) & set(after.values())


@pytest.mark.parametrize("attribute", ["_REVISION"])
def test_code_that_makes_other_files_of_the_root_counts(
    project: Project, monkeypatch: pytest.MonkeyPatch, attribute: str
) -> None:
    before = build_root.read(project.layout).digest
    monkeypatch.setattr(build_root, attribute, ["another"])
    assert build_root.read(project.layout).digest != before and len(before) == 16


def test_generated_scripts_count(project: Project) -> None:
    """Those of a wheel's recipe are in no file of the tree."""

    def digest(**scripts: str) -> str:
        made = project.plan("a")
        text = (project.layout.recipes / "a/recipe.yaml").read_text()
        made.recipes.by_name["a"] = Recipe(
            "a", project.layout.recipes / "a", text, True, VariantConfig.from_yaml("{}"), scripts
        )
        return made.content_hash("a")

    project.recipe("a")
    assert digest(build="one") == digest(build="one")
    assert len({digest(), digest(build="one"), digest(build="two"), digest(other="one")}) == 4


def test_what_decides_nothing_leaves_the_hash(project: Project) -> None:
    project.lock()
    project.recipe("a", source=BOTH)
    project.write("recipes/a/fix.patch", "one\n")
    project.write("program/main.c", "int main;\n")
    before = project.hashes()
    project.recipe("other")
    project.lock(size=5)
    for file in (project.layout.recipes / "a/fix.patch", project.layout.root / "program/main.c"):
        os.utime(file, (1, 1))
    project.write("program/__pycache__/main.pyc", "compiled\n")
    project.write("program/main.pyc", "compiled\n")
    after = project.hashes()
    assert after.pop("other") and after == before
    assert project.hashes() == {**before, "other": project.hashes()["other"]}


def test_a_package_hands_its_changes_to_what_is_built_with_it(project: Project) -> None:
    project.recipe("low")
    project.recipe("middle", run=["low"])
    project.recipe("top", host=["middle"])
    project.recipe("user", run=["low"])
    project.recipe("tested", needed_by_test=["low"])
    project.recipe("alone")
    first = project.plan()
    project.recipe("low", script="other")
    second = project.plan()
    names = ("low", "middle", "top", "user", "tested", "alone")
    # what is only installed with it, or tested with it, is tested again, and not built again
    assert {n for n in names if first.content_hash(n) != second.content_hash(n)} == {"low", "top"}
    assert {n for n in names if first.fingerprint(n) != second.fingerprint(n)} == {"low", "top"}
    assert {n for n in names if first.test_hash(n) != second.test_hash(n)} == set(names) - {"alone"}
    assert first.build_requirements("top") == {"low", "middle"} and first.build_requirements("user") == set()
    assert first.requirements("top") == {"middle"} and first.all_requirements("top") == {"low", "middle"}
    assert first.dependents("low") == {"middle", "top", "user", "tested"}
    assert first.describe()["top"] == {"hash": first.content_hash("top"), "needs": ["middle"]}


def test_added_build_numbers_are_in_the_content_and_not_in_the_fingerprint(project: Project) -> None:
    project.recipe("a", number=2)
    project.recipe("b", host=["a"])
    first = project.plan()
    assert first.number("a") == 2
    locked = build_numbers.LockedNumber(versions={"a": "1.0"}, number=5, added=3, content="x")
    build_numbers.write(project.layout, {"a": locked})
    second = project.plan()
    assert second.number("a") == 5 and second.number("b") == 0
    for name in ("a", "b"):
        assert first.fingerprint(name) == second.fingerprint(name)
        assert first.content_hash(name) != second.content_hash(name)
    project.recipe("a", number=2, version="2.0")  # of a new version they start again
    assert project.plan().number("a") == 2


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("1.2", 0),
        ("1.2-6", 6000),
        ("1.2-6+deb12u8", 6008),
        ("1.2-6.1", 6100),
        ("1.2-7", 7000),
        ("1.2-1~deb12u2", 902),
        ("1.2-0~deb12u2", 2),
        ("1.2+deb12u3", 3),
        ("1:1.2-rc3-4", 4000),
        ("1.2-x", 0),
    ],
)
def test_numbers_of_debian_revisions(version: str, number: int) -> None:
    assert build_numbers.of_revision(version) == number


def artifact(kind: str, version: str, name: str, package: str = "thing") -> LockedArtifact:
    file = LockedFile(name=name, sha256=ZEROS)
    entry = LockedSource.model_validate(
        {"recipes": "a", "kind": kind, "package": package, "version": version, "files": [file]}
    )
    return LockedArtifact(entry, file)


def test_only_files_that_change_with_the_revision_count() -> None:
    patches = artifact("debian-source", "1.2-6", "thing_1.2-6.debian.tar.xz")
    tarball = artifact("debian-source", "1.2-6", "thing_1.2.orig.tar.xz")
    binary = artifact("debian-binary", "1.2-6", "thing_1.2-6_amd64.deb")
    other = artifact("debian-binary", "3-1", "other_3-1_amd64.deb", package="other")
    wheel = artifact("python", "1.2-6", "thing-1.2-6-py3-none-any.whl")
    assert build_numbers.of_sources([tarball, wheel]) == 0
    assert build_numbers.of_sources([patches, patches, tarball]) == 6000
    assert build_numbers.of_sources([patches, other]) == 7000
    assert build_numbers.of_sources([patches, binary]) == 12000


def test_the_record_of_numbers(project: Project) -> None:
    zero = build_numbers.LockedNumber(versions={"a": "1.0"}, number=0, added=0, content="x")
    build_numbers.write(project.layout, {"b": zero, "a": zero})
    assert list(build_numbers.read(project.layout)) == ["a", "b"]
    record = (project.layout.recipes / "numbers.lock.yaml").read_text()
    for damaged in (
        "- 1\n",
        record.replace("number: 0", "number: -1"),
        record.replace("added: 0", "added: -1"),
    ):
        project.write("recipes/numbers.lock.yaml", damaged)
        with pytest.raises(WmlceError, match=r"numbers\.lock\.yaml is damaged"):
            build_numbers.read(project.layout)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"url": "https://example.org/a.tar.gz", "sha256": ZEROS}, "has a source that is not a path"),
        ({"path": "../../../outside"}, "uses a source outside the project"),
        ({"path": "../../absent"}, "uses the source ../../absent, which does not exist"),
        ({"path": "absent.patch"}, r"uses the source absent.patch, which does not exist"),
        ({"path": "../../build/sources/unlocked.tar"}, "which no lock file lists"),
    ],
)
def test_sources_that_a_recipe_may_not_have(project: Project, source: dict[str, str], message: str) -> None:
    project.recipe("a", source=[source])
    with pytest.raises(WmlceError, match=message):
        project.hashes()


def test_sources_by_kind(project: Project) -> None:
    project.lock()
    program = project.write("program/main.c", "int main;\n").parent
    project.write("recipes/a/fix.patch", "one\n")
    project.recipe("a", source=[*SOURCE, {"path": "../../program"}, {"path": "fix.patch"}])
    made = project.plan()
    sources = made.sources("a")
    assert [item.file.name for item in sources.locked] == ["thing_1.0.tar.gz"]
    assert sources.project == [program]
    assert made.sources("a") is sources and made.recipe_files("a") is made.recipe_files("a")
    assert list(made.recipe_files("a")) == ["fix.patch"]


def test_a_recipe_that_none_makes(project: Project) -> None:
    project.recipe("numeric")
    project.recipe("a", run=["numerics"])
    with pytest.raises(WmlceError, match="needs the package 'numerics', which no recipe makes") as error:
        project.plan()
    assert "did you mean numeric?" in str(error.value.remedy)
    project.recipe("a", run=["zzz"])
    with pytest.raises(WmlceError) as error:
        project.plan()
    assert str(error.value.remedy).startswith("add recipes/zzz/recipe.yaml")


def test_a_circle_of_recipes_is_named(project: Project) -> None:
    project.recipe("a", host=["b"])
    project.recipe("b", run=["a"])
    with pytest.raises(WmlceError, match=r"in a circle: (a -> b -> a|b -> a -> b)"):
        project.hashes()


def test_the_longest_way_comes_first(project: Project) -> None:
    project.recipe("z-low")
    project.recipe("y-middle", host=["z-low"])
    project.recipe("x-top", host=["y-middle"])
    project.recipe("a-alone")
    made = project.plan()
    assert made.order == ["z-low", "y-middle", "a-alone", "x-top"]
    assert made.longest_way(lambda name: 2.0) == {"z-low": 6, "y-middle": 4, "x-top": 2, "a-alone": 2}
    for name in ("x-top", "y-middle", "z-low"):  # a wheel takes a moment
        made.recipes.by_name[name].generated = True
    del made.order
    assert made.order == ["a-alone", "z-low", "y-middle", "x-top"]
    only = project.plan("y-middle")
    assert only.requested == ["y-middle"] and only.order == ["z-low", "y-middle"]


# ------------------------------------------------------------------------------ the build root


def test_the_roots_digest_ignores_the_order_of_its_files() -> None:
    config = build_root.BuildRootConfig(suite="bullseye", patchelf="0.17", glibc="2.28", packages=["libc6"])
    one, other = (artifact("debian-binary", "1", f"{name}_1_amd64.deb") for name in ("one", "other"))
    digests = {
        build_root.BuildRoot(config, [], several).digest
        for several in ([one, other], [other, one], [one], [other])
    }
    assert len(digests) == 3


def test_the_root_is_kept_by_its_digest(project: Project) -> None:
    root = build_root.read(project.layout)
    assert root.config.glibc == "2.28" and [item.file.sha256 for item in root.artifacts] == [ZEROS]
    folder = build_root.folder_of(project.layout, root)
    assert folder == project.layout.cache / "build-roots" / root.digest
    folder.mkdir(parents=True)
    lock = load_source_lock(project.layout)
    assert build_root.make(project.layout, root, lock, pytest.fail) == folder


def test_the_root_is_unpacked_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    root = build_root.read(project.layout)
    folder = build_root.folder_of(project.layout, root)
    lock = load_source_lock(project.layout)
    file = project.layout.cached_sources / ZEROS / root.artifacts[0].file.name
    unpacked: list[list[Path]] = []

    def unpack(packages: list[Path], scratch: Path) -> None:
        unpacked.append(packages)
        (scratch / "file").write_text("of the root")

    monkeypatch.setattr(lock, "fetch", lambda artifacts, say: None)
    monkeypatch.setattr(lock, "checked", lambda item: file)
    monkeypatch.setattr(build_root.root_files, "unpack", unpack)
    monkeypatch.setattr(build_root.link_floor, "hide_newer_symbols", lambda *_: None)
    said: list[str] = []
    assert build_root.make(project.layout, root, lock, said.append) == folder
    assert unpacked == [[file]] and said == ["unpacking the build root (1 packages of Debian bullseye)"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert folder.stat().st_mode & 0o777 == 0o755 and (folder / "file").read_text() == "of the root"
    # another process makes it while this one fetches
    shutil.rmtree(folder)
    monkeypatch.setattr(lock, "fetch", lambda artifacts, say: folder.mkdir())
    assert build_root.make(project.layout, root, lock, pytest.fail) == folder and len(unpacked) == 1
    # what is left of a root that cannot be unpacked is no root
    folder.rmdir()
    monkeypatch.setattr(lock, "fetch", lambda artifacts, say: None)
    monkeypatch.setattr(build_root.link_floor, "hide_newer_symbols", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        build_root.make(project.layout, root, lock, said.append)
    assert list(folder.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("build-root.yaml", "glibc: '2.28'\n", "cannot be read"),
        ("build-root.yaml", "{", "cannot be read"),
        ("build-root.lock.yaml", "[]\n", "names no packages"),
    ],
)
def test_a_damaged_root_is_an_error(project: Project, file: str, text: str, message: str) -> None:
    project.write(f"recipes/{file}", text)
    with pytest.raises(WmlceError, match=message):
        build_root.read(project.layout)


def test_a_written_lock_of_the_root_is_sorted_and_read_again(project: Project) -> None:
    entries = [artifact("debian-binary", "1", f"{n}_1_amd64.deb", n).entry for n in ("zlib", "bash")]
    build_root.write_lock(project.layout, entries)
    text = build_root.lock_path(project.layout).read_text()
    assert text.startswith("# Written by `wmlce lock build-root`") and "null" not in text
    assert [entry.package for entry in build_root.read(project.layout).entries] == ["bash", "zlib"]


# ------------------------------------------------------------------------------ files of the project

NAMES = st.text("abc.-_", min_size=1, max_size=6).filter(lambda name: name.strip(".") and ".pyc" not in name)
TREES = st.dictionaries(NAMES, st.tuples(st.binary(max_size=4), st.booleans()), max_size=5)


def written(folder: Path, files: Sequence[tuple[str, tuple[bytes, bool]]]) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, (content, executable) in files:
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755 if executable else 0o644)
    project_files.tree_state.cache_clear()
    return project_files.tree_hash(folder.parent, folder)


@settings(max_examples=40)
@given(one=TREES, other=TREES, order=st.randoms(use_true_random=False))
def test_trees_have_the_same_hash_exactly_if_they_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, one: Any, other: Any, order: Any
) -> None:
    folder = tmp_path_factory.getbasetemp() / "tree"
    files = list(one.items())
    digest = written(folder, files)
    order.shuffle(files)
    assert written(folder, files) == digest
    assert (written(folder, list(other.items())) == digest) == (one == other)


def test_a_file_and_a_link_of_the_same_name_differ(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("b")
    states = [project_files.file_state(file)]
    file.unlink()
    file.symlink_to("b")
    states.append(project_files.file_state(file))
    file.unlink()
    file.symlink_to("c")
    states.append(project_files.file_state(file))
    assert len(set(states)) == 3


def test_only_files_that_git_knows_or_would_add_count(tmp_path: Path) -> None:
    folder = tmp_path / "program"
    for name in ("main.c", "new.c", "output.o", "gone.c", "sub/deep.c"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "link").symlink_to("nowhere")
    (tmp_path / ".gitignore").write_text("*.o\n")
    for command in (["init", "--quiet"], ["add", "program/main.c", "program/gone.c"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, timeout=60)
    (folder / "gone.c").unlink()
    names = [str(file.relative_to(folder)) for file in project_files.listed_files(tmp_path, folder)]
    assert names == ["link", "main.c", "new.c", "sub/deep.c"]
    assert project_files.listed_files(tmp_path, folder / "output.o") == [folder / "output.o"]
    with pytest.raises(WmlceError, match="does not exist"):
        project_files.listed_files(tmp_path, folder / "gone.c")


def test_without_git_all_files_but_caches_count(tmp_path: Path) -> None:
    for name in ("b", "a", "sub/c", "sub/__pycache__/d", ".git/e", "f.pyc"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(name)
    names = [
        str(file.relative_to(tmp_path / "tree"))
        for file in project_files.listed_files(tmp_path, tmp_path / "tree")
    ]
    assert names == ["a", "b", "sub/c"]


def test_a_tree_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    before = project_files.tree_hash(tmp_path, tmp_path / "a")
    (tmp_path / "a").write_text("two")
    assert project_files.tree_hash(tmp_path, tmp_path / "a") == before
    project_files.tree_state.cache_clear()
    assert project_files.tree_hash(tmp_path, tmp_path / "a") != before


def test_the_tool_counts(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.recipe("a")
    hashes = [project.hashes()["a"]]
    monkeypatch.setattr(plan, "_SALT", "another")
    hashes.append(project.hashes()["a"])
    monkeypatch.setattr(plan, "version", lambda name: f"{name} 99")
    hashes.append(project.hashes()["a"])
    assert len(set(hashes)) == 3


def test_a_moved_source_has_its_own_hash(project: Project) -> None:
    project.lock(kind="debian-source")
    project.recipe("a", source=SOURCE)
    before = project.hashes()
    file = drift.MovedFile(
        name="thing_1.0.tar.gz", sha256=ONES, locked_sha256=ZEROS, archive_name="thing_1.1.tar.gz"
    )
    moved = drift.MovedSource(
        recipes=["a"],
        kind="debian-source",
        suite="bookworm",
        package="thing",
        locked="1.0",
        version="1.1",
        files=[file],
    )
    drift.add(project.layout, [moved])
    assert project.hashes()["a"] != before["a"]
