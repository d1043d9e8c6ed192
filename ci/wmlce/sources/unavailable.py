"""Sources that their archive no longer has: one error, with everything that helps to get them all the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wmlce.recipes.pytorch_build import VARIABLE as PYTORCH
from wmlce.sources.model import LockedArtifact
from wmlce.sources.settings import FOLDER, OFFLINE, PYTORCH_INDEX, SNAPSHOT, Settings
from wmlce.util.errors import WmlceError


@dataclass(frozen=True)
class Missing:
    """A locked file that its archive does not have, and what was seen instead."""

    item: LockedArtifact
    why: str


def missing_error(missing: Sequence[Missing], settings: Settings) -> WmlceError:
    """The one error for all files that could not be had."""
    first = missing[0].item
    if len(missing) == 1:
        message = f"the source {first.file.name} of recipe '{first.recipes()}' is unavailable"
    else:
        message = f"{len(missing)} sources are unavailable, the first is {first.file.name}"
        message += f" of recipe '{first.recipes()}'"
    detail = []
    for lost in missing[:20]:
        detail.append(f"{lost.item.file.name} ({lost.item.entry.title()}, from {lost.item.entry.archive})")
        detail.append(f"  sha256 {lost.item.file.sha256}")
        detail.append(f"  {lost.why}")
    if len(missing) > 20:
        detail.append(f"… and {len(missing) - 20} more")
    return WmlceError(
        message,
        detail=detail,
        remedy="; or ".join(_ways_out([lost.item for lost in missing], settings)),
        recipe=first.entry.recipes[0],
    )


def pytorch_index_remedy() -> str:
    """How to name the index, whose address this project does not carry."""
    return (
        f"set {PYTORCH_INDEX} (or --pytorch-index) to PyTorch's CPU "
        f"wheel index, the address that PyTorch's own "
        "install page gives for pip on Linux without CUDA"
    )


def plain_pytorch_remedy() -> str:
    """The other build, which the ordinary package index has."""
    return f"take the build of the ordinary package index: --pytorch plain, or {PYTORCH}=plain"


def _ways_out(items: Sequence[LockedArtifact], settings: Settings) -> list[str]:
    """What a user can do, the likeliest first."""
    if settings.offline:
        return [
            "write the folder again where there is a network (wmlce source bundle DIR) and carry it here",
            f"leave out --offline ({OFFLINE})",
        ]
    ways = []
    origins = {item.entry.origin for item in items}
    if "pytorch-cpu" in origins and not settings.pytorch_index:
        ways += [pytorch_index_remedy(), plain_pytorch_remedy()]
    if "debian" in origins:
        if settings.locked:
            ways.append("leave out --locked, and a newer Debian revision stands in where there is one")
        if not settings.snapshot and any(item.entry.snapshot for item in items):
            ways.append(
                f"set {SNAPSHOT} (or --debian-snapshot) to the address of Debian's permanent snapshot archive"
            )
    ways.append(
        "take the file from a folder that has it, such as the release's bundle (wmlce source bundle): "
        f"--offline DIR, or {FOLDER}=DIR"
    )
    anew = []
    if names := sorted({item.entry.recipes[0] for item in items if item.entry.origin == "debian"}):
        anew.append(f"wmlce lock sources {' '.join(names)}")
    if any(item.entry.kind == "python" for item in items):
        anew.append("wmlce lock wheels, or wmlce lock sources --upgrade RECIPE")
    ways.append(f"lock what the archive has now: {'; '.join(anew)}")
    return ways
