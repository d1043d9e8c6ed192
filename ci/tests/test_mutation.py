"""Mutation runs: which mistakes are made, and that a test that holds nothing is found."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from mutation import cpp_mutants, record
from mutation.__main__ import targets
from mutation.mutants import mutants
from mutation.run import Outcome, Result, Target, draw, key_of, try_target


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
    (tmp_path / "mutated_module.py").write_text(
        "def sign(x):\n    return 1 if x > 0 else -1\n\ndef nobody_calls():\n    return sign(0)\n"
    )
    test = tmp_path / "test_mutated_module.py"
    test.write_text(
        "from mutated_module import sign\n\ndef test_it():\n    assert sign(2) == 1 and sign(-2) == -1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return Target("sign", (tmp_path / "mutated_module.py",), (str(test),))


@pytest.mark.slow
def test_what_no_test_sees_survives(target: Target) -> None:
    equivalent = {key_of(target.files[0], "0 -> 1"): "nobody asks for the sign of 1"}
    shown: list[Outcome] = []
    result = try_target(
        Target(target.name, target.files, target.tests, equivalent),
        sample=None,
        seed=0,
        on_outcome=shown.append,
    )
    assert shown == result.outcomes and len(shown) == 5
    assert [outcome.description for outcome in shown if not outcome.killed] == ["x > 0 -> x >= 0"]
    assert (result.unreached, result.equivalent) == (2, 1)


def test_a_file_that_is_imported_already_has_no_mutants() -> None:
    """The copies of this process would run it as it is."""
    with pytest.raises(RuntimeError, match=r"record\.py is imported already"):
        try_target(Target("x", (Path(record.__file__),), ()), sample=None, seed=0, on_outcome=lambda _: None)


def test_the_program_imports_no_file_of_a_target() -> None:
    code = "import sys, mutation.__main__; print([m for m in sys.modules if m.startswith(('wmlce', 'ddl'))])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(record.ROOT / "ci")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_a_draw_is_the_same_for_a_seed() -> None:
    items = list(range(1000))
    drawn = draw(items, 10, 1)
    assert drawn == draw(items, 10, 1) == sorted(drawn) and len(set(drawn)) == 10
    assert drawn != draw(items, 10, 2)
    assert draw(items, None, 1) == draw(items, 2000, 1) == items


def test_a_test_that_fails_by_itself_is_said(target: Target) -> None:
    Path(target.tests[0]).write_text("def test_it():\n    assert False\n")
    with pytest.raises(RuntimeError, match="as the code is"):
        try_target(target, sample=None, seed=0, on_outcome=lambda _: None)


CPP = """
#include <limit>  // a < b
namespace {
constexpr int kTable[] = {1, 2};
struct Range {
  int begin = 3;
  bool has(const int *one, Range &&other) const { return begin <= *one && other.begin; }
};
}  // namespace
std::size_t parts(std::vector<int> values) {
  // 7 + 7
  return std::min(values.size() / 2, 'x' + 1e-6);
}
"""


def test_mistakes_in_cpp_are_in_functions_alone() -> None:
    found = list(cpp_mutants.mutants(CPP))
    changes = [mutant.description.partition(" -> ")[2] for mutant in found]
    assert changes == [
        "bool has(const int *one, Range &&other) const { return begin < *one && other.begin; }",
        "bool has(const int *one, Range &&other) const { return begin <= *one || other.begin; }",
        "return std::max(values.size() / 2, 'x' + 1e-6);",
        "return std::min(values.size() * 2, 'x' + 1e-6);",
        "return std::min(values.size() / 3, 'x' + 1e-6);",
        "return std::min(values.size() / 2, 'x' - 1e-6);",
        "return std::min(values.size() / 2, 'x' + (2 * 1e-6));",
    ]
    assert [mutant.line for mutant in found] == [7, 7, 12, 12, 12, 12, 12]
    for mutant in found:
        pairs = zip(CPP.splitlines(), mutant.text.splitlines(), strict=True)
        assert sum(one != other for one, other in pairs) == 1


def test_targets_name_files_that_exist_and_mutants_that_there_are() -> None:
    for target in targets().values():
        assert target.files and target.tests
        several = set()
        for file in target.files:
            assert file.is_file()
            make = cpp_mutants.mutants if file.suffix == ".cpp" else mutants
            if target.equivalent:
                several |= {key_of(file, mutant.description) for mutant in make(file.read_text())}
        assert all(Path(test).is_file() for test in target.tests if test.endswith(".py")), target.name
        assert target.equivalent.keys() <= several, target.name


def test_the_page_shows_the_recorded_scores() -> None:
    assert record.page_text() == record.PAGE.read_text()
    for name, entry in record.read().items():
        assert name in targets()
        assert set(entry) == set(record.entry_of(Result([]), None, None, 0))


def test_scores_are_rows_of_a_table(tmp_path: Path) -> None:
    outcomes = [
        Outcome(record.ROOT / "ci/one.py", 3, "1 -> 2", True, 0.1),
        Outcome(record.ROOT / "ci/one.py", 4, "a < b -> a <= b", False, 0.1),
    ]
    entry = {
        **record.entry_of(Result(outcomes, unreached=5, equivalent=1), "1234567890", 2, 0),
        "date": "2026-11-29",
    }
    assert entry["survived"] == ["ci/one.py:4: a < b -> a <= b"]
    scores, page = tmp_path / "scores.json", tmp_path / "page.md"
    record.write({"one": entry}, scores)
    assert record.read(scores) == {"one": entry}
    page.write_text(f"before\n{record.BEGIN}\nold\n{record.END}\nafter\n")
    text = record.page_text(page, scores)
    assert "| `one` | 1 (50%) | 1 | 1 | 5 | 1234567890 | 2026-11-29 |" in text
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    page.write_text("nothing")
    with pytest.raises(RuntimeError, match="lacks the line"):
        record.page_text(page, scores)
