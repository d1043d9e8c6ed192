"""The pages about ddlrun and DDL name every option, every message and every variable, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from ddlrun.command_line.options import SECTIONS
from ddlrun.errors import MEANINGS, Code
from ddlrun.start import rank_start

ROOT = Path(__file__).resolve().parents[3]


def rows(title: str, page: str) -> list[list[str]]:
    """Cells of the tables below a heading of a page."""
    text = (ROOT / "docs" / page).read_text()
    part = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def messages(title: str) -> dict[str, list[str]]:
    """By code the cells of a table of messages; no code has two rows."""
    found = rows(title, "train/troubleshooting.md")
    by_code = {cells[0]: cells[1:] for cells in found}
    assert len(by_code) == len(found)
    return by_code


def test_every_option() -> None:
    found = rows("Options", "reference/ddlrun-reference.md")
    written = [frozenset(re.findall(r"`-([^`]+)`", cells[0])) for cells in found]
    assert written == [frozenset(option.names) for section in SECTIONS.values() for option in section]


def test_every_message_of_ddlrun() -> None:
    assert set(MEANINGS) == set(Code)
    written = messages("DDL-2: messages of ddlrun")
    assert {code: cells[0] for code, cells in written.items()} == {
        f"DDL-2-{int(code)}": text for code, text in MEANINGS.items()
    }
    for code, (_, cause, remedy) in written.items():
        assert cause and remedy, code


def test_every_error_of_the_library() -> None:
    header = (ROOT / "ddl-core/libddl/include/ddl.h").read_text()
    known = {
        f"DDL-1-{number}": meaning
        for number, meaning in re.findall(r"DDL_ERR_\w+ = (\d+),? +/\*\*< (.+?) \*/", header)
    }
    assert "DDL-1-1" in known and len(known) == len(re.findall(r"DDL_ERR_\w+ = \d+", header))
    written = messages("DDL-1: messages of the library")
    assert {code: cells[0] for code, cells in written.items() if code in known} == known


def test_every_option_of_ddl() -> None:
    parser = (ROOT / "ddl-core/libddl/src/engine/options.cpp").read_text()
    known = set(re.findall(r'name == "(\w+)"', parser))
    assert known
    options = rows("Options", "reference/ddl.md")
    written = [name for cells in options for name in re.findall(r"`-(\w+)", cells[0])]
    assert set(written) == known and len(written) == len(known)


def test_every_variable_that_belongs_to_a_host() -> None:
    part = (ROOT / "docs/reference/ddlrun-reference.md").read_text().partition("## Environment of a rank")[2]
    written = set(re.findall(r"`([A-Z][A-Z0-9_]*[*]?)`", part.partition("\n## ")[0]))
    names = {*rank_start.BOUND_TO_HOST, *rank_start.FOLDERS} - {"_"}
    names |= {f"{beginning}*" for beginning in rank_start.BOUND_BEGINNINGS}
    assert names <= written, names - written
