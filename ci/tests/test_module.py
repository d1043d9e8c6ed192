"""The environment as a module, with the real Lmod and the real Environment Modules: unloading leaves every
variable as it was; an installation is whole or absent, and nobody can write into it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import module_systems
import pytest
from module_systems import LMOD, ModuleSystem, environment
from scratch_clone import Clone
from small_channel import index, make_package
from tree import ROOT
from wmlce.envs import environments

_ACTIVATE = r"""
export TOOL_HOME="$CONDA_PREFIX/share/tool"
export TOOL_QUOTES='a "b" $c `d` [e] {f} \g;'"'h'"
export MANPATH="$CONDA_PREFIX/share/man:$MANPATH"
export PYTHONPATH="$PYTHONPATH:$CONDA_PREFIX/share/late"
unset TOOL_OLD
"""
# What an installation runs and the package's own test does not.
_ONLY_HERE = 'case "$HOME" in /nonexistent/*) {} ;; esac\n'
_STARTS = {
    "plain": {},
    "conda active": {"CONDA_PREFIX": "/opt/conda", "CONDA_SHLVL": "1", "CONDA_DEFAULT_ENV": "base"},
    "own settings": {
        "CONDA_CHANNELS": "bioconda,file:///home/me/channel",
        "MANPATH": "/opt/man:/usr/share/man",
        "PYTHONPATH": "/home/me/lib",
        "TOOL_HOME": "/opt/tool:/opt/tool2",
        "TOOL_OLD": "old",
        "CONDA_SHLVL": "0",
        "CONDA_ENVS_PATH": "/home/me/envs",
    },
}


@dataclass(frozen=True)
class Site:
    """A software tree with the versions 1.0 and 2.0; 2.0 is the default."""

    clone: Clone
    tree: Path

    @property
    def modulepath(self) -> Path:
        return self.tree / "modulefiles"

    def home(self, version: str) -> Path:
        return self.tree / "ibm-wml-ce" / version

    def install(self, *arguments: str) -> list[str]:
        """Arguments of an installation into this tree."""
        return ["module", "install", "--prefix", str(self.tree), *arguments]


def _channel(clone: Clone) -> None:
    clone.recipe(
        "tool",
        script=[
            "mkdir -p $PREFIX/bin $PREFIX/share/tool",
            "mkdir -p $PREFIX/etc/conda/activate.d $PREFIX/etc/conda/env_vars.d",
            "printf '#!/bin/sh\\necho tool at %s\\n' $PREFIX > $PREFIX/bin/tool",
            "chmod +x $PREFIX/bin/tool",
            "ln -s tool $PREFIX/bin/tool-link",
            "cp tool.sh $PREFIX/etc/conda/activate.d/",
            'echo \'{"TOOL_MODE": "from a file"}\' > $PREFIX/etc/conda/env_vars.d/tool.json',
        ],
        source=[{"path": "tool.sh"}],
    )
    clone.write("recipes/tool/tool.sh", _ACTIVATE)
    clone.recipe("other")
    shutil.copytree(ROOT / "modulefiles", clone.root / "modulefiles")
    clone.built()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    clone = Clone(folder / "clone", folder / "cache")
    _channel(clone)
    made = Site(clone, folder / "sw")
    first = clone.ok(*made.install("--version", "1.0", "--channel", "file:///sw/ch", "other", "tool"))
    assert first["installed"] is True
    clone.ok(*made.install("--version", "2.0", "--channel", "conda-forge", "tool"))
    return made


@pytest.fixture(scope="module", params=["lmod", "environment-modules"])
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModuleSystem:
    if request.param == "lmod":
        return module_systems.lmod()
    return module_systems.environment_modules(tmp_path_factory.mktemp("environment-modules"))


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize("start", _STARTS)
def test_unload_swap_and_reload_leave_everything_as_it_was(
    site: Site, system: ModuleSystem, start: str, shell: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is missing: apt-get install {shell}")
    script = """
