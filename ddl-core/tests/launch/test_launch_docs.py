"""The page about ddlrun names every option, every message and every variable of DDL, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from launch.command_line.options import SECTIONS
from launch.errors import MEANINGS, Code

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/ddlrun.md").read_text()
DDL_PAGE = (ROOT / "docs/ddl.md").read_text()


def rows(title: str, page: str = PAGE) -> list[list[str]]:
    """Cells of the tables below a heading."""
    part = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def test_every_option() -> None:
    written = [frozenset(re.findall(r"`-([^`]+)`", cells[0])) for cells in rows("Options")]
    assert written == [frozenset(option.names) for section in SECTIONS.values() for option in section]


def test_every_message() -> None:
    assert set(MEANINGS) == set(Code)
    assert {int(cells[0]): cells[1] for cells in rows("When something is wrong")} == {
        int(code): text for code, text in MEANINGS.items()
    }


def test_every_option_of_ddl() -> None:
    parser = (ROOT / "ddl-core/src/engine/options.cpp").read_text()
    known = set(re.findall(r'name == "(\w+)"', parser))
    assert known
    written = [name for cells in rows("Steer", DDL_PAGE) for name in re.findall(r"`-(\w+)", cells[0])]
    assert set(written) == known and len(written) == len(known)
