"""The records of an environment's installed packages, which lie in its folder conda-meta."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wmlce.util.errors import WmlceError
from wmlce.util.files import text_of

Record = dict[str, Any]


def read(path: Path) -> Record:
    """One record.

    Raises:
        ValueError: It is none: no JSON, or without name, subdir and the list of files.
        OSError: It cannot be read, or is no file, such as a pipe.
    """
    record = json.loads(text_of(path))
    try:
        paths = [str(item["_path"]) for item in record["paths_data"]["paths"]]
        _ = str(record["name"]), str(record["version"]), str(record["subdir"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"a record of a package has {error}") from error
    record.setdefault("files", paths)
    return dict(record)


def files(prefix: Path) -> list[Path]:
    return sorted((prefix / "conda-meta").glob("*.json"))


def each(prefix: Path) -> Iterator[tuple[Path, Record | Exception]]:
    """Every file with its record, or with the reason why it is none."""
    for path in files(prefix):
        try:
            yield path, read(path)
        except (OSError, ValueError) as error:
            yield path, error


def readable(prefix: Path) -> list[Record]:
    """The records among the files; what is none is passed over."""
    return [record for _, record in each(prefix) if not isinstance(record, Exception)]


def all_of(prefix: Path) -> dict[Path, Record]:
    """The records of an environment, by their files.

    Raises:
        WmlceError: One of the files is no record.
    """
    records = {}
    for path, record in each(prefix):
        if isinstance(record, Exception):
            raise WmlceError(
                f"{path} is no record of an installed package",
                detail=[f"{type(record).__name__}: {record}"],
                remedy="make the environment again: wmlce env create",
            )
        records[path] = record
    return records
