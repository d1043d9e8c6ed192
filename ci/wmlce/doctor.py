"""`wmlce doctor`: can this machine fetch, build and install? Each finding comes with what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
from rattler import Version

from wmlce.builder import build_root, sandbox
from wmlce.envs.clone import UNFIT
from wmlce.recipes.wheel_lock import read_wheel_lock
from wmlce.sources.debian import open_suite
from wmlce.sources.pypi import Target, pip_command, problem_lines
from wmlce.sources.settings import Settings
from wmlce.sources.signed_lists import without_password
from wmlce.sources.suite import find_mirror, has_apt
from wmlce.util.clients import run_client
from wmlce.util.errors import WmlceError
from wmlce.util.host import SYSTEM_PATH, cpu_count, glibc_version
from wmlce.util.layout import Layout
from wmlce.util.platform import PLATFORMS, Platform, of_files, of_machine

Level = Literal["ok", "note", "problem"]

_GB = 1e9
BUILD_DISK_GB = 12.0
CACHE_DISK_GB = 8.0
MEMORY_PER_JOB_GB = 2.0
PREFIX_LIMIT = 220
"""Longest path of a clone: with /build/envs/NAME behind it, packages have to have room for it (255)."""

_PACKAGE_LIST = "ci/debian-packages.txt"
_CERTIFICATES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_FEWEST = {"git": "git"}
"""Command -> Debian package, for a clone without its own list."""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's answer."""

    subject: str
    level: Level
    detail: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def examine(layout: Layout, *, network: bool, say: Callable[[str], None]) -> list[Finding]:
    """All findings; with `network` also whether pip's indexes and Debian's mirror are reached."""
    findings = [*_machine(layout), *_tools(layout), *_storage(layout), *_capabilities(layout)]
    findings += list(_clients(layout, say)) if network and not Settings.from_environment().offline else []
    return findings


def _served(layout: Layout) -> list[Platform]:
    """The platforms of the channel by its own folders; while there is none, those that the locks are for."""
    built = [
        entry for entry in PLATFORMS.values() if (layout.channel / entry.subdir / "repodata.json").is_file()
    ]
    wheels = (wheel.file for wheel in read_wheel_lock(layout).packages)
    return built or of_files(wheels) or list(PLATFORMS.values())


def _machine(layout: Layout) -> Iterator[Finding]:
    machine, system = platform.machine(), platform.system()
    own_platform = of_machine(system, machine)
    served = _served(layout)
    fits = own_platform is not None and own_platform in served
    yield Finding(
        "machine",
        "ok" if fits else "problem",
        f"{system} {machine}, {cpu_count()} cores",
        "" if fits else f"the channel is for Linux on {', '.join(entry.machine for entry in served)}",
    )
    yield _glibc(layout)
    yield Finding("tool Python", "ok", f"{platform.python_version()} ({sys.executable})")
    memory = psutil.virtual_memory()
    jobs = max(1, min(cpu_count(), int(memory.available / _GB / MEMORY_PER_JOB_GB)))
    enough = memory.available / _GB >= MEMORY_PER_JOB_GB
    fewer = enough and jobs < cpu_count()
    yield Finding(
        "memory",
        "problem" if not enough else "note" if fewer else "ok",
        f"{memory.available / _GB:.1f} of {memory.total / _GB:.1f} GB free",
        f"free at least {MEMORY_PER_JOB_GB:.0f} GB"
        if not enough
        else f"build with --jobs {jobs}"
        if fewer
        else "",
    )
    root = str(layout.root)
    if len(root) > PREFIX_LIMIT:
        yield Finding(
            "clone's path", "problem", f"{len(root)} characters", f"move it to a path below {PREFIX_LIMIT}"
        )
    elif UNFIT.search(f"{root}{layout.cache}"):
        yield Finding(
            "paths",
            "problem",
            f"{root}, {layout.cache}",
            "builds need paths of letters, digits and '/', '.', '_', '-', '+'",
        )
    else:
        yield Finding("clone's path", "ok", root)


def _glibc(layout: Layout) -> Finding:
    """Frameworks run on the floor of the packages and newer; so does the tool itself."""
    version = glibc_version()
    floor = build_root.read_config(layout).glibc
    if version == "0":
        return Finding("glibc", "problem", "another C library", "take a distribution with glibc")
    old = Version(version) < Version(floor)
    return Finding(
        "glibc",
        "problem" if old else "ok",
        f"{version}; the packages run on {floor} and newer ones",
        f"take a distribution with glibc {floor} or newer" if old else "",
    )


def _wanted_tools(layout: Layout) -> dict[str, str]:
    """Probe -> Debian package, from the list that ci/quickstart installs."""
    path = layout.root / _PACKAGE_LIST
    if not path.is_file():
        return {f"cmd:{command}": package for command, package in _FEWEST.items()}
    rows = [line.split() for line in path.read_text().splitlines()]
    return {row[2]: row[1] for row in rows if len(row) >= 3 and row[0] in ("tools", "build")}


def _has(probe: str) -> bool:
    kind, _, name = probe.partition(":")
    if kind == "certificates":
        named = [os.environ.get(variable, "") for variable in _CERTIFICATES]
        offline = Settings.from_environment().offline
        return offline or any(os.path.isfile(path) for path in [*name.split(":"), *named])
    if kind == "cmd":
        return shutil.which(name, path=SYSTEM_PATH) is not None or shutil.which(name) is not None
    return kind != "file" or Path(name).exists()


