"""Modulefiles of an installed environment, out of the templates in modulefiles/: Lua for Lmod, Tcl for
Environment Modules, and which version is the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jinja2

from wmlce.envs.activation import Activation
from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic
from wmlce.util.layout import Layout

NAME = "ibm-wml-ce"
#: Beside the environments: the folder in which conda finds each of them as NAME-VERSION.
NAMES = ".environments"
CONFLICTS = (
    "anaconda",
    "anaconda2",
    "anaconda3",
    "Anaconda2",
    "Anaconda3",
    "cray-mpich",
    "cray-python",
    "impi",
    "intel-mpi",
    "intelmpi",
    "intelpython",
    "hpcx",
    "mpi",
    "mpi4py",
    "mpich",
    "MPICH",
    "mvapich",
    "mvapich2",
    "MVAPICH2",
    "openmpi",
    "OpenMPI",
    "pypy",
    "python",
    "Python",
    "python2",
    "python3",
    "pytorch",
    "PyTorch",
    "smpi",
    "spectrum-mpi",
    "tensorflow",
    "TensorFlow",
)
"""Names that sites give to modules with another Python or MPI. Those that bring conda alone (miniforge) are
not among them: conda can work on clones.
"""


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
"""


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
    values = {
        "prefix": facts.prefix,
        "names": facts.prefix.parent / NAMES,
        "version": facts.version,
        "channels": facts.channels,
        "conflicts": facts.conflicts,
        "activation": facts.activation,
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
            f"a template in {folder} cannot be filled: {error}", remedy="mend the template"
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
        words = (folder / ".modulerc").read_text().split()
    except OSError:
        return None
    name = words[words.index("module-version") + 1] if "module-version" in words[:-1] else ""
    return name.partition("/")[2] or None
