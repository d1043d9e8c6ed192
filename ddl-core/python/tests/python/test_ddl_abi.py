"""What libddl.so exports: programs that were linked with an earlier release find what they use."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rank_processes import PREFIX

RECORDED = Path(__file__).with_name("libddl.symbols")


def test_symbols_are_those_recorded() -> None:
    """A symbol that is gone needs a new major version. A new one is added to the list, and once a release
    with the others is out, to a version node of its own in src/api/exports.map."""
    library = Path(os.environ.get("DDL_TEST_LIBRARY") or PREFIX / "lib/libddl.so")
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    symbols = {line.split()[-1] for line in listed.splitlines() if " A " not in line}
    recorded = set(RECORDED.read_text().split())
    assert recorded - symbols == set(), "programs linked with an earlier release would not start"
    assert symbols - recorded == set(), f"add them to {RECORDED.name}"
