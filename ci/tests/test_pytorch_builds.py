"""Which build of PyTorch a channel has: what can be had, or what the user names; known before anything is
fetched.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from local_wheels import ALONE, make_wheel, pip_wheel, python_recipes
from package_index import Index, serving
from scratch_clone import Clone
from tree import ROOT
from wmlce.builder import pytorch_choice as choice
from wmlce.builder.plan import Plan
from wmlce.recipes import pytorch_build
from wmlce.recipes.recipe_set import RecipeSet, load_source_lock
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Both builds, and a library that only the plain one needs."""
    folder = tmp_path / "wheels"
    make_wheel(folder, "torch", "1.0+cpu", files={"torch/__init__.py": "build = 'cpu'\n"})
    make_wheel(folder, "torch", "1.0", files={"torch/__init__.py": "build = 'plain'\n"}, requires=["driver"])
    make_wheel(folder, "driver", "1.0")
    return folder


@pytest.fixture
def locked(clone: Clone, wheels: Path, tmp_path: Path) -> Clone:
    """A clone whose lock files name both, while pip finds neither."""
    clone.env |= ALONE | {"PIP_FIND_LINKS": str(wheels)}
    _, pip_version = pip_wheel(wheels)
    python_recipes(clone)
    rename = {"torch": "powerai-pytorch"}
    cpu = {
        "torch": {
            "origin": "pytorch-cpu",
            "commands": ["test $(python -c 'import torch; print(torch.build)') = cpu"],
        }
    }
    roots = ["torch==1.0+cpu", f"pip=={pip_version}"]
    clone.write("recipes/wheels.yaml", yaml.safe_dump({"roots": roots, "rename": rename, "packages": cpu}))
    clone.write("recipes/plain/variant.yaml", "summary: plain\npackage: user\ninstead: true\n")
    clone.write("recipes/plain/wheels.yaml", yaml.safe_dump({"roots": ["torch===1.0", "driver==1.0"]}))
    with serving(wheels) as index:
        clone.env["WMLCE_PYTORCH_INDEX"] = index.url
        clone.ok("lock", "wheels")
    clone.ok("lock", "wheels", "--variant", "plain")
    del clone.env["WMLCE_PYTORCH_INDEX"]
    shutil.rmtree(clone.cache / "sources")  # locking has fetched them
    clone.recipe("user", run=["powerai-pytorch 1.0.*"])
    clone.env["PIP_FIND_LINKS"] = str(tmp_path)
    return clone


@pytest.fixture
def pytorch(wheels: Path) -> Iterator[Index]:
    with serving(wheels) as index:
        yield index


def only(clone: Clone, wheels: Path, tmp_path: Path, *names: str) -> None:
    """pip finds these files alone."""
    folder = tmp_path / "found"
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(wheels / name)
    clone.env["PIP_FIND_LINKS"] = str(folder)


CPU, PLAIN = "torch-1.0+cpu-py3-none-any.whl", "torch-1.0-py3-none-any.whl"


def planned(clone: Clone, *options: str) -> set[str]:
    return set(clone.ok("channel", "build", "--dry-run", *options, "user")["recipes"])


def test_what_can_be_had_is_taken(locked: Clone, wheels: Path, tmp_path: Path) -> None:
    only(locked, wheels, tmp_path, PLAIN)
    answer = locked.run("channel", "build", "--dry-run", "user")
    assert answer.returncode == 0, answer.stderr
    [line] = [line for line in answer.stderr.splitlines() if "PyTorch:" in line]
    assert "ordinary package index" in line and "--pytorch cpu" in line and "MB to fetch" in line
    assert not list(locked.cache.glob("sources/*")), "nothing is fetched by asking"
    assert {"powerai-pytorch-plain", "driver-plain"} < planned(locked)
    # asking decides nothing
    (tmp_path / "found" / CPU).symlink_to(wheels / CPU)
    assert "powerai-pytorch" in planned(locked)
    # what was chosen for a build stays, whatever pip finds
    pytorch_build.choose(Layout(locked.root, locked.cache), "plain")
    assert "powerai-pytorch-plain" in planned(locked)
    assert "powerai-pytorch" in (found := planned(locked, "--pytorch", "cpu")) and "driver-plain" not in found
    assert "powerai-pytorch-plain" in planned(locked)


