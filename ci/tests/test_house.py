"""The tree is in order: style, types, and what must never be in the tree."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from tree import ROOT, tracked

# Written in pieces, so that this file does not hold what it forbids.
REGISTRY_HOSTS = [
    "python" + "hosted",
    "pypi" + ".org",
    "deb." + "debian",
    ".debian" + ".org",
    "npm" + "js",
    "ana" + "conda.org",
]
MACHINE_PATHS = ["/wo" + "rk/", "/fa" + "rm/", "/root/.py" + "env", "../sha" + "red"]
LARGEST_FILE = 1 << 20


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


def tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is not in the tool environment: ci/requirements-test.lock must hold it")
    return found


@pytest.mark.parametrize("command", [["check", "."], ["format", "--check", "."]], ids=" ".join)
def test_ruff(command: list[str]) -> None:
    result = run(tool("ruff"), *command)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    "package",
    [
        "mutation",
        "result_cache",
        "wmlce",
        "bare_machine",
        "ratios",
        "ddl_validate",
        "nmt",
        "ddl",
        "ddl_chainer",
        "ddl_drift",
        "ddl_spark",
        "ddl_sweep",
        "ddl_tf1",
        "ddlrun",
        "lms",
        "tf_cnn_benchmarks",
        "wml_ce_commands",
    ],
)
def test_mypy(package: str) -> None:
    result = run(tool("mypy"), "-p", package)
    assert result.returncode == 0, result.stdout


_IMPORT_ALL = """
import importlib, json, pkgutil, sys

absent = set(json.loads(sys.argv[1]))

class Absent:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import wmlce
names = [found.name for found in pkgutil.walk_packages(wmlce.__path__, "wmlce.")]
names += sys.argv[2:]
own = (
    "wmlce.builder.worker", "wmlce.channel.verify.package_test_worker", "wmlce.channel.verify.train_in",
    "wmlce.documentation.hooks",  # MkDocs loads it
)
for name in names:
    if not name.startswith(own) and not name.endswith("__main__"):
        importlib.import_module(name)
for name in sys.argv[2:]:
    importlib.import_module(f"{name}.__main__")
print(len(names))
"""


def test_wmlce_and_the_validation_need_no_tool_of_the_tests() -> None:
    """ci/quickstart installs ci/requirements.lock alone."""
    lock = "".join((ROOT / f"ci/requirements-{name}.lock").read_text() for name in ("docs", "test"))
    names = re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE)
    assert {"mkdocs", "pytest", "scikit-learn"} <= set(names)
    modules = [
        file.parts[0].removesuffix(".py")
        for name in names
        for file in importlib.metadata.files(name) or []
        if file.suffix in (".py", ".so") and ".." not in file.parts
    ]
    programs = ROOT.glob("validation/ddl_validate/*/__main__.py")
    packages = ["ratios", *(f"ddl_validate.{path.parent.name}" for path in sorted(programs))]
    result = run(sys.executable, "-c", _IMPORT_ALL, json.dumps(sorted(set(modules))), *packages)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 150


def test_clang_format() -> None:
    sources = tracked(".h", ".hpp", ".cc", ".cpp", ".c")
    assert sources, "no C++ sources found"
    result = run(tool("clang-format"), "--dry-run", "--Werror", *map(str, sources))
    assert result.returncode == 0, result.stderr


def test_shell_scripts_parse() -> None:
    scripts = [file for file in tracked() if file.suffix == ".sh" or _is_shell(file)]
    assert len(scripts) >= 3
    for script in scripts:
        result = run("bash", "-n", str(script))
        assert result.returncode == 0, f"{script}: {result.stderr}"


def _is_shell(file: Path) -> bool:
    """A shell script that is nothing but one: some launchers are a shell's and Python's program at once."""
    text = file.read_bytes()[:2000]
    return bool(re.match(rb"#!.*\b(ba)?sh\b", text)) and b'"""' not in text


@pytest.mark.parametrize("word", REGISTRY_HOSTS + MACHINE_PATHS)
def test_the_tree_names_no_registry_host_and_no_path_of_a_machine(word: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in tracked()
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
        if word in line
    ]
    assert not found, f"{word!r} is in {found[:10]}"


