"""Finished packages in the cache, by recipe and content hash.

The manifest is written last, so a package whose build was killed at any moment is simply not there. It
records the digest of each package as it was built: a file with other bytes is not that package, however it
came about. It also records with what the packages were tested.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmlce.util.errors import WmlceError
from wmlce.util.files import link_or_copy, sha256_file, store_atomic, write_json
from wmlce.util.host import cpu_count
from wmlce.util.layout import Layout


@dataclass(frozen=True)
class PackageFile:
    """A finished package: where it lies, and its entry in the channel's repodata."""

    path: Path
    subdir: str
    entry: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.entry["name"])

    @property
    def file(self) -> str:
        return self.path.name

    @property
    def key(self) -> str:
        """Its place in a channel."""
        return f"{self.subdir}/{self.file}"

    @property
    def sha256(self) -> str:
        return str(self.entry["sha256"])

    @property
    def size(self) -> int:
        return int(self.entry["size"])

    def whole(self) -> bool:
        """Is the file there with the recorded content? Reads all of it."""
        try:
            return self.path.stat().st_size == self.size and sha256_file(self.path) == self.sha256
        except FileNotFoundError:
            return False


class Store:
    """`$WMLCE_CACHE/packages`."""

    def __init__(self, layout: Layout, say: Callable[[str], None] = lambda _: None) -> None:
        self.folder = layout.cached_packages
        self.say = say

    def _manifest(self, recipe: str, content_hash: str) -> Path:
        return self.folder / "finished" / recipe / f"{content_hash}.json"

    def tested(self, recipe: str, content_hash: str) -> list[str]:
        """With what the packages of a recipe at this content have passed their tests: `Plan.test_hash`."""
        try:
            return [
                str(item) for item in json.loads(self._manifest(recipe, content_hash).read_text())["tested"]
            ]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return []

    def add_tested(
        self, recipe: str, content_hash: str, packages: Sequence[PackageFile], tested: str
    ) -> None:
        """Record that they have passed their tests with this, too."""
        self._record(recipe, content_hash, packages, [*self.tested(recipe, content_hash), tested])

    def _listed(self, recipe: str, content_hash: str) -> list[PackageFile]:
        """What the manifest lists, whether it is there or not."""
        try:
            listed = json.loads(self._manifest(recipe, content_hash).read_text())["packages"]
            return [
                PackageFile(self.folder / item["subdir"] / item["file"], item["subdir"], item["entry"])
                for item in listed
            ]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return []

    def lists(self, recipe: str, content_hash: str) -> bool:
        """Are the packages of a recipe at this content there? `find` also checks their bytes."""
        listed = self._listed(recipe, content_hash)
        return bool(listed) and all(package.path.is_file() for package in listed)

    def find(self, recipe: str, content_hash: str) -> list[PackageFile] | None:
        """The packages of a recipe at this content, or None if they are not (wholly) there. A file with other
        bytes than those that were built is removed.
        """
        listed = self._listed(recipe, content_hash)
        bad = [package for package in listed if not package.whole()]
        for package in bad:
            if package.path.exists():
                self.say(f"{package.path} is not what was built (its sha256 differs): removed")
                package.path.unlink(missing_ok=True)
        if bad:
            self._manifest(recipe, content_hash).unlink(missing_ok=True)
        return None if bad else listed or None

    def find_all(self, hashes: Mapping[str, str]) -> dict[str, list[PackageFile]]:
        """`find` for many recipes (name -> content hash), on all cores: every byte is read."""
        with ThreadPoolExecutor(cpu_count()) as pool:
            answers = pool.map(lambda item: (item[0], self.find(*item)), hashes.items())
            return {name: packages for name, packages in answers if packages is not None}

    def add(
        self, recipe: str, content_hash: str, built: Sequence[PackageFile], tested: str
    ) -> list[PackageFile]:
        """Take freshly built and tested files into the cache (they are moved). Clients tell packages apart by
        their names, so a finished package is not replaced by other bytes of the same name.
        """
        before = {package.key: package for package in self._listed(recipe, content_hash)}
        for package in built:
            old = before.get(package.key)
            if old is not None and old.sha256 != package.sha256 and old.whole():
                raise WmlceError(
                    f"recipe '{recipe}' produced different contents under the same file name: {package.file}",
                    detail=[f"before: {old.sha256}", f"now:    {package.sha256}"],
                    remedy="the package built before is kept; to replace it, raise `build: number` in the "
                    "recipe (a wheel: `number` in recipes/wheels.yaml)",
                    recipe=recipe,
                )
        for package in built:
            store_atomic(package.path, self.folder / package.subdir / package.file)
        return self._record(recipe, content_hash, built, [tested])

    def adopt(self, recipe: str, content_hash: str, packages: Sequence[PackageFile]) -> list[PackageFile]:
        """Have these packages, which lie elsewhere, for what the recipe makes at this content."""
        for package in packages:
            link_or_copy(package.path, self.folder / package.subdir / package.file)
        return self._record(recipe, content_hash, packages, self.tested(recipe, content_hash))

    def _record(
        self, recipe: str, content_hash: str, packages: Sequence[PackageFile], tested: Sequence[str]
    ) -> list[PackageFile]:
        listed = [{"subdir": p.subdir, "file": p.file, "entry": dict(p.entry)} for p in packages]
        write_json(
            self._manifest(recipe, content_hash), {"recipe": recipe, "packages": listed, "tested": tested}
        )
        return [PackageFile(self.folder / p.subdir / p.file, p.subdir, p.entry) for p in packages]
