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
    clone.site()
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
    for name in ("TOOL_HOME", "TOOL_QUOTES", "MANPATH"):
        assert found[name].strip(":") == reference[name].strip(":"), name
    assert found["PYTHONPATH"] == reference["PYTHONPATH"].split(":")[-1]  # without the user's
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
        f"{site.home('2.0')}/share/doc/ibm-wml-ce/index.html",
        f"tool at {site.home('2.0')}",
    ):
        assert expected in said, said
    if system.name == "lmod":
        spider = system.shell(site.modulepath, "module spider ibm-wml-ce")
        assert "Distributed deep learning" in spider.stdout + spider.stderr
        assert "ibm-wml-ce/1.0" in spider.stdout + spider.stderr


_SITES = {
    "OpenHPC": "openmpi4 openmpi5 mpich mvapich2 impi py3-mpi4py",
    "Spack": "openmpi mpich mvapich2 mvapich2-gdr intel-oneapi-mpi spectrum-mpi hpcx-mpi mpt python py-torch",
    "EasyBuild": "OpenMPI MPICH MVAPICH2 impi psmpi Python PyTorch TensorFlow Horovod",
    "Cray": "cray-mpich cray-mpich-abi cray-mpich-ucx cray-python",
    "vendors": "hpcx hpcx-ompi hpcx-mt-ompi nvhpc nvhpc-hpcx-cuda12 intel-mpi mpi ompi ParaStationMPI smpi",
}


def _foreign(folder: Path, name: str, *lines: str) -> str:
    """A module of the site with programs of its own; returns their folder."""
    file = folder / name / "1.0"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(["#%Module", *lines, f"prepend-path PATH /opt/{name}/bin", ""]))
    return f"/opt/{name}/bin"


def _both(site: Site, folder: Path) -> Path:
    return Path(f"{site.modulepath}:{folder}")


@pytest.mark.parametrize("kind", _SITES)
def test_other_python_and_mpi_modules_are_refused(
    site: Site, system: ModuleSystem, kind: str, tmp_path: Path
) -> None:
    """Also in one command with them."""
    names = _SITES[kind].split()
    programs = {name: _foreign(tmp_path, name) for name in names}
    script = "".join(
        f"""
echo 'case {name}' >&2
module load {name}; module load ibm-wml-ce; show {name}; module purge
module load {name} ibm-wml-ce; show '{name} together'; module purge
"""
        for name in names
    )
    result = system.shell(_both(site, tmp_path), script)
    for name in names:
        found = environment(result, name)
        assert found["PATH"].startswith(f"{programs[name]}:") and "IBM_WML_CE_VERSION" not in found, name
        together = environment(result, f"{name} together")["PATH"].split(":")
        assert str(site.home("2.0") / "bin") not in together, name
        said = result.stderr.split(f"case {name}\n")[1].split("case ")[0]
        assert name in said and ("conflict" in said.lower() or "Cannot load module" in said), said


def test_tool_chains_are_refused_for_the_mpi_that_they_load(
    site: Site, system: ModuleSystem, tmp_path: Path
) -> None:
    """EasyBuild's foss and intel, Cray's PrgEnv-gnu; without an MPI they are compilers, and allowed."""
    _foreign(tmp_path, "OpenMPI")
    _foreign(tmp_path, "foss", "module load OpenMPI/1.0")
    _foreign(tmp_path, "PrgEnv-gnu")
    script = """
module load foss; module load ibm-wml-ce; show refused; module purge
module load PrgEnv-gnu; module load ibm-wml-ce; show allowed; module purge
"""
    result = system.shell(_both(site, tmp_path), script)
    assert "/opt/OpenMPI/bin" in environment(result, "refused")["PATH"]
    assert "IBM_WML_CE_VERSION" not in environment(result, "refused") and "OpenMPI" in result.stderr
    assert environment(result, "allowed")["IBM_WML_CE_VERSION"] == "2.0"


@pytest.mark.parametrize("family", ["mpi", "MPI"])
def test_an_mpi_of_any_name_is_exchanged_by_its_family(
    site: Site, system: ModuleSystem, family: str, tmp_path: Path
) -> None:
    """That of OpenHPC's modules is MPI, of Spack's mpi. Lmod exchanges, Environment Modules refuses."""
    other = _foreign(tmp_path, "acme", f'family "{family}"')
    ours = str(site.home("2.0") / "bin")
    script = """
show before
module load ibm-wml-ce; module load acme; show theirs; module purge; show between
module load acme; module load ibm-wml-ce; show ours; module purge; show after
module load acme ibm-wml-ce; show together
"""
    result = system.shell(_both(site, tmp_path), script)
    swaps = system.name == "lmod"
    theirs, own = (environment(result, name)["PATH"].split(":") for name in ("theirs", "ours"))
    assert (other in theirs, ours in theirs) == ((True, False) if swaps else (False, True)), result.stderr
    assert (other in own, ours in own) == ((False, True) if swaps else (True, False)), result.stderr
    together = environment(result, "together")["PATH"].split(":")
    assert (other in together) + (ours in together) == 1, result.stderr
    assert ("replacing" if swaps else "conflict") in result.stderr.lower()
    before = environment(result, "before")
    assert environment(result, "between") == before == environment(result, "after")


