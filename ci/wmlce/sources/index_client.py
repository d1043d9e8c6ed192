"""Files from Python package indexes, by name, as files: nothing that they hold is ever run.

`pip download` runs the setup.py of a source archive to learn what it needs. This program asks pip's own
finder and session instead, so the user's whole configuration of pip holds (indexes, folders, proxy,
certificates, passwords), and stops where the file has arrived. They are modules that pip does not promise
to keep: the tool environment holds one exact pip (ci/requirements.lock), and ci/tests/test_source_files.py
tries it. `unearth` (0.19) has a finder as public API, but reads none of pip's configuration, resumes no
download, and reads no wheel in parts.

    python -m wmlce.sources.index_client REQUEST ANSWER     (two JSON files)
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from optparse import Values
from pathlib import Path
from typing import IO, Any, cast
from zipfile import BadZipFile, ZipFile, ZipInfo

from pip._internal.commands.download import DownloadCommand
from pip._internal.exceptions import NetworkConnectionError, PipError
from pip._internal.index.package_finder import PackageFinder
from pip._internal.models.candidate import InstallationCandidate
from pip._internal.models.link import Link
from pip._internal.models.target_python import TargetPython
from pip._internal.models.wheel import Wheel
from pip._internal.network.download import Downloader
from pip._internal.network.lazy_wheel import HTTPRangeRequestUnsupported, LazyZipOverHTTP
from pip._internal.network.session import PipSession
from pip._vendor.urllib3.exceptions import HTTPError

from wmlce.sources import own_pip

_SMALL = 5_000_000
"""Bytes of a file that is fetched rather than asked for piece by piece."""
_MOST_TOGETHER = 50_000_000
_HEADER = 4096
"""Bytes that a member's header can have at most, nearly always."""
Work = Callable[[PackageFinder, Downloader, PipSession], None]


class _Client(DownloadCommand):
    """`pip download` up to where it has read its configuration and made its session."""

    def __init__(
        self, target: TargetPython, ignore_requires_python: bool, work: Work, *, cached: bool
    ) -> None:
        super().__init__("download", "fetch files")
        self.cached = cached
        self.target = target
        self.ignore_requires_python = ignore_requires_python
        self.work = work

    def run(self, options: Values, args: list[str]) -> int:
        if not self.cached:
            options.cache_dir = None
        session = self.get_default_session(options)
        finder = self._build_package_finder(
            options=options,
            session=session,
            target_python=self.target,
            ignore_requires_python=self.ignore_requires_python,
        )
        self.work(finder, Downloader(session, "off"), session)
        return 0


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download(link: Link, target: Path, downloader: Downloader) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if link.is_file:
        shutil.copyfile(link.file_path, target)
        return
    part = target.parent / "part"
    part.mkdir(exist_ok=True)
    path, _ = downloader(link, str(part))
    Path(path).replace(target)


def _fetch(
    request: dict[str, Any], target: Path, finder: PackageFinder, downloader: Downloader
) -> dict[str, Any]:
    """Fetch one file; of several of that name the one with the wanted content, if any has it."""
    answer: dict[str, Any] = {"path": None, "error": None, "offered": []}
    try:
        candidates = finder.find_all_candidates(request["project"])
        answer["offered"] = sorted({candidate.link.filename for candidate in candidates})
        for candidate in candidates:
            link = candidate.link
            if link.filename != request["file"] or link.is_vcs or (link.is_file and link.is_existing_dir()):
                continue
            _download(link, target, downloader)
            answer["path"] = str(target)
            if request.get("sha256") in (None, _sha256(target)):
                break
    except (PipError, OSError) as error:
        answer["error"] = str(error)
    return answer


def _fetch_address(url: str, target: Path, downloader: Downloader) -> dict[str, Any]:
    """Fetch a file that no index is asked for."""
    try:
        _download(Link(url), target, downloader)
    except FileNotFoundError:
        return {"path": None, "error": None}
    except NetworkConnectionError as error:
        absent = error.response is not None and error.response.status_code in (404, 410)
        return {"path": None, "error": None if absent else str(error)}
    except (PipError, HTTPError, OSError) as error:
        return {"path": None, "error": str(error) or type(error).__name__}
    return {"path": str(target), "error": None}