def test_a_disk_without_room_is_named_before_anything_is_fetched(
    locked: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(locked.root, locked.cache)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=12_000_000_000))
    monkeypatch.setattr(choice, "_available", lambda *_: "plain")
    monkeypatch.setattr(choice, "_download", lambda *_: 2_700_000_000)
    monkeypatch.setenv(pytorch_build.VARIABLE, "")
    with pytest.raises(WmlceError, match=r"too little disk: 12 GB free at .* takes 14 GB"):
        choice.settle(layout, None, ["user"], None, print, dry_run=False)
    assert pytorch_build.decided(layout) is None
    choice.settle(layout, None, ["user"], None, print, dry_run=True)
    assert pytorch_build.decided(layout) == "plain" and not (locked.root / "build/pytorch").exists()


def test_the_build_for_processors_comes_first(locked: Clone, wheels: Path, tmp_path: Path) -> None:
    only(locked, wheels, tmp_path, CPU, PLAIN)
    assert "powerai-pytorch" in planned(locked)
    assert "powerai-pytorch-plain" in planned(locked, "--pytorch", "plain")
    locked.env["WMLCE_PYTORCH"] = "cpu"
    assert "powerai-pytorch" in planned(locked)


def test_a_file_of_the_name_with_another_hash_is_none(locked: Clone, wheels: Path, tmp_path: Path) -> None:
    page = tmp_path / "links.html"
    wrong = f'<a href="{(wheels / CPU).as_uri()}#sha256={"0" * 64}">{CPU}</a>'
    page.write_text(f'{wrong}<a href="{(wheels / PLAIN).as_uri()}">{PLAIN}</a>')
    locked.env["PIP_FIND_LINKS"] = str(page)
    assert "powerai-pytorch-plain" in planned(locked)
    page.write_text(wrong)
    assert "PyTorch is unavailable" in locked.fails("channel", "build", "user")


def test_pytorchs_index_is_asked_where_it_is_named(
    locked: Clone, wheels: Path, tmp_path: Path, pytorch: Index
) -> None:
    only(locked, wheels, tmp_path, PLAIN)
    locked.env["WMLCE_PYTORCH_INDEX"] = pytorch.url
    assert "powerai-pytorch" in planned(locked)
    assert not [path for path in pytorch.asked if path.startswith("/files")]


@pytest.mark.parametrize("network", [True, False])
def test_neither_is_an_error_before_anything_is_fetched(locked: Clone, tmp_path: Path, network: bool) -> None:
    options = [] if network else ["--offline", str(tmp_path)]
    error = locked.fails(*options, "channel", "build", "user")
    assert "PyTorch is unavailable" in error and CPU in error and PLAIN in error
    assert ("WMLCE_PYTORCH_INDEX" in error) == network
    assert not list(locked.cache.glob("sources/*")) and not (locked.root / "build/pytorch").exists()


def test_an_offline_folder_decides(locked: Clone, wheels: Path, tmp_path: Path) -> None:
    only(locked, wheels, tmp_path, PLAIN)
    folder = locked.env.pop("PIP_FIND_LINKS")
    answer = locked.ok("--offline", folder, "channel", "build", "--dry-run", "user")
    assert "powerai-pytorch-plain" in answer["recipes"]


def test_a_build_that_there_is_not(locked: Clone) -> None:
    assert "say cpu or plain" in locked.fails("channel", "build", "--pytorch", "gpu", "user")
    locked.env["WMLCE_PYTORCH"] = "rocm"
    assert "WMLCE_PYTORCH" in locked.fails("channel", "build", "user")


