"""The channel's variant for GPUs: its recipes solve as one channel with the others, on hosts with a driver
for CUDA and without. Nothing is built or fetched: the index is worked out from the recipes and locks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from conda_forge_index import Package, Solution, own_channel, solved, write_channel
from packaging.requirements import Requirement
from rattler import ChannelPriority, MatchSpec
from tree import ROOT
from wmlce.channel import conda_forge_overlay
from wmlce.envs import environments
from wmlce.recipes.licenses import PROPRIETARY, canonical, refuse_proprietary
from wmlce.recipes.recipe_set import RecipeSet
from wmlce.recipes.variant import find, merged_values, read_all
from wmlce.recipes.wheel_lock import read_config, read_wheel_lock
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

LAYOUT = Layout(ROOT, ROOT / "build")
CUDA12 = find(LAYOUT, "cuda12")
WITHOUT = (None, "11.8")
WITH = ("12.2", "12.8", "13.0")
CONDA_FORGES = {
    "cuda-cudart", "cuda-cupti", "cuda-nvrtc", "cuda-nvtx", "cudnn", "cusparselt", "libcublas", "libcufft",
    "libcufile", "libcurand", "libcusolver", "libcusparse", "libnvjitlink", "libnvshmem", "nccl", "triton",
}  # fmt: skip
COMPILED_AGAINST = {"ddl-pytorch", "ddl-tensorflow", "horovod-mpi", "powerai-horovod"}


@pytest.fixture(scope="module")
def packages() -> list[Package]:
    """The channel with the variant in it."""
    return own_channel(LAYOUT, CUDA12.name)


@pytest.fixture(scope="module")
def channel(packages: list[Package], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_channel(tmp_path_factory.mktemp("variant") / "channel", packages)


def got(channel: Path, *specs: str, cuda: str | None) -> dict[str, str]:
    """Name -> build string of what is installed for `specs`."""
    solution = solved([channel], ChannelPriority.Strict, *specs, cuda=cuda)
    assert isinstance(solution, Solution), solution
    return {name: str(record.build) for name, record in solution.records.items()}


def of_variant(builds: dict[str, str]) -> set[str]:
    return {name for name, build in builds.items() if CUDA12.owns_build(build)}


def exactly(packages: Iterable[Package]) -> list[str]:
    return [f"{package.name} =={package.version} {package.build}" for package in packages]


@pytest.mark.parametrize("cuda", WITH)
def test_powerai_is_for_gpus_where_there_is_a_driver(channel: Path, cuda: str) -> None:
    builds = got(channel, "powerai", cuda=cuda)
    assert "powerai-gpu" in builds and "powerai-cpu" not in builds
    frameworks = {"powerai-pytorch", "powerai-tensorflow", "powerai-tensorflow-base"}
    assert of_variant(builds) >= frameworks | {"ddl-pytorch", "ddl-tensorflow", "powerai-horovod", "nccl"}
    assert "ddl" in builds and not CUDA12.owns_build(builds["ddl"])


@pytest.mark.parametrize("cuda", WITHOUT)
def test_powerai_is_for_processors_elsewhere(channel: Path, cuda: str | None) -> None:
    builds = got(channel, "powerai", cuda=cuda)
    assert "powerai-cpu" in builds and not of_variant(builds)


@pytest.mark.parametrize("cuda", [*WITHOUT, *WITH])
@pytest.mark.parametrize(
    "name", ["ddl-tensorflow", "horovod", "powerai-cpu", "pytorch", "tensorflow", "tf-keras"]
)
def test_other_names_give_what_they_gave_without_the_variant(
    channel: Path, name: str, cuda: str | None
) -> None:
    """The variant is taken where it is asked for, and by `powerai` alone where it is not."""
    assert not of_variant(got(channel, name, cuda=cuda))


@pytest.mark.parametrize("cuda", [None, "12.8"])
@pytest.mark.parametrize(
    "specs", [("pytorch-gpu", "ddl-pytorch"), ("tensorflow-gpu", "ddl-tensorflow"), ("pytorch=2.10=cuda12*",)]
)
def test_frameworks_for_gpus_by_their_names(channel: Path, specs: tuple[str, ...], cuda: str | None) -> None:
    """They compute on processors where there is no driver, so they can be installed there."""
    builds = got(channel, *specs, cuda=cuda)
    assert {MatchSpec(spec).name.normalized for spec in specs if MatchSpec(spec).name} <= of_variant(builds)  # type: ignore[union-attr]
    assert "nccl" in builds


@pytest.mark.parametrize("cuda", [None, "12.8"])
@pytest.mark.parametrize("name", sorted(COMPILED_AGAINST))
def test_what_is_compiled_against_a_framework_meets_no_other_build(
    packages: list[Package], channel: Path, name: str, cuda: str | None
) -> None:
    own, other = sorted((p for p in packages if p.name == name), key=lambda p: not CUDA12.owns_build(p.build))
    frameworks = [f for f in ("pytorch", "tensorflow") if f in name or "horovod" in name]
    for framework in frameworks:
        builds = got(channel, *exactly([own]), cuda=cuda)
        assert CUDA12.owns_build(builds[f"powerai-{framework}"])
        builds = got(channel, *exactly([other]), cuda=cuda)
        assert not CUDA12.owns_build(builds[f"powerai-{framework}"])
        for build, wrong in ((own, "cpu_"), (other, "cuda12_")):
            answer = solved(
                [channel], ChannelPriority.Strict, *exactly([build]), f"{framework} * {wrong}*", cuda=cuda
            )
            assert isinstance(answer, str), sorted(answer.records)


def test_rapids_beside_the_frameworks(channel: Path) -> None:
    """One environment, with one NCCL; XGBoost for GPUs is taken with it, and by nobody who does not ask."""
    builds = got(channel, "powerai", "powerai-rapids", cuda="12.8")
    rapids = {"cudf", "cuml", "dask-cuda", "dask-cudf", "cupy", "nvidia-dali-python", "xgboost"}
    assert rapids | {"powerai-gpu", "nccl", "libgomp"} <= builds.keys() and rapids <= of_variant(builds)
    assert not CUDA12.owns_build(builds["pandas"]) and not CUDA12.owns_build(builds["dask-core"])
    assert not of_variant(got(channel, "xgboost", "dask", cuda="12.8"))
    assert isinstance(solved([channel], ChannelPriority.Strict, "powerai-rapids"), str)


def test_gpus_and_processors_exclude_each_other(channel: Path) -> None:
    assert isinstance(
        solved([channel], ChannelPriority.Strict, "powerai-gpu", "powerai-cpu", cuda="12.8"), str
    )


def test_every_package_can_be_installed(packages: list[Package], channel: Path) -> None:
    """Closedness, on a host with a driver; without one everything but what says that it needs one."""
    for cuda in (None, "12.8"):
        unsolved = {}
        for package in packages:
            answer = solved([channel], ChannelPriority.Strict, *exactly([package]), cuda=cuda)
            if isinstance(answer, str):
                unsolved[package.name] = answer
        expected = set() if cuda else {"powerai-gpu", "powerai", "powerai-rapids"}
        assert unsolved.keys() == expected, unsolved


def test_override_of_the_hosts_driver(channel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`wmlce`'s own solving, with the variable that conda and mamba know."""

    def names() -> set[str]:
        return {record.name.normalized for record in environments.solve_channel(channel, ["powerai"])}

    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "12.8")
    assert "powerai-gpu" in names()
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "")
    assert "powerai-cpu" in names()


