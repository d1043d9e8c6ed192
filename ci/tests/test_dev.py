"""`wmlce dev`: what is edited in the clone is what runs, and no update of it changes the clone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from wmlce.envs import development
from wmlce.util.layout import Layout

ROOT = Path(__file__).resolve().parents[2]
DEV = ROOT / "build/envs/dev"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A clone with two packages."""
    files = {
        "pyproject.toml": '[tool.mypy]\nmypy_path = ["core", "more"]\n',
        "core/net/__init__.py": "VERSION = 2\n",
        "core/net/inner/deep.py": "",
        "core/net/data.json": "{}",
        "core/net/__pycache__/stale.cpython-311.pyc": "",
        "more/absent/__init__.py": "",
        "more/hook.py": "HOOK = 2\n",
    }
    _write(tmp_path / "clone", files)
    return Layout(tmp_path / "clone", tmp_path / "cache")


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """An environment in which older ones are installed."""
    site = "lib/python3.11/site-packages"
    _write(
        tmp_path / "env",
        {
            f"{site}/net/__init__.py": "VERSION = 1\n",
            f"{site}/net/removed.py": "",
            f"{site}/net/_core.so": "",
            f"{site}/hook.py": "HOOK = 1\n",
            f"{site}/others/__init__.py": "",
        },
    )
    return tmp_path / "env"


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_installed_packages_are_the_clones(layout: Layout, prefix: Path) -> None:
    linked = development.link_clone(layout, prefix, layout.build / "none")
    assert linked == [layout.root / "core/net", layout.root / "more/hook.py"]
    site = prefix / "lib/python3.11/site-packages"
    assert (site / "net/__init__.py").read_text() == "VERSION = 2\n" and (site / "net/data.json").is_symlink()
    assert (site / "hook.py").read_text() == "HOOK = 2\n" and (site / "net/inner/deep.py").exists()
    assert not (site / "net/removed.py").exists() and (site / "net/_core.so").exists()
    assert not (site / "absent").exists() and not (site / "net/__pycache__").exists()
    assert not (site / "others/__init__.py").is_symlink()


def test_no_folder_is_a_link(layout: Layout, prefix: Path) -> None:
    """An update deletes an environment's files by their paths: through a link it would delete the clone's."""
    development.link_clone(layout, prefix, layout.build / "none")
    assert not [path for path in prefix.rglob("*") if path.is_dir() and path.is_symlink()]
    shutil.rmtree(prefix / "lib/python3.11/site-packages/net")
    assert (layout.root / "core/net/inner/deep.py").exists()


def test_a_renamed_file_needs_another_call_and_leaves_nothing(layout: Layout, prefix: Path) -> None:
    development.link_clone(layout, prefix, layout.build / "none")
    (layout.root / "core/net/inner/deep.py").rename(layout.root / "core/net/inner/deeper.py")
    development.link_clone(layout, prefix, layout.build / "none")
    inner = prefix / "lib/python3.11/site-packages/net/inner"
    assert [path.name for path in inner.iterdir()] == ["deeper.py"]


def test_what_was_compiled_replaces_what_was_installed(layout: Layout, prefix: Path) -> None:
    _write(
        layout.build / "core", {"libddl/libddl.so.9.0.0": "new", "python/bindings/python/_core.x.so": "new"}
    )
    _write(prefix, {"lib/libddl.so.9.0.0": "old"})
    development.link_clone(layout, prefix, layout.build / "core")
    assert (prefix / "lib/libddl.so.9.0.0").read_text() == "new"
    assert (prefix / "lib/python3.11/site-packages/ddl/_core.x.so").read_text() == "new"


needs_dev = pytest.mark.skipif(
    not DEV.exists(), reason="no build/envs/dev: build/tools/bin/wmlce dev makes it"
)


@pytest.mark.slow
@needs_dev
def test_ranks_run_the_clones_files() -> None:
    program = (
        "import ddl, ddlrun, json, os; "
        "maps = [line.split()[-1] for line in open('/proc/self/maps') if 'libddl.so' in line]; "
        "print(ddl.size(), *map(os.path.realpath, (ddl.__file__, ddlrun.__file__, maps[0])), flush=True)"
    )
    words = [str(DEV / "bin/ddlrun"), "-np", "2", "python", "-c", program]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    files = ["ddl-core/python/ddl/__init__.py", "ddl-core/ddlrun/ddlrun/__init__.py"]
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert [line[:3] for line in lines] == [["2", *(str(ROOT / file) for file in files)]] * 2
    assert all(line[3].startswith(str(ROOT / "build/ddl-core/libddl/libddl.so.")) for line in lines), lines


@needs_dev
def test_the_list_of_compilations_works_outside_of_the_build_root(tmp_path: Path) -> None:
    """As clangd reads it: with the system's headers of the build root."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++: apt-get install g++")
    entries = json.loads((ROOT / "compile_commands.json").read_text())
    files = {os.path.relpath(entry["file"], ROOT) for entry in entries}
    assert {"ddl-core/libddl/src/plan/planner.cpp", "ddl-core/python/bindings/python/module.cpp"} <= files
    [entry] = [one for one in entries if one["file"].endswith("src/support/number.cpp")]
    words = [compiler, *entry["command"].split()[1:], "-fsyntax-only"]
    ran = subprocess.run(
        words, cwd=entry["directory"], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
