"""Fixtures: small clones to build in."""

from __future__ import annotations

from pathlib import Path

import pytest
from scratch_clone import Clone


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "clone", tmp_path / "cache")


@pytest.fixture
def library_and_program(clone: Clone) -> Clone:
    """A C library, and a program of the project that links it: a real compile, link, relocation and test."""
    clone.write("recipes/libanswer/answer.c", "int answer(void) { return 42; }\n")
    clone.recipe(
        "libanswer",
        source=[{"path": "answer.c"}],
        script=[
            "mkdir -p $PREFIX/lib",
            "gcc -shared -fPIC -Wl,-soname,libanswer.so.1 -o $PREFIX/lib/libanswer.so.1 answer.c",
            "ln -s libanswer.so.1 $PREFIX/lib/libanswer.so",
        ],
        test=["test -f $PREFIX/lib/libanswer.so.1"],
    )
    clone.write(
        "program/main.c",
        '#include <stdio.h>\nint answer(void);\nint main(void) { printf("%d\\n", answer()); return 0; }\n',
    )
    clone.recipe(
        "program",
        host=["libanswer"],
        run=["libanswer"],
        source=[{"path": "../../program"}],
        script=[
            "mkdir -p $PREFIX/bin",
            "gcc -o $PREFIX/bin/program main.c -L$PREFIX/lib -lanswer -Wl,-rpath,$PREFIX/lib",
        ],
        test=["test $(program) = 42"],
    )
    return clone
