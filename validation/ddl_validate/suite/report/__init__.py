"""The report of `wmlce validate`: one page that needs no network, and the same for spreadsheets and CI."""

from __future__ import annotations

import json
from pathlib import Path

from ...common.files import write_atomic
from .. import junit, table
from ..document import Document
from ..errors import ValidateError
from ..history import History
from .render import render

PAGE, FIGURES, JUNIT, RESULT = "index.html", "figures.csv", "junit.xml", "validation.json"


def write(document: Document, history: History, folder: Path) -> Path:
    """Write index.html, figures.csv, junit.xml and validation.json; the path of the page.

    Each file is whole at any time. Raises ValidateError where the folder cannot be written.
    """
    files = {
        RESULT: json.dumps(document.as_json(), indent=1) + "\n",
        FIGURES: table.as_csv(document),
        JUNIT: junit.as_xml(document),
        PAGE: render(document, history),
    }
    for name, text in files.items():
        try:
            write_atomic(folder / name, text)
        except OSError as error:
            raise ValidateError(
                f"{folder / name}: the report cannot be written: {error.strerror}; "
                "name another folder by --output"
            ) from error
    return folder / PAGE
