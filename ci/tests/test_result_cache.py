"""ci/result_cache: what is taken as passed, what is recorded, and the table of inputs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from result_cache.inputs import EVERYTHING, Area, Inputs, Table, is_test_file
from result_cache.opened import opened
from result_cache.store import Store
from tree import ROOT, tracked
from wmlce.util.errors import WmlceError

INPUTS = """\
always = ["conftest.py"]

[[area]]
tests = ["calc/tests"]
files = ["calc"]
packages = ["abacus"]

[[area]]
tests = ["calc/tests/test_special.py"]
files = ["calc", "special"]
"""
TESTS = """\
import pytest
from pathlib import Path

def test_sum():
    Path("ran").open("a").write("sum\\n")

@pytest.mark.parametrize("number", [1, 2])
def test_number(number):
    Path("ran").open("a").write(f"{number}\\n")
"""
FAILS_LATE = """\
import pytest

@pytest.fixture
def late():
    yield
    raise OSError("late")

def test_late(late):
    pass
"""


class Project:
    """A clone with tests of its own, and runs of pytest with the plugin."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "clone"
        self.cache = folder / "cache"
        self.write("VERSION", "1\n")
        self.write("conftest.py", "")
        self.write("recipes/README.md", "")
        self.write("pytest.ini", "[pytest]\n")
        self.write("calc/calc.py", "ONE = 1\n")
        self.write("calc/tests/helper.py", "")
        self.write("calc/tests/test_calc.py", TESTS)
        self.write("calc/tests/test_other.py", "def test_other(): pass\n")
        self.write("special/data.txt", "1\n")
        self.write("notes/page.md", "text\n")
        shutil.copytree(ROOT / "ci/result_cache", self.root / "ci/result_cache")
        self.write("ci/result_cache/inputs.toml", INPUTS)
        self.channel({"abacus": ("1", ["wood >=2"]), "wood": ("1", []), "iron": ("1", [])})
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True, timeout=60)
        self.write(".gitignore", "build/\nran\n__pycache__/\nsummary.json\n")

    def write(self, name: str, text: str) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def channel(self, packages: dict[str, tuple[str, list[str]]]) -> None:
        """Packages by name: their hash, and what they depend on."""
        files = {f"{name}-1-0.conda": (name, *rest) for name, rest in packages.items()}
        current = {f"noarch/{file}": sha256 for file, (_, sha256, _) in files.items()}
        records = {file: {"name": name, "depends": depends} for file, (name, _, depends) in files.items()}
        self.write("build/channel/channel.json", json.dumps({"packages": current}))
        repodata = {"packages": {}, "packages.conda": records}
        self.write("build/channel/noarch/repodata.json", json.dumps(repodata))

    def run(self, *arguments: str, status: int = 0) -> dict[str, Any]:
        """Runs pytest, which must end with `status`; what it did."""
        words = [
            "-p",
            "no:cacheprovider",
            "-p",
            "result_cache.plugin",
            "--summary",
            "summary.json",
            *arguments,
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.root / "ci"),
            "WMLCE_CACHE": str(self.cache),
            "WMLCE_ROOT": str(self.root),
        }
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.returncode == status, ended.stdout + ended.stderr
        summary: dict[str, Any] = json.loads((self.root / "summary.json").read_text())
        for line in ("passed", "taken as passed", "not begun"):
            assert f"{summary[line]} {line}" in ended.stdout
        return summary

    def counts(self, *arguments: str, status: int = 0) -> tuple[int, int]:
        """How many passed, and how many were taken as passed."""
        summary = self.run(*arguments, status=status)
        return summary["passed"], summary["taken as passed"]

    def keys(self) -> dict[str, str]:
        """The hash of each file of tests."""
        inputs = Inputs(self.root, Table.read(self.root / "ci/result_cache/inputs.toml"))
        return {name: inputs.key(f"calc/tests/test_{name}.py") for name in ("calc", "other", "special")}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n", "2", "--dist", "loadfile"]], ids=["alone", "xdist"])
