"""Every command in the documentation is run, or says in its fence why it cannot be."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any

import pytest
from tree import ROOT, tracked

FENCE = re.compile(r"^```(?P<info>sh\b[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block of shell commands; `reason` says why it is not run, `long` that it takes long."""

    page: str
    line: int
    body: str
    reason: str | None
    long: bool

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> list[Block]:
    result = []
    for page in sorted(tracked(".md")):
        text = page.read_text()
        for match in FENCE.finditer(text):
            rest = match["info"].removeprefix("sh").strip()
            reason = rest.removeprefix("not-run:").strip() if rest.startswith("not-run:") else None
            line = text.count("\n", 0, match.start()) + 1
            result.append(Block(str(page.relative_to(ROOT)), line, match["body"], reason, rest == "long"))
    return result


def _cases() -> list[Any]:
    """Blocks that are run, which takes seconds at least; ```sh long says that it is a minute or more.

    The id has a hash of all commands of the page, as they may need each other: results are kept by it
    (ci/result_cache), and the text around them makes no difference.
    """
    run = [block for block in blocks() if block.reason is None]
    cases = []
    for block in run:
        commands = "\0".join(other.body for other in run if other.page == block.page)
        number = [other for other in run if other.page == block.page].index(block) + 1
        digest = hashlib.sha256(commands.encode()).hexdigest()[:8]
        mark = pytest.mark.long if block.long else pytest.mark.slow
        cases.append(pytest.param(block, marks=mark, id=f"{block.page}:{number}:{digest}"))
    return cases


@pytest.mark.parametrize("block", _cases())
def test_commands_of_the_documentation_work(block: Block) -> None:
    # Short, unlike pytest's own: MPI makes sockets below it, whose paths are limited to 107 characters.
    with tempfile.TemporaryDirectory(prefix="docs-") as temporary:
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.body],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": temporary},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
    output = f"{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    assert result.returncode == 0, f"{block.place}:\n{block.body}\n{output}"


def test_commands_that_are_not_run_are_correct_shell() -> None:
    """Those that need another machine, root, hours: the fence says what."""
    wrong = []
    for block in blocks():
        syntax = subprocess.run(["bash", "-n"], input=block.body, text=True, capture_output=True, timeout=60)
        if syntax.returncode != 0 or block.reason == "":
            wrong.append(f"{block.place}: {syntax.stderr or 'no reason after not-run:'}")
    assert not wrong
