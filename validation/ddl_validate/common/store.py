"""Results that outlast a program: what an earlier call measured of the same work is not measured again."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from .files import write_atomic

Row = TypeVar("Row")


def earlier_rows(path: Path | None, name: str = "rows", **same: Any) -> list[dict[str, Any]]:
    """The rows of the document that an earlier call wrote; none where it cannot be read, or says something
    else than `same` of what was measured."""
    try:
        document = json.loads(path.read_text()) if path else {}
        if any(document[key] != value for key, value in same.items()):
            return []
        return [{**row} for row in document[name]]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # it is measured again


class ResultStore(Generic[Row]):
    """The rows of a document, a file that is written after every run.

    head: what the document says beside its rows; an earlier call's rows count where their `identity` and
    `schema` are the same, unless `fresh`. row_type: a dataclass.
    """

    def __init__(self, path: Path, head: dict[str, Any], row_type: type[Row], fresh: bool) -> None:
        self.path, self.head = path, head
        self.rows: list[Row] = []
        if not fresh:
            columns = {field.name for field in fields(row_type)}  # type: ignore[arg-type]
            same = {name: head[name] for name in ("identity", "schema")}
            rows = [
                {name: value for name, value in row.items() if name in columns}
                for row in earlier_rows(path, **same)
            ]
            try:
                self.rows = [row_type(**row) for row in rows]
            except TypeError:
                pass  # a row of an earlier release lacks something

    def find(self, new: Row, *names: str) -> Row:
        """The row that has these fields alike; else the new one, which becomes the last."""
        for row in self.rows:
            if all(getattr(row, name) == getattr(new, name) for name in names):
                return row
        self.rows.append(new)
        return new

    def row_documents(self) -> list[dict[str, Any]]:
        """The rows as the document has them."""
        raise NotImplementedError

    def document(self) -> dict[str, Any]:
        return {**self.head, "rows": self.row_documents()}

    def write(self) -> None:
        write_atomic(self.path, json.dumps(self.document(), indent=1))