def test_what_passed_with_the_same_inputs_is_not_run_again(project: Project, workers: list[str]) -> None:
    assert project.counts(*workers) == (4, 0)
    ran = (project.root / "ran").read_text()
    assert project.counts(*workers) == (0, 4)
    assert (project.root / "ran").read_text() == ran
    assert project.counts("--fresh", *workers) == (4, 0)


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("calc/calc.py", {"calc", "other", "special"}),  # the product
        ("calc/tests/helper.py", {"calc", "other", "special"}),  # a helper of the tests
        ("calc/new.py", {"calc", "other", "special"}),  # a file that is not there yet
        ("conftest.py", {"calc", "other", "special"}),  # an input of every test
        ("calc/tests/test_other.py", {"other"}),  # a file of tests is an input of itself alone
        ("special/data.txt", {"special"}),
        ("notes/page.md", set()),
        ("build/output", set()),
    ],
)
def test_a_changed_file_changes_the_hash_of_the_tests_that_depend_on_it(
    project: Project, name: str, again: set[str]
) -> None:
    before = project.keys()
    file = project.root / name
    project.write(name, (file.read_text() if file.exists() else "") + "# changed\n")
    after = project.keys()
    assert {test for test in before if before[test] != after[test]} == again


@pytest.mark.parametrize(("changed", "again"), [("abacus", True), ("wood", True), ("iron", False)])
def test_a_changed_package_changes_the_hash_of_the_tests_that_use_it(
    project: Project, changed: str, again: bool
) -> None:
    """Also one that a used package depends on."""
    before = project.keys()
    packages = {"abacus": ("1", ["wood >=2"]), "wood": ("1", []), "iron": ("1", [])}
    packages[changed] = ("2", packages[changed][1])
    project.channel(packages)
    after = project.keys()
    assert (before["calc"] != after["calc"]) == again and before["special"] == after["special"]


def test_a_mode_or_a_link_is_part_of_the_hash(project: Project) -> None:
    hashes = [project.keys()["calc"]]
    (project.root / "calc/calc.py").chmod(0o755)
    hashes.append(project.keys()["calc"])
    (project.root / "calc/link").symlink_to("calc.py")
    hashes.append(project.keys()["calc"])
    assert len(set(hashes)) == 3


@pytest.mark.slow
def test_what_failed_or_was_skipped_runs_again(project: Project) -> None:
    project.write(
        "calc/tests/test_other.py",
        "import pytest\n\ndef test_fails(): assert 0\n\ndef test_skips(): pytest.skip('no tool')\n",
    )
    first = project.run(status=1)
    assert (first["passed"], first["skipped"]) == (3, {"no tool": 1})
    assert first["failed"] == ["calc/tests/test_other.py::test_fails"]
    second = project.run(status=1)
    assert (second["passed"], second["taken as passed"], len(second["failed"])) == (0, 3, 1)
    assert second["skipped"] == {"no tool": 1}


@pytest.mark.slow
def test_a_skip_for_want_of_what_ci_test_makes_is_a_failure(project: Project) -> None:
    reason = "no environment in build/envs/powerai: run ci/quickstart"
    project.write("calc/tests/test_other.py", f"import pytest\n\ndef test_other(): pytest.skip({reason!r})\n")
    assert project.run(status=1)["failed"] == ["calc/tests/test_other.py::test_other"]


@pytest.mark.slow
def test_an_error_in_teardown_is_no_pass(project: Project) -> None:
    project.write("calc/tests/test_other.py", FAILS_LATE)
    project.run(status=1)
    assert project.counts(status=1) == (0, 3)


