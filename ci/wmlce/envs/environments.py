"""Environments in build/envs, installed from build/channel alone.

Prefixes are written into installed files, so an environment is made in its final place; a marker written
last tells a whole one from one that was interrupted.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from rattler import Channel, Gateway, MatchSpec, install, solve
from rattler.repo_data.record import RepoDataRecord

from wmlce.channel import published, unpacked
from wmlce.envs import explicit, refusal
from wmlce.envs.clone import check_target
from wmlce.installer.on_target import forget_links
from wmlce.release import trust
from wmlce.util import conda_meta, platform
from wmlce.util.errors import WmlceError
from wmlce.util.files import disk_errors, for_others, remove_tree, sha256_file, text_of, write_json
from wmlce.util.host import cpu_count
from wmlce.util.layout import Layout
from wmlce.util.limits import SOLVE_LIMIT
from wmlce.util.locks import file_lock

_MARKER = "conda-meta/.wmlce-complete"
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")


@dataclass(frozen=True)
class EnvironmentInfo:
    """What `env list` shows."""

    name: str
    path: Path
    complete: bool
    specs: list[str]
    packages: int


def prefix_of(layout: Layout, name: str) -> Path:
    """build/envs/NAME; a name with a path in it is refused."""
    if not _NAME.match(name):
        raise WmlceError(
            f"{name!r} is not a valid environment name", remedy="use letters, digits, '.', '_', '-' and '+'"
        )
    return layout.envs / name


def solve_channel(folder: Path, specs: Sequence[str], layout: Layout | None = None) -> list[RepoDataRecord]:
    """The packages that fulfil `specs` out of the channel at `folder` and nothing else; where the user wants
    signatures, out of a signed channel, and as they were signed.

    layout: of the clone, whose variants an error then tells of, and whose own channel may be unsigned
    """
    signed = trust.open_channel(folder, layout.channel if layout else None)

    async def run() -> list[RepoDataRecord]:
        return await solve(
            sources=[Channel(folder.resolve().as_uri())],
            specs=[MatchSpec(spec) for spec in specs],
            gateway=Gateway(),
            platforms=list(platform.of_this_machine().subdirs),
            virtual_packages=refusal.virtual_packages(),
            timeout=SOLVE_LIMIT,
        )

    try:
        records = asyncio.run(run())
    except Exception as error:  # rattler's solver, gateway and match-spec errors have no common type
        raise refusal.explained(layout, folder, specs, str(error)) from error
    trust.check_packages(folder, records, signed)
    return records


def _read_marker(prefix: Path) -> dict[str, Any] | None:
    try:
        marker = json.loads(text_of(prefix / _MARKER))
        return marker if isinstance(marker, dict) else None
    except (OSError, ValueError):
        return None


def _index_digest(folder: Path) -> str:
    """Changes whenever the channel's packages for this machine do."""
    try:
        return "-".join(
            sha256_file(folder / subdir / "repodata.json")[:16]
            for subdir in platform.of_this_machine().subdirs
        )
    except OSError as error:
        raise WmlceError(
            f"{error.filename} cannot be read: {error.strerror}",
            remedy="rebuild the channel's index: wmlce channel index",
        ) from error


def create(
    layout: Layout,
    name: str,
    specs: Sequence[str],
    *,
    say: Callable[[str], None],
    compile_python: bool = False,
    lock: explicit.Lock | None = None,
    source: Path | None = None,
) -> bool:
    """Make build/envs/NAME hold what `specs` ask for (default: NAME), or exactly the packages of `lock`;
    False when it already did. source: the channel; default: build/channel.
    """
    prefix = prefix_of(layout, name)
    check_target(prefix)
    requested = sorted(set(specs)) or [name]
    with (
        file_lock(layout.build / "locks" / f"env-{name}.lock", f"the environment {name}", say=say),
        # what is solved now is still there when it is installed
        published.reading(layout, source or layout.channel, say),
    ):
        folder = published.require(layout, source)
        # also where nothing is to be done, which says that it is as asked for
        signed = trust.open_channel(folder, layout.channel)
        if lock is not None:
            trust.check_lock(lock.packages, signed)
        marker = _read_marker(prefix)
        digest = lock.digest if lock else _index_digest(folder)
        needs_signature = signed is not None
        if needs_signature and marker is not None and not marker.get("signed"):
            raise WmlceError(
                f"the environment {name} was made when no signature was asked for, and was not compared with "
                "what was signed",
                remedy=f"make it anew: wmlce env remove {name}, then the same command again",
            )
        question = {"specs": requested, "index": digest, "prefix": str(prefix), "overrides": _overrides()}
        if marker is not None and all(marker.get(key) == value for key, value in question.items()):
            return False
        started = time.monotonic()
        records = explicit.records(layout, lock, folder) if lock else solve_channel(folder, requested, layout)
        answer = sorted(str(record.sha256.hex() if record.sha256 else record.file_name) for record in records)
        same_place = marker is not None and marker.get("prefix") == str(prefix)
        compared = needs_signature
        if same_place and marker is not None and marker.get("answer") == answer:
            compared = bool(marker.get("signed"))
        else:
            if prefix.exists() and not same_place:
                say(f"{name}: removing an environment that is incomplete or was made in another place")
                remove_tree(prefix)
            (prefix / _MARKER).unlink(missing_ok=True)
            say(f"{name}: installing {len(records)} packages into {layout.display(prefix)}")
            try:
                install_packages(layout, prefix, records, requested)
            finally:
                (prefix / _MARKER).unlink(missing_ok=True)  # a package may have brought one
            if compile_python:
                compile_modules(prefix, say)
        write_json(prefix / _MARKER, {**question, "answer": answer, "signed": compared})
        say(f"{name}: {len(records)} packages in {time.monotonic() - started:.1f} s")
    return True