def _inspect(
    request: dict[str, Any], target: Path, finder: PackageFinder, downloader: Downloader, session: PipSession
) -> dict[str, Any]:
    """What a wheel says of itself: its size, the names of its files, and the small ones in its .dist-info;
    and files that are wanted out of it, by pattern. An index that serves parts of files sends only these.
    """
    answer: dict[str, Any] = {"error": None, "size": 0, "names": [], "texts": {}, "members": None}
    try:
        links = [c.link for c in finder.find_all_candidates(request["project"])]
        links = [link for link in links if link.filename == request["file"]]
        if not links:
            return {**answer, "error": f"no index has {request['file']}"}
        with _opened(links[0], target, downloader, session) as stream, ZipFile(stream) as archive:
            answer["size"] = stream.seek(0, 2)
            answer["names"] = archive.namelist()
            for name in answer["names"]:
                folder, _, file = name.partition("/")
                if folder.endswith(".dist-info") and file in ("METADATA", "entry_points.txt"):
                    answer["texts"][file] = archive.read(name).decode()
            if request.get("members"):
                answer["members"] = str(target.parent / "members")
                chosen = [
                    item
                    for item in archive.infolist()
                    if any(fnmatch.fnmatch(item.filename, pattern) for pattern in request["members"])
                ]
                _ask_for_all(stream, chosen)
                archive.extractall(answer["members"], chosen)
    except (PipError, OSError, BadZipFile) as error:
        answer["error"] = str(error)
    return answer


def _ask_for_all(stream: IO[bytes], members: list[ZipInfo]) -> None:
    """Get the members of a wheel that is read piece by piece in one piece, where they lie together."""
    if members and isinstance(stream, LazyZipOverHTTP):
        start = min(item.header_offset for item in members)
        end = max(item.header_offset + item.compress_size for item in members) + _HEADER
        if end - start < _MOST_TOGETHER:
            stream._download(start, min(end, stream.seek(0, 2) - 1))


def _opened(link: Link, target: Path, downloader: Downloader, session: PipSession) -> IO[bytes]:
    if not link.is_file:
        try:
            lazy = cast("IO[bytes]", LazyZipOverHTTP(link.url_without_fragment, session))
            if lazy.seek(0, 2) > _SMALL:
                lazy.seek(0)
                return lazy
        except HTTPRangeRequestUnsupported:
            pass
    _download(link, target, downloader)
    return target.open("rb")


def _listing(project: str, finder: PackageFinder) -> dict[str, Any]:
    tags = finder.target_python.get_sorted_tags()

    def facts(candidate: InstallationCandidate) -> dict[str, Any]:
        link = candidate.link
        return {
            "version": str(candidate.version),
            "file": link.filename,
            "sha256": link.hash if link.hash_name == "sha256" else None,
            "yanked": link.is_yanked,
            # pip's own order among wheels: the smaller, the better it fits the target
            "rank": Wheel(link.filename).support_index_min(tags) if link.is_wheel else None,
        }

    try:
        return {
            "error": None,
            "files": [facts(candidate) for candidate in finder.find_all_candidates(project)],
        }
    except (PipError, OSError) as error:
        return {"error": str(error), "files": []}


def main(request_file: Path, answer_file: Path) -> int:
    """Do what the request says; pip's messages go to standard output, its exit code is returned."""
    request = json.loads(request_file.read_text())
    answer: dict[str, Any] = {"fetched": {}, "addresses": {}, "inspected": {}, "listed": {}}

    def work(finder: PackageFinder, downloader: Downloader, session: PipSession) -> None:
        for number, item in enumerate(request.get("fetch", [])):
            target = Path(request["folder"]) / str(number) / item["file"]
            answer["fetched"][item["file"]] = _fetch(item, target, finder, downloader)
        for number, url in enumerate(request["addresses"]):
            target = Path(request["folder"]) / f"address-{number}"
            answer["addresses"][url] = _fetch_address(url, target / "file", downloader)
        for number, item in enumerate(request.get("inspect", [])):
            target = Path(request["folder"]) / f"inspected-{number}" / item["file"]
            answer["inspected"][item["file"]] = _inspect(item, target, finder, downloader, session)
        for project in request.get("list", []):
            answer["listed"][project] = _listing(project, finder)

    target = request["target"]
    client = _Client(
        TargetPython(
            platforms=target["platforms"],
            py_version_info=tuple(target["version"]),
            abis=target["abis"],
            implementation="cp",
        ),
        not request.get("list"),
        work,
        # Debian's lists change under their names, and its files are kept in the cache of sources
        cached=not request["addresses"],
    )
    own_pip.heed_only_kept()
    code = client.main([])
    answer_file.write_text(json.dumps(answer))
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
