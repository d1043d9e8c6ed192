"""The environment as a module of a site's software tree.

PREFIX/ibm-wml-ce/VERSION is the environment, MODULEFILES/ibm-wml-ce/VERSION[.lua] are its modulefiles.
An installed version never changes under the jobs that use it: another set of packages is another version. The
environment gets its name when it is whole, the modulefiles come last, and they go first when it is removed.
"""

from __future__ import annotations

import grp
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from wmlce.channel import published
from wmlce.documentation import site
from wmlce.envs import activation, environments, extend, modulefile
from wmlce.envs.clone import RECORD, check_target
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, for_others, remove_tree, write_atomic, write_json
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_CHANNEL = re.compile(r"[A-Za-z0-9][^\s,'\"\\$`]*")
_NOTABLE = (
    *("ddl", "tensorflow", "tf-keras", "keras", "pytorch"),
    *("nccl", "cudnn", "openmpi", "mpi4py", "numpy", "python"),
)
_COMMAND = """\
#!/bin/sh
# Extends this environment in a folder of your own: wmlce env overlay|clone FOLDER
# Validates hosts with it: wmlce validate
exec '{prefix}/bin/python3' -I -c 'import sys
sys.path.insert(0, "{prefix}/{share}")
from pathlib import Path
from wmlce.envs.extend import main
sys.exit(main(Path("{prefix}"), sys.argv[1:]))' "$@"
"""
_SHARE = "share/ibm-wml-ce"


@dataclass(frozen=True)
class Request:
    """What an administrator asks for. `channels`: those that users' conda shall see, the first one first."""

    prefix: Path
    modulefiles: Path
    version: str
    specs: list[str]
    source: Path
    channels: list[str]
    conflicts: list[str]
    group: str | None = None
    default: bool = True
    compile_python: bool = True


@dataclass(frozen=True)
class Installed:
    """One version of a software tree."""

    version: str
    prefix: Path
    default: bool


def install(layout: Layout, request: Request, *, say: Callable[[str], None]) -> bool:
    """Install the version, or bring its modulefiles up to date; False when its environment was there."""
    _check(layout, request)
    tree = request.prefix / modulefile.NAME
    home = tree / request.version
    with disk_errors(f"installing {home}"), for_others():
        tree.mkdir(parents=True, exist_ok=True)
        with (
            file_lock(tree / ".lock", f"the software tree {tree}", say=say),
            published.reading(layout, request.source, say),
        ):
            _sweep(tree, request.version)
            records = environments.solve_channel(request.source, request.specs, layout)
            answer = hashlib.sha256(
                "\n".join(
                    sorted(f"{r.file_name} {r.sha256.hex() if r.sha256 else ''}" for r in records)
                ).encode()
            ).hexdigest()
            fresh = not home.exists()
            if fresh:
                _install_environment(layout, request, records, answer, tree, say)
            else:
                _require_same(home, request, answer)
            _name_for_conda(home)
            _write_modulefiles(layout, request, home)
    return fresh


def remove(prefix: Path, modulefiles: Path, version: str, *, say: Callable[[str], None]) -> str | None:
    """Take a version away; returns the version that is the default from now on."""
    _check_version(version)
    tree, folder = prefix / modulefile.NAME, modulefiles / modulefile.NAME
    home = tree / version
    if not home.exists() and not (folder / f"{version}.lua").exists():
        versions = ", ".join(item.version for item in listing(prefix, modulefiles)) or "none"
        raise WmlceError(f"there is no version {version} in {tree}", remedy=f"versions: {versions}")
    if home.exists() and not (home / RECORD).is_file():
        raise WmlceError(f"{home} was not installed by wmlce", remedy="look at it, and delete it by hand")
    with (
        disk_errors(f"removing {home}"),
        file_lock(tree / ".lock", f"the software tree {tree}", say=say),
    ):
        remaining = [item.version for item in listing(prefix, modulefiles) if item.version != version]
        default = modulefile.read_default(folder)
        if default == version or default not in remaining:
            default = max(remaining, key=_order) if remaining else None
            if default:
                modulefile.write_default(folder, default)
            else:
                (folder / ".modulerc").unlink(missing_ok=True)
        for name in (f"{version}.lua", version):
            (folder / name).unlink(missing_ok=True)
        _conda_name(home).unlink(missing_ok=True)
        if home.exists():
            say(f"removing {home}")
            # under its own name it is whole or absent, also when this ends before its end
            leaving = Path(tempfile.mkdtemp(prefix=f".{version}.part-", dir=tree))
            os.chmod(home, 0o755)
            os.rename(home, leaving / "environment")
            remove_tree(leaving)
        _sweep(tree, version)
    if not remaining:
        (tree / ".lock").unlink(missing_ok=True)
        for empty in (folder, tree / modulefile.NAMES, tree):
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()
    return default


