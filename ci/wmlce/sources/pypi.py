"""Python artifacts of exact version and content, fetched by the user's own pip configuration."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version

from wmlce.sources.model import LockedArtifact
from wmlce.sources.settings import Settings, require_network
from wmlce.sources.unavailable import Missing
from wmlce.util.clients import CommandResult, run_client
from wmlce.util.errors import WmlceError
from wmlce.util.platform import TARGET_GLIBC, Platform, of_this_machine
from wmlce.util.python import TARGET, Python

_NEWEST_GLIBC = 40
"""What is locked is fetched, on any machine."""

NETWORK_WORDS = (
    "NewConnectionError",
    "connection broken",
    "Connection refused",
    "Temporary failure",
    "Max retries",
    "ConnectTimeout",
    "Could not fetch URL",
    "Failed to connect",
    "connection error",
    "timed out",
)


@dataclass(frozen=True)
class Target:
    """What files are chosen for: a machine, and a CPython; without words this one, and the channel's."""

    platform: Platform = field(default_factory=of_this_machine)
    python: Python = TARGET

    def options(self) -> list[str]:
        """pip's, for the oldest glibc that the channel runs on."""
        options = ["--python-version", self.python.number, "--implementation", "cp"]
        for abi in self.python.abis:
            options += ["--abi", abi]
        for tag in self.platform.wheel_tags():
            options += ["--platform", tag]
        return options

    def for_index(self, glibc: int = TARGET_GLIBC) -> dict[str, Any]:
        """What the index client chooses files by."""
        return {
            "version": [self.python.major, self.python.minor],
            "abis": list(self.python.abis),
            "platforms": self.platform.wheel_tags(glibc),
        }


def pip_command(*arguments: str) -> list[str]:
    """The tool environment's pip, with the user's own mirror, proxy and certificates (own_pip.py)."""
    require_network("pip")
    return [sys.executable, "-I", str(Path(__file__).with_name("own_pip.py")), *arguments]


def target_pip(markers: Path, *arguments: str) -> list[str]:
    """The same pip with other values of markers (target_pip.py); it is run with `own_modules`."""
    require_network("pip")
    return [sys.executable, "-Ps", "-m", "wmlce.sources.target_pip", str(markers), *arguments]


def own_modules() -> dict[str, str]:
    """Variables of programs that are modules of this tool."""
    return {"PYTHONPATH": ":".join(path for path in sys.path if path)}


def pytorch_environment(settings: Settings) -> dict[str, str]:
    """Variables under which pip asks PyTorch's index and no other. Not an option: an address can hold a
    password, and everybody on the machine sees a command line.
    """
    assert settings.pytorch_index is not None
    return {"PIP_INDEX_URL": settings.pytorch_index, "PIP_EXTRA_INDEX_URL": "", "PIP_NO_INDEX": "0"}


def problem_lines(answer: CommandResult) -> list[str]:
    """What pip complains about, without its warnings about link locations."""
    lines = [
        line for line in answer.lines if line.startswith("ERROR") or "Errno" in line or "Expected" in line
    ]
    lines += [line for line in answer.lines if "Got  " in line]
    if "The conflict is caused by:" in answer.lines:
        start = answer.lines.index("The conflict is caused by:") + 1
        lines += [line for line in answer.lines[start : start + 8] if line.startswith("    ")]
    return lines[-8:] or answer.lines[-5:]


@dataclass(frozen=True)
class WantedFile:
    """A file of a project; without a digest the first of that name. members: patterns of files in it that are
    wanted of a wheel that is looked into.
    """

    project: str
    file: str
    sha256: str | None = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class IndexAnswer:
    """What the index client brought (`fetched`, by file name; `addresses`, by address) and found
    (`inspected`, by file name; `listed`, by project).
    """

    fetched: Mapping[str, Mapping[str, Any]]
    addresses: Mapping[str, Mapping[str, Any]]
    inspected: Mapping[str, Mapping[str, Any]]
    listed: Mapping[str, Mapping[str, Any]]
    client: CommandResult


