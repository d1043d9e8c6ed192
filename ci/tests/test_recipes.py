"""The recipes as a whole: one release number, sources both locked and used, keys of the v1 schema."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from wmlce.recipes import name_map
from wmlce.recipes.licenses import canonical
from wmlce.recipes.recipe_set import RecipeSet, read_variants
from wmlce.recipes.wheel_lock import WheelLock, read_config
from wmlce.sources.model import read_source_lock
from wmlce.util.layout import Layout

ROOT = Path(__file__).resolve().parents[2]
LAYOUT = Layout(ROOT, ROOT / "build")
RECIPES = ROOT / "recipes"
FOLDERS = sorted(path.parent for path in RECIPES.glob("*/recipe.yaml"))
PINNED = re.compile(r"^\s*- (?:powerai-)?(?:python|pytorch|tensorflow(?:-base)?|tf-keras) [=]*\d")
OWN = {
    *("ddl", "ddl-bench", "ddl-chainer", "ddl-pytorch", "ddl-spark", "ddl-sweep", "ddl-tensorflow", "ddlrun"),
    *("large-model-support", "libddl", "nmt", "powerai", "tf-cnn-benchmarks"),
    "wml-ce-commands",
}
TOP_KEYS = {
    "schema_version", "context", "package", "recipe", "source", "build", "requirements", "tests", "outputs",
    "about", "extra",
}  # fmt: skip


def text_of(folder: Path) -> str:
    return (folder / "recipe.yaml").read_text()


def test_release_is_the_one_in_VERSION() -> None:
    variants = yaml.safe_load((RECIPES / "variants.yaml").read_text())
    assert variants["release"] == [(ROOT / "VERSION").read_text().strip()]


def test_pins_of_the_variants_are_those_of_the_locks() -> None:
    """recipes/variants.yaml is the one place for the frameworks, ci/wmlce/util/python.py for Python."""
    variants = yaml.safe_load(read_variants(LAYOUT))
    lock = yaml.safe_load((RECIPES / "wheels.lock.yaml").read_text())
    versions = {wheel["name"]: wheel["version"].partition("+")[0] for wheel in lock["packages"]}
    assert variants["pytorch"] == [versions["torch"]]
    assert variants["tensorflow"] == [versions["tensorflow-cpu"]] == [versions["tf-keras"]]
    assert variants["python"] == [f"{lock['python']}.* *_cpython"] and WheelLock().python == lock["python"]
    [python] = RecipeSet(LAYOUT).by_name["python"].outputs
    [source] = [entry for entry in read_source_lock(LAYOUT) if entry.recipes == ["python"]]
    assert source.version.startswith(f"{python.version}-") and python.version.startswith(f"{lock['python']}.")


def test_reading_recipes_writes_none_of_them() -> None:
    """Commands run at the same time in one clone: one that writes a file may leave another an empty one."""
    files = [file for file in RECIPES.rglob("*") if file.is_file()]
    before = {file: (file.stat().st_mtime_ns, file.stat().st_ino) for file in files}
    written = [recipe for recipe in RecipeSet(LAYOUT).by_name.values() if not recipe.generated]
    assert len(written) > 50 and all(recipe.outputs for recipe in written)
    assert {file: (file.stat().st_mtime_ns, file.stat().st_ino) for file in files} == before


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_pinned_versions_are_not_repeated(folder: Path) -> None:
    """`pytorch`, `tensorflow` and `python` stand in variants.yaml alone."""
    if folder.name in ("python", "python_abi"):  # these are what is pinned
        return
    pinned = [line for line in text_of(folder).splitlines() if PINNED.search(line)]
    assert not pinned, f"write ${{{{ pytorch }}}}, ${{{{ tensorflow }}}}, ${{{{ python }}}}: {pinned}"


@pytest.mark.parametrize("name", sorted(OWN))
def test_own_packages_take_the_release(name: str) -> None:
    document = yaml.safe_load(text_of(RECIPES / name))
    version = (document.get("package") or document.get("recipe"))["version"]
    assert version == "${{ release }}"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_recipe_has_keys_of_the_schema_a_licence_and_a_test(folder: Path) -> None:
    document = yaml.safe_load(text_of(folder))
    assert set(document) <= TOP_KEYS
    assert document["schema_version"] == 1
    for output in document.get("outputs", [document]):
        assert output.get("tests"), "a package without a test"
        license_ = output["about"]["license"]
        assert canonical(license_) == license_
        assert output["about"]["summary"]


def test_locked_sources_and_recipes_name_the_same_files() -> None:
    known = name_map.values(LAYOUT)
    used = {
        name: set(re.findall(r"\.\./build/sources/(\S+)", name_map.filled(text_of(RECIPES / name), known)))
        for name in (folder.name for folder in FOLDERS)
    }
    # the compilers' runtime comes out of the build root's own packages
    root = yaml.safe_load((RECIPES / "build-root.lock.yaml").read_text())
    of_root = {file["name"] for entry in root for file in entry["files"] if entry["origin"] == "debian"}
    used = {name: files - of_root for name, files in used.items()}
    # wheels' recipes are generated; some take the text of a licence from a wheel of others
    for name, rules in read_config(LAYOUT).packages.items():
        used[read_config(LAYOUT).conda_name(name)] = set(name_map.filled([*rules.license_from], known))
    locked: dict[str, set[str]] = {}
    for entry in yaml.safe_load((RECIPES / "sources.lock.yaml").read_text()):
        for recipe in entry["recipes"]:
            locked.setdefault(recipe, set()).update(file["name"] for file in entry["files"])
    assert {name: files for name, files in used.items() if files} == locked


def packed_modules(folder: Path) -> dict[Path, Path]:
    """The Python files of this tree that a recipe packs: where they lie in the package, and here."""
    sources = yaml.safe_load(text_of(folder)).get("source", [])
    packed = {}
    for source in sources if isinstance(sources, list) else [sources]:
        here = (folder / source.get("path", "")).resolve()
        if not here.is_relative_to(ROOT / "validation"):
            continue
        there = Path(source.get("target_directory", "."))
        if here.is_dir():
            packed |= {there / file.relative_to(here): file for file in here.rglob("*.py")}
        elif here.suffix == ".py":
            packed[there / here.name] = here
    return packed


def relative_imports(file: Path) -> Iterator[tuple[int, str]]:
    """Level and module of each relative import; for ``from . import name`` the names that are modules."""
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        if node.module:
            yield node.level, node.module
            continue
        beside = file.parents[node.level - 1]
        for name in (alias.name for alias in node.names):
            if (beside / f"{name}.py").exists() or (beside / name).is_dir():
                yield node.level, name


PACKERS = [folder for folder in FOLDERS if packed_modules(folder)]


def test_programs_of_this_tree_are_packed() -> None:
    assert {"ddl-bench", "nmt", "tf-cnn-benchmarks"} <= {folder.name for folder in PACKERS}


@pytest.mark.parametrize("folder", PACKERS, ids=lambda folder: folder.name)
def test_what_a_packed_module_imports_is_packed(folder: Path) -> None:
    packed = packed_modules(folder)
    missing = []
    for there, here in packed.items():
        for level, module in relative_imports(here):
            if level > len(there.parts):
                missing.append(f"{here.relative_to(ROOT)}: {'.' * level}{module} is above the package")
                continue
            target = there.parents[level - 1] / module.replace(".", "/")
            if target.with_suffix(".py") not in packed and not any(target in file.parents for file in packed):
                missing.append(f"{here.relative_to(ROOT)}: {'.' * level}{module}")
    assert not missing, f"recipes/{folder.name}/recipe.yaml does not pack: {missing}"
