"""Python artifacts of exact version and content, fetched by the user's own pip configuration."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from wmlce.sources.model import LockedArtifact
from wmlce.util.clients import CommandResult, run_client
from wmlce.util.errors import WmlceError
from wmlce.util.host import glibc_version

TARGET_PYTHON = (3, 11)
"""The CPython that the channel carries; the tool itself may run on a newer one."""


_NETWORK = (
    "NewConnectionError",
    "connection broken",
    "Connection refused",
    "Temporary failure",
    "Max retries",
    "ConnectTimeout",
    "Could not fetch URL",
)


def target_options() -> list[str]:
    """pip's options to choose files for the channel's CPython; none when the tool runs on the same
    version.
    """
    if sys.version_info[:2] == TARGET_PYTHON:
        return []
    minor = int([*glibc_version().split("."), "17"][1])
    platforms = [f"manylinux_2_{n}_x86_64" for n in range(minor, 4, -1)]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
    version = "".join(map(str, TARGET_PYTHON))
    options = ["--python-version", version, "--implementation", "cp"]
    for abi in (f"cp{version}", "abi3", "none"):
        options += ["--abi", abi]
    for platform in platforms:
        options += ["--platform", platform]
    return options


def sdist_options(packages: Sequence[str], folder: Path) -> list[str]:
    """pip's options to fetch source distributions of these packages. A file is left in the folder.

    To learn what a source distribution needs pip runs its setup.py, and those of older frameworks import
    pkg_resources, which setuptools 81 was the last to bring.
    """
    constraint = folder / "build-constraint.txt"
    constraint.write_text("setuptools<82\n")
    return ["--no-binary", ",".join(packages), "--build-constraint", str(constraint)]


def pip_command(*arguments: str) -> list[str]:
    """The tool environment's pip; it reads the user's own configuration (mirror, proxy, certificates)."""
    return [sys.executable, "-m", "pip", *arguments]


def problem_lines(answer: CommandResult) -> list[str]:
    """What pip complains about, without its warnings about link locations."""
    lines = [
        line for line in answer.lines if line.startswith("ERROR") or "Errno" in line or "Expected" in line
    ]
    lines += [line for line in answer.lines if "Got  " in line]
    return lines[-8:] or answer.lines[-5:]


def fetch(
    items: Sequence[LockedArtifact],
    folder: Path,
    say: Callable[[str], None],
    accept: Callable[[LockedArtifact, Path, str], None],
    present: Callable[[LockedArtifact], bool],
) -> None:
    """Fetch `items` into the cache: all in one pip, and on failure one by one, so that the error names the
    culprit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    say(f"fetching {len(items)} Python artifact{'s' if len(items) > 1 else ''} with pip")
    answer = _download(items, folder)
    if answer.code == 0:
        for item in items:
            _accept(accept, item, folder, answer)
        return
    for number, item in enumerate(items):
        if present(item):
            continue
        alone = folder / f"one{number}"
        answer = _download([item], alone)
        if answer.code != 0:
            raise _failure(item, answer)
        _accept(accept, item, alone, answer)


def _download(items: Sequence[LockedArtifact], folder: Path) -> CommandResult:
    folder.mkdir(parents=True, exist_ok=True)
    requirements = folder / "requirements.txt"
    lines = []
    sdists = set()
    for item in items:
        lines.append(f"{item.entry.package}=={item.entry.version} --hash=sha256:{item.file.sha256}")
        if not item.file.name.endswith(".whl"):
            sdists.add(item.entry.package)
    requirements.write_text("\n".join(lines) + "\n")
    command = pip_command("download", "--no-deps", "--require-hashes", "--progress-bar", "off")
    if sdists:
        command += sdist_options(sorted(sdists), requirements.parent)
    else:
        command += ["--only-binary", ":all:", *target_options()]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    return run_client(command, title="fetching with pip", say=lambda _: None, limit_s=1800)


def _accept(
    accept: Callable[[LockedArtifact, Path, str], None],
    item: LockedArtifact,
    folder: Path,
    answer: CommandResult,
) -> None:
    path = folder / item.file.name
    if not path.is_file():
        got = sorted(p.name for p in folder.iterdir() if p.suffix in (".whl", ".gz", ".zip", ".xz"))
        raise WmlceError(
            f"pip brought no {item.file.name} for recipe '{item.recipes()}'",
            detail=[f"it brought: {', '.join(got)}", *problem_lines(answer)],
            remedy="lock it anew: wmlce lock wheels (or wmlce lock sources)",
            recipe=item.entry.recipes[0],
        )
    accept(item, path, "pip")


def _failure(item: LockedArtifact, answer: CommandResult) -> WmlceError:
    text = answer.text
    what = f"source {item.file.name} of recipe '{item.recipes()}' could not be fetched with pip"
    if "DO NOT MATCH THE HASHES" in text:
        what = f"wrong sha256 for {item.file.name} of recipe '{item.recipes()}' (from pip)"
        remedy = (
            "do not build from it; if the release was replaced on purpose, lock it anew: wmlce lock wheels"
        )
    elif any(word in text for word in _NETWORK):
        remedy = "the network or pip's configured index is not reachable: run `wmlce doctor`, then try again"
    elif "No space left" in text:
        remedy = "free some space (WMLCE_CACHE, TMPDIR) and run the command again"
    else:
        remedy = "check `pip config list` and `wmlce doctor`; a withdrawn release needs `wmlce lock wheels`"
    return WmlceError(what, detail=problem_lines(answer), remedy=remedy, recipe=item.entry.recipes[0])
