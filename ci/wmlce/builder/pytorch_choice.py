"""Which build of PyTorch can be had here, found out before anything is fetched.

PyTorch's own build for processors is on PyTorch's index, which pip asks only where it is set up for it. The
ordinary package index has the build for GPUs alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from wmlce.builder.plan import Plan
from wmlce.builder.store import Store
from wmlce.recipes import pytorch_build
from wmlce.recipes.pytorch_build import CPU, PACKAGE, PLAIN
from wmlce.recipes.recipe_set import RecipeSet, load_source_lock
from wmlce.recipes.variant import find
from wmlce.recipes.wheel_lock import wheel_sources
from wmlce.sources import pypi
from wmlce.sources.model import LockedArtifact
from wmlce.sources.settings import Settings
from wmlce.sources.store import SourceLock
from wmlce.sources.unavailable import pytorch_index_remedy
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

Say = Callable[[str], None]


#: Times the bytes to fetch: what those, the packages and the environment of PLAIN take on the disk.
_DISK_FACTOR = 5


def settle(
    layout: Layout, named: str | None, requested: list[str], variant: str | None, say: Say, *, dry_run: bool
) -> None:
    """Choose the build for this clone: `named`, or what was chosen before, or, where the packages that are
    requested need PyTorch, what can be had. Says in a line what is taken, how large it is, and the other way.

    dry_run: nothing is remembered.

    Raises:
        WmlceError: There is none, or no room for it; `named` is no build.
    """
    if named is not None:
        pytorch_build.checked(named, "--pytorch")
    before = pytorch_build.decided(layout)
    if before is not None and named in (None, before):
        return
    recipes = RecipeSet(layout)
    recipe = recipes.by_output.get(PACKAGE)
    if recipe is None:
        return
    lock = load_source_lock(layout)
    plan = Plan(layout, recipes, lock, requested, variant=variant)
    needed = recipe.name in plan.graph
    if named is not None:
        if needed or before is None:
            pytorch_build.choose(layout, named, only_now=dry_run)
        else:
            # what the channel has of the other build, and all that needs it, would leave the channel
            say(f"--pytorch {named}: nothing that is asked for needs PyTorch, which stays {before}")
        return
    if not needed:
        return
    wheels = {build: _wheel(layout, lock, build) for build in (CPU, PLAIN)}
    built = Store(layout).lists(PACKAGE, plan.content_hash(PACKAGE))
    chosen = CPU if built else _available(lock, wheels, say)
    size = _download(layout, lock, chosen)
    other = PLAIN if chosen == CPU else CPU
    if chosen == PLAIN and size and not dry_run:
        _require_room(layout, size)
    pytorch_build.choose(layout, chosen, only_now=dry_run)
    download = f"; {size / 1e6:.0f} MB to fetch" if size else ""
    say(f"PyTorch: {_TITLES[chosen]}{download}; for {_TITLES[other]}: --pytorch {other}")


_TITLES = {
    CPU: "PyTorch's own build for processors",
    PLAIN: "the build of the ordinary package index, for GPUs and processors",
}


def _require_room(layout: Layout, size: int) -> None:
    """Raises unless the disk has room; of two disks, for clone and cache, the smaller one counts."""
    folder = min((layout.root, _existing(layout.cache)), key=lambda path: shutil.disk_usage(path).free)
    free, needed = shutil.disk_usage(folder).free, size * _DISK_FACTOR
    if free < needed:
        raise WmlceError(
            f"too little disk: {free / 1e9:.0f} GB free at {folder}, where {_TITLES[PLAIN]} takes "
            f"{needed / 1e9:.0f} GB",
            remedy="free some, or put the clone or the cache (WMLCE_CACHE=FOLDER) on a larger disk; for "
            f"{_TITLES[CPU]}, which takes far less, {pytorch_index_remedy()}",
            recipe=PACKAGE,
        )


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def _available(lock: SourceLock, wheels: dict[str, LockedArtifact], say: Say) -> str:
    for build, wheel in wheels.items():
        if lock.present(wheel):
            return build
    settings = lock.settings
    if (folder := settings.check_folder()) is not None:
        for build, wheel in wheels.items():
            if (folder / wheel.file.name).is_file():
                return build
        if settings.offline:
            raise _neither(wheels, settings, f"neither is in the folder {folder}")
    say("asking pip's indexes for PyTorch")
    offered = pypi.releases("torch", say)
    if _has(offered, wheels[CPU]):
        return CPU
    if settings.pytorch_index:
        environment = pypi.pytorch_environment(settings)
        if _has(pypi.releases("torch", say, environment), wheels[CPU]):
            return CPU
        raise _neither({CPU: wheels[CPU]}, settings, "PyTorch's index, as it is named, has other files")
    if _has(offered, wheels[PLAIN]):
        return PLAIN
    raise _neither(wheels, settings, f"pip finds {len(offered)} other files of torch")


def _has(offered: Iterable[pypi.Release], wheel: LockedArtifact) -> bool:
    """Whether the file is there, and not by its name alone where the index says more."""
    return any(
        release.file == wheel.file.name and release.sha256 in (None, wheel.file.sha256) for release in offered
    )


def _neither(wheels: dict[str, LockedArtifact], settings: Settings, why: str) -> WmlceError:
    ways = [] if settings.pytorch_index or settings.offline else [pytorch_index_remedy()]
    ways.append(
        "let pip's index (pip config list) have one of these files, or name a folder that has it: --offline"
    )
    return WmlceError(
        "PyTorch is unavailable",
        detail=[why, *(f"{wheel.file.name}, sha256 {wheel.file.sha256}" for wheel in wheels.values())],
        remedy="; or ".join(ways),
        recipe=PACKAGE,
    )


def _wheel(layout: Layout, lock: SourceLock, build: str) -> LockedArtifact:
    """The wheel of torch itself."""
    variant = None if build == CPU else find(layout, PLAIN)
    [source] = [source for source in wheel_sources(layout, variant) if source.package == "torch"]
    return lock.by_file[source.files[0].name]


def _download(layout: Layout, lock: SourceLock, build: str) -> int:
    """Bytes that are not here yet of what the build needs and the other does not."""
    if build == CPU:
        items = [_wheel(layout, lock, CPU)]
    else:
        items = [item for item in lock.by_file.values() if item.entry.variant == PLAIN]
    return sum(item.file.size or 0 for item in items if not lock.present(item))
