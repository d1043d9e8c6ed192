"""The part of tf.contrib that is given."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from script_runs import Scripts

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = pytest.mark.slow


def test_parts_of_contrib(run_script: Scripts) -> None:
    """Each part gives what numpy, tf.layers or a formula gives."""
    program = PROGRAMS / "contrib_cases.py"
    functions = [node for node in ast.parse(program.read_text()).body if isinstance(node, ast.FunctionDef)]
    cases = [function.name for function in functions if function.name != "run"]
    output = run_script(program)
    assert [
        line.removeprefix("passed ") for line in output.splitlines() if line.startswith("passed ")
    ] == cases