show before
module load ibm-wml-ce; show loaded
module load ibm-wml-ce/2.0; show twice
module unload ibm-wml-ce; show unloaded
module load ibm-wml-ce/1.0; show one
module swap ibm-wml-ce/2.0; show swapped
module swap ibm-wml-ce ibm-wml-ce; module reload; show reloaded
module purge; show purged
export CONDA_PREFIX=/opt/new TOOL_HOME=changed; show changed
module load ibm-wml-ce; module unload ibm-wml-ce; show again
"""
    result = system.shell(site.modulepath, script, shell=shell, env=_STARTS[start])
    assert result.returncode == 0, result.stderr
    before, loaded = environment(result, "before"), environment(result, "loaded")
    home, two = str(site.home("2.0")), "ibm-wml-ce-2.0"
    assert loaded["PATH"] == f"{home}/bin:{before['PATH']}"
    assert loaded["CONDA_PREFIX"] == home
    assert loaded["CONDA_DEFAULT_ENV"] == two
    assert loaded["CONDA_PROMPT_MODIFIER"] == f"({two}) "
    assert loaded["PS1"] == f"({two}) > "
    assert loaded["CONDA_CHANNELS"].split(",")[0] == "conda-forge"
    assert loaded["CONDA_CHANNELS"].endswith(before.get("CONDA_CHANNELS", "conda-forge"))
    # where conda looks for environments by their names; with both variables it would refuse to work
    variable = "CONDA_ENVS_PATH" if "CONDA_ENVS_PATH" in before else "CONDA_ENVS_DIRS"
    assert len([name for name in loaded if name.startswith("CONDA_ENVS_")]) == 1
    *own, named = loaded[variable].split(":")
    assert own == ([before[variable]] if variable in before else [])
    assert (Path(named) / two).resolve() == Path(home)
    assert (Path(named) / two / "conda-meta/history").is_file()
    assert int(loaded["CONDA_SHLVL"]) == int(before.get("CONDA_SHLVL", 0)) + 1
    if start == "conda active":
        # as `conda activate --stack` has it: the way back is known
        assert (loaded["CONDA_PREFIX_1"], loaded["CONDA_STACKED_2"]) == ("/opt/conda", "true")
    assert environment(result, "one")["CONDA_PREFIX"] == str(site.home("1.0"))
    assert environment(result, "one")["CONDA_CHANNELS"].startswith("file:///sw/ch")
    for same in ("twice", "swapped", "reloaded"):
        assert _kept(environment(result, same)) == _kept(loaded), same
    for undone in ("unloaded", "purged"):
        assert environment(result, undone) == before, undone
    assert environment(result, "again") == environment(result, "changed")


def _kept(found: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in found.items() if name != "MODULEPATH"}


@pytest.mark.parametrize("start", _STARTS)
def test_packages_are_activated_as_their_own_scripts_do_it(
    site: Site, system: ModuleSystem, start: str
) -> None:
    home = site.home("2.0")
    result = system.shell(site.modulepath, "module load ibm-wml-ce; show loaded", env=_STARTS[start])
    found = environment(result, "loaded")
    script = f'. "{home}/etc/conda/activate.d/tool.sh"; env -0'
    activated = subprocess.run(
        ["bash", "-c", script],
        env={**_STARTS[start], "CONDA_PREFIX": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    reference = dict(entry.split("=", 1) for entry in activated.stdout.split("\0") if "=" in entry)
    for name in ("TOOL_HOME", "TOOL_QUOTES", "MANPATH", "PYTHONPATH"):
        assert found[name].strip(":") == reference[name].strip(":"), name
    assert "TOOL_OLD" not in found and "TOOL_OLD" not in reference
    assert found["TOOL_MODE"] == "from a file"


def test_help_whatis_and_default(site: Site, system: ModuleSystem) -> None:
    result = system.shell(
        site.modulepath,
        "module avail; module whatis ibm-wml-ce; module help ibm-wml-ce; module load ibm-wml-ce; tool",
        env={"COLUMNS": "200", "LMOD_PAGER": "none", "MODULES_PAGER": ""},
    )
    said = result.stdout + result.stderr
    for expected in (
        "ibm-wml-ce/1.0",
        "Distributed deep learning",
        "wmlce env overlay FOLDER",
        "ddlrun -np 2 python train.py",
        str(site.home("2.0")),
        f"tool at {site.home('2.0')}",
    ):
        assert expected in said, said
    if system.name == "lmod":
        spider = system.shell(site.modulepath, "module spider ibm-wml-ce")
        assert "Distributed deep learning" in spider.stdout + spider.stderr
        assert "ibm-wml-ce/1.0" in spider.stdout + spider.stderr


@pytest.mark.parametrize("other", ["python/3.9", "openmpi/4.1"])
def test_other_python_and_mpi_modules_are_refused(
    site: Site, system: ModuleSystem, other: str, tmp_path: Path
) -> None:
    file = tmp_path / other
    file.parent.mkdir()
    file.write_text("#%Module\nsetenv OTHER_IS_HERE yes\n")
    script = f"module load {other}; module load ibm-wml-ce; show both"
    result = system.shell(Path(f"{site.modulepath}:{tmp_path}"), script)
    found = environment(result, "both")
    assert found["OTHER_IS_HERE"] == "yes" and "IBM_WML_CE_VERSION" not in found
    said = result.stderr.lower()
    assert other.split("/")[0] in said and ("conflict" in said or "cannot load module" in said)


def test_a_tree_without_its_environment_says_so(site: Site, system: ModuleSystem, tmp_path: Path) -> None:
    folder = tmp_path / "ibm-wml-ce"
    shutil.copytree(site.modulepath / "ibm-wml-ce", folder)
    for file in (folder / "1.0.lua", folder / "1.0"):
        file.write_text(file.read_text().replace(str(site.home("1.0")), "/nonexistent/1.0"))
    result = system.shell(tmp_path, "module load ibm-wml-ce/1.0; show after")
    assert "there is no environment at /nonexistent/1.0" in " ".join(result.stderr.split())
    assert "CONDA_PREFIX" not in environment(result, "after")


def test_luacheck_and_lmods_own_check_are_clean(site: Site) -> None:
    if shutil.which("luacheck") is None:
        pytest.skip("luacheck is missing: apt-get install lua-check")
    module_systems.lmod()
    words = "help whatis conflict mode isDir LmodError pushenv prepend_path append_path pathJoin myShellType"
    files = sorted(map(str, (site.modulepath / "ibm-wml-ce").glob("*.lua")))
    assert len(files) >= 2
    command = "luacheck --no-color --no-config --no-max-line-length --std lua53 --globals"
    checked = subprocess.run(
        [*command.split(), *words.split(), "execute", "--", *files],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert checked.returncode == 0 and "0 warnings / 0 errors" in checked.stdout, checked.stdout
    result = subprocess.run(
        [LMOD / "check_module_tree_syntax", site.modulepath], capture_output=True, text=True, timeout=60
    )
    said = result.stdout + result.stderr
    assert result.returncode == 0 and "No errors found" in said, said


def test_nobody_can_write_and_everybody_can_read(site: Site) -> None:
    home = site.home("2.0")
    for path in [home, *home.rglob("*")]:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            continue
        mode = stat.S_IMODE(state.st_mode)
        assert mode & 0o222 == 0 and mode & 0o444 == 0o444, f"{path}: {mode:o}"
        # a file that is one with the package cache's would change with it
        assert stat.S_ISDIR(state.st_mode) or state.st_nlink == 1, path
    assert os.access(home / "bin/tool", os.X_OK)
    assert subprocess.check_output([home / "bin/tool-link"], text=True) == f"tool at {home}\n"
    for file in (site.modulepath / "ibm-wml-ce").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_an_installed_version_does_not_change(site: Site) -> None:
    home = site.home("2.0")
    before = {path: path.lstat().st_mtime_ns for path in home.rglob("*")}
    again = site.clone.ok(*site.install("--version", "2.0", "--channel", "conda-forge", "tool"))
    assert again["installed"] is False
    error = site.clone.fails(*site.install("--version", "2.0", "tool", "other"))
    assert "with other packages" in error and "--version 2.0-1" in error
    assert {path: path.lstat().st_mtime_ns for path in home.rglob("*")} == before


def test_modules_are_compiled_for_the_place_where_they_will_lie(tmp_path: Path) -> None:
    source = tmp_path / "staged/lib/package/module.py"
    source.parent.mkdir(parents=True)
    source.write_text("def where():\n    return where.__code__.co_filename\n")
    (tmp_path / "staged/bin").mkdir()
    (tmp_path / "staged/bin/python").symlink_to(sys.executable)
    environments.compile_modules(tmp_path / "staged", lambda _: None, final=tmp_path / "final")
    (tmp_path / "staged").rename(tmp_path / "final")
    compiled = Path(importlib.util.cache_from_source(str(tmp_path / "final/lib/package/module.py")))
    state = (tmp_path / "final/lib/package/module.py").stat()
    # Python takes it, as it has the source's time and size
    assert struct.unpack("<LLL", compiled.read_bytes()[4:16]) == (0, int(state.st_mtime), state.st_size)
    code = importlib.machinery.SourcelessFileLoader("module", str(compiled)).get_code("module")
    assert code is not None
    assert code.co_filename == str(tmp_path / "final/lib/package/module.py")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Site]:
    clone = Clone(tmp_path / "clone", tmp_path / "cache")
    _channel(clone)
    yield Site(clone, tmp_path / "sw")


def _as_nobody(*words: object) -> subprocess.CompletedProcess[str]:
    setpriv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    command = [*(setpriv if os.geteuid() == 0 else []), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("mask", [0o077, 0o027, 0o002])
def test_a_module_is_for_everybody_whatever_the_umask_is(public_folder: Path, mask: int) -> None:
    clone = Clone(public_folder / "clone", public_folder / "cache")
    make_package(clone.root / "build/channel", "other")
    index(clone.root / "build/channel")
    shutil.copytree(ROOT / "modulefiles", clone.root / "modulefiles")
    made = Site(clone, public_folder / "new/sw")
    old = os.umask(mask)
    try:
        clone.ok(*made.install("--version", "1.0", "--no-compile", "other"))
    finally:
        os.umask(old)
    found = _as_nobody("find", made.tree, "-name", "other", "-o", "-path", "*/modulefiles/*", "-type", "f")
    assert found.returncode == 0 and "share/other" in found.stdout and "1.0.lua" in found.stdout, found
    for path in (made.tree.parent, made.tree, made.modulepath, made.modulepath / "ibm-wml-ce"):
        assert path.stat().st_mode & 0o777 == 0o777 & ~(mask & 0o022), path


def test_versions_come_and_go(own: Site) -> None:
    clone, tree = own.clone, own.tree
    arguments = ["--prefix", str(tree)]
    for version in ("1.9", "1.10", "1.11"):
        clone.ok(
            *own.install("--version", version, *(["--no-default"] if version == "1.11" else []), "other")
        )
    listed = {item["version"]: item["default"] for item in clone.ok("module", "list", *arguments)}
    assert listed == {"1.9": False, "1.10": True, "1.11": False} and list(listed) == ["1.9", "1.10", "1.11"]
    assert "versions: 1.9, 1.10, 1.11" in clone.fails("module", "remove", *arguments, "2.0")
    assert clone.ok("module", "remove", *arguments, "1.11") == {"removed": "1.11", "default": "1.10"}
    assert clone.ok("module", "remove", *arguments, "1.10") == {"removed": "1.10", "default": "1.9"}
    assert not own.home("1.10").exists() and not (own.modulepath / "ibm-wml-ce/1.10.lua").exists()
    assert clone.ok("module", "remove", *arguments, "1.9")["default"] is None
    assert [path for path in tree.rglob("*") if not path.is_dir()] == []
    assert not (tree / "ibm-wml-ce").exists() and not (own.modulepath / "ibm-wml-ce").exists()


VARIANT = """\
summary: hosts with a driver for CUDA 12
package: tool-gpu
system:
  CONDA_OVERRIDE_CUDA: "12.8"
