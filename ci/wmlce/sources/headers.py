"""Headers out of wheels that are too large to fetch for them: `wmlce source headers`.

Only the headers are asked of the index, and each is checked with the sha256 that headers.lock.yaml of the
variant has of it. They lie in the cache, and nothing but compilers reads them.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from wmlce.recipes.variant import Variant
from wmlce.recipes.wheel_lock import LockedWheel, WheelLock, read_wheel_lock
from wmlce.sources.pypi import WantedFile, ask_indexes
from wmlce.util.errors import WmlceError
from wmlce.util.files import remove_tree, sha256_file, write_atomic
from wmlce.util.layout import Layout
from wmlce.util.locks import file_lock

Say = Callable[[str], None]
_FOLDER = "include"
_MOST_LISTED = 500


def _digests(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256_file(path) for path in paths}


def _digest_of(digests: Mapping[str, str]) -> str:
    text = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    return hashlib.sha256(text.encode()).hexdigest()


class LockedHeaders(BaseModel):
    """The headers of a wheel.

    sha256: by path inside it. all: where there are too many to list, one digest of all, and the patterns
    """

    model_config = ConfigDict(extra="forbid")
    name: str
    file: str
    sha256: dict[str, str] = {}
    patterns: list[str] = []
    all: str | None = None

    @classmethod
    def of(cls, name: str, file: str, patterns: Sequence[str], digests: dict[str, str]) -> LockedHeaders:
        if len(digests) > _MOST_LISTED:
            return cls(name=name, file=file, patterns=list(patterns), all=_digest_of(digests))
        return cls(name=name, file=file, sha256=digests)

    @property
    def member_names(self) -> list[str]:
        return self.patterns or list(self.sha256)

    def check(self, digests: Mapping[str, str]) -> None:
        """An error where what was found is not what is locked."""
        wrong = [(name, sha256, digests.get(name)) for name, sha256 in self.sha256.items()]
        if self.all:
            wrong.append(("the headers", self.all, _digest_of(digests)))
        for name, locked, actual in wrong:
            if actual != locked:
                raise WmlceError(
                    f"wrong sha256 for {name} of {self.file}",
                    detail=[f"locked: {locked}", f"found:  {actual or 'no such file'}"],
                    remedy="do not compile with it; check where pip fetches from (pip config list)",
                )


def _path(layout: Layout, variant: Variant) -> Path:
    return variant.folder(layout) / "headers.lock.yaml"


def read(layout: Layout, variant: Variant) -> list[LockedHeaders]:
    path = _path(layout, variant)
    try:
        return [LockedHeaders.model_validate(item) for item in yaml.safe_load(path.read_text())]
    except FileNotFoundError as error:
        raise WmlceError(
            f"the variant {variant.name} has no locked headers",
            remedy="name some under `headers` in its variant.yaml, then: wmlce lock wheels --variant "
            f"{variant.name}",
        ) from error
    except (yaml.YAMLError, ValidationError, TypeError) as error:
        raise WmlceError(
            f"recipes/{variant.name}/{path.name} is damaged",
            detail=str(error).splitlines()[:6],
            remedy=f"restore it from git, or: wmlce lock wheels --variant {variant.name}",
        ) from error


def lock(layout: Layout, variant: Variant, wheels: WheelLock, say: Say) -> None:
    """Write headers.lock.yaml for the locked wheels."""
    selection = {
        wheel.file: (wheel, variant.headers[wheel.name]) for wheel in _having_headers(variant, wheels)
    }
    locked = []
    with tempfile.TemporaryDirectory(prefix="wmlce-") as scratch:
        for file, folder in _fetch(layout, selection, scratch, say).items():
            wheel, patterns = selection[file]
            locked.append(LockedHeaders.of(wheel.name, file, patterns, _digests(folder)))
    locked.sort(key=lambda item: item.name)
    head = f"# Written by `wmlce lock wheels --variant {variant.name}`; changes by hand are lost.\n"
    text = yaml.safe_dump(
        [item.model_dump(exclude_defaults=True) for item in locked], sort_keys=False, width=110
    )
    write_atomic(_path(layout, variant), head + text)


def folders(layout: Layout, variant: Variant, say: Say) -> list[Path]:
    """The folders for a compiler's -I (or -isystem), in the cache; fetched where they are not there yet."""
    locked = read(layout, variant)
    digest = hashlib.sha256(repr([item.model_dump() for item in locked]).encode()).hexdigest()[:16]
    place = layout.cache / "headers" / digest
    with file_lock(layout.locks / f"headers-{digest}.lock", "fetching headers", say=say):
        if not place.is_dir():
            wheels = {wheel.file: wheel for wheel in read_wheel_lock(layout, variant).packages}
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="fetch-", dir=place.parent) as scratch:
                selection = {item.file: (wheels[item.file], item.member_names) for item in locked}
                unpacked = _fetch(layout, selection, scratch, say)
                merged = Path(scratch) / "made"
                for item in locked:
                    digests = _digests(unpacked[item.file])
                    item.check(digests)
                    for name in digests:
                        (merged / name).parent.mkdir(parents=True, exist_ok=True)
                        os.replace(unpacked[item.file] / name, merged / name)
                remove_tree(place)
                os.replace(merged, place)
    return sorted({place / _include(name) for item in locked for name in item.member_names})


def _include(name: str) -> PurePosixPath:
    """The folder for the compiler: nvidia/cuda_nvcc/include of nvidia/cuda_nvcc/include/crt/x.h."""
    parts = PurePosixPath(name).parts
    return PurePosixPath(*parts[: parts.index(_FOLDER) + 1])


def _having_headers(variant: Variant, wheels: WheelLock) -> list[LockedWheel]:
    absent = sorted(variant.headers.keys() - {wheel.name for wheel in wheels.packages})
    if absent:
        raise WmlceError(
            f"the variant {variant.name} wants headers of {absent[0]}, which its wheels.yaml does not name",
            remedy="correct `headers` in its variant.yaml",
        )
    return [wheel for wheel in wheels.packages if wheel.name in variant.headers]


def _fetch(
    layout: Layout, selection: Mapping[str, tuple[LockedWheel, Sequence[str]]], scratch: str, say: Say
) -> dict[str, Path]:
    """Unpack files of wheels, by pattern: file name of a wheel -> a folder. Out of the cache where the wheel
    is there, else out of the index.
    """
    unpacked: dict[str, Path] = {}
    for file, (wheel, patterns) in selection.items():
        cached = layout.cached_sources / wheel.sha256 / file
        if cached.is_file():
            unpacked[file] = Path(scratch) / f"cached-{len(unpacked)}"
            with zipfile.ZipFile(cached) as archive:
                for name in archive.namelist():
                    if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                        archive.extract(name, unpacked[file])
    requests = [
        WantedFile(w.name, f, members=tuple(p)) for f, (w, p) in selection.items() if f not in unpacked
    ]
    if requests:
        say(f"fetching headers of {', '.join(item.project for item in requests)}")
        answer = ask_indexes(Path(scratch), say, inspect=requests).inspected
        for item in requests:
            seen = answer.get(item.file) or {"error": "the index did not answer"}
            if seen["error"]:
                raise WmlceError(
                    f"the headers in {item.file} cannot be fetched",
                    detail=str(seen["error"]).splitlines()[:4],
                    remedy="check the network with `wmlce doctor`, then try again",
                )
            unpacked[item.file] = Path(seen["members"])
    return unpacked