def ask_indexes(
    folder: Path,
    say: Callable[[str], None],
    *,
    fetch: Sequence[WantedFile] = (),
    addresses: Sequence[str] = (),
    inspect: Sequence[WantedFile] = (),
    listing: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    status: Callable[[], str] | None = None,
    target: Target | None = None,
) -> IndexAnswer:
    """Fetch files into `folder`, look into wheels without fetching all of them, or list what projects offer
    for the target. status: how far it is, for those who wait
    """
    require_network("fetching from a Python package index")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="wmlce-index-", dir=folder) as scratch:
        request, answer = Path(scratch) / "request.json", Path(scratch) / "answer.json"
        request.write_text(
            json.dumps(
                {
                    "folder": tempfile.mkdtemp(prefix="files-", dir=folder),
                    "fetch": [vars(file) for file in fetch],
                    "addresses": list(addresses),
                    "inspect": [vars(file) for file in inspect],
                    "list": list(listing),
                    "target": (target or Target()).for_index(TARGET_GLIBC if listing else _NEWEST_GLIBC),
                }
            )
        )
        command = [sys.executable, "-Ps", "-m", "wmlce.sources.index_client", str(request), str(answer)]
        result = run_client(
            command,
            title="fetching with pip",
            say=say,
            limit_s=1800,
            env={**(env or {}), **own_modules()},
            status=status,
        )
        try:
            response = json.loads(answer.read_text())
        except (OSError, ValueError):
            raise WmlceError(
                "pip's indexes could not be asked",
                detail=problem_lines(result),
                remedy="check `pip config list` and `wmlce doctor`; if the lines "
                "above name a module of pip, the "
                "tool environment is not of this release: run ci/quickstart, which recreates it",
            ) from None
    return IndexAnswer(
        response["fetched"], response["addresses"], response["inspected"], response["listed"], result
    )


@dataclass(frozen=True)
class Arrived:
    """What became of an address. absent: there is nothing under it"""

    path: Path | None
    absent: bool
    error: str | None


def fetch_addresses(folder: Path, say: Callable[[str], None], addresses: Sequence[str]) -> dict[str, Arrived]:
    """Fetch files by their addresses with pip's session, which knows proxies, certificates and passwords,
    tries again and goes on where a connection broke.
    """

    def status() -> str:
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        return f"{sum(sizes) / 1e6:.0f} MB are here"

    answer = ask_indexes(folder, say, addresses=addresses, status=status).addresses
    return {
        url: Arrived(
            Path(outcome["path"]) if outcome["path"] else None,
            outcome["path"] is None and outcome["error"] is None,
            outcome["error"],
        )
        for url, outcome in answer.items()
    }


@dataclass(frozen=True)
class Release:
    """A file of one version of a project."""

    version: str
    file: str
    yanked: bool
    rank: int | None
    sha256: str | None = None
    """The digest that the index gives, if it gives one."""


def releases(
    project: str,
    say: Callable[[str], None],
    env: Mapping[str, str] | None = None,
    target: Target | None = None,
) -> list[Release]:
    """All files of a project that fit the target, the newest version and the best fit first."""
    with tempfile.TemporaryDirectory(prefix="wmlce-") as folder:
        answer = ask_indexes(Path(folder), say, listing=[project], env=env, target=target)
    listed = answer.listed[project]
    files = [Release(**item) for item in listed["files"]]
    if listed["error"] or (not files and any(word in answer.client.text for word in NETWORK_WORDS)):
        raise WmlceError(
            f"pip's indexes cannot be asked for {project}",
            detail=str(listed["error"] or "").splitlines()[:4] or problem_lines(answer.client),
            remedy="check the network with `wmlce doctor`",
        )
    files.sort(key=lambda item: 10**6 if item.rank is None else item.rank)
    return sorted(files, key=lambda item: Version(item.version), reverse=True)


