"""Channels that must be signed: who asks for it installs nothing that a trusted key has not signed.

`--require-signature FILE`, or the variable, names the trusted keys. The variable is for all that comes from
elsewhere: the clone's own channel, which was built here and is not signed, may be installed all the same.
Then the signature is checked wherever a channel is opened, all files of its index with it (clients choose
among its forms), and of the packages to be installed each one's sha256. The signed list names the packages
too, so locks can be held against it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from wmlce.release import freshness, manifest
from wmlce.release.signature import Trust
from wmlce.util.errors import WmlceError
from wmlce.util.files import sha256_file

if TYPE_CHECKING:
    from rattler.repo_data.record import RepoDataRecord

VARIABLE = "WMLCE_REQUIRE_SIGNATURE"
REVOKED = "WMLCE_REVOKED_KEYS"
_PACKAGE = ".conda"
_on_command_line = False


def export(signers: Path | None) -> None:
    """Put what the command line says where this process and those that it starts look for it."""
    global _on_command_line
    if signers is not None:
        _on_command_line = True
        os.environ[VARIABLE] = str(signers.expanduser().absolute())


def required() -> Trust | None:
    """Whom this user trusts; None where nothing has to be signed."""
    named, revoked = os.environ.get(VARIABLE), os.environ.get(REVOKED)
    if not named:
        return None
    return Trust(Path(named).expanduser(), Path(revoked).expanduser() if revoked else None)


def lets_through(folder: Path, clone_channel: Path | None) -> bool:
    """Is it a channel that this clone has built, in build/channel or of a site's recipes, and that need not
    be signed?
    """
    return not _on_command_line and is_built_here(folder, clone_channel)


def is_built_here(folder: Path, clone_channel: Path | None) -> bool:
    if clone_channel is None:
        return False
    build, place = clone_channel.resolve().parent, folder.resolve()
    of_site = place.name == clone_channel.name and place.parent.parent == build / "site"
    return (of_site or place == clone_channel.resolve()) and not (folder / manifest.NAME).exists()


def unsigned(title: str) -> WmlceError:
    return WmlceError(
        f"the channel {title} is not signed, and {VARIABLE} (--require-signature) wants a signature",
        remedy="install from the channel of a signed release, or a mirror of it; sign a mirror of your own "
        "builds: wmlce channel mirror DIR --key FILE",
    )


def check_unsigned(title: str, *, mine: bool) -> None:
    """An error where the version or date of a channel matters, and no signature is asked for that says it.
    mine: this clone has built the channel
    """
    variable = freshness.asked_by_variable()
    if variable is not None and not mine:
        raise WmlceError(
            f"{variable} is set, and the channel {title} has no checked signature that says how old it is",
            remedy=f"set {VARIABLE} to the file of trusted keys, too; or unset {variable}",
        )


def open_channel(folder: Path, clone_channel: Path | None = None) -> Mapping[str, str] | None:
    """The signed digests of a channel's files, when its signature and its index are right and it is not older
    than it was; None where nothing has to be signed. clone_channel: the channel that this clone builds
    """
    trust = required()
    if trust is None:
        check_unsigned(str(folder), mine=is_built_here(folder, clone_channel))
        return None
    if lets_through(folder, clone_channel):
        return None
    if not (folder / manifest.NAME).is_file():
        raise unsigned(str(folder))
    _, listed = manifest.signed(folder, trust)
    wrong = manifest.differences(folder, listed, concerns=lambda name: not name.endswith(_PACKAGE))
    if wrong:
        raise WmlceError(
            f"the index of {folder} is not what was signed: {wrong[0]}",
            detail=wrong[1:6],
            remedy="get the channel again from where it was published",
        )
    freshness.accept(freshness.signed(folder, listed), os.path.abspath(folder), f"the channel {folder}")
    return listed


def check_packages(folder: Path, records: Iterable[RepoDataRecord], listed: Mapping[str, str] | None) -> None:
    """An error where a package is not the one that was signed."""
    if listed is None:
        return
    for record in records:
        name = f"{record.subdir}/{record.file_name}"
        path = folder / name
        digest = sha256_file(path) if path.is_file() else None
        # the index that was solved with may be another one than the one that was compared with the list
        of_index = record.sha256.hex() if record.sha256 else None
        if digest is None or not digest == of_index == listed.get(name):
            raise WmlceError(
                f"{path} is not what was signed: " + ("changed" if digest else "missing"),
                remedy="get it again from where the channel was published"
                if digest or name not in listed
                else "if this is a mirror of some packages, mirror this one too: --packages "
                f"{record.file_name.rsplit('-', 2)[0]}",
            )


def check_lock(packages: Mapping[str, str], listed: Mapping[str, str] | None) -> None:
    """An error where a lock names packages that the channel's signed list does not."""
    if listed is None:
        return
    strange = [name for name, digest in packages.items() if listed.get(name) != digest]
    if strange:
        raise WmlceError(
            f"{len(strange)} packages of the lock are not among those that were signed: {strange[0]}",
            detail=strange[1:6],
            remedy="use the lock of the same release",
        )