def test_no_binary_and_no_large_file_is_tracked() -> None:
    for file in tracked():
        data = file.read_bytes()
        assert b"\0" not in data, f"{file} is binary"
        assert len(data) < LARGEST_FILE, f"{file} has {len(data)} bytes"
        # what a program left behind: no file of ours is empty but the marks of typed packages
        assert data or file.name in ("py.typed", "__init__.py"), f"{file} is empty"


@pytest.mark.parametrize("script", ["ci/quickstart", "ci/test", "ci/bench", "ci/bare-machine", "ci/docs"])
def test_entry_scripts_explain_themselves_and_refuse_unknown_words(script: str) -> None:
    helped = run(str(ROOT / script), "--help")
    assert helped.returncode == 0 and helped.stdout.startswith("usage: " + script)
    if script == "ci/quickstart":
        refused = run(str(ROOT / script), "--rnaks", "2")
        assert refused.returncode == 2 and "--rnaks" in refused.stderr
        refused = run(str(ROOT / script), "--ranks", "1 $(id)")
        assert refused.returncode == 2 and "not a list of numbers" in refused.stderr
        refused = run(str(ROOT / script), "--only", "caffe")
        assert refused.returncode == 2 and "--only caffe: not pytorch, keras or ddl" in refused.stderr
    if script == "ci/bench":
        refused = run(str(ROOT / script), "--rceord")
        assert refused.returncode == 2 and "--rceord" in refused.stderr
        refused = run(str(ROOT / script), "--layout")
        assert refused.returncode == 2 and "--layout needs a value" in refused.stderr


# Words that need the sentence around them, so they are poor names: what was *found*, *told* to whom?
VAGUE_NAMES = frozenset(
    re.findall(
        r"\w+",
        "told made found asked wanted there here own left kept known given shown said one words what "
        "began spared",
    )
)
# How many of them an area may still bind; the numbers only fall.
VAGUE_NAMES_ALLOWED = {
    "ci": 0,
    "ddl": 6,
    "validation": 0,
}
AREAS = {
    "ci": "ci",
    "ddl-core": "ddl",
    "extras": "ddl",
    "large-model-support": "ddl",
    "validation": "validation",
}
# Their text is part of the content hash of every wheel's package: another name builds all of them again.
HASHED_SCRIPTS = "ci/wmlce/recipes/scripts/"


def product_python() -> list[tuple[str, Path, ast.Module]]:
    """Area, file and syntax tree of each Python file that is no test."""
    return [
        (AREAS[area], file, ast.parse(file.read_text()))
        for file in tracked(".py")
        for area in file.relative_to(ROOT).parts[:1]
        if area in AREAS
        and "tests" not in file.parts
        and not str(file.relative_to(ROOT)).startswith(HASHED_SCRIPTS)
    ]


def bound_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The names that a program gives to values, functions and modules, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.alias(name=name, asname=other):
                yield other or name, node.lineno


def compare_with_allowance(
    places: Mapping[str, Sequence[str]], allowed: Mapping[str, int], title: str
) -> None:
    for area, number in allowed.items():
        assert len(places[area]) <= number, (
            f"{area} has {len(places[area])} {title}, {number} are allowed: {places[area]}"
        )
        assert len(places[area]) == number, (
            f"{area} has only {len(places[area])} {title}: lower its allowance ({number}) in test_house.py"
        )


def test_names_say_what_they_hold() -> None:
    places: dict[str, list[str]] = {area: [] for area in VAGUE_NAMES_ALLOWED}
    for area, file, tree in product_python():
        for name, line in bound_names(tree):
            if name in VAGUE_NAMES:
                places[area].append(f"{file.relative_to(ROOT)}:{line}: {name}")
    compare_with_allowance(places, VAGUE_NAMES_ALLOWED, "names that need the sentence around them")


# Openings of docstrings that are fragments: a verb or a noun phrase says more.
FRAGMENT = re.compile(r"(Of|That|Those|Likewise|Until|As)\b")
FRAGMENTS_ALLOWED = {
    "ci": 0,
    "ddl": 0,
    "validation": 0,
}


