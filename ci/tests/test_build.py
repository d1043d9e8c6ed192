"""The order of builds, and what is built again when."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scratch_clone import Clone
from tree import ROOT
from wmlce.builder import estimate
from wmlce.builder.plan import Plan
from wmlce.builder.workspace import Workspaces
from wmlce.recipes.recipe_set import RecipeSet, load_source_lock
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout


def test_builds_in_order_and_publishes(library_and_program: Clone) -> None:
    clone = library_and_program
    clone.recipe("meta", run=["program"])
    result = clone.run("channel", "build", "--jobs", "2")
    assert result.returncode == 0, result.stderr
    lines = [line.split()[2:4] for line in result.stderr.splitlines() if line.split()[2:3] == ["built"]]
    assert [name for _, name in lines] == ["libanswer", "program", "meta"]
    channel = clone.root / "build" / "channel"
    repodata = json.loads((channel / "linux-64" / "repodata.json").read_text())["packages.conda"]
    assert {entry["name"] for entry in repodata.values()} == {"libanswer", "program", "meta"}
    for file in repodata:
        assert (channel / "linux-64" / file).stat().st_mode & 0o777 == 0o644
    for subdir in ("linux-64", "noarch"):
        assert (channel / subdir / "repodata.json.zst").is_file()
        assert (channel / subdir / "repodata_shards.msgpack.zst").is_file()


def test_second_run_builds_and_publishes_nothing(library_and_program: Clone) -> None:
    clone = library_and_program
    assert clone.built() == {"libanswer", "program"}
    before = clone.channel_state()
    assert clone.built() == set()
    assert clone.channel_state() == before


def test_where_the_time_went(library_and_program: Clone) -> None:
    clone = library_and_program
    done = clone.run("--json", "channel", "build", "--jobs", "1", "--timings")
    assert done.returncode == 0, done.stderr
    found = json.loads((clone.root / "build/report/timings.json").read_text())
    library, program = found["recipes"]
    assert [library["name"], program["name"]] == ["libanswer", "program"]
    assert library["started"] + library["seconds"] <= program["started"] + 0.1
    for recipe in found["recipes"]:
        assert sum(recipe["steps"].values()) == pytest.approx(recipe["seconds"], abs=0.5)
        assert recipe["steps"]["compile"] > 0
        told = json.loads(done.stdout)["recipes"][recipe["name"]]["steps"]
        assert {step: told.get(step, 0.0) for step in recipe["steps"]} == recipe["steps"]
    assert program["steps"]["unpack"] + program["steps"]["test"] > 0
    assert [phase["name"] for phase in found["phases"]] == ["fetch", "build root", "publish"]
    assert program["started"] + program["seconds"] <= found["seconds"]
    page = (clone.root / "build/report/timings.html").read_text()
    assert "libanswer" in page and '"orientation":"h"' in page
    again = clone.run("channel", "build", "--timings")
    assert "\npublish 0:00\n" in f"\n{again.stdout}" and "libanswer" not in again.stdout


def test_second_clone_profits_from_the_cache(library_and_program: Clone, tmp_path: Path) -> None:
    clone = library_and_program
    clone.built()
    other = tmp_path / "another" / "place"
    other.parent.mkdir()
    subprocess.run(["cp", "-r", clone.root, other], check=True)
    subprocess.run(["rm", "-rf", other / "build"], check=True)
    names = clone.published()
    clone.root = other
    assert clone.built() == set()
    assert clone.published() == names


@pytest.mark.parametrize(
    ("changed", "rebuilt"),
    [
        ("recipes/libanswer/answer.c", {"libanswer", "program"}),
        ("program/main.c", {"program"}),
    ],
)
def test_change_of_a_source_rebuilds_it_and_its_dependents(
    library_and_program: Clone, changed: str, rebuilt: set[str]
) -> None:
    clone = library_and_program
    clone.recipe("unrelated")
    clone.built()
    before = clone.published()
    path = clone.root / changed
    path.write_text(path.read_text() + "/* changed */\n")
    forecast = clone.ok("channel", "build", "--dry-run")
    assert set(forecast["todo"]) == rebuilt and clone.published() == before
    assert clone.built() == rebuilt
    assert clone.ok("channel", "build", "--dry-run")["todo"] == []
    # the builds before stay, for those who name them
    assert len(clone.published()) == 3
    assert {name.split("-")[0] for name in before - clone.published()} == rebuilt
    assert clone.earlier() == before - clone.published()


def words(clone: Clone, said: str, test: Sequence[str] = ("true",), **options: Any) -> None:
    """A recipe `words` with one file, which says something."""
    script = ["mkdir -p $PREFIX/share", f"echo {said} > $PREFIX/share/words"]
    clone.recipe("words", script=script, test=test, **options)


def done(clone: Clone, *arguments: str) -> tuple[set[str], set[str]]:
    """Recipes that `channel build` built, and those that it only tested again."""
    recipes = clone.ok("channel", "build", *arguments)["recipes"]
    built, again = (
        {name for name, result in recipes.items() if result[key]} for key in ("built", "tested_again")
    )
    return built, again


def test_what_is_only_installed_with_a_package_has_it_tested_again(clone: Clone) -> None:
    words(clone, "first")
    clone.recipe("reader", run=["words"], test=["grep -q r $PREFIX/share/words"])
    clone.recipe("user", run=["reader"], test=["test -f $PREFIX/share/words"])
    clone.recipe("compiled", host=["reader"])
    clone.recipe("unrelated")
    assert done(clone) == ({"words", "reader", "user", "compiled", "unrelated"}, set())
    before = clone.published()
    words(clone, "third")
    forecast = clone.ok("channel", "build", "--dry-run")
    assert set(forecast["todo"]) == {"words", "compiled"} and set(forecast["test"]) == {"reader", "user"}
    assert done(clone) == ({"words", "compiled"}, {"reader", "user"})
    assert {name.split("-")[0] for name in clone.published() - before} == {"words", "compiled"}
    assert done(clone) == (set(), set())
    # whose test does not pass with it is not in the channel
    words(clone, "last")
    state = clone.channel_state()
    error = clone.fails("channel", "build", "user")
    assert "recipe 'reader' failed its test (recipes/reader/recipe.yaml)" in error
    assert (
        "grep -q r $PREFIX/share/words ended with exit code 1" in error
        and "log: build/logs/reader.log" in error
    )
    assert clone.channel_state() == state
    clone.ok("channel", "build", "words")
    assert {name.split("-")[0] for name in clone.published()} == {"words", "unrelated"}
    # what passed once, passed
    words(clone, "third")
    assert done(clone) == (set(), set())


def test_what_tests_ask_for_has_them_run_again(clone: Clone) -> None:
    words(clone, "first")
    test = {"script": ["grep -q r $PREFIX/share/words"], "requirements": {"run": ["words"]}}
    clone.recipe("reader", extra={"tests": [test]})
    clone.recipe("user", run=["reader"])
    clone.recipe("compiled", host=["reader"])
    clone.built()
    words(clone, "third")
    assert done(clone) == ({"words"}, {"reader"})


def test_what_a_build_takes_something_from(clone: Clone) -> None:
    """Whose content and dates count in a package: not those of what is only installed beside it."""
    words(clone, "first", host=["tool"], run=["data"])
    clone.recipe("tool", run=["library"])
    clone.recipe("reader", host=["words"], run=["other"], test=["true"])
    for name in ("data", "library", "other"):
        clone.recipe(name)
    layout = Layout.locate(clone.root)
    plan = Plan(layout, RecipeSet(layout), load_source_lock(layout))
    assert plan.build_requirements("reader") == {"words", "tool", "library", "data"}
    assert plan.build_requirements("words") == {"tool", "library"}
    assert plan.build_requirements("data") == plan.build_requirements("tool") == set()


def test_comment_in_a_recipe_rebuilds_nothing(clone: Clone) -> None:
    path = clone.recipe("a")
    clone.built()
    path.write_text("# a comment\n" + path.read_text())
    assert clone.built() == set()


def test_build_number_and_given_string_stay_readable(clone: Clone) -> None:
    clone.recipe("numbered", extra={"build": {"number": 3}})
    clone.recipe("named", extra={"build": {"string": "0_cp311"}})
    clone.recipe("pure", extra={"build": {"noarch": "generic"}})
    clone.built()
    endings = {name.split("-")[0]: name.removesuffix(".conda") for name in clone.published()}
    assert endings["numbered"].endswith("_3")
    assert endings["named"].endswith("_0_cp311")
    assert (clone.root / "build" / "channel" / "noarch" / f"{endings['pure']}.conda").is_file()


def test_files_that_git_ignores_are_no_source(library_and_program: Clone) -> None:
    clone = library_and_program
    clone.write(".gitignore", "*.o\n/build/\n")
    subprocess.run(["git", "init", "-q", clone.root], check=True)
    clone.built()
    clone.write("program/main.o", "an object that a developer left")
    assert clone.built() == set()
    clone.write("program/more.c", "int more(void) { return 1; }\n")
    assert clone.built() == {"program"}


def test_multiple_outputs_share_one_build(clone: Clone) -> None:
    clone.write(
        "recipes/pair/recipe.yaml",
        """
