"""Modulefiles of an installed environment, out of the templates in modulefiles/: Lua for Lmod, Tcl for
Environment Modules, and which version is the default.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import jinja2

from wmlce.documentation.site import START
from wmlce.envs.activation import Activation
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout

NAME = "ibm-wml-ce"
#: Beside the environments: the folder in which conda finds each of them as NAME-VERSION.
NAMES = ".environments"
DOCUMENTATION = f"share/doc/{NAME}"
"""Folder of the site in an environment."""
#: By OpenHPC, TACC and Cray; Spack.
FAMILIES = ("MPI", "mpi")
_MPI = """
mpi ompi openmpi openmpi2 openmpi3 openmpi4 openmpi5 openmpi-cuda OpenMPI
mpich mpich2 mpich3 mpich4 MPICH MPICH2 MPICH3
mvapich mvapich2 mvapich3 mvapich-plus mvapich2x mvapich2-x mvapich2-gdr mvapich2-cuda
MVAPICH MVAPICH2 MVAPICH2-GDR
impi intelmpi intel-mpi intel-oneapi-mpi oneapi-mpi
hpcx hpcx-ompi hpcx-mt hpcx-mt-ompi hpcx-debug hpcx-debug-ompi hpcx-prof hpcx-prof-ompi hpcx-stack hpcx-mpi
nvhpc nvhpc-hpcx nvhpc-hpcx-cuda11 nvhpc-hpcx-cuda12 nvhpc-hpcx-cuda13 nvhpc-openmpi3
cray-mpich cray-mpich2 cray-mpich-abi cray-mpich-ucx cray-mpich-ucx-abi cray-mpich-abi-pre-intel-5.0
cray-mvapich2 cray-mvapich2_gnu cray-mvapich2_nogpu mpt hmpt hpe-mpi HPE-MPI
smpi spectrum-mpi SpectrumMPI psmpi parastation parastationmpi ParaStationMPI bullxmpi
fujitsu-mpi FujitsuMPI mpitrampoline MPItrampoline
"""
_PYTHON = """
anaconda anaconda2 anaconda3 Anaconda2 Anaconda3 cray-python intelpython intelpython2 intelpython3
pypy PyPy python python2 python3 Python open-ce powerai wml-ce
horovod Horovod keras Keras mpi4py pytorch PyTorch tensorflow TensorFlow
py-horovod py-keras py-mpi4py py-numpy py-tensorflow py-torch py3-mpi4py py3-numpy py3-scipy
"""
CONFLICTS = tuple(f"{_MPI} {_PYTHON}".split())
"""Names that sites, OpenHPC, Spack, EasyBuild and vendors give to modules with another Python or MPI. Not
among them: those that bring conda alone (miniforge), as conda can work on clones; tool chains (foss, intel,
PrgEnv-gnu), which load their MPI as a module of its own, or are compilers alone at other sites.
"""
FOREIGN = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE")
"""Variables that bring packages and settings of another Python into this one; unset under the module."""


@dataclass(frozen=True)
class ModuleFacts:
    """What the templates are filled with."""

    prefix: Path
    version: str
    packages: dict[str, str]
    """The notable packages and their versions, for whatis and help."""
    channels: list[str]
    conflicts: list[str]
    activation: Activation

    def whatis(self) -> list[str]:
        holds = ", ".join(f"{name} {version}" for name, version in self.packages.items())
        return [
            f"Name: {NAME}",
            f"Version: {self.version}",
            "Category: machine learning, distributed training",
            "Keywords: deep learning, DDL, ddlrun, TensorFlow, Keras, PyTorch, MPI, all-reduce, conda",
            f"Description: Distributed deep learning: {holds}",
        ]

    def help(self) -> str:
        start = self.prefix / DOCUMENTATION / START
        documentation = f"Documentation:            {start}\n" if start.is_file() else ""
        holds = "\n".join(f"  {name:<14} {version}" for name, version in self.packages.items())
        return f"""\
Distributed deep learning in one environment that is tested as a whole. It is read-only, at
  {self.prefix}

It holds, among others:
{holds}

Train on 2 ranks:         ddlrun -np 2 python train.py
Are these hosts right:    wmlce validate (inside a job: all its hosts)
Your own packages, small: wmlce env overlay FOLDER && source FOLDER/bin/activate && pip install ...
A whole copy of your own: wmlce env clone FOLDER (or conda create --name mine --clone {NAME}-{self.version})
{documentation}"""


def _lua(text: object) -> str:
    """A Lua string; what is not plain ASCII by its bytes, so that nothing in it can end the string."""
    return (
        '"'
        + "".join(
            chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03d}"
            for byte in str(text).encode()
        )
        + '"'
    )


def _tcl(text: object) -> str:
    """A Tcl word without substitutions."""
    escaped = "".join(f"\\{character}" if character in '"\\$[]{}' else character for character in str(text))
    return '"' + escaped.replace("\n", "\\n").replace("\t", "\\t") + '"'


def render(layout: Layout, facts: ModuleFacts) -> dict[str, str]:
    """File name in the module's folder, and text."""
    folder = layout.root / "modulefiles" / NAME
    loader = jinja2.FileSystemLoader(folder)
    templates = jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    templates.filters.update(lua=_lua, tcl=_tcl)
    set_ = {"PYTHONNOUSERSITE": "1", **facts.activation.set_}
    python_path = set_.pop("PYTHONPATH", "")
    unset = sorted({*FOREIGN, *facts.activation.unset} - {"PYTHONPATH"} - set_.keys())
    values = {
        "prefix": facts.prefix,
        "names": facts.prefix.parent / NAMES,
        "version": facts.version,
        "channels": facts.channels,
        "conflicts": facts.conflicts,
        "families": FAMILIES,
        "activation": replace(facts.activation, set_=set_, unset=unset),
        "python_path": python_path,
        "whatis": facts.whatis(),
        "help": facts.help(),
    }
    try:
        return {
            f"{facts.version}.lua": templates.get_template("module.lua.j2").render(values),
            facts.version: templates.get_template("module.tcl.j2").render(values),
        }
    except jinja2.TemplateError as error:
        raise WmlceError(
            f"a template in {folder} cannot be filled: {error}", remedy="fix the template"
        ) from error


def write(folder: Path, files: dict[str, str]) -> None:
    """Put modulefiles into the module's folder: each is the old one or the new one, for everyone to read."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_atomic(folder / name, text, mode=0o644)


def write_default(folder: Path, version: str) -> None:
    """Both module systems read this file."""
    write_atomic(folder / ".modulerc", f"#%Module\nmodule-version {NAME}/{version} default\n")


def read_default(folder: Path) -> str | None:
    try:
        tokens = (folder / ".modulerc").read_text().split()
    except OSError:
        return None
    name = tokens[tokens.index("module-version") + 1] if "module-version" in tokens[:-1] else ""
    return name.partition("/")[2] or None
