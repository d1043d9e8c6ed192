"""Our programs run nothing that lies in the folder where they are started, in PYTHONPATH, among a user's own
packages or in start files of Python: administrators start them in folders of others.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tree import ROOT, tracked

PREFIX = Path(os.environ.get("DDL_TEST_PREFIX") or ROOT / "build/envs/powerai")
TOOLS = Path(sys.prefix)
_LOADED_BEFORE = {
    *("abc", "codecs", "encodings", "genericpath", "io", "os", "posixpath", "site", "stat"),
    *("_collections_abc", "_sitebuiltins", "zipimport"),
}
"""What Python needs for its start: other files in their place end it before they run."""
_RUN = "open(__file__ + '.ran', 'w').close()\n"
_OURS = ("wmlce", "ddlrun", "ddl", "ddl_validate", "wml_ce_commands", "ratios", "result_cache", "mutation")
_LIBRARIES = ("typer", "click", "rich", "yaml", "pydantic", "numpy", "jinja2", "plotly", "rattler", "pytest")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each module that a program could ask for, each of which leaves a mark."""
    folder = tmp_path_factory.mktemp("hostile")
    for name in {*sys.stdlib_module_names, *_OURS, *_LIBRARIES} - _LOADED_BEFORE:
        (folder / f"{name}.py").write_text(_RUN + "raise SystemExit('a stranger runs')\n")
    for name in ("sitecustomize", "usercustomize", "startup"):
        (folder / f"{name}.py").write_text(_RUN)
    for minor in range(11, 15):
        site = folder / f".local/lib/python3.{minor}/site-packages"
        site.mkdir(parents=True)
        (site / "usercustomize.py").write_text(_RUN)
        (site / "hostile.pth").write_text(f"import os; open({str(site / 'pth.ran')!r}, 'w').close()\n")
    return folder


def environment(hostile: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {
        **kept,
        "HOME": str(hostile),
        "PYTHONPATH": str(hostile),
        "PYTHONUSERBASE": str(hostile / ".local"),
        "PYTHONSTARTUP": str(hostile / "startup.py"),
        **{
            f"{who}_ALLOW_RUN_AS_ROOT{suffix}": "1" for who in ("OMPI", "PRTE") for suffix in ("", "_CONFIRM")
        },
    }


def marks(hostile: Path) -> list[str]:
    return sorted(str(path.relative_to(hostile)) for path in hostile.rglob("*.ran"))


def test_the_folder_is_hostile(hostile: Path) -> None:
    """Python as it starts by default runs it."""
    subprocess.run(
        [sys.executable, "-c", "import typer"],
        cwd=hostile,
        env=environment(hostile),
        capture_output=True,
        check=False,
    )
    assert {"typer.py.ran", "sitecustomize.py.ran"} <= set(marks(hostile))
    for path in hostile.rglob("*.ran"):
        path.unlink()


_FIND_PYTHON = '. "$0"; find_python; PYTHONPATH=$ROOT/ci "$(find_python)" -BPs -m wmlce.builder.sandbox'
_IN_THE_CLONE = {
    "bootstrap": ["bash", "-euc", _FIND_PYTHON, str(ROOT / "ci/bootstrap.sh")],
    "wmlce": [str(TOOLS / "bin/wmlce"), "--help"],
    "wmlce doctor": [str(TOOLS / "bin/wmlce"), "doctor"],
    "wmlce channel plan": [str(TOOLS / "bin/wmlce"), "channel", "plan"],
    **{
        name: [str(ROOT / "ci" / name), "--help"]
        for name in ("result-cache", "mutate", "bare-machine", "bench")
    },
}
_INSTALLED = {
    "ddlrun": ["--help"],
    "ddlrun -np": ["-np", "2", "true"],
    "ddl-bench": ["scenarios"],
    "ddl-gpu-check": ["--help"],
    "wmlce-validate": ["--help"],
    "wmlce-validate sums": ["--only", "sums,published", "--output", "/dev/shm"],
    "ddl-install-samples": ["--help"],
}


@pytest.mark.parametrize("name", _IN_THE_CLONE)
def test_of_the_clone(hostile: Path, name: str) -> None:
    _isolated(hostile, _IN_THE_CLONE[name], (0, 1) if "doctor" in name else (0,))


@pytest.mark.slow
@pytest.mark.parametrize("name", _INSTALLED)
def test_of_an_environment(hostile: Path, name: str, tmp_path: Path) -> None:
    words = [str(tmp_path) if word == "/dev/shm" else word for word in _INSTALLED[name]]
    program = PREFIX / "bin" / name.partition(" ")[0]
    if not program.exists():
        pytest.skip(f"no {program.name} in {PREFIX}: run ci/quickstart")
    _isolated(hostile, [str(program), *words], (0,))


def _isolated(hostile: Path, command: list[str], codes: tuple[int, ...]) -> None:
    done = subprocess.run(
        command,
        cwd=hostile,
        env=environment(hostile),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in codes, done.stdout + done.stderr
    assert marks(hostile) == []


#: What users and tests start, and what runs in the build root, whose folders are the build's own.
_NOT_OURS = re.compile(
    r"(^|/)(tests?|testing|examples)/|conftest\.py$|^recipes/.*/build\.sh$|^ci/wmlce/recipes/generate\.py$"
)
_PYTHON = r'(?:sys\.executable|bin/python"?\)|"python"\)|python\))'
_STARTS = re.compile(
    rf'{_PYTHON}, "-[mc]"'  # the list of a command line
    r'|(?:\$[Pp][Yy][Tt][Hh][Oo][Nn]|\$candidate|/bin/python3?)"? -[A-Za-z]*[mc] '  # a shell
)


def test_every_start_of_python_is_isolated() -> None:
    """Neither `-m` nor `-c` looks into the current folder; see also what is started with PYTHONPATH."""
    found = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if _NOT_OURS.search(name) or path.suffix not in ("", ".py", ".sh"):
            continue
        text = path.read_text(errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            if _STARTS.search(line) and "pytest" not in line:
                found.append(f"{name}:{number}: {line.strip()}")
    assert found == []