schema_version: 1
recipe: {name: pair, version: "2.0"}
outputs:
  - package: {name: libpair}
    build: {script: ["mkdir -p $PREFIX/lib", "echo 1 > $PREFIX/lib/pair"]}
    about: {license: MIT}
  - package: {name: pair-tools}
    build: {script: ["mkdir -p $PREFIX/bin", "echo 2 > $PREFIX/bin/pair"]}
    requirements: {run: ["${{ pin_subpackage('libpair', exact=True) }}"]}
    tests: [{script: ["test -f $PREFIX/lib/pair"]}]
    about: {license: MIT}
""",
    )
    clone.recipe("user", run=["pair-tools"], test=["test -f $PREFIX/bin/pair"])
    assert clone.built("user") == {"pair", "user"}
    assert len(clone.published()) == 3
    assert clone.built() == set()


def test_only_what_is_asked_for(library_and_program: Clone) -> None:
    clone = library_and_program
    clone.recipe("unrelated")
    assert clone.built("libanswer") == {"libanswer"}
    assert clone.built("unrelated") == {"unrelated"}
    # what was published before and is still current stays
    assert {name.split("-")[0] for name in clone.published()} == {"libanswer", "unrelated"}
    assert clone.built("--force", "libanswer") == {"libanswer"}


def test_build_sees_only_its_own_requirements(clone: Clone) -> None:
    """A package that is built but not required is not in the channel of the build."""
    clone.recipe("a")
    clone.recipe("b", test=["test ! -e $PREFIX/share/a"])
    clone.recipe("c", host=["a"], script=["mkdir -p $PREFIX/share", "cp $PREFIX/share/a $PREFIX/share/c"])
    assert clone.built() == {"a", "b", "c"}


def test_what_has_the_longest_way_after_it_comes_first(clone: Clone) -> None:
    """Though others come before it by name, and more need them."""
    for name in ("a", "b"):
        clone.recipe(name)
    for name in ("users1", "users2", "users3"):
        clone.recipe(name, run=["a"])
    clone.recipe("long1")
    clone.recipe("long2", run=["long1"])
    clone.recipe("long3", run=["long2"])
    assert clone.ok("channel", "build", "--dry-run")["todo"] == [
        *("long1", "a", "long2", "b", "long3", "users1", "users2", "users3"),
    ]


def test_what_most_time_depends_on_begins_first_and_has_the_cores_first(clone: Clone) -> None:
    """By the times of earlier builds; one that is built beside it is the nicer one."""
    layout = Layout(root=clone.root, cache=clone.cache)
    estimate.keep(layout, {"z": 100.0, "a": 10.0, "b": 20.0, "after": 300.0}, print)
    for name in ("a", "b", "z"):
        clone.recipe(name, script=["sleep 1", "nice > $PREFIX/niceness"], test=["cat $PREFIX/niceness"])
    clone.recipe("after", run=["z"])
    done = clone.run("channel", "build", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    begun = [line.split()[3] for line in done.stderr.splitlines() if line.split()[2:3] == ["building"]]
    assert {*begun[:2]} == {"z", "b"}
    own = {name: (layout.logs / f"{name}.log").read_text().split() for name in ("z", "b")}
    assert "10" in own["b"] and "10" not in own["z"], own


def test_builds_work_in_memory_while_it_has_room(tmp_path: Path) -> None:
    lent = Workspaces(tmp_path / "disk", tmp_path / "memory")  # nowhere to work in
    with lent.lend("absent", 0, 0) as (folder, in_memory):
        assert folder.parent == tmp_path / "disk" and not in_memory
    (tmp_path / "memory").mkdir()
    lent = Workspaces(tmp_path / "disk", tmp_path / "memory")
    half = lent._left // 2
    for _ in range(2):  # what ends gives back what it had
        with lent.lend("first", 0, int(half * 0.9) // 5) as (first, in_memory):
            assert in_memory and first.is_dir() and first.is_relative_to(tmp_path / "memory")
            with lent.lend("second", int(half * 1.2) // 20, 0) as (second, in_memory):
                assert not in_memory and second.parent == tmp_path / "disk"
            (first / "file").touch()
        assert not first.exists() and not second.exists()
    (tmp_path / "memory" / f"wmlce-{os.getuid()}").chmod(0o777)
    with pytest.raises(WmlceError, match="others may write there"), lent.lend("third", 0, 0):
        pass


@pytest.mark.parametrize(
    "message",
    ["write: No space left on device", "gcc: fatal error: Killed signal terminated program cc1plus"],
)
def test_what_memory_has_no_room_for_is_built_on_the_disk(clone: Clone, message: str) -> None:
    script = (
        f'case $(stat -f -c %T .) in tmpfs) echo "{message}"; exit 1 ;; esac; '
        "mkdir -p $PREFIX/share; touch $PREFIX/share/built-on-the-disk"
    )
    clone.recipe("large", script=[script])
    result = clone.run("channel", "build")
    assert result.returncode == 0, result.stderr
    if "large needs more than memory has room for: building it on the disk" not in result.stderr:
        pytest.skip("/dev/shm is too small here, or programs cannot be started there")


def test_cycle_names_its_recipes(clone: Clone) -> None:
    clone.recipe("a", host=["b"])
    clone.recipe("b", run=["c"])
    clone.recipe("c", host=["a"])
    error = clone.fails("channel", "build")
    assert "in a circle" in error
    cycle = error.split("circle: ")[1].splitlines()[0].split(" -> ")
    assert set(cycle) == {"a", "b", "c"} and cycle[0] == cycle[-1]


def test_unknown_requirement_and_unknown_recipe(clone: Clone) -> None:
    clone.recipe("numpy")
    clone.recipe("user", run=["nunpy >=1"])
    error = clone.fails("channel", "build")
    assert "'user'" in error and "'nunpy'" in error and "did you mean numpy" in error
    assert "did you mean numpy" in clone.fails("channel", "build", "numpyy")


def test_rendered_recipe(clone: Clone) -> None:
    clone.recipe("a", run=["b"])
    clone.recipe("b")
    outputs = clone.ok("recipe", "render", "a")["outputs"]
    assert outputs[0]["recipe"]["requirements"]["run"] == ["b"]


def test_threads_may_ask_for_hashes_at_once() -> None:
    """Builds that need nothing of each other run side by side, and each asks for its own first."""
    layout = Layout.locate(ROOT)
    recipes, lock = RecipeSet(layout), load_source_lock(layout)
    expected = Plan(layout, recipes, lock, ["zlib", "xz", "bzip2"])
    hashes = {name: expected.content_hash(name) for name in expected.order}
    for _ in range(3):
        plan = Plan(layout, recipes, lock, ["zlib", "xz", "bzip2"])
        together = threading.Barrier(8)

        def ask(name: str, plan: Plan = plan, together: threading.Barrier = together) -> tuple[str, str]:
            together.wait(60)
            return name, plan.content_hash(name)

        names = (plan.order * 8)[-8:]
        with ThreadPoolExecutor(8) as pool:
            assert dict(pool.map(ask, names)) == {name: hashes[name] for name in names}
