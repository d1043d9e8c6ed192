"""The locks of the tool environment, ci/requirements*.lock: writing them (`wmlce lock tools`), and fetching
what they list for machines without a network.

The environment may be made by any of several Python versions, so the locks name one version of each
distribution and the digests of the files that each of these Pythons would take.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from wmlce.sources.pypi import pip_command, problem_lines
from wmlce.util.clients import run_client
from wmlce.util.errors import WmlceError
from wmlce.util.files import sha256_file, write_atomic
from wmlce.util.layout import Layout
from wmlce.util.platform import of_this_machine

SETS = ("requirements", "requirements-docs", "requirements-test")
"""Files of ci: what wmlce needs, what the documentation's site needs besides, and what the tests need besides
both. A lock lists nothing that one before it lists.
"""

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_NEWEST_GLIBC = 36
"""glibc versions whose wheels Debian 12 accepts."""


def lock(layout: Layout, say: Callable[[str], None]) -> int:
    """Resolve the requirements of all sets for the first Python, find the same versions for the others;
    returns their number.
    """
    sources = [layout.root / "ci" / f"{name}.in" for name in SETS]
    for source in sources:
        if not source.is_file():
            raise WmlceError(f"{layout.display(source)} is missing", remedy="restore it from git")
    versions: dict[str, str] = {}
    digests: dict[str, set[str]] = {}
    for python in PYTHONS:
        say(f"resolving the tool environment for Python {python}")
        requirements = _pins(versions) or [word for source in sources for word in ("-r", str(source))]
        for name, version, digest in _resolve(python, requirements, say, alone=bool(versions)):
            versions.setdefault(name, version)
            digests.setdefault(name, set()).add(digest)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(_pins(versions)))
        constraints.flush()
        listed: set[str] = set()
        for count, lock_name in enumerate(SETS, 1):
            options = [word for source in sources[:count] for word in ("-r", str(source))]
            names = {name for name, _, _ in _resolve(PYTHONS[0], [*options, "-c", constraints.name], say)}
            _write(layout, lock_name, {name: versions[name] for name in names - listed}, digests)
            listed |= names
    return len(versions)


def _write(
    layout: Layout, lock_name: str, versions: Mapping[str, str], digests: Mapping[str, set[str]]
) -> None:
    lines = [f"# Written by `wmlce lock tools` from {lock_name}.in; changes by hand are lost."]
    for name, version in sorted(versions.items()):
        hashes = [f"    --hash=sha256:{digest}" for digest in sorted(digests[name])]
        lines.append(" \\\n".join([f"{name}=={version}", *hashes]))
    write_atomic(layout.root / "ci" / f"{lock_name}.lock", "\n".join(lines) + "\n")


def _pins(versions: Mapping[str, str]) -> list[str]:
    return [f"{name}=={version}" for name, version in sorted(versions.items())]


def locks(layout: Layout) -> list[Path]:
    """The lock files that the clone has."""
    paths = (layout.root / "ci" / f"{name}.lock" for name in SETS)
    return [path for path in paths if path.is_file()]


def fetch(layout: Layout, folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Fetch the wheels of the tool environment for every Python that may run it; pip checks their sha256.
    A clone without a lock of its tools has none.
    """
    paths = locks(layout)
    if not paths:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    for python in PYTHONS:
        say(f"fetching the tool environment for Python {python}")
        command = pip_command("download", "--no-deps", "--require-hashes", "--progress-bar", "off")
        command += [*_options(python), "--dest", str(folder)]
        for path in paths:
            command += ["--requirement", str(path)]
        answer = run_client(command, title="fetching with pip", say=say, limit_s=1800)
        if answer.code != 0:
            raise WmlceError(
                f"the tool environment for Python {python} cannot be fetched",
                detail=problem_lines(answer),
                remedy="check the network (wmlce doctor) and run it again; or leave them out: --no-tools",
            )
    locked = "".join(path.read_text() for path in paths)
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
    python: str, requirements: Sequence[str], say: Callable[[str], None], *, alone: bool = False
) -> list[tuple[str, str, str]]:
    """Name, version and sha256 of each distribution; alone: without what they require."""
    with tempfile.TemporaryDirectory(prefix="wmlce-resolve-") as scratch:
        report = Path(scratch) / "report.json"
        command = pip_command(
            "install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report)
        )
        command += ["--target", f"{scratch}/target", *_options(python)]
        if alone:
            command.append("--no-deps")
        answer = run_client([*command, *requirements], title="resolving with pip", say=say, limit_s=900)
        if answer.code != 0:
            raise WmlceError(
                f"pip cannot resolve the tool environment for Python {python}",
                detail=problem_lines(answer),
                remedy="change ci/requirements*.in, and check the network (wmlce doctor)",
            )
        resolved: list[tuple[str, str, str]] = []
        for item in json.loads(report.read_text())["install"]:
            digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", "")
            name = canonicalize_name(item["metadata"]["name"])
            if not digest:
                raise WmlceError(f"pip reported no sha256 for {name}", remedy="use an index with hashes")
            resolved.append((name, str(item["metadata"]["version"]), digest))
    return resolved
