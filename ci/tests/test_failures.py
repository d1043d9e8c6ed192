"""What goes wrong: one error that names recipe and log, exit code 1, and the channel as it was."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from scratch_clone import Clone
from tree import ROOT
from wmlce.cli.main import typable


def test_failing_test_leaves_the_channel(library_and_program: Clone) -> None:
    clone = library_and_program
    clone.built()
    before = clone.channel_state()
    clone.recipe("broken", test=["echo looking for the answer", "false"])
    error = clone.fails("channel", "build")
    assert "recipe 'broken' failed its test (recipes/broken/recipe.yaml)" in error
    assert "log: build/logs/broken.log" in error
    log = (clone.root / "build/logs/broken.log").read_text()
    assert "looking for the answer" in log
    assert clone.channel_state() == before
    # a package that failed is not taken for built
    assert "failed its test" in clone.fails("channel", "build")
    clone.recipe("broken", test=["true"])
    assert clone.built() == {"broken"}


def test_a_failed_test_says_which_command_failed_and_what_it_printed(clone: Clone) -> None:
    def failed(*tests: dict[str, Any]) -> dict[str, Any]:
        clone.recipe("a", extra={"tests": list(tests)})
        result = clone.run("--json", "channel", "build", "a")
        assert result.returncode == 1
        error: dict[str, Any] = json.loads(result.stdout)["error"]
        assert "recipe 'a' failed its test" in error["what"] and error["log"] == "build/logs/a.log"
        return error

    asked = "sh -c 'seq 5; echo the cause >&2; exit 3'"
    detail = failed({"script": ["echo fine"]}, {"script": ["echo before", asked, "echo never"]})["detail"]
    assert detail[0] == f"{asked} ended with exit code 3"
    # what this test printed, in whichever order the builder read it, and nothing of the test before
    printed = {line.partition("] ")[2] for line in detail[1:]}
    assert printed == {"before", "+ echo before", *"12345", "the cause"}
    assert failed({"script": ["echo fine"]}, {"script": ["false"]})["detail"] == [
        "false ended with exit code 1"
    ]
    absent = "test -f $PREFIX/share/nothing"
    assert failed({"script": [absent]})["detail"] == [f"{absent} ended with exit code 1"]
    [_, told] = failed({"package_contents": {"files": ["share/nothing"]}})["detail"]
    assert told.endswith("No match for files glob: share/nothing")


def test_a_remedy_can_be_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever has followed README has no wmlce on PATH."""
    remedy = "build it: wmlce channel build a; read /opt/wmlce page, or wmlce's pages"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for folder, program in ((ROOT, "build/tools/bin/wmlce"), (tmp_path, f"{ROOT}/build/tools/bin/wmlce")):
        monkeypatch.chdir(folder)
        assert (
            typable(remedy) == f"build it: {program} channel build a; read /opt/wmlce page, or wmlce's pages"
        )
    (tmp_path / "wmlce").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert typable(remedy) == remedy


def test_failing_script_names_recipe_and_log(clone: Clone) -> None:
    clone.env["WMLCE_BUILD_MEMORY_MB"] = "0"
    clone.recipe("bad", script=["echo compiling", "exit 3"])
    result = clone.run("--json", "channel", "build")
    assert result.returncode == 1
    error = json.loads(result.stdout)["error"]
    assert error["recipe"] == "bad" and error["log"] == "build/logs/bad.log"
    assert "could not be built" in error["what"]
    assert error["detail"][0] == "exit 3 ended with exit code 3"
    assert any("compiling" in line for line in error["detail"])
    assert not (clone.root / "build" / "channel").exists()
    assert not list((clone.root / "build" / "work").iterdir())


def test_others_in_progress_are_finished_and_kept(clone: Clone) -> None:
    clone.recipe("bad", script=["sleep 1", "false"])
    clone.recipe("good", script=["sleep 4", "mkdir -p $PREFIX/share", "touch $PREFIX/share/good"])
    clone.recipe("later", host=["bad"])
    error = clone.fails("channel", "build", "--jobs", "2")
    assert "'bad'" in error and "later" not in error.split("error: ")[1].splitlines()[0]
    clone.recipe("bad")
    assert clone.built() == {"bad", "later"}


def test_keep_going_builds_what_it_can(clone: Clone) -> None:
    clone.recipe("bad", script=["false"])
    clone.recipe("needs-bad", host=["bad"])
    clone.recipe("good")
    error = clone.fails("channel", "build", "--jobs", "1", "--keep-going")
    assert "'bad'" in error and "needs-bad" in error
    assert clone.built("good") == set()


def test_unreadable_recipe(clone: Clone) -> None:
    clone.write("recipes/odd/recipe.yaml", "package: {name: odd, version: '1'}\nbuld: {number: 0}\n")
    error = clone.fails("channel", "build")
    assert "'odd'" in error and "recipes/odd/recipe.yaml" in error


def test_source_that_no_lock_lists(clone: Clone) -> None:
    clone.recipe("a", source=[{"path": "../../build/sources/a-1.0.tar.gz"}])
    error = clone.fails("channel", "build")
    assert "'a'" in error and "a-1.0.tar.gz" in error and "wmlce lock sources --add" in error


@pytest.mark.parametrize("path", ["../../nowhere", "nothing.c"])
def test_missing_project_source(clone: Clone, path: str) -> None:
    clone.recipe("a", source=[{"path": path}])
    error = clone.fails("channel", "build")
    assert "'a'" in error and path in error and "does not exist" in error


def test_source_outside_the_project_and_by_url(clone: Clone, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    clone.recipe("a", source=[{"path": "../../../outside"}])
    assert "outside the project" in clone.fails("channel", "build")
    clone.recipe("a", source=[{"url": "https://example.invalid/a.tar.gz", "sha256": "0" * 64}])
    assert "not a path" in clone.fails("channel", "build")


def test_build_sees_none_of_the_users_environment(clone: Clone) -> None:
    clone.env["WMLCE_TEST_SECRET"] = "leaked"
    clone.recipe(
        "a", script=["mkdir -p $PREFIX/share", "env > $PREFIX/share/env", "echo $PATH >> $PREFIX/share/env"]
    )
    clone.built()
    clone.ok("env", "create", "a")
    seen = (clone.root / "build/envs/a/share/env").read_text()
    assert "leaked" not in seen and str(Path.home() / ".") not in seen.replace(str(clone.root), "")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_full_disk(clone: Clone, tmp_path: Path) -> None:
    """A build folder on a file system that is too small, and then on one that is large enough."""
    clone.env["WMLCE_BUILD_MEMORY_MB"] = "0"
    build = clone.root / "build"
    build.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", build], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    try:
        big = "head -c 20000000 /dev/urandom"
        clone.recipe("big", script=["mkdir -p $PREFIX/share", f"{big} > $PREFIX/share/big"])
        error = clone.fails("channel", "build")
        assert "no space left" in error.lower() and "'big'" in error
        assert not (build / "channel").exists()
        subprocess.run(["mount", "-o", "remount,size=200m", build], check=True)
        assert clone.built() == {"big"}
    finally:
        subprocess.run(["umount", build], check=True)
