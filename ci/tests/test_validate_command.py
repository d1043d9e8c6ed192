"""`wmlce validate`: of the tool, which finds an environment, and of a module, for a user who owns nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import module_systems
import pytest
from scratch_clone import Clone
from tree import ROOT
from wmlce.cli.validate import COMMAND, find_environment
from wmlce.util.errors import WmlceError
from wmlce.util.files import remove_tree

CHANNEL = ROOT / "build" / "channel"
_NOBODY = 65534


def environment(folder: Path, name: str) -> Path:
    """One whose command tells how it was called."""
    prefix = folder / name
    command = prefix / COMMAND
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@"\nexit 15\n')
    command.chmod(0o755)
    return prefix


def test_the_environment_is_the_named_the_active_or_the_clones(tmp_path: Path) -> None:
    one, two = environment(tmp_path, "one"), environment(tmp_path, "two")
    clone = tmp_path / "clone"
    environment(clone / "build/envs", "powerai")
    active = {"CONDA_PREFIX": str(two)}
    assert find_environment(["--level", "daily", "--prefix", str(one)], active, clone) == one
    assert find_environment([f"--prefix={one}"], active, clone) == one
    assert find_environment(["--level", "daily"], active, clone) == two
    assert find_environment([], {}, clone) == clone / "build/envs/powerai"
    assert find_environment([], {"CONDA_PREFIX": str(tmp_path)}, clone) == clone / "build/envs/powerai"
    with pytest.raises(WmlceError, match=f"no {COMMAND} in {tmp_path}"):
        find_environment(["--prefix", str(tmp_path)], active, clone)
    with pytest.raises(WmlceError, match="no environment is active"):
        find_environment([], {}, None)


def test_the_tool_hands_on_every_word_and_the_exit_code(tmp_path: Path) -> None:
    prefix = environment(tmp_path, "mine")
    words = ["validate", "-H", "a,b", "--only", "links", "--json", "--help"]
    told = subprocess.run(
        [sys.executable, "-m", "wmlce", *words],
        env={**os.environ, "CONDA_PREFIX": str(prefix)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.returncode == 15, told.stderr
    assert told.stdout.split() == ["mine", "-H", "a,b", "--only", "links", "--help", "--json"]


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[Path, Path]]:
    """The folder of modulefiles, and the home of a user who owns nothing else."""
    folder = Path(tempfile.mkdtemp(prefix="wmlce-validate-"))
    folder.chmod(0o755)
    try:
        tree, home = folder / "sw", folder / "home"
        clone = Clone(folder / "clone", Path(os.environ.get("WMLCE_CACHE") or folder / "cache"))
        shutil.copytree(ROOT / "modulefiles", clone.root / "modulefiles")
        wished = ["ddl-bench", "--from", str(CHANNEL), "--no-compile"]
        clone.ok("module", "install", "--prefix", str(tree), *wished)
        home.mkdir()
        os.chown(home, _NOBODY if os.geteuid() == 0 else -1, -1)
        yield tree / "modulefiles", home
    finally:
        remove_tree(folder)


@pytest.mark.long
def test_a_user_of_the_module_validates(site: tuple[Path, Path]) -> None:
    modulepath, home = site
    system = module_systems.lmod()
    become = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
    script = f"""\
module() {{ eval "$({system.command} bash "$@")"; }}
module load ibm-wml-ce
cd "$HOME"
wmlce --help | grep -F validate
wmlce validate --only environment,sums,published --output report
wmlce validate --only nothing
echo "exit $?"
"""
    told = subprocess.run(
        [*(become if os.geteuid() == 0 else []), "bash", "-c", script],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "MODULEPATH": str(modulepath),
            "LMOD_IGNORE_CACHE": "yes",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = told.stdout + told.stderr
    assert "passed    sums" in said and "passed    published" in said and "exit 2" in said, said
    assert "--only 'nothing': no such check" in told.stderr
    names = {path.name for path in (home / "report").iterdir()}
    assert names == {"index.html", "validation.json", "figures.csv", "junit.xml", "logs"}