def test_docstrings_begin_with_a_verb_or_a_noun_phrase() -> None:
    places: dict[str, list[str]] = {area: [] for area in FRAGMENTS_ALLOWED}
    for area, file, tree in product_python():
        for node in ast.walk(tree):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))) if FRAGMENT.match(text.strip()):
                    places[area].append(f"{file.relative_to(ROOT)}:{node.lineno}: {text.strip()[:40]}")
    compare_with_allowance(places, FRAGMENTS_ALLOWED, "docstrings that begin as fragments")


# Pairs of wmlce's folders that import each other; to be untied, none to be added.
MUTUAL_IMPORTS = {"envs <-> installer", "envs <-> release", "recipes <-> sources"}


def test_folders_of_wmlce_do_not_import_each_other() -> None:
    """An arrow between two folders has one direction, also where only types are imported."""
    imports: dict[str, set[str]] = {}
    for file in tracked(".py"):
        path = file.relative_to(ROOT)
        if path.parts[:2] != ("ci", "wmlce") or len(path.parts) < 4:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.ImportFrom(module=str(module)):
                    modules = [module, *(f"{module}.{alias.name}" for alias in node.names)]
                case ast.Import():
                    modules = [alias.name for alias in node.names]
                case _:
                    continue
            for module in modules:
                if module.startswith("wmlce.") and (ROOT / "ci/wmlce" / module.split(".")[1]).is_dir():
                    imports.setdefault(path.parts[2], set()).add(module.split(".")[1])
    circles = {
        f"{folder} <-> {other}"
        for folder, others in imports.items()
        for other in others
        if folder < other and folder in imports.get(other, ())
    }
    assert circles == MUTUAL_IMPORTS


def imports_between_parts(package: Path) -> dict[str, set[str]]:
    """Which folders and modules of a package each of its folders and modules imports; types too."""
    parts = {path.stem for path in package.iterdir() if path.is_dir() or path.suffix == ".py"} - {"__init__"}
    imports: dict[str, set[str]] = {}
    for file in tracked(".py"):
        if not file.is_relative_to(package):
            continue
        place = file.relative_to(package.parent).parts
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.ImportFrom(module=module, level=level):
                    base = ".".join([*(place[:-level] if level else ()), *([module] if module else [])])
                    modules = [base, *(f"{base}.{alias.name}" for alias in node.names)]
                case ast.Import():
                    modules = [alias.name for alias in node.names]
                case _:
                    continue
            for name in (module.split(".") for module in modules):
                if name[0] == package.name and len(name) > 1 and name[1] in parts:
                    imports.setdefault(Path(place[1]).stem, set()).add(name[1])
    return {part: others - {part} for part, others in imports.items()}


@pytest.mark.parametrize(
    ("package", "largest"), [("ddl-core/ddlrun/ddlrun", "run"), ("ddl-core/python/ddl", "tensorflow")]
)
def test_parts_of_ddlrun_and_ddl_import_each_other_in_one_direction(package: str, largest: str) -> None:
    """No way along the imports between folders and modules leads back."""
    imports = imports_between_parts(ROOT / package)
    assert len(imports[largest]) >= 3, imports
    imports.pop("__init__", None)  # what users see, on top of everything
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"{package}: parts import each other in a circle: {' -> '.join(error.args[1])}")


def test_folders_of_libddl_include_each_other_in_one_direction() -> None:
    """The folders of libddl's sources are layers: no way along their includes leads back."""
    sources = ROOT / "ddl-core/libddl/src"
    includes: dict[str, set[str]] = {}
    for file in tracked(".cpp", ".hpp"):
        if not file.is_relative_to(sources):
            continue
        folder = file.relative_to(sources).parts[0]
        names = set(re.findall(r'^#include "(\w+)/', file.read_text(), re.MULTILINE))
        includes.setdefault(folder, set()).update(names - {folder})
    assert {"api", "engine", "plan", "collective", "transport"} <= includes.keys()
    try:
        TopologicalSorter(includes).prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        pytest.fail(f"ddl-core/libddl/src: folders include each other in a circle: {circle}")