def test_host_without_a_driver_that_asks_for_gpus(channel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "")
    with pytest.raises(WmlceError) as raised:
        environments.solve_channel(channel, ["powerai-gpu"], LAYOUT)
    assert "needs a GPU driver for CUDA 12 or newer; that of this host is none" in raised.value.message
    assert "CONDA_OVERRIDE_CUDA=12.8" in str(raised.value.remedy) and "powerai-cpu" in str(
        raised.value.remedy
    )
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "11.8")
    with pytest.raises(WmlceError, match=r"that of this host is for CUDA 11\.8"):
        environments.solve_channel(channel, ["powerai-gpu"], LAYOUT)


def test_channel_without_the_variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "12.8")
    folder = write_channel(tmp_path / "channel", own_channel(LAYOUT))
    with pytest.raises(WmlceError) as raised:
        environments.solve_channel(folder, ["numpy", "powerai-gpu"], LAYOUT)
    assert "powerai-gpu is a package of the variant cuda12" in raised.value.message
    assert raised.value.remedy == "wmlce channel build --variant cuda12"
    builds = {record.build for record in environments.solve_channel(folder, ["powerai"], LAYOUT)}
    assert not any(CUDA12.owns_build(str(build)) for build in builds)


def test_channel_without_a_package_that_the_variant_has_too(tmp_path: Path) -> None:
    """A channel of some packages alone: the variant would not bring what the channel itself can have."""
    some = [package for package in own_channel(LAYOUT) if package.name != "powerai"]
    folder = write_channel(tmp_path / "channel", some)
    with pytest.raises(WmlceError) as raised:
        environments.solve_channel(folder, ["numpy", "powerai"], LAYOUT)
    assert "powerai is not in this channel" in raised.value.message and "cuda12" not in str(
        raised.value.remedy
    )
    assert "wmlce channel build powerai" in str(raised.value.remedy)


def test_names_are_conda_forges(packages: list[Package]) -> None:
    made = [package.name for package in packages if CUDA12.owns_build(package.build)]
    assert set(made) >= CONDA_FORGES | {"powerai-gpu", "powerai", "pytorch-gpu", "tensorflow-gpu"}
    assert len(made) == len(set(made)), "a package is there twice"


