"""Mutation runs: which mistakes are made, and that a test that holds nothing is found."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mutation.__main__ import targets
from mutation.mutants import mutants
from mutation.run import Outcome, Target, try_target


def descriptions(source: str) -> list[str]:
    return [mutant.description for mutant in mutants(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ["a < b -> a <= b"]),
        ("x = a and not b", ["a and (not b) -> a or not b", "not b -> not not b"]),
        ("x = 3", ["3 -> 4"]),
        ("x = True", ["True -> False"]),
        ("n += size", ["n += size -> n -= size"]),
        ("if x:\n    y()", ["if x -> if not x", "y() -> pass"]),
        ("def f():\n    return g(1)", ["return g(1) -> return None", "1 -> 2"]),
        ("raise ValueError(f'{n + 1}')", ["raise ValueError(f'{n + 1}') -> pass"]),
        ("def f(x: int = 2) -> None: ...", ["2 -> 3"]),
        ("'text' + x", []),
        ("if TYPE_CHECKING:\n    import a", []),
    ],
)
def test_mistakes(source: str, expected: list[str]) -> None:
    assert descriptions(source) == expected


def test_each_mutant_is_a_program_with_one_mistake() -> None:
    source = Path(ast.__file__).with_name("bisect.py").read_text()
    whole = ast.unparse(ast.parse(source)).splitlines()
    several = list(mutants(source))
    assert len(several) > 20
    for mutant in several:
        compile(mutant.tree, "bisect.py", "exec")
        lines = ast.unparse(mutant.tree).splitlines()
        different = sum(one != other for one, other in zip(whole, lines, strict=len(whole) == len(lines)))
        assert different == 1, mutant.description


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    (tmp_path / "mutated_module.py").write_text("def sign(x):\n    return 1 if x > 0 else -1\n")
    test = tmp_path / "test_mutated_module.py"
    test.write_text(
        "from mutated_module import sign\n\ndef test_it():\n    assert sign(2) == 1 and sign(-2) == -1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return Target("sign", (tmp_path / "mutated_module.py",), (test,))


def test_what_no_test_sees_survives(target: Target) -> None:
    shown: list[Outcome] = []
    outcomes = try_target(target, sample=None, seed=0, on_outcome=shown.append)
    assert shown == outcomes and len(outcomes) == 6
    assert [outcome.mutant.description for outcome in outcomes if not outcome.killed] == [
        "x > 0 -> x >= 0",
        "0 -> 1",
    ]


def test_a_test_that_fails_by_itself_is_said(target: Target) -> None:
    target.tests[0].write_text("def test_it():\n    assert False\n")
    with pytest.raises(RuntimeError, match="as the code is"):
        try_target(target, sample=None, seed=0, on_outcome=lambda _: None)


def test_targets_name_files_that_exist() -> None:
    for target in targets().values():
        assert target.files and target.tests
        assert all(path.is_file() for path in (*target.files, *target.tests)), target.name
