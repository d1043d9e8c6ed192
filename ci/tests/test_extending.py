"""Clones and overlays: what a user without any right in the software tree adds, in places of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import module_systems
import pytest
from local_wheels import make_wheel
from scratch_clone import Clone
from tree import ROOT
from wmlce.util.files import remove_tree

CHANNEL = ROOT / "build" / "channel"
_NOBODY = 65534
_TRAIN = """\
import sys
import ddl, extra
import numpy as np

x, weights = np.arange(8.0) + 8 * ddl.rank(), np.zeros(2)
for _ in range(400):
    error = weights[0] * x / 16 + weights[1] - (3 * x / 16 + 2)
    gradient = np.array([(error * x / 16).mean(), error.mean()])
    weights -= 0.5 * ddl.allreduce(gradient) / ddl.size()
assert ddl.size() == 2 and np.allclose(weights, [3, 2], atol=1e-2), weights
print("trained with", extra.__version__, "in", sys.prefix)
"""


@pytest.fixture
def python_clone(clone: Clone) -> Clone:
    """A clone of the project whose channel is the real one."""
    (clone.root / "build").mkdir()
    (clone.root / "build/channel").symlink_to(CHANNEL)
    return clone


def _content(prefix: Path) -> dict[str, bytes | str]:
    """Every file and link but the installers' own records."""
    found: dict[str, bytes | str] = {}
    for path in prefix.rglob("*"):
        name = str(path.relative_to(prefix))
        if name.startswith("conda-meta/"):
            continue
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes() + bytes([path.stat().st_mode & 0o111 != 0])
    return found


def test_a_clone_is_what_an_installation_there_would_be(python_clone: Clone) -> None:
    clone, envs = python_clone, python_clone.root / "build/envs"
    for name in ("s", "quite-a-longer-name"):
        clone.ok("env", "create", name, "python", "pip")
    (envs / "s").rename(envs / "kept-s")
    result = clone.ok("env", "clone", "quite-a-longer-name", "s")
    assert result["files"] > 3000 and result["shared"] > 0.9 * result["files"]
    _same(envs / "kept-s", envs / "s")
    # and longer again, which is a clone of a clone
    (envs / "quite-a-longer-name").rename(envs / "kept-longer")
    clone.ok("env", "clone", "s", "quite-a-longer-name", "--copy")
    _same(envs / "kept-longer", envs / "quite-a-longer-name")
    listed = {item["name"]: item["complete"] for item in clone.ok("env", "list")}
    assert listed["s"] and listed["quite-a-longer-name"]
    shown = subprocess.check_output(
        [envs / "quite-a-longer-name/bin/python", "-c", "import ssl; print(ssl.get_default_verify_paths())"],
        text=True,
    )
    assert f"{envs}/quite-a-longer-name/ssl" in shown

    far = envs / ("a" * 120) / "b"
    clone.ok("env", "clone", "s", str(far))
    # too long for a script's first line, and still every script starts
    said = subprocess.check_output([far / "bin/pip", "--version"], text=True)
    assert str(far) in said
    subprocess.run([far / "bin/pydoc3.11", "math"], check=True, stdout=subprocess.DEVNULL)

    fails = clone.fails
    assert "exists already" in fails("env", "clone", "s", "quite-a-longer-name")
    assert "is not an environment" in fails("env", "clone", "nothing", "t")
    assert "cannot cope" in fails("env", "clone", "s", "./a b")
    assert "lies inside" in fails("env", "clone", "s", f"{envs}/s/in")
    assert "too long" in fails("env", "clone", "s", f"{envs}/{'a' * 200}/{'b' * 100}")
    # nothing half-made stays behind
    assert not list(envs.rglob("*.part-*"))


def _same(installed: Path, cloned: Path) -> None:
    wanted, found = _content(installed), _content(cloned)
    assert wanted.keys() == found.keys()
    differing = [name for name in wanted if wanted[name] != found[name]]
    assert differing == []


@pytest.fixture(scope="module")
def user_and_module() -> Iterator[tuple[Path, Path, list[str]]]:
    """A folder of a user who owns nothing else, the folder of modulefiles, and how to become that user."""
    folder = Path(tempfile.mkdtemp(prefix="wmlce-module-"))
    folder.chmod(0o755)
    try:
        tree, home = folder / "sw", folder / "home"
        clone = Clone(folder / "clone", Path(os.environ.get("WMLCE_CACHE") or folder / "cache"))
        shutil.copytree(ROOT / "modulefiles", clone.root / "modulefiles")
        wished = ["ddl", "pip", "--from", str(CHANNEL), "--no-compile"]
        clone.ok("module", "install", "--prefix", str(tree), *wished)
        home.mkdir()
        become: list[str] = []
        if os.geteuid() == 0:
            os.chown(home, _NOBODY, _NOBODY)
            become = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
        yield home, tree / "modulefiles", become
    finally:
        remove_tree(folder)


@pytest.mark.long
def test_a_user_loads_extends_and_trains(user_and_module: tuple[Path, Path, list[str]]) -> None:
    home, modulepath, become = user_and_module
    system = module_systems.lmod()
    source = '__version__ = "1.5"\n\n\ndef main() -> None:\n    print("extra-tool runs")\n'
    files = {"extra/__init__.py": source}
    make_wheel(home, "extra", "1.5", files=files, entry_points="[console_scripts]\nextra-tool = extra:main\n")
    (home / "train.py").write_text(_TRAIN)
    # of another Python: the module keeps them out
    for folder in (home / "host", home / ".local/lib/python3.11/site-packages"):
        folder.mkdir(parents=True)
        (folder / "ddl.py").write_text("raise SystemExit('the wrong ddl')\n")
    for path in [home / ".local", *(home / ".local").rglob("*")] if become else []:
        os.chown(path, _NOBODY, _NOBODY)
    install = "pip install --quiet --no-index --no-deps extra-1.5-py3-none-any.whl"
    script = f"""\
set -e
cd "$HOME"
module() {{ eval "$({system.command} bash "$@")"; }}
module load ibm-wml-ce
python -c 'import ddl; print("loaded", ddl.size())'
rm -r .local
PIP_USER=0 {install} 2>refused && exit 9
wmlce env overlay over
wmlce env clone mine
wmlce env clone mine 2>again && exit 9
(. over/bin/activate && {install} && extra-tool && ddlrun -np 2 python train.py)
(PATH=$HOME/mine/bin:$PATH && {install} && ddlrun -np 2 python train.py)
python -c 'import extra' 2>absent && exit 9
env -i PATH=/usr/bin:/bin HOME="$HOME" "$HOME/over/bin/ddlrun" -np 2 python train.py
echo end
"""
    result = subprocess.run(
        [*become, "bash", "-c", script],
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "PYTHONPATH": str(home / "host"),
            "MODULEPATH": str(modulepath),
            "LMOD_IGNORE_CACHE": "yes",
            "OMPI_MCA_mpi_yield_when_idle": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = result.stdout + result.stderr
    assert result.returncode == 0 and result.stdout.endswith("end\n"), said
    assert "loaded 1" in said and "extra-tool runs" in said
    assert result.stdout.count(f"trained with 1.5 in {home}/over") == 4, said
    assert result.stdout.count(f"trained with 1.5 in {home}/mine") == 2, said
    assert "exists already" in (home / "again").read_text()
    assert "No module named 'extra'" in (home / "absent").read_text()
    assert re.search(r"[Pp]ermission denied", (home / "refused").read_text())