@pytest.mark.slow
def test_inputs_that_change_during_the_run_are_not_recorded(project: Project) -> None:
    project.write(
        "calc/tests/test_other.py",
        "from pathlib import Path\n\ndef test_writes(): Path('calc/calc.py').open('a').write('# more\\n')\n",
    )
    assert project.run()["changed meanwhile"] == ["calc/tests/test_calc.py", "calc/tests/test_other.py"]
    assert project.run("-k", "not writes")["taken as passed"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n", "2", "--dist", "loadfile"]], ids=["alone", "xdist"])
def test_what_a_run_had_no_time_for_comes_first_in_the_next(project: Project, workers: list[str]) -> None:
    first = project.run("--begin-within", "0", *workers)
    assert (first["passed"], first["not begun"], first["skipped"]) == (0, 4, {})
    assert not (project.root / "ran").exists()
    assert project.counts("calc/tests/test_calc.py", *workers) == (3, 0)
    store = Store(project.cache)
    assert store.not_begun() == ["calc/tests/test_other.py"]
    project.write("calc/calc.py", "ONE = 2\n")
    project.write("calc/tests/test_other.py", "def test_other(): open('ran', 'a').write('other\\n')\n")
    (project.root / "ran").unlink()
    assert project.counts() == (4, 0)
    assert (project.root / "ran").read_text().splitlines()[0] == "other"
    assert store.not_begun() == []


def test_the_innermost_area_counts_and_an_unknown_file_depends_on_everything() -> None:
    calc, special = Area(("calc/tests",), ("calc",)), Area(("calc/tests/test_special.py",), ("special",))
    table = Table((), (calc, special))
    assert table.area("calc/tests/deep/test_a.py") == calc
    assert table.area("calc/tests/test_special.py") == special
    assert table.area("other/test_b.py").files == table.area("other/test_b.py").packages == (EVERYTHING,)


def test_the_table_names_what_exists() -> None:
    """Tests, files and packages."""
    table = Table.read()
    files = {PurePosixPath(file.relative_to(ROOT)) for file in tracked()}
    places = {str(place) for file in files for place in (file, *file.parents)}
    for area in table.areas:
        assert set(area.files) - {EVERYTHING} <= places
        assert all(test in places or "/" not in test for test in area.tests), area.tests
    assert set(table.always) <= places


def test_the_table_names_packages_of_the_channel() -> None:
    if not (ROOT / "build/channel/channel.json").exists():
        pytest.skip("no channel in build/channel: run ci/quickstart")
    inputs = Inputs(ROOT)
    for area in inputs.table.areas:
        assert set(area.packages) - {EVERYTHING} <= inputs.package_names(area), area.tests
        assert set(area.without) <= inputs.package_names(Area((), (), area.packages)), area.tests


def test_each_file_of_tests_has_a_hash_of_its_own() -> None:
    inputs = Inputs(ROOT)
    tests = [str(path) for path in inputs.files if is_test_file(path)]
    assert len({inputs.key(test) for test in tests}) == len(tests) > 200


def test_opened_files_are_reported_whoever_opens_them(tmp_path: Path) -> None:
    for name in ("read", "not-read"):
        (tmp_path / name).write_text("text")
    (tmp_path / "folder").mkdir()
    command = ["setsid", "sh", "-c", f"cat {tmp_path}/read; ls {tmp_path}/folder; exit 3"]
    try:
        status, paths = opened(tmp_path, command, timeout_s=60)
    except OSError as error:
        pytest.skip(f"fanotify needs CAP_SYS_ADMIN: {error}")
    assert status == 3 and {Path("read"), Path("folder")} <= paths and Path("not-read") not in paths


def test_a_cache_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "test-results").write_text("a file")
    with pytest.raises((OSError, WmlceError), match="test-results"):
        Store(tmp_path).add("0" * 64, ["a"])


@pytest.mark.parametrize("minutes", ["", "0", "x", "-5", "1.5"])
def test_a_limit_is_a_number_of_minutes(minutes: str) -> None:
    words = ["ci/test", "--limit", *([minutes] if minutes else [])]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and "--limit needs a number of minutes" in ended.stderr
