"""What a user may decide about where sources come from: variables, and the options of wmlce that set them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wmlce.util.errors import WmlceError

FOLDER = "WMLCE_SOURCES"
OFFLINE = "WMLCE_OFFLINE"
LOCKED = "WMLCE_LOCKED"
PYTORCH_INDEX = "WMLCE_PYTORCH_INDEX"
MIRROR = "WMLCE_DEBIAN_MIRROR"
KEYRING = "WMLCE_DEBIAN_KEYRING"
SNAPSHOT = "WMLCE_DEBIAN_SNAPSHOT"


@dataclass(frozen=True)
class Settings:
    """folder:        files are taken from here first
    offline:       and from nowhere else: no client of an archive is started
    locked:        only what the lock files name; without it a newer Debian revision may stand in
    pytorch_index: PyTorch's CPU wheel index, for files that pip does not find as it is set up
    mirror:        a mirror of Debian, instead of that in the machine's apt sources
    keyring:       a file of the keys that sign its lists, instead of the machine's file of Debian's keys
    snapshot:      Debian's permanent snapshot archive, for revisions that the mirrors no longer have
    """

    folder: Path | None = None
    offline: bool = False
    locked: bool = False
    pytorch_index: str | None = None
    mirror: str | None = None
    keyring: Path | None = None
    snapshot: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the variables, into which the command line's options have been put."""
        offline = environment.get(OFFLINE)
        folder = offline or environment.get(FOLDER)
        keyring = environment.get(KEYRING)
        locked = environment.get(LOCKED, "")
        return cls(
            folder=Path(folder).expanduser().absolute() if folder else None,
            offline=bool(offline),
            locked=locked.lower() not in ("", "0", "no", "false", "off"),
            pytorch_index=environment.get(PYTORCH_INDEX) or None,
            mirror=(environment.get(MIRROR) or "").rstrip("/") or None,
            keyring=Path(keyring).expanduser().absolute() if keyring else None,
            snapshot=(environment.get(SNAPSHOT) or "").rstrip("/") or None,
        )

    def check_folder(self) -> Path | None:
        """The folder of files, which must be there when it is named."""
        if self.folder is not None and not self.folder.is_dir():
            name = f"--offline ({OFFLINE})" if self.offline else FOLDER
            raise WmlceError(
                f"the folder of sources {self.folder} does not exist",
                remedy=f"correct {name}; `wmlce source bundle DIR` writes such a "
                f"folder where there is a network",
            )
        return self.folder


def export(
    *,
    offline: Path | None,
    locked: bool,
    pytorch_index: str | None,
    mirror: str | None,
    keyring: Path | None,
    snapshot: str | None,
) -> None:
    """Put what the command line says where this process and those that it starts look for it."""
    if offline is not None:
        os.environ[OFFLINE] = str(offline.expanduser().absolute())
    if locked:
        os.environ[LOCKED] = "1"
    if pytorch_index:
        os.environ[PYTORCH_INDEX] = pytorch_index
    if mirror:
        os.environ[MIRROR] = mirror
    if keyring is not None:
        os.environ[KEYRING] = str(keyring.expanduser().absolute())
    if snapshot:
        os.environ[SNAPSHOT] = snapshot


def require_network(purpose: str) -> None:
    """An error where the user has forbidden the network; every start of an archive's client asks this
    first.
    """
    if Settings.from_environment().offline:
        raise WmlceError(
            f"{purpose} needs the network, which --offline ({OFFLINE}) forbids",
            remedy="leave out --offline, or do it on a machine with a network",
        )
