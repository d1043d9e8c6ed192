"""From PyPI names to packages: lock, generate, build, install."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from local_wheels import make_wheel, pip_wheel, python_recipes
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from rattler import Version as CondaVersion
from rattler import VersionSpec
from scratch_clone import Clone
from tree import ROOT
from wmlce.recipes.generate import conda_spec, python_spec
from wmlce.recipes.licenses import canonical, stated_license
from wmlce.recipes.wheel_lock import WheelConfig, WheelRules, read_config, read_wheel_lock
from wmlce.sources.relock_wheels import console_scripts, modules
from wmlce.util.layout import Layout

LEAVE_OUT = ROOT / "ci/wmlce/recipes/scripts/leave_out.py"
ONE_PYTHON = ROOT / "ci/wmlce/recipes/scripts/one_python.py"
RELEASES = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))


@st.composite
def specifiers(draw: st.DrawFn) -> str:
    clauses = []
    for _ in range(draw(st.integers(1, 3))):
        operator = draw(st.sampled_from([">=", "<=", "<", ">", "==", "!=", "~=", "==*"]))
        release = draw(RELEASES)
        if operator == "~=" and "." not in release:
            release += ".0"
        clauses.append(f"=={release}.*" if operator == "==*" else f"{operator}{release}")
    return ",".join(clauses)


@settings(max_examples=300)
@given(specifiers(), RELEASES)
def test_version_specs_mean_the_same_to_conda(specifier: str, release: str) -> None:
    """For released versions the generated match spec accepts exactly what PyPI's specifier accepts."""
    spec = conda_spec(Requirement(f"a{specifier}"), WheelConfig(), WheelRules()).partition(" ")[2]
    expected = SpecifierSet(specifier).contains(Version(release))
    assert VersionSpec(spec).matches(CondaVersion(release)) == expected, (specifier, spec, release)


def test_names_pins_and_replacements() -> None:
    choice = WheelConfig(
        rename={"torch": "pytorch", "tensorflow_cpu": "tensorflow-cpu"},
        replace={"tensorflow": "tensorflow-cpu"},
    )
    assert conda_spec(Requirement("Torch>=2.1"), choice, WheelRules()) == "pytorch >=2.1"
    assert conda_spec(Requirement("tensorflow~=2.21"), choice, WheelRules()) == "tensorflow-cpu >=2.21,<3"
    assert conda_spec(Requirement("mpmath"), choice, WheelRules(pins={"mpmath": "<1.4"})) == "mpmath <1.4"
    assert python_spec(">=3.9") == ">=3.9"
    assert python_spec(None).startswith(">=")


def test_modules_of_a_wheel() -> None:
    names = [
        "google/protobuf/__init__.py",
        "google/_upb/_message.abi3.so",
        "numpy/__init__.py",
        "numpy/core/__init__.py",
        "numpy.libs/libopenblas.so",
        "six.py",
        "_private.py",
        "fast.cpython-311-x86_64-linux-gnu.so",
        "old.cpython-310-x86_64-linux-gnu.so",
        "tests/__init__.py",
        "x-1.0.data/purelib/inside/__init__.py",
        "x-1.0.data/scripts/tool",
        "x-1.0.dist-info/METADATA",
    ]
    assert modules(names) == ["fast", "google.protobuf", "inside", "numpy", "six"]
    assert modules(["_only.py"]) == ["_only"]


def test_console_scripts() -> None:
    text = "[console_scripts]\nRun = a.b:main [extra]\n[gui_scripts]\nwin=a:gui\n[other]\nx = y\n"
    assert console_scripts(text) == ["Run = a.b:main", "win = a:gui"]


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        ("mit and bsd-3-clause", "ignored", "MIT AND BSD-3-Clause"),
        (None, "apache-2.0", "Apache-2.0"),
        (None, "BSD", None),  # any of three
        (None, "Apache 2.0", None),
        (None, "Dual License", None),
        (None, "Copyright (c) everybody, all rights kept", None),
        (None, None, None),
    ],
)
def test_licences_are_stated_and_never_guessed(
    expression: str | None, text: str | None, expected: str | None
) -> None:
    assert stated_license(expression, text) == expected


def test_every_wheel_has_a_stated_licence() -> None:
    layout = Layout.locate(ROOT)
    config = read_config(layout)
    for wheel in read_wheel_lock(layout).packages:
        license_ = config.rules(wheel.name).license or wheel.license
        assert license_ is not None and canonical(license_) == license_, wheel.name