@pytest.mark.parametrize("kind", _SITES)
def test_an_mpi_is_refused_after_this_module(
    site: Site, system: ModuleSystem, kind: str, tmp_path: Path
) -> None:
    """Lmod 8 asks only the module that comes last: docs/cluster/module-admin.md has the site's part."""
    names = [name for name in _SITES[kind].split() if not name.lower().startswith(("py", "tensor", "horo"))]
    (tmp_path / "SitePackage.lua").write_text(_block_of_docs("cluster/module-admin.md", "lua"))
    for name in [*names, "overlay"]:
        _foreign(tmp_path / "modules", name)
        programs = tmp_path / "opt" / name / "bin"
        programs.mkdir(parents=True)
        (programs / "mpirun").touch()
        (programs / "mpirun").chmod(0o755)
        file = tmp_path / "modules" / name / "1.0"
        file.write_text(file.read_text().replace("/opt/", f"{tmp_path}/opt/"))
    for name in ("compiler", "library"):
        _foreign(tmp_path / "modules", name)
    loads = "".join(f"echo 'case {name}' >&2; module load {name}; show {name}\n" for name in names)
    script = f"""
module load ibm-wml-ce compiler; show before
{loads}
export VIRTUAL_ENV={tmp_path}/opt/overlay PATH={tmp_path}/opt/overlay/bin:$PATH
module load library; show overlay
"""
    result = system.shell(_both(site, tmp_path / "modules"), script, env={"LMOD_PACKAGE_PATH": str(tmp_path)})
    before = environment(result, "before")
    assert before["PATH"].startswith(f"/opt/compiler/bin:{site.home('2.0')}/bin:")
    for name in names:
        assert environment(result, name) == before, name
        said = result.stderr.split(f"case {name}\n")[1].split("case ")[0]
        assert name in said and "ibm-wml-ce" in said, said
    # an overlay has the module's own mpirun, and lies before it
    assert environment(result, "overlay")["PATH"].startswith(f"/opt/library/bin:{tmp_path}/opt/overlay/bin:")


def _block_of_docs(page: str, language: str) -> str:
    """The only block in this language."""
    (block,) = (ROOT / "docs" / page).read_text().split(f"```{language}\n")[1:]
    return block.split("```")[0]


_OF_PYTHON = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONNOUSERSITE")


@pytest.mark.parametrize("start", ["none", "other module", "own"])
def test_another_pythons_packages_and_settings_stay_outside(
    site: Site, system: ModuleSystem, start: str, tmp_path: Path
) -> None:
    """Those of other modules, of the user's profile, of ~/.local. They are back after unload."""
    for folder in ("host", "user/lib/python3.11/site-packages", "wanted"):
        package = tmp_path / folder / f"of_{folder.split('/')[0]}.py"
        package.parent.mkdir(parents=True)
        package.touch()
    _foreign(tmp_path / "modules", "xalt", f"prepend-path PYTHONPATH {tmp_path}/host")
    env = {"HOME": str(tmp_path)}
    if start == "own":
        env |= {
            "PYTHONPATH": f"{tmp_path}/host:/home/me/lib",
            "PYTHONHOME": "/nonexistent",
            "PYTHONSTARTUP": f"{tmp_path}/startup.py",
            "PYTHONUSERBASE": f"{tmp_path}/user",
        }
    # the Python of the tests in place of the environment's, which this small channel does not have
    look = f"""{sys.executable} -c "
import importlib.util as u, site
print(site.ENABLE_USER_SITE, *(n for n in ('of_host', 'of_user', 'of_wanted') if u.find_spec(n)))"
"""
    script = f"""
{"module load xalt" if start == "other module" else ":"}
show before
module load ibm-wml-ce; show loaded; echo; printf 'bare '; {look}
module unload ibm-wml-ce; show after
export IBM_WML_CE_PYTHONPATH={tmp_path}/wanted
module load ibm-wml-ce; echo; printf 'wanted '; {look}
module unload ibm-wml-ce; unset IBM_WML_CE_PYTHONPATH; show again
module load ibm-wml-ce; export PYTHONPATH={tmp_path}/wanted; printf 'later '; {look}
module purge; show purged
"""
    result = system.shell(_both(site, tmp_path / "modules"), script, env=env)
    loaded = environment(result, "loaded")
    # the entry is that of the package `tool`
    assert {name: loaded[name] for name in _OF_PYTHON if name in loaded} == {
        "PYTHONNOUSERSITE": "1",
        "PYTHONPATH": f"{site.home('2.0')}/share/late",
    }
    said = [line for line in result.stdout.splitlines() if line.startswith(("bare", "wanted", "later"))]
    assert said == ["bare False", "wanted False of_wanted", "later False of_wanted"], result.stderr
    before = environment(result, "before")
    assert environment(result, "after") == before == environment(result, "again")
    purged = environment(result, "purged")
    if start == "other module" and system.name == "environment-modules":
        before = {name: value for name, value in before.items() if name != "PYTHONPATH"}
    # Lmod 8 brings it back as it was, also where the module that had set it goes in the same command
    assert {name: purged.get(name) for name in _OF_PYTHON} == {name: before.get(name) for name in _OF_PYTHON}


