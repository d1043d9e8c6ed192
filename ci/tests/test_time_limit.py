"""ci/test --limit: what does not begin in time is skipped with a reason. --first-file turns the order."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tree import ROOT

TESTS = """\
import pathlib, pytest

@pytest.fixture
def file():
    pathlib.Path("made").touch()

def test_one(file):
    pass

def test_two():
    pass
"""


@pytest.mark.parametrize(("within", "passed", "skipped"), [("0", 0, 2), ("1000000", 2, 0)])
def test_what_begins_late_is_skipped(tmp_path: Path, within: str, passed: int, skipped: int) -> None:
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    words = ["-p", "no:cacheprovider", "-rs", "--begin-within", within]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    last = ended.stdout.splitlines()[-1]
    assert (f"{passed} passed" in last) == bool(passed) and (f"{skipped} skipped" in last) == bool(skipped)
    assert ("not begun: the time was over" in ended.stdout) == bool(skipped)
    assert (tmp_path / "made").exists() == bool(passed)


@pytest.mark.parametrize(("number", "order"), [("0", "dabc"), ("1", "dbca"), ("5", "dcab"), ("9", "dabc")])
def test_a_run_begins_with_the_file_of_that_number(tmp_path: Path, number: str, order: str) -> None:
    """After those with many tests. All files are run, and the tests of each stay together in their order."""
    shutil.copy(ROOT / "conftest.py", tmp_path)
    tests = {"a": 2, "b": 2, "c": 2, "d": 10}
    for name, count in tests.items():
        text = "".join(f"def test_{i}(): print('{name}{i}')\n\n" for i in range(count))
        (tmp_path / f"test_{name}.py").write_text(text)
    words = ["-p", "no:cacheprovider", "-qs", "--first-file", number]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = re.findall(r"^\.?([a-d]\d)$", ended.stdout, re.MULTILINE)
    assert said == [f"{name}{i}" for name in order for i in range(tests[name])]


@pytest.mark.parametrize("minutes", ["", "0", "x", "-5", "1.5"])
def test_a_limit_is_a_number_of_minutes(minutes: str) -> None:
    words = ["ci/test", "--limit", *([minutes] if minutes else [])]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and "--limit needs a number of minutes" in ended.stderr