def test_packages_without_pytorch_ask_for_none(locked: Clone) -> None:
    locked.recipe("other")
    assert set(locked.ok("channel", "build", "--dry-run", "other")["recipes"]) == {"other"}
    assert not (locked.root / "build/pytorch").exists()


def test_another_build_takes_nothing_from_the_channel_that_is_not_built_anew(
    locked: Clone, wheels: Path
) -> None:
    locked.recipe("other")
    locked.env["PIP_FIND_LINKS"] = str(wheels)
    locked.ok("channel", "build", "user", "other")
    before = set(locked.published())
    answer = locked.run("channel", "build", "--pytorch", "plain", "other")
    assert answer.returncode == 0 and "nothing that is asked for needs PyTorch" in answer.stderr
    assert set(locked.published()) == before
    # where PyTorch is asked for, what is not built with it is named
    answer = locked.run("channel", "build", "--pytorch", "plain", "powerai-pytorch")
    assert answer.returncode == 0, answer.stderr
    [line] = [line for line in answer.stderr.splitlines() if "no longer in the channel" in line]
    assert "user" in line and "other" not in line.partition("with what")[2], line


@pytest.mark.parametrize("build", [CPU, PLAIN])
def test_sources_are_those_of_what_can_be_had(
    locked: Clone, wheels: Path, tmp_path: Path, build: str
) -> None:
    only(locked, wheels, tmp_path, build)
    assert locked.ok("source", "fetch", "powerai-pytorch")["files"] == [build]
    bundle = tmp_path / "bundle"
    locked.ok("source", "bundle", str(bundle), "--recipe", "powerai-pytorch")
    assert [path.name for path in bundle.rglob("torch-*.whl")] == [build]
    assert not (locked.root / "build/pytorch").exists()


def test_both_builds_have_one_name_and_version(locked: Clone, wheels: Path) -> None:
    """And one takes the other's place in the channel; the build string tells which it is."""
    locked.env["PIP_FIND_LINKS"] = str(wheels)
    published = {}
    for build in ("cpu", "plain"):
        locked.ok("channel", "build", "--pytorch", build, "user")
        [published[build]] = [name for name in locked.published() if name.startswith("powerai-pytorch-")]
        locked.ok("env", "create", build, "user")
        [package] = (locked.root / f"build/envs/{build}").glob(
            "lib/python3.*/site-packages/torch/__init__.py"
        )
        assert package.read_text() == f"build = '{build}'\n"
    assert published["cpu"].startswith("powerai-pytorch-1.0-cpu_")
    assert published["plain"].startswith("powerai-pytorch-1.0-plain_")


def test_the_locked_builds_of_this_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """One version, as the recipes name it; nothing but what needs PyTorch is another recipe's result."""
    layout = Layout.locate(ROOT)
    plans = {}
    for build in pytorch_build.BUILDS:
        monkeypatch.setenv(pytorch_build.VARIABLE, build)
        recipes = RecipeSet(layout)
        plans[build] = Plan(layout, recipes, load_source_lock(layout), ["powerai"])
        [version] = {output.version for output in recipes.by_output["powerai-pytorch"].outputs}
        assert version == yaml.safe_load((ROOT / "recipes/variants.yaml").read_text())["pytorch"][0]
    cpu, plain = plans["cpu"], plans["plain"]
    assert set(cpu.order) - set(plain.order) == {"powerai-pytorch"}
    assert {name for name in set(plain.order) - set(cpu.order) if not name.endswith("-plain")} == set()
    both = [name for name in cpu.order if name in plain.order]
    other = {name for name in both if cpu.content_hash(name) != plain.content_hash(name)}
    assert other == {name for name in both if "powerai-pytorch" in cpu.build_requirements(name)}
    tested = {name for name in both if cpu.test_hash(name) != plain.test_hash(name)}
    assert tested == cpu.dependents("powerai-pytorch") & set(both)