def listing(prefix: Path, modulefiles: Path) -> list[Installed]:
    """The versions of a software tree, oldest first."""
    tree = prefix / modulefile.NAME
    default = modulefile.read_default(modulefiles / modulefile.NAME)
    prefixes = [
        path.parent.parent.parent for path in tree.glob(f"*/{RECORD}") if not path.parts[-4].startswith(".")
    ]
    versions = sorted((path.name for path in prefixes), key=_order)
    return [Installed(version, tree / version, version == default) for version in versions]


def _order(version: str) -> tuple[Version, str]:
    try:
        return Version(version), version
    except InvalidVersion:
        return Version("0"), version


def _check_version(version: str) -> None:
    if not _VERSION.fullmatch(version):
        raise WmlceError(
            f"{version!r} is not a valid module version", remedy="use letters, digits, '.', '_', '-' and '+'"
        )


def _check(layout: Layout, request: Request) -> None:
    _check_version(request.version)
    for path in (request.prefix, request.modulefiles):
        if not path.is_absolute():
            raise WmlceError(f"{path} is not an absolute path", remedy="begin it with '/'")
    check_target(request.prefix)
    for text in request.channels:
        if not _CHANNEL.fullmatch(text):
            raise WmlceError(
                f"{text!r} is not a channel", remedy="give a name such as conda-forge, or file:///sw/channel"
            )
    published.require(layout, request.source)
    if request.group is not None:
        _group_id(request.group)


def _group_id(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise WmlceError(
            f"there is no group {name} on this machine", remedy="name one of `getent group`"
        ) from error


def _require_same(home: Path, request: Request, answer: str) -> None:
    """An environment that is in use is never changed."""
    record = _read_record(home)
    if record is None:
        raise WmlceError(
            f"{home} exists and was not installed by wmlce", remedy="look at it, and move it out of the way"
        )
    if record.get("answer") != answer:
        raise WmlceError(
            f"version {request.version} is installed in {home} with other packages than "
            f"{request.source} has now",
            remedy=f"install them as another version (--version {request.version}-1), "
            f"or remove this one first (wmlce module remove)",
        )


def _read_record(home: Path) -> dict[str, Any] | None:
    try:
        record = json.loads((home / RECORD).read_text())
        return record if isinstance(record, dict) else None
    except (OSError, ValueError):
        return None


def _sweep(tree: Path, version: str) -> None:
    """What a killed run left behind; the lock is held."""
    for leftover in tree.glob(f".{version}.part-*"):
        remove_tree(leftover)


def _install_environment(
    layout: Layout, request: Request, records: list[Any], answer: str, tree: Path, say: Callable[[str], None]
) -> None:
    home = tree / request.version
    started = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix=f".{request.version}.part-", dir=tree))
    staged = scratch / "environment"
    try:
        say(f"installing {len(records)} packages for {home}")
        environments.install_packages(layout, staged, records, request.specs, final=home)
        if request.compile_python:
            environments.compile_modules(staged, say, final=home)
        # rattler marks environments as caches, which backups leave out; a site's software is none
        (staged / "CACHEDIR.TAG").unlink(missing_ok=True)
        _add_command(staged, home)
        _add_documentation(layout, staged, say)
        write_json(
            staged / RECORD,
            {
                "version": request.version,
                "prefix": str(home),
                "specs": request.specs,
                "answer": answer,
                "packages": {record.name.normalized: str(record.version) for record in records},
            },
        )
        # found before the environment gets its name: a script that fails leaves nothing behind
        activation.find(staged, home)
        _protect([staged], request.group)
        os.rename(staged, home)
        os.chmod(home, _folder_mode(request.group))
    finally:
        remove_tree(scratch)
    say(f"{home}: {len(records)} packages in {time.monotonic() - started:.1f} s")


