"""The recipes as a whole: one release number, sources both locked and used, keys of the v1 schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
FOLDERS = sorted(path.parent for path in RECIPES.glob("*/recipe.yaml"))
OWN = {"ddl", "ddl-pytorch", "ddl-tensorflow", "nmt", "powerai", "tf-cnn-benchmarks"}
TOP_KEYS = {
    "schema_version", "context", "package", "recipe", "source", "build", "requirements", "tests", "outputs",
    "about", "extra",
}  # fmt: skip


def text_of(folder: Path) -> str:
    return (folder / "recipe.yaml").read_text()


def test_release_is_the_one_in_VERSION() -> None:
    variants = yaml.safe_load((RECIPES / "variants.yaml").read_text())
    assert variants["release"] == [(ROOT / "VERSION").read_text().strip()]


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
        assert output["about"]["license"]
        assert output["about"]["summary"]


def test_locked_sources_and_recipes_name_the_same_files() -> None:
    used = {
        name: set(re.findall(r"\.\./build/sources/(\S+)", text_of(RECIPES / name)))
        for name in (folder.name for folder in FOLDERS)
    }
    locked: dict[str, set[str]] = {}
    for entry in yaml.safe_load((RECIPES / "sources.lock.yaml").read_text()):
        for recipe in entry["recipes"]:
            locked.setdefault(recipe, set()).update(file["name"] for file in entry["files"])
    assert {name: files for name, files in used.items() if files} == locked