def test_one_nccl_serves_both_frameworks(packages: list[Package]) -> None:
    [nccl] = [package for package in packages if package.name == "nccl"]
    assert tuple(map(int, nccl.version.split("."))) >= (2, 28)
    for framework in ("powerai-pytorch", "powerai-tensorflow-base"):
        [own] = [p for p in packages if p.name == framework and CUDA12.owns_build(p.build)]
        [spec] = [spec for spec in own.depends if spec.split()[0] == "nccl"]
        version = spec.split()[1]
        assert all(
            Requirement(f"nccl{bound}").specifier.contains(nccl.version) for bound in version.split(",")
        ), spec


def test_part_for_users_of_conda_forge_has_no_build_of_the_variant(
    packages: list[Package], channel: Path
) -> None:
    keys = conda_forge_overlay.members(LAYOUT, channel)
    assert any(key.split("/")[1].startswith("powerai-2") for key in keys)
    theirs = {f"{p.subdir}/{p.file}" for p in packages if CUDA12.owns_build(p.build)}
    assert not keys & theirs


def test_values_of_the_variant_are_those_of_its_lock() -> None:
    recipes = RecipeSet(LAYOUT)
    values = yaml.safe_load(merged_values(recipes.variants_text, CUDA12))
    versions = {wheel.name: wheel.version for wheel in read_wheel_lock(LAYOUT, CUDA12).packages}
    assert values["pytorch"] == [versions["torch"]] and values["tensorflow"] == [versions["tensorflow"]]
    # what is not compiled again has to fit: it is compiled or noarch for the same version
    shared = yaml.safe_load(recipes.variants_text or "")
    assert values["tensorflow"] == shared["tensorflow"] and values["python"] == shared["python"]
    own = (ROOT / "recipes/cuda12").glob("*/recipe.yaml")
    for text in (path.read_text() for path in [*own, ROOT / "recipes/cuda12/wheels.yaml"]):
        pinned = set(re.findall(r"(?:powerai-)?pytorch ==([0-9.]+)", text))
        assert pinned <= {versions["torch"]}


def test_lock_is_what_the_file_names() -> None:
    config, lock = read_config(LAYOUT, CUDA12), read_wheel_lock(LAYOUT, CUDA12)
    assert lock.roots == config.roots
    assert {f"{wheel.name}=={wheel.version}" for wheel in lock.packages} == set(lock.roots)
    assert all(wheel.size for wheel in lock.packages), "a download's size cannot be told before it starts"
    assert {wheel.redistribute for wheel in lock.packages} == {True, False}


def test_licences_of_nvidias_packages(packages: list[Package]) -> None:
    """Each has a licence and its text. Those that may not be passed on say so in lock and index."""
    config = read_config(LAYOUT, CUDA12)
    recipes = RecipeSet(LAYOUT)
    families = {package.name: package.license_family for package in packages}
    for wheel in read_wheel_lock(LAYOUT, CUDA12).packages:
        name = config.conda_name(wheel.name)
        about = recipes.find(name, CUDA12.name).outputs[0].rendered["about"]
        assert canonical(about["license"]) == about["license"]
        assert wheel.redistribute == config.rules(wheel.name).redistribute
        assert (families[name] == PROPRIETARY) == (not wheel.redistribute)
        # the text of nvidia-ml-py is at the head of its one module
        if wheel.name != "nvidia-ml-py" and (wheel.name.startswith("nvidia-") or not wheel.redistribute):
            assert about.get("license_file"), f"{wheel.name} brings no text of its licence"
        # Intel's lets anybody pass on what is unmodified
        if "LicenseRef-" in about["license"].replace("LicenseRef-Intel-Simplified-Software", ""):
            assert not wheel.redistribute, f"{wheel.name}: who may pass it on?"
        # what is open, such as DALI, may be changed
        if wheel.name.startswith("nvidia-") and about["license"] not in ("Apache-2.0", "BSD-3-Clause"):
            assert config.rules(wheel.name).unmodified, f"NVIDIA allows no change of {wheel.name}"
    assert families["cudnn"] == PROPRIETARY and families["nccl"] is None


def test_what_is_written_for_others_has_none_of_them(channel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "12.8")
    records = environments.solve_channel(channel, ["powerai-gpu"])
    with pytest.raises(WmlceError, match=r"the installer x\.sh would hold") as raised:
        refuse_proprietary(records, "the installer x.sh")
    assert any(line.startswith("cudnn 9") for line in raised.value.detail)
    assert not any(line.startswith("nccl") for line in raised.value.detail)
    assert "--proprietary" in str(raised.value.remedy)
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "")
    refuse_proprietary(environments.solve_channel(channel, ["powerai"]), "the installer x.sh")


def test_unknown_variant() -> None:
    with pytest.raises(WmlceError) as raised:
        find(LAYOUT, "cuda13")
    assert "no variant 'cuda13'" in raised.value.message and raised.value.remedy == "did you mean cuda12?"
    assert set(read_all(LAYOUT)) == {"cuda12", "plain"}