def fetch(
    items: Sequence[LockedArtifact],
    folder: Path,
    say: Callable[[str], None],
    accept: Callable[[LockedArtifact, Path, str], None],
    settings: Settings,
) -> list[Missing]:
    """Fetch `items` into the cache, by pip as it is set up, and those of PyTorch's index that pip does not
    find from there; returns what is nowhere.
    """
    say(f"fetching {len(items)} Python artifact{'s' if len(items) > 1 else ''} with pip{_told_size(items)}")
    missing = _fetch(items, folder, say, accept, None)
    again = [lost.item for lost in missing if lost.item.entry.origin == "pytorch-cpu"]
    if again and settings.pytorch_index:
        say(f"fetching {', '.join(item.file.name for item in again)} from PyTorch's index")
        rest = [lost for lost in missing if lost.item not in again]
        missing = [*rest, *_fetch(again, folder, say, accept, pytorch_environment(settings))]
    return missing


def _told_size(items: Sequence[LockedArtifact]) -> str:
    """What a download will take, where the lock files know it of the large files."""
    size = sum(item.file.size or 0 for item in items)
    return f", {size / 1e6:.0f} MB" if size else ""


def _fetch(
    items: Sequence[LockedArtifact],
    folder: Path,
    say: Callable[[str], None],
    accept: Callable[[LockedArtifact, Path, str], None],
    env: Mapping[str, str] | None,
) -> list[Missing]:
    files = [WantedFile(item.entry.package, item.file.name, item.file.sha256) for item in items]

    def status() -> str:
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        return f"{size / 1e6:.0f} MB are here{_told_size(items).replace(',', ' of', 1)}"

    answer = ask_indexes(folder, say, fetch=files, env=env, status=status)
    missing = []
    failure: WmlceError | None = None
    for item in items:
        outcome = answer.fetched.get(item.file.name) or {}
        if outcome.get("path"):
            try:
                accept(item, Path(outcome["path"]), "pip")
            except WmlceError as error:  # the others are kept all the same
                failure = failure or error
        elif outcome.get("error") or not outcome or _network_failed(item, answer):
            failure = failure or _failure(item, answer)
        else:
            missing.append(Missing(item, _seen(item, outcome["offered"])))
    if failure is not None:
        raise failure
    return missing


def _network_failed(item: LockedArtifact, answer: IndexAnswer) -> bool:
    """Is it missing because an index did not answer? A page that is absent (404) is an answer."""
    lines = [line for line in answer.client.lines if item.entry.package.lower() in line.lower()]
    return any(word in line for line in lines for word in NETWORK_WORDS if "404" not in line)


def _seen(item: LockedArtifact, offered: Sequence[str]) -> str:
    same = [name for name in offered if f"-{item.entry.version}" in name]
    if same:
        return f"of this version pip finds {', '.join(same[:4])}"
    if offered:
        return f"pip finds {len(offered)} other files of {item.entry.package}, and none of this version"
    return f"pip finds nothing that is called {item.entry.package}"


def _failure(item: LockedArtifact, answer: IndexAnswer) -> WmlceError:
    outcome = answer.fetched.get(item.file.name) or {}
    text = f"{outcome.get('error') or ''}\n{answer.client.text}"
    if any(word in text for word in NETWORK_WORDS):
        remedy = "the network or pip's configured index is not reachable: run `wmlce doctor`, then try again"
    elif "No space left" in text:
        remedy = "free some space (WMLCE_CACHE, TMPDIR) and run the command again"
    else:
        remedy = "check `pip config list` and `wmlce doctor`, then try again"
    reported = str(outcome["error"]).splitlines()[:4] if outcome.get("error") else []
    return WmlceError(
        f"source {item.file.name} of recipe '{item.recipes()}' could not be fetched with pip",
        detail=reported or problem_lines(answer.client),
        remedy=remedy,
        recipe=item.entry.recipes[0],
    )
