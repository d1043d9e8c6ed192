"""The channel beside conda-forge: both orders, strict and flexible priority.

Two of the channel's forms are looked at: build/channel/beside-conda-forge, which is made for this, and the
whole channel, which also holds Python and low-level libraries. Ours is what the recipes make (and, where a
channel has been built, what that one holds); conda-forge is ci/tests/conda_forge.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from conda_forge_index import Package, Solution, conda_forge, own_channel, published, solved, write_channel
from rattler import ChannelPriority, MatchSpec
from scratch_clone import Clone
from tree import ROOT
from wmlce.builder.plan import Plan
from wmlce.channel import conda_forge_overlay
from wmlce.recipes.recipe_set import RecipeSet, load_source_lock
from wmlce.util.layout import Layout

STRICT, FLEXIBLE = ChannelPriority.Strict, ChannelPriority.Flexible
COMBINATIONS = [
    pytest.param(first, priority, id=f"{first}-first-{name}")
    for first in ("ours", "forge")
    for name, priority in (("strict", STRICT), ("flexible", FLEXIBLE))
]
LEAVES = [
    "accelerate",
    "cmake",
    "ffmpeg",
    "gxx_linux-64",
    "jupyterlab",
    "matplotlib-base",
    "pandas",
    "pillow",
    "qhull",
    "r-base",
    "sqlite",
    "tensorflow-hub",
    "transformers",
    "xz",
]
"""Packages of conda-forge that need its C libraries and compilers' runtimes, or Python packages of both."""
NEEDS_OUR_NAMES = {"accelerate", "tensorflow-hub"}
"""Those that ask for `pytorch` or `tensorflow`, names that are conda-forge's alone where it comes first."""
NEVER_HERE = {"libtorch", "libtensorflow_cc", "libtensorflow_framework", "libpmix", "pytorch-cpu"}
"""Parts of conda-forge's PyTorch, TensorFlow and Open MPI."""
FRAMEWORKS = {"horovod", "mpi4py", "openmpi", "pytorch", "tensorflow", "tensorflow-base", "tensorflow-cpu"}
RUNTIMES = [
    "libgcc",
    "libstdcxx",
    "libzlib",
    "libffi",
    "liblzma",
    "libsqlite",
    "ncurses",
    "openssl",
    "python",
]
LAYOUT = Layout(ROOT, ROOT / "build")


def built_channel() -> Path | None:
    folder = ROOT / "build" / "channel"
    return folder if (folder / conda_forge_overlay.FOLDER).is_dir() else None


@pytest.fixture(scope="module", params=["recipes", "built"])
def ours(request: pytest.FixtureRequest) -> list[Package]:
    """The whole channel."""
    if request.param == "recipes":
        return own_channel(LAYOUT)
    folder = built_channel()
    if folder is None:
        pytest.skip("there is no build/channel with a part for users of conda-forge: wmlce channel build")
    packages = published(folder)
    if not {"powerai", "ddl-pytorch"} <= {package.name for package in packages}:
        pytest.skip("build/channel holds only some of the packages: wmlce channel build")
    return packages


