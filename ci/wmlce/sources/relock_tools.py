"""ci/requirements.lock, the tool environment at exact content: writing it (`wmlce lock tools`), and fetching
it for machines without a network.

The environment may be made by any of several Python versions, so the lock names one version of each
distribution and the digests of the files that each of these Pythons would take.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from wmlce.sources.pypi import pip_command, problem_lines
from wmlce.util.clients import run_client
from wmlce.util.errors import WmlceError
from wmlce.util.files import sha256_file, write_atomic
from wmlce.util.layout import Layout
from wmlce.util.platform import of_this_machine

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_NEWEST_GLIBC = 36
"""glibc versions whose wheels Debian 12 accepts."""


def lock(layout: Layout, say: Callable[[str], None]) -> int:
    """Resolve ci/requirements.in for the first Python, find the same versions for the others; returns
    their number.
    """
    source = layout.root / "ci" / "requirements.in"
    if not source.is_file():
        raise WmlceError(f"{layout.shown(source)} is missing", remedy="restore it from git")
    versions: dict[str, str] = {}
    digests: dict[str, set[str]] = {}
    for python in PYTHONS:
        say(f"resolving the tool environment for Python {python}")
        wanted = [f"{name}=={version}" for name, version in sorted(versions.items())] or ["-r", str(source)]
        for name, version, digest in _resolve(python, wanted, bool(versions), say):
            versions.setdefault(name, version)
            digests.setdefault(name, set()).add(digest)
    lines = ["# Written by `wmlce lock tools` from requirements.in; changes by hand are lost."]
    for name, version in sorted(versions.items()):
        hashes = [f"    --hash=sha256:{digest}" for digest in sorted(digests[name])]
        lines.append(" \\\n".join([f"{name}=={version}", *hashes]))
    write_atomic(layout.root / "ci" / "requirements.lock", "\n".join(lines) + "\n")
    return len(versions)


def fetch(layout: Layout, folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Fetch the wheels of the tool environment for every Python that may run it; pip checks their sha256.
    A clone without a lock of its tools has none.
    """
    path = layout.root / "ci" / "requirements.lock"
    if not path.is_file():
        return []
    folder.mkdir(parents=True, exist_ok=True)
    for python in PYTHONS:
        say(f"fetching the tool environment for Python {python}")
        command = pip_command("download", "--no-deps", "--require-hashes", "--progress-bar", "off")
        command += [*_options(python), "--dest", str(folder), "--requirement", str(path)]
        answer = run_client(command, title="fetching with pip", say=say, limit_s=1800)
        if answer.code != 0:
            raise WmlceError(
                f"the tool environment for Python {python} cannot be fetched",
                detail=problem_lines(answer),
                remedy="check the network (wmlce doctor) and run it again; or leave them out: --no-tools",
            )
    locked = path.read_text()
    return [wheel for wheel in sorted(folder.glob("*.whl")) if sha256_file(wheel) in locked]


def _options(python: str) -> list[str]:
    """pip's options to choose wheels for another Python than the running one."""
    options = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
    for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
        options += ["--abi", abi]
    for tag in of_this_machine().wheel_tags(_NEWEST_GLIBC):
        options += ["--platform", tag]
    return options


def _resolve(
    python: str, wanted: Sequence[str], pinned: bool, say: Callable[[str], None]
) -> list[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory(prefix="wmlce-resolve-") as scratch:
        report = Path(scratch) / "report.json"
        command = pip_command(
            "install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report)
        )
        command += ["--target", f"{scratch}/target", *_options(python)]
        if pinned:
            command.append("--no-deps")
        answer = run_client([*command, *wanted], title="resolving with pip", say=say, limit_s=900)
        if answer.code != 0:
            raise WmlceError(
                f"pip cannot resolve the tool environment for Python {python}",
                detail=problem_lines(answer),
                remedy="change ci/requirements.in, and check the network (wmlce doctor)",
            )
        found: list[tuple[str, str, str]] = []
        for item in json.loads(report.read_text())["install"]:
            digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", "")
            name = canonicalize_name(item["metadata"]["name"])
            if not digest:
                raise WmlceError(f"pip tells no sha256 of {name}", remedy="use an index with hashes")
            found.append((name, str(item["metadata"]["version"]), digest))
    return found