def _overrides() -> dict[str, str]:
    return {key: value for key, value in sorted(os.environ.items()) if key.startswith("CONDA_OVERRIDE_")}


def install_packages(
    layout: Layout,
    prefix: Path,
    records: list[RepoDataRecord],
    specs: Sequence[str],
    *,
    final: Path | None = None,
) -> None:
    """Install at `prefix`. With `final`, the environment is moved there afterwards: its files name that
    place, and none of them is one with the package cache's, so that owner and permissions can be its own.

    What is for others, or has to be signed, is unpacked anew, from copies whose sha256 is the one that the
    index has: neither the cache of unpacked packages nor a folder that others can write to is believed.
    """

    async def run(cache: Path) -> None:
        await install(
            records,
            target_prefix=prefix,
            alternative_target_prefix=final,
            cache_dir=cache,
            show_progress=False,
            # py-rattler 0.28 hands these on as they are, and its own MatchSpec is only a wrapper
            requested_specs=[MatchSpec(spec)._match_spec for spec in specs],
        )

    for package in records:
        path = Path(unquote(urlsplit(str(package.url)).path))
        if not path.is_file():  # a pipe would be waited for
            raise WmlceError(
                f"{path} is missing, or no file", remedy="rebuild the channel's index: wmlce channel index"
            )
    with disk_errors(f"installing {prefix}"), for_others():
        prefix.parent.mkdir(parents=True, exist_ok=True)
        layout.pkgs.mkdir(parents=True, exist_ok=True)
        try:
            if final is None and trust.required() is None:
                asyncio.run(run(layout.pkgs))
                unpacked.protect(layout.pkgs, [record.file_name for record in records])
            else:
                with unpacked.own_copies(layout.cache / "unpacked", records) as cache:
                    asyncio.run(run(cache))
        except (OSError, WmlceError):
            raise
        except Exception as error:
            text = str(error)
            remedy = "run the command again; if it stays, remove the cache's folder pkgs and try once more"
            if "No space left" in text:
                remedy = (
                    "free some space in the clone's build folder and the cache, then run the command again"
                )
            raise WmlceError(
                f"the environment {layout.display(prefix)} could not be installed",
                detail=text.splitlines()[:12],
                remedy=remedy,
            ) from error
        # py-rattler writes them for the owner alone; conda, pip and ddlrun of other users read them too
        for record, content in conda_meta.all_of(prefix).items():
            if forget_links(content) | unpacked.forget_copies(content, records):
                record.write_text(json.dumps(content, indent=2) + "\n")
            record.chmod(record.stat().st_mode | (prefix.stat().st_mode & 0o044))


def compile_modules(prefix: Path, say: Callable[[str], None], *, final: Path | None = None) -> None:
    """Compile all Python modules; `final` is the place where the environment will lie."""
    python = prefix / "bin" / "python"
    if not python.exists():
        return
    say("compiling Python modules (for users who cannot write into the environment)")
    place = ["-s", str(prefix), "-p", str(final)] if final else []
    subprocess.run(
        [str(python), "-I", "-m", "compileall", "-q", "-j", str(cpu_count()), *place, str(prefix / "lib")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=1800,
        check=False,  # packages ship files of other Python versions on purpose; those do not compile
    )


def listing(layout: Layout) -> list[EnvironmentInfo]:
    """All environments, the incomplete ones marked."""
    infos = []
    if layout.envs.is_dir():
        for prefix in sorted(path for path in layout.envs.iterdir() if path.is_dir()):
            marker = _read_marker(prefix)
            moved = marker is not None and marker.get("prefix") != str(prefix)
            packages = len(conda_meta.files(prefix))
            specs = list(marker.get("specs", [])) if marker else []
            infos.append(
                EnvironmentInfo(prefix.name, prefix, marker is not None and not moved, specs, packages)
            )
    return infos


def remove(layout: Layout, name: str, *, say: Callable[[str], None]) -> None:
    """Delete an environment."""
    prefix = prefix_of(layout, name)
    if not prefix.is_dir():
        names = ", ".join(info.name for info in listing(layout)) or "none"
        raise WmlceError(f"there is no environment {name}", remedy=f"environments: {names}")
    with file_lock(layout.build / "locks" / f"env-{name}.lock", f"the environment {name}", say=say):
        (prefix / _MARKER).unlink(missing_ok=True)
        remove_tree(prefix)
