"""Paragraphs and their translations, out of gettext catalogues."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polib

from ..errors import NmtError

#: How po4a marks running text; the rest are synopses, tables and code.
_RUNNING_TEXT = re.compile(
    r"type: (Plain text|textblock|delimited block _|Content of: .*<(para|simpara|phrase|seg|title)>)"
)


def catalogues(folder: Path, language: str) -> list[Path]:
    """The catalogues of a language below a folder, always in the same order."""
    files = sorted(
        file
        for file in folder.rglob("*.po")
        if file.stem == language or file.parent.name == language or file.stem.endswith(f".{language}")
    )
    if not files:
        raise NmtError(f"{folder} has no catalogue {language}.po or {language}/*.po; name a folder that has")
    return files


def translated_paragraphs(file: Path) -> Iterator[tuple[str, str]]:
    """The original and the translation of each entry that a translator has finished.

    In a catalogue that po4a has made of a document, only those of running text.
    """
    try:
        entries = polib.pofile(str(file), encoding="utf-8")
    except (OSError, ValueError) as error:
        raise NmtError(f"{file} is not a gettext catalogue: {error}; remove it") from None
    of_document = any("type: " in entry.comment for entry in entries)
    for entry in entries:
        if entry.translated() and not entry.obsolete and not entry.msgid_plural:
            if of_document and not _RUNNING_TEXT.search(entry.comment):
                continue
            yield entry.msgid, entry.msgstr
