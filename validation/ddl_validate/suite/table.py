"""Every figure of a validation as a row of a CSV file."""

from __future__ import annotations

import csv
import io
from typing import Any

from .document import Document

COLUMNS = (
    *("started", "level", "check", "name", "where", "hosts", "ranks", "scale", "value", "unit", "better"),
    *("expected", "source", "tolerance", "ratio", "low", "command"),
)


def rows(document: Document) -> list[dict[str, Any]]:
    """One for each figure, by column. Empty: not applicable."""
    table = []
    for result in document.results:
        for figure in result.figures:
            expected = figure.expected
            rest = {name: number for name, number in figure.scale.items() if name not in ("hosts", "ranks")}
            table.append(
                {
                    "started": document.started,
                    "level": document.level,
                    "check": result.name,
                    "name": figure.name,
                    "where": figure.where,
                    "hosts": figure.scale.get("hosts", ""),
                    "ranks": figure.scale.get("ranks", ""),
                    "scale": " ".join(f"{name}={number}" for name, number in sorted(rest.items())),
                    "value": repr(figure.value),
                    "unit": figure.unit,
                    "better": figure.better,
                    "expected": repr(expected.value) if expected else "",
                    "source": expected.source if expected else "",
                    "tolerance": repr(expected.tolerance) if expected else "",
                    "ratio": "" if figure.ratio is None else repr(figure.ratio),
                    "low": int(figure.low),
                    "command": figure.command,
                }
            )
    return table


def as_csv(document: Document) -> str:
    """With a heading, as RFC 4180 has it: spreadsheets and pandas read it."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(rows(document))
    return text.getvalue()