# What `conda activate` and `conda deactivate` do to the prompt: the modifier of the environment that is left
# goes out of it, wherever it is, and that of the one that is entered comes before it.
_CONDA = """
conda_to() {
  PS1=$(python3 -c 'import sys; ps1, old, new = sys.argv[1:]; print(new + ps1.replace(old, ""), end=".")' \\
    "$PS1" "$CONDA_PROMPT_MODIFIER" "$1")
  PS1=${PS1%.}
  export CONDA_PROMPT_MODIFIER="$1"
}
"""


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize("modifier", ["(cl1) ", '(it\'s "$HOME" `id` *) ', ""])
def test_conda_and_the_module_agree_about_the_prompt(
    site: Site, system: ModuleSystem, modifier: str, shell: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is missing: apt-get install {shell}")
    ours = "(ibm-wml-ce-2.0) "
    script = f"""{_CONDA}
CONDA_PROMPT_MODIFIER=${{CONDA_PROMPT_MODIFIER-}}
PS1="$CONDA_PROMPT_MODIFIER> "
show before
module load ibm-wml-ce; show loaded; module unload ibm-wml-ce; show after
module load ibm-wml-ce; module swap ibm-wml-ce/1.0; show swapped; module purge; show purged
module load ibm-wml-ce; conda_to "$OUTER"; show left; module unload ibm-wml-ce; show left-after
module load ibm-wml-ce; conda_to '(clone) '; show over; conda_to '({site.home("2.0")}) '; show back
module unload ibm-wml-ce; show back-after
PS1='$ '; module load ibm-wml-ce; show own; module unload ibm-wml-ce; show own-after
"""
    env = {"CONDA_PREFIX": "/opt/cl1", "CONDA_SHLVL": "1"}
    env |= {"CONDA_PROMPT_MODIFIER": modifier, "OUTER": modifier} if modifier else {"OUTER": ""}
    result = system.shell(
        site.modulepath, "CONDA_PROMPT_MODIFIER=${CONDA_PROMPT_MODIFIER-}\n" + script, env=env, shell=shell
    )
    expected = {
        "before": f"{modifier}> ",
        "loaded": f"{ours}> ",
        "after": f"{modifier}> ",
        "swapped": "(ibm-wml-ce-1.0) > ",
        "purged": f"{modifier}> ",
        "left": f"{modifier}> ",
        "left-after": f"{modifier}> ",
        "over": "(clone) > ",
        "back": f"({site.home('2.0')}) > ",
        "back-after": f"{modifier}> ",
        "own": f"{ours}$ ",
        "own-after": "$ ",
    }
    assert {name: environment(result, name)["PS1"] for name in expected} == expected, result.stderr


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
    words = "family help whatis conflict mode isDir LmodError pushenv prepend_path append_path pathJoin"
    files = sorted(map(str, (site.modulepath / "ibm-wml-ce").glob("*.lua")))
    assert len(files) >= 2
    command = "luacheck --no-color --no-config --no-max-line-length --std lua53 --globals"
    checked = subprocess.run(
        [*command.split(), *words.split(), "myShellType", "execute", "--", *files],
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
    assert "not a valid module version" in fails(*own.install("--version", "../1", "tool"))
    assert "is not a channel" in fails(*own.install("--channel", "a'b", "tool"))
    assert "is not a channel" in fails(*own.install("--from", str(tmp_path), "tool"))
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
