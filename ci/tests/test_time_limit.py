"""ci/test --limit: what does not begin in time is skipped with a reason, its fixtures too."""

from __future__ import annotations

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


@pytest.mark.parametrize("minutes", ["", "0", "x", "-5", "1.5"])
def test_a_limit_is_a_number_of_minutes(minutes: str) -> None:
    words = ["ci/test", "--limit", *([minutes] if minutes else [])]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and "--limit needs a number of minutes" in ended.stderr