@pytest.fixture(scope="module")
def channels(ours: list[Package], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("channels")
    names = conda_forge_overlay.listed(LAYOUT)
    forge = conda_forge(package.name for package in ours)
    # the day on which conda-forge publishes the very versions that are here
    same = {
        package.name: package.version
        for package in ours
        if package.name in FRAMEWORKS | {"tf-keras"} and "powerai_" in package.build
    }
    forge += [replace(package, version=same[package.name]) for package in forge if same.get(package.name)]
    return {
        "beside": write_channel(folder / "beside", [p for p in ours if p.name in names]),
        "whole": write_channel(folder / "whole", ours),
        "forge": write_channel(folder / "forge", forge),
    }


def solve(
    channels: dict[str, Path], first: str, priority: ChannelPriority, *specs: str, form: str = "beside"
) -> Solution | str:
    order = [channels[form], channels["forge"]]
    return solved(order if first == "ours" else order[::-1], priority, *specs)


def check_ours_together(solution: Solution) -> None:
    """What is compiled against each other is ours, with nothing of conda-forge's builds of the same."""
    assert not NEVER_HERE & solution.records.keys()
    for name in FRAMEWORKS & solution.records.keys():
        assert solution.where(name) != "forge", f"{name} is conda-forge's"
    for name in ("ddl", "libddl", "ddl-pytorch", "ddl-tensorflow", "powerai-pytorch", "powerai-tensorflow"):
        assert name in solution.records


@pytest.mark.parametrize(("first", "priority"), COMBINATIONS)
def test_powerai_with_the_rest_from_conda_forge(
    channels: dict[str, Path], first: str, priority: ChannelPriority
) -> None:
    solution = solve(channels, first, priority, "powerai")
    assert isinstance(solution, Solution), solution
    check_ours_together(solution)
    assert {name: solution.where(name) for name in RUNTIMES} == dict.fromkeys(RUNTIMES, "forge")


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize(("first", "priority"), COMBINATIONS)
def test_powerai_with_packages_of_conda_forge(
    channels: dict[str, Path], first: str, priority: ChannelPriority, leaf: str
) -> None:
    solution = solve(channels, first, priority, "powerai", leaf)
    if leaf in NEEDS_OUR_NAMES and (first, priority) == ("forge", STRICT):
        assert isinstance(solution, str), "conda-forge's PyTorch or TensorFlow under DDL"
        return
    assert isinstance(solution, Solution), solution
    check_ours_together(solution)
    assert solution.where(leaf) == "forge"


@pytest.mark.parametrize(("first", "priority"), COMBINATIONS)
def test_everything_at_once(channels: dict[str, Path], first: str, priority: ChannelPriority) -> None:
    leaves = [leaf for leaf in LEAVES if leaf not in NEEDS_OUR_NAMES or first == "ours"]
    solution = solve(channels, first, priority, "powerai", *leaves)
    assert isinstance(solution, Solution), solution
    check_ours_together(solution)


@pytest.mark.parametrize(
    "request_",
    [
        ("torchvision * cpu_py311h0000000_0",),
        ("pytorch-cpu",),
        ("pytorch 2.10.*",),
        ("pytorch * cpu_generic*",),
        ("tensorflow 2.19.*",),
        ("tensorflow-base * cpu_py311*",),
        ("mpich",),
        ("openmpi 5.0.10.*",),
        ("openmpi * h0000000_100",),
        ("mpi4py * py311h0000000_2",),
        ("mpi * mpich",),
        ("h5py * mpi_mpich*",),
        ("tf-keras * pyhd8ed1ab_0",),
        ("horovod * cpu_mpi_openmpi_h*",),
        ("libtorch",),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(("first", "priority"), COMBINATIONS)
def test_never_with_conda_forges_builds_of_the_same(
    channels: dict[str, Path], first: str, priority: ChannelPriority, request_: tuple[str, ...]
) -> None:
    """Any solution would mix what was not built for each other, whichever a solver prefers; so there is none,
    even for the same version.
    """
    solution = solve(channels, first, priority, "powerai", *request_)
    assert isinstance(solution, str), sorted(solution.records)


@pytest.mark.parametrize("name", sorted(FRAMEWORKS | {"tf-keras", "torchvision"}))
@pytest.mark.parametrize("priority", [STRICT, FLEXIBLE], ids=["strict", "flexible"])
def test_conda_forges_names_bring_ours(
    channels: dict[str, Path], priority: ChannelPriority, name: str
) -> None:
    solution = solve(channels, "ours", priority, "powerai-release", "ddl", name)
    assert isinstance(solution, Solution), solution
    assert solution.where(name) == "beside"


def test_mpi_programs_of_conda_forge_run_on_our_open_mpi(channels: dict[str, Path]) -> None:
    solution = solve(channels, "ours", STRICT, "powerai", "h5py * mpi_openmpi*", "mpi")
    assert isinstance(solution, Solution), solution
    check_ours_together(solution)
    assert str(solution.records["mpi"].build) == "openmpi"
    assert solution.where("openmpi") == "beside"


@pytest.mark.parametrize(
    "specs",
    [
        ("python 3.12.*", "numpy >=2.5"),
        ("ffmpeg", "openssl >=3.6", "libgcc >=16", "libffi >=3.7"),
        ("r-base", "gxx_linux-64"),
        ("jupyterlab", "pandas"),
    ],
    ids=" ".join,
)
def test_other_environments_are_conda_forges_alone(channels: dict[str, Path], specs: tuple[str, ...]) -> None:
    """With this channel first in the configuration, and strict priority, nothing is hidden from them."""
    solution = solve(channels, "ours", STRICT, *specs)
    assert isinstance(solution, Solution), solution
    assert {solution.where(name) for name in solution.records} == {"forge"}


@pytest.mark.parametrize("priority", [STRICT, FLEXIBLE], ids=["strict", "flexible"])
def test_whole_channel_needs_no_other(channels: dict[str, Path], priority: ChannelPriority) -> None:
    alone = solved([channels["whole"]], priority, "powerai")
    assert isinstance(alone, Solution), alone
    first = solve(channels, "ours", STRICT, "powerai", form="whole")
    assert isinstance(first, Solution), first
    assert {first.where(name) for name in first.records} == {"whole"}


def test_whole_channel_below_conda_forge(channels: dict[str, Path]) -> None:
    solution = solve(channels, "forge", STRICT, "powerai", "ffmpeg", "jupyterlab", form="whole")
    assert isinstance(solution, Solution), solution
    check_ours_together(solution)
    assert {name: solution.where(name) for name in RUNTIMES} == dict.fromkeys(RUNTIMES, "forge")


@pytest.mark.parametrize("priority", [STRICT, FLEXIBLE], ids=["strict", "flexible"])
def test_environment_of_the_whole_channel_grows(channels: dict[str, Path], priority: ChannelPriority) -> None:
    """A clone of the module's environment, to which a user adds packages of conda-forge."""
    there = solved([channels["whole"]], STRICT, "powerai")
    assert isinstance(there, Solution), there
    both = [channels["beside"], channels["forge"]]
    grown = solved(both, priority, "powerai", "ffmpeg", "pandas", installed=there)
    assert isinstance(grown, Solution), grown
    check_ours_together(grown)
    assert grown.where("powerai-pytorch") == "whole" and grown.where("libgcc") == "forge"


@pytest.mark.parametrize("first", ["ours", "forge"])
def test_whole_channel_in_flexible_priority(channels: dict[str, Path], first: str) -> None:
    """Not what the page recommends; still, newer libraries win where a package of conda-forge needs them."""
    leaves = [leaf for leaf in LEAVES if leaf not in NEEDS_OUR_NAMES or first == "ours"]
    solution = solve(channels, first, FLEXIBLE, "powerai", *leaves, form="whole")
    assert isinstance(solution, Solution), solution
    check_ours_together(solution)
    assert solution.where("libgcc") == "forge"


def test_whole_channel_first_with_strict_priority_hides(channels: dict[str, Path]) -> None:
    """With this form no package of conda-forge can be had, as docs/cluster/conda-forge.md says."""
    assert isinstance(solve(channels, "ours", STRICT, "powerai", "ffmpeg", form="whole"), str)
    assert isinstance(solve(channels, "ours", STRICT, "python 3.12.*", form="whole"), str)


def test_only_own_names_and_those_of_the_frameworks_are_published_beside(ours: list[Package]) -> None:
    names = conda_forge_overlay.listed(LAYOUT)
    have = {package.name for package in ours}
    assert names <= have, f"listed and not made: {sorted(names - have)}"
    theirs = {package.name for package in conda_forge(have)}
    assert names & theirs <= FRAMEWORKS | {"tf-keras", "torchvision"}
    for name in ("gcc_linux-64", "gxx_linux-64", "libgcc-ng", "_openmp_mutex", "mpi", "libtorch", "libclang"):
        assert name not in have, f"{name} is another thing in conda-forge"


def test_names_of_the_frameworks_have_the_versions_of_what_they_stand_for(ours: list[Package]) -> None:
    found = {package.name: package for package in ours}
    for name in [*FRAMEWORKS, "tf-keras"]:
        alias = found[name]
        assert "powerai_" in alias.build and len(alias.depends) == 1
        behind = MatchSpec(alias.depends[0])
        assert behind.name is not None
        target = found[behind.name.normalized]
        assert target.version == alias.version
        if target.name.startswith("powerai-"):
            mine = [spec for spec in target.constrains if spec.split()[0] == name]
            assert mine == [f"{name} =={alias.version} *powerai_*"]


def test_release_holds_all_that_is_made_here() -> None:
    """powerai-release pins each package of this channel's own; other names for them depend on those."""
    made = {package.name: package for package in own_channel(LAYOUT)}
    specs = dict(spec.split(" ", 1) for spec in made["powerai-release"].constrains)
    assert specs.keys() == conda_forge_overlay.listed(LAYOUT) - FRAMEWORKS - {"tf-keras", "powerai-release"}
    for name, spec in specs.items():
        assert made[name].version in spec.replace("=", "").split("|"), f"{name} {spec}"


def test_recipes_index_is_what_was_built() -> None:
    """`own_channel` works out what the builder writes; here the two are compared."""
    folder = built_channel()
    if folder is None:
        pytest.skip("there is no build/channel with a part for users of conda-forge: wmlce channel build")
    worked_out = {package.name: package for package in own_channel(LAYOUT)}
    for package in published(folder):
        mine = worked_out[package.name]
        assert {spec.split()[0] for spec in package.depends} >= {spec.split()[0] for spec in mine.depends}
        assert len(package.constrains) == len(mine.constrains)


def test_part_for_users_of_conda_forge(clone: Clone) -> None:
    """It follows the list, is indexed in every form, and goes when the list goes."""
    for name in ("zlib", "ddl"):
        clone.recipe(name, extra={"build": {"noarch": "generic", "script": ["true"]}})
    listing = clone.write("recipes/beside-conda-forge.yaml", "- ddl\n")
    clone.ok("channel", "build")
    part = clone.root / "build/channel/beside-conda-forge"

    def names() -> set[str]:
        return {package.name for package in published(part)}

    assert names() == {"ddl"}
    for subdir in ("linux-64", "noarch"):
        for form in ("repodata.json", "repodata.json.zst", "repodata_shards.msgpack.zst"):
            assert (part / subdir / form).is_file()
    assert {path.name.split("-")[0] for path in part.glob("*/*.conda")} == {"ddl"}
    listing.write_text("- ddl\n- zlib\n")
    clone.ok("channel", "build")
    assert names() == {"ddl", "zlib"}
    clone.ok("channel", "index")
    assert names() == {"ddl", "zlib"}
    listing.unlink()
    clone.ok("channel", "build")
    assert not part.exists()
    listing.write_text("ddl: yes\n")
    failed = clone.run("channel", "build")
    assert failed.returncode != 0 and "not a list of package names" in failed.stderr


def test_example_of_the_page() -> None:
    """The environment.yml of docs/cluster/conda-forge.md names the overlay above conda-forge."""
    text = (ROOT / "docs/cluster/conda-forge.md").read_text()
    document: dict[str, Any] = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    ours_first, forge = document["channels"][:2]
    assert ours_first.endswith(f"/channel/{conda_forge_overlay.FOLDER}") and forge == "conda-forge"
    assert "nodefaults" in document["channels"]


def test_quickstart_makes_conda_forges_names() -> None:
    """`conda install pytorch` finds this channel's, whatever else of the channel has been built."""
    text = (ROOT / "ci/quickstart").read_text()
    [packages] = re.findall(r"^  \*\) packages=\((.*)\) ;;$", text, re.MULTILINE)
    recipes = RecipeSet(LAYOUT)
    plan = Plan(LAYOUT, recipes, load_source_lock(LAYOUT), packages.split())
    made = {name for recipe in plan.order for name in recipes.by_name[recipe].output_names()}
    assert FRAMEWORKS | {"tf-keras", "powerai"} <= made
