"""Real images for tests: Apptainer, an image of the whole environment, and one that is built in seconds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tree import ROOT
from wmlce.images import apptainer
from wmlce.util.errors import WmlceError
from wmlce.util.files import link_or_copy
from wmlce.util.layout import Layout

from ddl_validate.common.mpi import MPI_AS_ROOT

CHANNEL = ROOT / "build/channel"
TRAIN = "/usr/share/ibm-wml-ce/train.py"
NOBODY = 65534
#: For ranks of root that are more than the cores.
CROWDED = {**MPI_AS_ROOT, "OMPI_MCA_mpi_yield_when_idle": "1"}
_NOT_OURS = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "APPTAINER", "SINGULARITY", "SLURM_", "DDL_", "OPAL_")
Result = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Singularity:
    """Apptainer: this machine's, or Debian's."""

    program: Path

    @property
    def variables(self) -> dict[str, str]:
        """What it needs on this machine, and where a shell finds it."""
        path = f"{self.program.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        return {"PATH": path, **apptainer.missing_capabilities()}

    def __call__(
        self,
        *words: object,
        before: Sequence[object] = (),
        user: int | None = None,
        cwd: Path | None = None,
        limit: float = 120,
        **more: str,
    ) -> Result:
        """`singularity WORDS`. before: words in front of it, as this user. more: variables."""
        become: list[str] = []
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
        variables = {**kept, **CROWDED, **self.variables, **more}
        if user is not None and os.geteuid() == 0:
            become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
            variables.pop("APPTAINER_DROP_CAPS", None)
        return subprocess.run(
            [*map(str, before), *become, str(self.program), *map(str, words)],
            env=variables,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
        )


def singularity() -> Singularity:
    """Skips where there is none and Debian's cannot be had."""
    if missing := apptainer.missing_helpers():
        pytest.skip("; ".join(missing))
    layout = Layout.locate(ROOT)
    try:
        try:
            runtime = apptainer.find(layout)
        except WmlceError:
            runtime = apptainer.fetch(layout, say=lambda text: print(text, file=sys.stderr))
    except WmlceError as error:
        pytest.skip(f"no Apptainer: {error.message}")
    return Singularity(runtime.program)


def built(output: Path, *specs: str) -> Path:
    """An image of the channel under test."""
    if not (CHANNEL / "channel.json").is_file():
        pytest.skip(f"no channel in {CHANNEL}: wmlce channel build")
    words = ["image", "build", "ddl", *specs, "--output", str(output)]
    done = subprocess.run(
        [sys.executable, "-m", "wmlce", "--root", str(ROOT), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return output


def for_everybody(singularity: Singularity, image: Path, folder: Path) -> tuple[Singularity, Path]:
    """The program and an image where other users can read them, and a folder of `nobody`."""
    if os.geteuid() != 0:
        return singularity, image
    home = singularity.program.resolve().parents[2]
    if (home / "usr/etc/apptainer").is_dir():  # Debian's, in root's cache
        shutil.copytree(home, folder / "apptainer", symlinks=True)
        singularity = Singularity(folder / "apptainer/usr/bin/apptainer")
    link_or_copy(image, folder / image.name)
    own = folder / "own"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    return singularity, folder / image.name


_OPEN_FUSE = """
[ -e "$0" ] || mknod -m 666 "$0" c 10 229
mount --bind "$0" /dev/fuse
exec "$@"
"""


def open_fuse(folder: Path) -> list[str]:
    """Words before a command of another user than root, who mounts images by /dev/fuse. The machine's own
    device stays as it is. Skips where that cannot be had.
    """
    look = ["setpriv", f"--reuid={NOBODY}", "--clear-groups", "sh", "-c", ": <>/dev/fuse"]
    if os.geteuid() != 0:
        words, look = [], look[3:]
    elif subprocess.run(look, capture_output=True, timeout=20).returncode == 0:
        return []
    else:
        words = ["unshare", "--mount", "sh", "-euc", _OPEN_FUSE, str(folder / "fuse")]
    tried = subprocess.run([*words, *look], capture_output=True, text=True, timeout=20)
    if tried.returncode != 0:
        pytest.skip(f"/dev/fuse is missing, or closed to users other than root: {tried.stderr.strip()}")
    return words


def apt_files(folder: Path, package: str) -> Path:
    """A Debian package and what it needs beyond what is installed, unpacked into a folder."""
    if shutil.which("apt-get") is None:
        pytest.skip("apt-get is missing")
    asked = subprocess.run(
        ["apt-get", "install", "-s", "-y", "--no-install-recommends", package],
        capture_output=True,
        text=True,
        timeout=120,
    )
    names = [line.split()[1] for line in asked.stdout.splitlines() if line.startswith("Inst ")]
    folder.mkdir(parents=True)
    got = subprocess.run(
        ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *(names or [package])],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    packages = sorted(folder.glob("*.deb"))
    if not packages:
        pytest.skip(
            f"{package} could not be fetched from Debian: {(asked.stderr + got.stderr)[-200:].strip()}"
        )
    for file in packages:
        subprocess.run(["dpkg-deb", "-x", str(file), str(folder / "root")], check=True, timeout=60)
    return folder / "root"


def clean(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.startswith(_NOT_OURS)}