def _tools(layout: Layout) -> Iterator[Finding]:
    probes = _wanted_tools(layout)
    missing = sorted({package for probe, package in probes.items() if not _has(probe)})
    yield Finding(
        "programs",
        "problem" if missing else "ok",
        f"missing: {', '.join(missing)}"
        if missing
        else f"{len(probes)} of {len(probes)}; compilers come with the build root",
        ""
        if not missing
        else f"apt-get install --no-install-recommends {' '.join(missing)}"
        if has_apt()
        else "install these by the system's own means; ./ci/quickstart names its command",
    )
    yield _debian()


def _debian() -> Finding:
    """What fetches Debian's files, and from where; whether it is reached is asked elsewhere."""
    settings = Settings.from_environment()
    if settings.offline:
        return Finding("Debian's files", "ok", f"from {settings.folder} alone")
    try:
        mirror = find_mirror()
    except WmlceError as error:
        level: Level = "note" if settings.folder else "problem"
        return Finding("Debian's files", level, error.message, error.remedy or "")
    return Finding(
        "Debian's files",
        "ok",
        f"from {without_password(mirror.main)}, with {'apt-get' if has_apt() else 'pip'}",
    )


def _existing(path: Path) -> Path:
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())


def _storage(layout: Layout) -> Iterator[Finding]:
    places = (("build folder", layout.build, BUILD_DISK_GB), ("cache", layout.cache, CACHE_DISK_GB))
    for subject, path, needed_gb in places:
        place = _existing(path)
        usage = shutil.disk_usage(place)
        free = usage.free / _GB
        writable = os.access(place, os.W_OK)
        if not writable:
            yield Finding(
                subject, "problem", f"{place} is not writable", "make it writable, or name another place"
            )
        else:
            yield Finding(
                subject,
                "ok" if free >= needed_gb else "problem" if free < needed_gb / 3 else "note",
                f"{free:.1f} GB free at {place}",
                ""
                if free >= needed_gb
                else f"a build from nothing takes about {needed_gb:.0f} GB there; free some",
            )
    build, cache = _existing(layout.build), _existing(layout.cache)
    if build.stat().st_dev != cache.stat().st_dev:
        yield Finding(
            "links",
            "note",
            "build folder and cache are on different file systems",
            "packages are copied instead of linked; WMLCE_CACHE on the same file system is faster",
        )


def _capabilities(layout: Layout) -> Iterator[Finding]:
    yield _namespaces(layout)
    user = "root" if os.geteuid() == 0 else f"uid {os.geteuid()}"
    yield Finding("user", "ok", user)
    shm = Path("/dev/shm")
    if shm.is_dir():
        size = shutil.disk_usage(shm).total / _GB
        small = size < 0.25
        yield Finding(
            "/dev/shm",
            "note" if small else "ok",
            f"{size:.2f} GB",
            "shared memory between ranks wants at least 0.25 GB (containers: --shm-size)" if small else "",
        )
    else:
        yield Finding("/dev/shm", "problem", "absent", "mount a tmpfs there: ranks on one host share memory")
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    value = scope.read_text().strip() if scope.is_file() else "0"
    yield Finding(
        "cross-memory attach",
        "ok" if value == "0" or os.geteuid() == 0 else "note",
        f"ptrace_scope {value}",
        "" if value == "0" or os.geteuid() == 0 else "MPI falls back to copies through shared memory",
    )


def _namespaces(layout: Layout) -> Finding:
    """Can packages be built and tested in the build root? Entering it needs namespaces of the user's own."""
    try:
        sandbox.require_early(build_root.folder_of(layout, build_root.read(layout)))
    except WmlceError as error:
        return Finding(
            "user namespaces", "problem", "; ".join([error.message, *error.detail]), error.remedy or ""
        )
    return Finding("user namespaces", "ok", "allowed")


def _clients(layout: Layout, say: Callable[[str], None]) -> Iterator[Finding]:
    """Ask through the clients themselves: they know mirrors, proxies and certificates."""
    answer = run_client(
        [*pip_command("index", "versions", "--disable-pip-version-check"), *Target().options(), "pip"],
        title="asking pip's index",
        say=say,
        limit_s=120,
    )
    reached = answer.code == 0
    yield Finding(
        "pip reaches its index",
        "ok" if reached else "problem",
        "yes" if reached else "; ".join(problem_lines(answer))[:300],
        "" if reached else "check the network and `pip config list` (index-url, proxy, cert)",
    )
    try:
        mirror = find_mirror()
    except WmlceError:
        return  # said before
    subject = "Debian's mirror is reached"
    try:
        suite = open_suite(layout, say)
        suite.update()
        sources = bool(suite.offers("debian-source", "zlib"))
    except WmlceError as error:
        yield Finding(subject, "problem", "; ".join([error.message, *error.detail])[:300], error.remedy or "")
    else:
        yield Finding(
            subject,
            "ok" if sources else "problem",
            "yes" if sources else f"{without_password(mirror.main)} lists no source packages",
            "" if sources else "use a mirror that carries deb-src",
        )