def test_files_that_are_left_out(tmp_path: Path) -> None:
    """They and their lines in pip's record go; a pattern that fits nothing is an error."""
    info = tmp_path / "torch-1.0.dist-info"
    files = ("torch/bin/test_api", "torch/bin/test_jit", "torch/bin/manager", "torch/test_kept.py")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    info.mkdir()
    (info / "RECORD").write_text("".join(f"{name},sha256=x,1\n" for name in files))
    for patterns, code in ((["torch/bin/test_*"], 0), (["torch/bin/manager", "torch/bin/gone*"], 1)):
        run = subprocess.run(
            [sys.executable, str(LEAVE_OUT), str(info), *patterns],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert run.returncode == code, run.stderr
        left = [name for name in files if (tmp_path / name).exists()]
        assert left == ["torch/bin/manager", "torch/test_kept.py"]
        assert (info / "RECORD").read_text() == "".join(f"{name},sha256=x,1\n" for name in left)
    assert "no file matches torch/bin/gone*" in run.stderr


def test_modules_for_other_versions_of_python_are_left_out(tmp_path: Path) -> None:
    info = tmp_path / "app-1.0.dist-info"
    info.mkdir()
    (tmp_path / "app").mkdir()
    own = f"app/core{sysconfig.get_config_var('EXT_SUFFIX')}"
    files = ["app/__init__.py", own, "app/core.cpython-302-x86_64-linux-gnu.so", "app/core.abi3.so"]
    files.insert(2, "app/core.cpython-314t-x86_64-linux-gnu.so")
    for name in files:
        (tmp_path / name).touch()
    (info / "RECORD").write_text("".join(f"{name},sha256=x,1\n" for name in files))

    def leave_out() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ONE_PYTHON), str(info)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert leave_out().returncode == 0
    kept = ["app/__init__.py", own, "app/core.abi3.so"]
    assert [name for name in files if (tmp_path / name).exists()] == kept
    assert (info / "RECORD").read_text() == "".join(f"{name},sha256=x,1\n" for name in kept)
    # a wheel of which the rule is no longer true
    again = leave_out()
    assert again.returncode == 1 and "0 for other versions of Python" in again.stderr


def test_unknown_key_in_wheels_yaml(clone: Clone) -> None:
    clone.write("recipes/wheels.yaml", "roots: []\nrenames: {torch: pytorch}\n")
    assert "renames" in clone.fails("channel", "build")


def test_from_wheels_to_an_environment(clone: Clone, tmp_path: Path) -> None:
    """Resolve with the real pip, build every wheel, and run what was installed."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the packages python and pip are those of the running interpreter, which is not 3.11")
    links = tmp_path / "links"
    _, pip_version = pip_wheel(links)
    make_wheel(links, "leaf", "1.2.0")
    make_wheel(links, "leaf", "2.0.0")
    make_wheel(links, "substitute", "5.0")
    make_wheel(
        links,
        "app",
        "0.1",
        files={
            "app/__init__.py": "",
            "app/cli.py": "import leaf\n\ndef main():\n    print('app with', leaf.__version__)\n",
        },
        requires=[
            "leaf~=1.0",
            "original>=4",
            "unwanted>=1",
            'windows-only; sys_platform == "win32"',
            'nested; extra == "all"',
        ],
        entry_points="[console_scripts]\nrun-app = app.cli:main\n",
    )
    make_wheel(links, "unwanted", "1.0")
    clone.env |= {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(links),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_EXTRA_INDEX_URL": "",
    }
    python_recipes(clone)
    choice = {
        "roots": [f"pip=={pip_version}", "app==0.1", "substitute==5.0"],
        "rename": {"leaf": "leaf-on-conda"},
        "replace": {"original": "substitute"},
        "drop": {"unwanted": "shown to be superfluous"},
        "packages": {"app": {"commands": ["run-app"]}, "substitute": {"noarch": False}},
    }
    clone.write("recipes/wheels.yaml", yaml.safe_dump(choice))
    locked = clone.ok("lock", "wheels")["packages"]
    assert locked == ["app==0.1", "leaf==1.2.0", f"pip=={pip_version}", "substitute==5.0"]
    text = (clone.root / "recipes/wheels.lock.yaml").read_text()
    clone.ok("lock", "wheels")
    assert (clone.root / "recipes/wheels.lock.yaml").read_text() == text

    recipe = clone.ok("recipe", "render", "app")["outputs"][0]["recipe"]
    assert any(str(spec).startswith("leaf-on-conda") for spec in recipe["requirements"]["run"])
    assert any(str(spec).startswith("substitute >=4") for spec in recipe["requirements"]["run"])
    assert clone.built() == {"python", "python_abi", "pip", "leaf-on-conda", "substitute", "app"}
    names = {name.rsplit("-", 2)[0] for name in clone.published()}
    assert names == {"python", "python_abi", "pip", "leaf-on-conda", "substitute", "app"}
    clone.ok("env", "create", "app")
    prefix = clone.root / "build/envs/app"
    assert subprocess.check_output([prefix / "bin/run-app"], text=True) == "app with 1.2.0\n"
    site = prefix / "lib/python3.11/site-packages"
    metadata = (site / "app-0.1.dist-info/METADATA").read_text()
    head = metadata.partition("\n\n")[0]
    assert "Requires-Dist: substitute>=4" in head and "original" not in head and "unwanted" not in head
    assert "Requires-Dist: not-a-header" in metadata  # the description is left alone
    assert not list(site.glob("*.dist-info/direct_url.json"))
    assert list((site / "substitute/__pycache__").glob("*.pyc"))
    assert clone.built() == set()