def _add_command(staged: Path, home: Path) -> None:
    """`wmlce` for the users of the module."""
    if not (staged / "bin" / "python3").exists():
        return
    package = staged / _SHARE / "wmlce"
    package.mkdir(parents=True)
    for name in extend.FILES:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(__file__).parents[1] / name, package / name)
    command = staged / "bin" / "wmlce"
    write_atomic(command, _COMMAND.format(prefix=home, share=_SHARE), mode=0o755)


def _add_documentation(layout: Layout, staged: Path, say: Callable[[str], None]) -> None:
    """The site, if the clone has made it for this version."""
    documentation = site.find(layout)
    if documentation is None:
        say("without documentation: ci/docs makes it, and the next installed version has it")
    else:
        site.copy(documentation, staged / modulefile.DOCUMENTATION)


def _conda_name(home: Path) -> Path:
    return home.parent / modulefile.NAMES / f"{modulefile.NAME}-{home.name}"


def _name_for_conda(home: Path) -> None:
    """`conda create --clone ibm-wml-ce-VERSION` looks for a folder of that name."""
    link = _conda_name(home)
    link.parent.mkdir(exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(Path("..") / home.name)


def _folder_mode(group: str | None) -> int:
    return 0o550 if group is not None else 0o555


def _protect(tops: Iterable[Path], group: str | None) -> None:
    """For all (or the group) to read, for nobody to write: not even for the administrator by mistake."""
    group_id = _group_id(group) if group is not None else -1
    others = 0o550 if group is not None else 0o555
    for top in tops:
        for folder, _, names in os.walk(top):
            for path in [Path(folder), *(Path(folder) / name for name in names)]:
                state = path.lstat()
                if group_id >= 0:
                    os.chown(path, -1, group_id, follow_symlinks=False)
                if stat.S_ISLNK(state.st_mode):
                    continue
                if stat.S_ISDIR(state.st_mode):
                    # the top is renamed yet, which needs the owner's right to write in some file systems
                    path.chmod(others | (0o200 if path == top else 0))
                else:
                    runs = 0o111 if state.st_mode & 0o100 else 0
                    path.chmod((0o444 | runs) & others)


def _notable(packages: dict[str, Any]) -> dict[str, str]:
    """The versions that users ask for first; packages of the channel's own names (powerai-pytorch) under the
    common one.
    """
    by_name = {name: packages.get(name) or packages.get(f"powerai-{name}") for name in _NOTABLE}
    return {name: str(version) for name, version in by_name.items() if version}


def _write_modulefiles(layout: Layout, request: Request, home: Path) -> None:
    record = _read_record(home) or {}
    packages = record.get("packages", {})
    facts = modulefile.ModuleFacts(
        prefix=home,
        version=request.version,
        packages=_notable(packages),
        channels=request.channels,
        conflicts=sorted({*modulefile.CONFLICTS, *request.conflicts}),
        activation=activation.find(home, home),
    )
    folder = request.modulefiles / modulefile.NAME
    modulefile.write(folder, modulefile.render(layout, facts))
    if request.default or modulefile.read_default(folder) is None:
        modulefile.write_default(folder, request.version)


def default_version(layout: Layout) -> str:
    """The release of this clone."""
    return (layout.root / "VERSION").read_text().strip()


def default_channels(source: Path, channels: Sequence[str]) -> list[str]:
    """What users' conda shall see: what was named, else the channel that the environment came from."""
    return list(channels) or [source.resolve().as_uri()]
