"""The C++ tests and examples, one pytest test for each of ctest's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("DDL_TEST_BUILD") or Path(__file__).resolve().parents[2] / "build/ddl-core")
CTEST = shutil.which("ctest")


def _names() -> list[str]:
    if CTEST is None or not (BUILD / "CTestTestfile.cmake").exists():
        return []
    listing = subprocess.run(
        [CTEST, "--test-dir", str(BUILD), "--show-only=json-v1"], capture_output=True, text=True, timeout=60
    )
    return [test["name"] for test in json.loads(listing.stdout)["tests"]] if listing.returncode == 0 else []


NAMES = _names()


def test_there_are_cpp_tests() -> None:
    """A build tree that is missing or empty must not pass for success."""
    if CTEST is None or not BUILD.exists():
        pytest.skip(f"no ctest on PATH or no build in {BUILD}: run ci/test, or set DDL_TEST_BUILD")
    assert len(NAMES) > 50, f"ctest lists {len(NAMES)} tests in {BUILD}: build it first"


@pytest.mark.parametrize("name", NAMES)
def test_cpp(name: str) -> None:
    """Runs one of ctest's tests."""
    assert CTEST
    command = [CTEST, "--test-dir", str(BUILD), "--output-on-failure", "--no-tests=error"]
    escaped = "".join(f"\\{c}" if not c.isalnum() and c != "_" else c for c in name)
    run = subprocess.run([*command, "-R", f"^{escaped}$"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
