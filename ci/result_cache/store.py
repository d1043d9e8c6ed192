"""Tests that passed, by the hash of their inputs: one file a hash, with a line for each test."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wmlce.util.files import write_json

_KEPT_DAYS = 90


class Store:
    """Results in a folder of the user's cache, which several runs may use at the same time."""

    def __init__(self, cache: Path) -> None:
        self.folder = cache / "test-results"

    def passed(self, key: str) -> set[str]:
        """Tests that passed with the inputs whose hash is `key`."""
        file = self.folder / key
        try:
            lines = file.read_text().splitlines()
            os.utime(file)
        except FileNotFoundError:
            return set()
        return set(lines)

    def add(self, key: str, tests: Iterable[str]) -> None:
        """Records passes. Several processes may add to one file: each line is one write of its own."""
        self.folder.mkdir(parents=True, exist_ok=True)
        data = "".join(f"{test}\n" for test in tests).encode()
        descriptor = os.open(self.folder / key, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

    def prune(self) -> None:
        """Removes what no run has used for a long time."""
        oldest = time.time() - _KEPT_DAYS * 86400
        for file in self.folder.glob("?" * 64):
            try:
                if file.stat().st_mtime < oldest:
                    file.unlink()
            except FileNotFoundError:
                continue  # another run removed it

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.folder / name).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _write(self, name: str, value: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / name, value)

    def not_begun(self) -> list[str]:
        """Files of tests that earlier runs had no time for: they come first in the next one."""
        return self._read("not-begun.json") or []

    def set_not_begun(self, files: Iterable[str]) -> None:
        """Replaces the list of `not_begun`."""
        self._write("not-begun.json", sorted(files))

    def seconds(self) -> dict[str, float]:
        """How long each file of tests took when most of it was run."""
        return self._read("seconds.json") or {}

    def add_seconds(self, seconds: Mapping[str, float]) -> None:
        """Adds files to `seconds`. Where only some tests of a file ran, half of what it took before stays."""
        earlier = self.seconds()
        merged = {file: round(max(value, earlier.get(file, 0.0) / 2), 1) for file, value in seconds.items()}
        self._write("seconds.json", {**earlier, **merged})