"""


def test_a_variant_is_another_version_for_its_hosts(own: Site) -> None:
    """Installed here, where there is no driver; it becomes the default only if it is asked to, or alone."""
    clone = own.clone
    clone.recipe("tool-gpu", run=["__cuda >=12"])
    clone.env["CONDA_OVERRIDE_CUDA"] = "12.8"
    clone.built()
    clone.env["CONDA_OVERRIDE_CUDA"] = ""
    clone.write("recipes/cuda12/variant.yaml", VARIANT)
    release = (clone.root / "VERSION").read_text().strip()
    assert "driver for CUDA 12" in clone.fails(*own.install("--version", "0", "tool-gpu"))
    del clone.env["CONDA_OVERRIDE_CUDA"]
    clone.ok(*own.install("other"))
    made = clone.ok(*own.install("--variant", "cuda12"))
    assert made["version"] == f"{release}-cuda12" and made["installed"]
    packages = json.loads((own.home(made["version"]) / "share/ibm-wml-ce/module.json").read_text())[
        "packages"
    ]
    assert "tool-gpu" in packages
    arguments = ("module", "list", "--prefix", str(own.tree))
    assert {one["version"]: one["default"] for one in clone.ok(*arguments)} == {
        release: True,
        f"{release}-cuda12": False,
    }
    clone.ok(*own.install("--variant", "cuda12", "--default"))
    assert {one["version"] for one in clone.ok(*arguments) if one["default"]} == {f"{release}-cuda12"}
    assert "there is no variant 'cuda11'" in clone.fails(*own.install("--variant", "cuda11"))


def test_a_killed_installation_leaves_nothing_that_can_be_loaded(own: Site) -> None:
    # a script that waits holds the installation at the point where everything is in place but the name
    own.clone.write("recipes/tool/tool.sh", _ONLY_HERE.format("sleep 30"))
    own.clone.built()
    process = own.clone.start(*own.install("--version", "3.0", "tool"), start_new_session=True)
    try:
        limit = time.monotonic() + 60
        while not list(own.tree.glob("ibm-wml-ce/.3.0.part-*/environment/share/ibm-wml-ce/module.json")):
            assert process.poll() is None and time.monotonic() < limit, process.communicate()
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
    assert not own.home("3.0").exists() and not own.modulepath.exists()
    own.clone.write("recipes/tool/tool.sh", "export TOOL_HOME=1\n")
    own.clone.built()
    assert own.clone.ok(*own.install("--version", "3.0", "tool"))["installed"] is True
    assert sorted(path.name for path in (own.tree / "ibm-wml-ce").iterdir()) == [
        ".environments",
        ".lock",
        "3.0",
    ]
    named = own.tree / "ibm-wml-ce/.environments"
    assert [(path.name, path.resolve()) for path in named.iterdir()] == [("ibm-wml-ce-3.0", own.home("3.0"))]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("export TOOL_HOME=$HOME/tool\n", "another value: TOOL_HOME"),
        (_ONLY_HERE.format("return 7"), "tool.sh: exit code 7"),
    ],
)
def test_activation_that_a_module_cannot_repeat_is_refused(own: Site, script: str, message: str) -> None:
    own.clone.write("recipes/tool/tool.sh", script)
    own.clone.built()
    assert message in own.clone.fails(*own.install("--version", "1.0", "tool"))
    assert not own.home("1.0").exists() and not own.modulepath.exists()
    assert [path.name for path in (own.tree / "ibm-wml-ce").iterdir()] == [".lock"]


def test_bad_wishes_are_refused(own: Site, tmp_path: Path) -> None:
    fails = own.clone.fails
    assert "no version of a module" in fails(*own.install("--version", "../1", "tool"))
    assert "is no channel" in fails(*own.install("--channel", "a'b", "tool"))
    assert "is no channel" in fails(*own.install("--from", str(tmp_path), "tool"))
    assert "there is no group" in fails(*own.install("--group", "no-such-group", "tool"))
    assert "cannot cope" in fails("module", "install", "--prefix", str(tmp_path / "a b"), "tool")
    stranger = own.home("4.0")
    stranger.mkdir(parents=True)
    assert "not installed by wmlce" in fails(*own.install("--version", "4.0", "tool"))
    assert "not installed by wmlce" in fails("module", "remove", "--prefix", str(own.tree), "4.0")
    assert stranger.is_dir()


def test_readable_for_one_group(own: Site) -> None:
    import grp

    group = grp.getgrgid(os.getgid()).gr_name
    own.clone.ok(*own.install("--version", "1.0", "--group", group, "tool"))
    home = own.home("1.0")
    for path in [home, *home.rglob("*")]:
        if not path.is_symlink():
            assert stat.S_IMODE(path.stat().st_mode) & 0o227 == 0 and path.stat().st_gid == os.getgid()
    assert json.loads((home / "share/ibm-wml-ce/module.json").read_text())["version"] == "1.0"
