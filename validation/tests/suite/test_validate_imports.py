"""The check `imports` of `wmlce validate`: what is missing, broken or another version, and on which host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from program_runner import PYTHONPATH, Environment

from ddl_validate.suite.checks.imports import compare
from ddl_validate.suite.model import Finding, Kind, Severity
from ddl_validate.suite.probe.lines import heard, lines

_CODE = """
import sys
from ddl_validate.suite.probe import imports
imports.GROUPS = (
    {"numpy": ("numpy",), "broken": (), "json": (), "crashing": (), "exiting": ()},
    {"sleeping": (), "no_such_module": ()},
    {"numpy.linalg": ("no-such-package", "numpy")},
)
imports.main(5.0)
"""


def host(**versions: str | None) -> dict[str, dict[str, Any]]:
    modules = {"numpy": "2.4.6", "ddl": "2.0.0", **versions}
    return {name: {"version": version} for name, version in modules.items() if version is not None}


def told(findings: list[Finding]) -> list[tuple[str, tuple[str, ...]]]:
    assert all(finding.kind is Kind.ENVIRONMENT for finding in findings)
    return [(finding.where, finding.hosts) for finding in findings]


def test_hosts_that_are_alike_have_no_finding() -> None:
    assert compare({"a": host(torch="2.13.0"), "b": host(torch="2.13.0")}) == []
    assert compare({"a": host()}) == []


def test_the_host_that_differs_from_most_is_named() -> None:
    good = host(torch="2.13.0")
    (other,) = compare({"a": good, "b": host(torch="2.12.1"), "c": good})
    assert told([other]) == [("host b", ())] and other.severity is Severity.WARN
    assert other.text == "torch on b is 2.12.1, on the others 2.13.0"
    (absent,) = compare({"a": good, "b": good, "c": host()})
    assert told([absent]) == [("host c", ("c",))] and "torch on c is missing" in absent.text
    assert absent.severity is Severity.DRAIN
    (more,) = compare({"a": host(), "b": good, "c": host()})
    assert told([more]) == [("host b", ())] and more.severity is Severity.WARN


def test_of_two_hosts_that_differ_nobody_knows_which_is_right() -> None:
    (finding,) = compare({"a": host(torch="2.13.0"), "b": host(torch="2.12.1")})
    assert told([finding]) == [("cluster", ())]
    assert "a: 2.13.0; b: 2.12.1" in finding.text


def test_what_cannot_be_imported_is_told_with_its_error() -> None:
    broken = {**host(), "torch": {"error": "libfoo.so: cannot open"}}
    (one,) = compare({"a": broken, "b": host(torch="2.13.0"), "c": host(torch="2.13.0")})
    assert told([one]) == [("host a", ("a",))]
    assert one.text == "torch cannot be imported on a: libfoo.so: cannot open"
    both = compare({"a": broken, "b": broken})
    assert told(both) == [("host a", ("a",)), ("host b", ("b",))]


def test_an_environment_without_ddl_is_none() -> None:
    assert told(compare({"a": host(ddl=None), "b": host(ddl=None)})) == [
        ("host a", ("a",)),
        ("host b", ("b",)),
    ]


def test_answers_are_by_rank() -> None:
    """More than a launcher passes on in one piece, with its mark before each line of one rank."""
    long = {
        rank: {"host": f"h{rank}", "noise": [str((rank + 7) * number**3) for number in range(4000)]}
        for rank in (0, 1)
    }
    first, second = lines(0, long[0]), lines(1, long[1])
    assert len(first.splitlines()) > 20
    marked = "".join(f"[1] {line}\n" for line in second.splitlines())
    assert heard("a launcher's words\n" + marked + first) == long
    assert heard("".join(marked.splitlines(keepends=True)[:-1]) + first) == {0: long[0]}


def test_a_module_that_fails_hides_no_other(env: Environment, tmp_path: Path) -> None:
    """Real imports by the environment's Python: an exception, a crash, an exit, and one without an end."""
    (tmp_path / "broken.py").write_text("raise OSError('libfoo.so: cannot open')\n")
    (tmp_path / "crashing.py").write_text("import os\nos.abort()\n")
    (tmp_path / "exiting.py").write_text("raise SystemExit(7)\n")
    (tmp_path / "sleeping.py").write_text("import time\ntime.sleep(60)\n")
    path = f"{PYTHONPATH}:{tmp_path}"
    result = env.python("-c", _CODE, PYTHONPATH=path, OMPI_COMM_WORLD_RANK="3").ok()
    ((rank, found),) = heard(result.out).items()
    modules = found["modules"]
    assert rank == 3 and len(found["boot"]) == 36
    assert modules["numpy"]["version"] == modules["numpy.linalg"]["version"] != ""
    assert modules["json"]["seconds"] >= 0
    assert modules["broken"]["error"] == "OSError: libfoo.so: cannot open"
    assert modules["crashing"]["error"] == "signal 6"
    assert modules["exiting"]["error"] == "exit code 7"
    assert modules["sleeping"]["error"] == "not imported within 5 s"
    assert "no_such_module" not in modules
