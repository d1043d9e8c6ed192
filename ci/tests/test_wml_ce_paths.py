"""The paths and commands of WML CE's job files, in the environment, as docs/train/migrating.md lists them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from rank_processes import ALLOW_ROOT, PREFIX, own_environment
from tree import ROOT

pytestmark = pytest.mark.slow

LIMIT = 400


def listed(title: str) -> list[tuple[str, str]]:
    """Each path or command of the table with this heading, and what the page says of it."""
    section = (ROOT / "docs/train/migrating.md").read_text().partition("\n## Paths and commands\n")[2]
    table = section.partition(f"\n| {title} | today |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ", 1) for line in table.splitlines()]
    return [(name, text) for cell, text in rows for name in re.findall(r"`([^`]+)`", cell)]


PATHS, COMMANDS = listed("path"), listed("command")
SAMPLES = [name for name, _ in COMMANDS if name.endswith("-install-samples") and "caffe" not in name]
TESTS = [name for name, _ in COMMANDS if name.endswith("-test") and "caffe" not in name]
GONE = [name for name, text in COMMANDS if text.startswith("fails, ")]
SOURCED = [name for name, text in COMMANDS if text.startswith("to be sourced")]


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the script as a user whose environment is active."""
    active = {"CONDA_PREFIX": str(PREFIX), "PATH": f"{PREFIX}/bin:/usr/local/bin:/usr/bin:/bin"}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**own_environment(), **ALLOW_ROOT, **active, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def test_the_page_lists_what_job_files_name() -> None:
    assert len(PATHS) > 25 and len(COMMANDS) > 25
    assert len(SAMPLES) == 10 and len(TESTS) == 6 and len(GONE) == 4 and len(SOURCED) == 4


@pytest.mark.parametrize(("path", "text"), PATHS, ids=[path for path, _ in PATHS])
def test_path(path: str, text: str) -> None:
    file = Path(path.replace("$CONDA_PREFIX", str(PREFIX)))
    assert file.is_absolute()
    if text.startswith("not there"):
        assert not file.exists()
    else:
        assert file.is_file() and file.stat().st_size > 0


@pytest.mark.parametrize(("command", "text"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_command_is_there(command: str, text: str) -> None:
    assert os.access(PREFIX / "bin" / command, os.X_OK) != text.startswith("not there")


@pytest.mark.parametrize("command", SAMPLES)
def test_install_samples(command: str, tmp_path: Path) -> None:
    ended = shell(f"{command} 'my samples'", tmp_path)
    missing = re.search(r"install the package (\S+)$", ended.stderr)
    if missing:
        assert ended.returncode == 1 and not list((PREFIX / "conda-meta").glob(f"{missing[1]}-*.json"))
        return
    assert ended.returncode == 0, ended.stderr
    names = re.findall(r"^  (\S+)$", ended.stdout, re.MULTILINE)
    written = [
        str(file.relative_to(tmp_path / "my samples")) for file in (tmp_path / "my samples").rglob("*.py")
    ]
    assert sorted(names) == sorted(written)
    started = re.search(r"^Start one of them there: .*python (\S+)", ended.stdout, re.MULTILINE)
    assert started and started[1] in written
    again = shell(f"{command} 'my samples'", tmp_path)
    assert again.returncode == 1 and started[1] in again.stderr and "--force" in again.stderr


@pytest.mark.parametrize("command", TESTS)
def test_quick_check(command: str, tmp_path: Path) -> None:
    """In a folder with modules of other packages' names, as users have them."""
    for name in ("numpy", "ddl", "torch", "tensorflow"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user')\n")
    ended = shell(command, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith(f"{command}: passed: ") and ended.stdout.count("\n") == 1


@pytest.mark.parametrize("command", GONE)
def test_command_that_says_what_replaces_it(command: str, tmp_path: Path) -> None:
    ended = shell(f"{command} train --solver x", tmp_path)
    assert ended.returncode == 1 and ended.stderr.startswith(f"{command}: ")


@pytest.mark.parametrize("command", SOURCED)
def test_activation_file(command: str, tmp_path: Path) -> None:
    (tmp_path / "DL").symlink_to(PREFIX)
    component = command.removesuffix("-activate")
    ended = shell(f"source DL/{component}/bin/{command}; source {command}; command -v ddlrun", tmp_path)
    assert ended.returncode == 0 and ended.stdout == f"{PREFIX}/bin/ddlrun\n"
    assert ended.stderr.startswith(f"{command}: ") and ended.stderr.count("\n") == 1


def test_line_of_tensorflow_benchmarks(tmp_path: Path) -> None:
    main = "python $CONDA_PREFIX/tensorflow-benchmarks/resnet50/main.py"
    flags = "--mode=training_benchmark --iter_unit=batch --num_iter=2 --warmup_steps=1 --batch_size=1"
    ended = shell(f"ddlrun -np 2 {main} {flags} --device=cpu", tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^Model: +resnet50$", ended.stdout, re.MULTILINE), ended.stdout
    assert re.search(r"^Batch size: +2 global$", ended.stdout, re.MULTILINE), ended.stdout
    assert "total images/sec: " in ended.stdout
    refused = shell(f"{main} --use_cosine", tmp_path)
    assert refused.returncode == 1 and "unknown flag 'use_cosine'" in refused.stderr
