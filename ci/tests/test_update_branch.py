"""`wmlce update` on a small clone: what it moves, what it puts back, and what it leaves alone."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from local_wheels import make_wheel
from scratch_clone import LIMIT_S, Clone

BRANCH = "up/date"


class Project:
    """A clone of git whose recipes take their sources from a folder of wheels."""

    def __init__(self, clone: Clone, folder: Path) -> None:
        self.clone = clone
        self.files = folder / "files"
        self.sources: list[dict[str, Any]] = []
        self.wheels: list[dict[str, Any]] = []
        clone.env = {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.files),
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_EXTRA_INDEX_URL": "",
        }

    def source(
        self,
        name: str,
        *,
        run: Sequence[str] = (),
        test: str = "true",
        newer: bool = True,
        files: Mapping[str, str] | None = None,
    ) -> None:
        """recipes/NAME of the locked NAME 1.0, of which there is 2.0, with other files if some are given."""
        path = make_wheel(self.files, name, "1.0")
        if newer:
            make_wheel(self.files, name, "2.0", files=files)
        file = {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        entry = {"recipes": [name], "kind": "python", "package": name, "version": "1.0", "files": [file]}
        self.sources.append(entry)
        self.clone.recipe(
            name,
            source=[{"path": f"../../build/sources/{path.name}"}],
            script=[
                f"mkdir -p $PREFIX/share && python3 -m zipfile -e {name}-*.whl $PREFIX/share/{name}",
                f"cd $PREFIX/share && if [ -e {name}/bowl ]; then mkdir salad && mv {name}/bowl salad; fi",
            ],
            run=run,
            test=[test],
        )

    def wheel(self, name: str, versions: Mapping[str, Sequence[str]]) -> None:
        """A root at its first version, made by a recipe that does without it. versions: what each requires"""
        for version, requires in versions.items():
            make_wheel(self.files, name, version, requires=requires)
        first = next(iter(versions))
        path = self.files / f"{name}-{first}-py3-none-any.whl"
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        self.wheels.append(
            {"name": name, "version": first, "file": path.name, "sha256": digest,
             "requires": list(versions[first])}
        )  # fmt: skip
        self.clone.recipe(name)

    def commit(self) -> str:
        """All of it, on the branch main; returns the commit."""
        clone = self.clone
        roots = [f"{wheel['name']}=={wheel['version']}" for wheel in self.wheels]
        if roots:
            lines = "".join(f"  - {root}  # a remark\n" for root in roots)
            clone.write("recipes/wheels.yaml", f"# written by hand\nroots:\n{lines}")
            lock = {"python": "3.11", "roots": roots, "packages": self.wheels}
            clone.write("recipes/wheels.lock.yaml", yaml.safe_dump(lock))
        clone.write("recipes/sources.lock.yaml", yaml.safe_dump(self.sources))
        clone.write(".gitignore", "/build/\n")
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "Maintainer")
        self.git("config", "user.email", "maintainer@example.invalid")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "Start")
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.clone.root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()

    def state(self) -> dict[str, str]:
        """All files of the user's tree, its build/ too, with their content."""
        return {
            str(path.relative_to(self.clone.root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.clone.root.rglob("*"))
            if path.is_file() and ".git" not in path.relative_to(self.clone.root).parts
        }

    @property
    def tree(self) -> Path:
        """The update's worktree."""
        return self.clone.cache / "updates" / BRANCH

    def update(self, *arguments: str, code: int = 0) -> Any:
        """The facts that `wmlce update` prints."""
        result = self.clone.run("--json", "update", "--branch", BRANCH, *arguments)
        assert result.returncode == code, result.stdout + result.stderr
        return json.loads(result.stdout)


@pytest.fixture
def project(clone: Clone, tmp_path: Path) -> Project:
    return Project(clone, tmp_path)


def titles(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    return {f"{row['package']} {row['old']} -> {row['new']}" for row in rows}


def test_what_moves_and_what_is_put_back(project: Project, tmp_path: Path) -> None:
    """One package moves; one whose own test fails with the new version goes back, and the rest goes on."""
    project.source("good")
    project.source(
        "picky", test="grep 1.0 $PREFIX/share/picky/picky/__init__.py || (echo error: not mine; false)"
    )
    project.source("same", newer=False)
    project.clone.recipe("user", run=["good"])
    base = project.commit()
    osv = tmp_path / "osv.json"
    events = [{"introduced": "0"}, {"fixed": "2.0"}]
    osv.write_text(
        json.dumps(
            [
                {"id": f"X-{name}", "affected": [
                    {"package": {"ecosystem": "PyPI", "name": name},
                     "ranges": [{"type": "ECOSYSTEM", "events": events}]}]}
                for name in ("good", "picky")
            ]
        )
    )  # fmt: skip
    before = project.state()
    page = tmp_path / "report.md"
    found = project.update("--advisories", str(osv), "--report", str(page), code=1)
    assert titles(found["moved"]) == {"good 1.0 -> 2.0"}
    [row] = found["moved"]
    assert row["rebuilt"] == ["good"] == found["rebuilt"]  # the user of it is tested again
    assert row["bytes_before"] is None and row["bytes_after"] > 0  # the base was never built here
    [broken] = found["broken"]
    assert titles(broken["moves"]) == {"picky 1.0 -> 2.0"} and broken["stage"] == "build"
    assert "failed its test" in broken["reason"] and "error: not mine" in broken["reason"]
    assert "not mine" in Path(broken["log"]).read_text()
    assert [item["id"] for item in found["closed"]] == ["X-good"]
    assert [item["id"] for item in found["remaining"]] == ["X-picky"]
    assert found["verified"] and set(found["seconds"]) == {"look", "sources", "resolve", "build", "verify"}

    # the user's tree is as it was; the branch has one commit, and the worktree a verified channel
    assert project.state() == before and project.git("rev-parse", "HEAD") == base
    assert project.git("rev-parse", f"{BRANCH}~1") == base
    assert project.git("log", "-1", "--format=%b", BRANCH) == "good 1.0 -> 2.0"
    files = project.git("diff", "--name-only", "main", BRANCH).splitlines()
    assert files == ["recipes/good/recipe.yaml", "recipes/sources.lock.yaml"]
    assert (
        json.loads(project.git("show", f"{BRANCH}:recipes/good/recipe.yaml"))["package"]["version"] == "2.0"
    )
    published = json.loads((project.tree / "build/channel/channel.json").read_text())
    names = {key.split("/")[1].rsplit("-", 1)[0] for key in published["packages"]}
    assert names == {"good-2.0", "picky-1.0", "same-1.0", "user-1.0"} and published["earlier"] == {}
    assert json.loads((project.tree / "build/channel/verify.json").read_text())["ok"]
    text = page.read_text()
    assert "Packages that moved: 1; that could not: 1; that are held back: 0." in text
    assert "| good | the Python package index | 1.0 | 2.0 |" in text
    assert f"git merge {BRANCH}" in text and f"git branch -D {BRANCH}" in text
    assert json.loads((tmp_path / "report.md.json").read_text()) == found

    # again: it is finished; and it can be taken
    again = project.clone.run("update", "--branch", BRANCH, "--advisories", str(osv))
    assert again.returncode == 1 and "is finished already" in again.stderr
    assert again.stdout == text
    project.git("merge", "--quiet", BRANCH)
    assert not project.clone.ok("update", "--branch", "next", "good")["moved"]


def test_the_move_that_is_to_blame_goes_back(project: Project) -> None:
    """Two moves may be why a third recipe fails: each is tried. What the checks find counts, too."""
    project.source("apple")
    project.source("pear")
    # of one name with what `salad` installs
    project.source("spoon", files={"spoon.txt": "", "bowl": "not mine"})
    project.clone.recipe(
        "salad",
        run=["apple", "pear"],
        script=["mkdir -p $PREFIX/share/salad && echo salad > $PREFIX/share/salad/bowl"],
        test=["grep 1.0 $PREFIX/share/pear/pear/__init__.py"],
    )
    project.commit()
    found = project.update(code=1)
    assert titles(found["moved"]) == {"apple 1.0 -> 2.0"}
    assert {(item["moves"][0]["package"], item["stage"]) for item in found["broken"]} == {
        ("pear", "build"), ("spoon", "verify")
    }  # fmt: skip
    reasons = {item["stage"]: item["reason"] for item in found["broken"]}
    assert "recipe 'salad' failed its test" in reasons["build"] and "bowl" in reasons["verify"]
    assert found["verified"] and found["findings"] == []
    assert project.git("log", "-1", "--format=%b", BRANCH) == "apple 1.0 -> 2.0"


def test_pip_decides_what_goes_together(project: Project) -> None:
    """Two that hold each other move together; one that pip cannot place is found and left out."""
    project.wheel("bad", {"1.0": [], "2.0": ["left>=3"]})
    project.wheel("left", {"1.0": ["right==1.0"], "2.0": ["right==2.0"]})
    project.wheel("right", {"1.0": [], "2.0": []})
    project.wheel("kept", {"1.0": [], "2.0": []})
    project.wheel("tied", {"1.0": ["kept<2"]})
    project.commit()
    found = project.update("--no-verify", code=1)
    assert titles(found["moved"]) == {"left 1.0 -> 2.0", "right 1.0 -> 2.0"}
    [broken] = found["broken"]
    assert titles(broken["moves"]) == {"bad 1.0 -> 2.0"} and broken["stage"] == "resolve"
    assert "left>=3" in broken["reason"] or "left" in broken["reason"]
    [held] = found["held"]
    assert held["package"] == "kept" and held["reasons"] == ["tied 1.0 requires kept<2"]
    text = project.git("show", f"{BRANCH}:recipes/wheels.yaml")
    assert text == (
        "# written by hand\nroots:\n  - bad==1.0  # a remark\n  - left==2.0  # a remark\n"
        "  - right==2.0  # a remark\n  - kept==1.0  # a remark\n  - tied==1.0  # a remark"
    )
    lock = yaml.safe_load(project.git("show", f"{BRANCH}:recipes/wheels.lock.yaml"))
    assert {wheel["name"]: wheel["version"] for wheel in lock["packages"]} == {
        "bad": "1.0", "kept": "1.0", "left": "2.0", "right": "2.0", "tied": "1.0"
    }  # fmt: skip
    assert not found["verified"] and not (project.tree / "build/channel/verify.json").exists()


def test_a_dry_run_changes_nothing(project: Project) -> None:
    """It says what a run would do; for one package; with one held by hand; and what is no use of it."""
    project.source("one")
    project.source("two", run=["one"])
    project.commit()
    before = project.state()
    found = project.update("--dry-run", "one")
    assert titles(found["moved"]) == {"one 1.0 -> 2.0"} and found["rebuilt"] == ["one"]
    found = project.update("--dry-run", "--hold", "one")
    assert titles(found["moved"]) == {"two 1.0 -> 2.0"} and found["rebuilt"] == ["two"]
    assert [(item["package"], item["reasons"]) for item in found["held"]] == [("one", ["--hold"])]
    assert project.state() == before and not (project.clone.cache / "updates").exists()
    assert project.git("branch", "--format=%(refname:short)") == "main"
    for wrong in (["--branch", "a..b"], ["nothing"], ["--hold", "nothing"], ["one", "--hold", "one"]):
        assert project.clone.run("update", *wrong).returncode == 2


def test_recipes_that_are_not_committed(project: Project) -> None:
    project.source("one")
    project.commit()
    project.clone.write("recipes/one/new.patch", "")
    project.clone.write("README.md", "not a recipe\n")
    error = project.clone.fails("update", "--branch", BRANCH)
    assert "not committed" in error and "recipes/one/new.patch" in error and "git stash" in error
    assert "README.md" not in error and project.git("branch", "--format=%(refname:short)") == "main"


def test_an_interrupted_update_goes_on(project: Project) -> None:
    """Killed while it builds: the same command asks nobody again, and builds only what is left."""
    project.source("first")
    project.source("second", run=["first"])
    project.commit()
    process = project.clone.start("update", "--branch", BRANCH, "--no-verify")
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if "built    first 2.0" in line:
            break
    process.kill()
    process.communicate(timeout=LIMIT_S)
    assert "built    first 2.0" in seen[-1], "".join(seen)
    assert project.git("rev-parse", BRANCH) == project.git("rev-parse", "main")
    error = project.clone.fails("update", "--branch", BRANCH, "--no-verify", "--hold", "first")
    assert "was started with other arguments: --no-verify" in error
    result = project.clone.run("update", "--branch", BRANCH, "--no-verify")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "building second 2.0" in result.stderr and "building first" not in result.stderr
    assert "asking" not in result.stderr and "with pip" not in result.stderr
    body = project.git("log", "-1", "--format=%b", BRANCH).splitlines()
    assert body == ["first 1.0 -> 2.0", "second 1.0 -> 2.0"]


def test_a_branch_of_somebody_else_is_left_alone(project: Project) -> None:
    project.source("one")
    project.commit()
    project.git("branch", BRANCH)
    error = project.clone.fails("update", "--branch", BRANCH)
    assert f"there is a branch {BRANCH} already" in error
