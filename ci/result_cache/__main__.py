"""`ci/result-cache`: which steps of ci/test passed with the same inputs, and the table of inputs.

docs/develop/testing.md says how ci/test uses it.
"""

from __future__ import annotations

import json
import platform
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer
from mutation.record import commit, machine
from wmlce.util.files import write_json
from wmlce.util.layout import Layout

from result_cache.inputs import Area, Inputs, is_test_file
from result_cache.opened import opened
from result_cache.plugin import lines
from result_cache.store import Store

ROOT = Path(__file__).resolve().parents[2]
_UNLISTED = (".git", ".hypothesis", "build")
"""Folders without inputs; of build/, the packages in its environments are."""

app = typer.Typer(help=__doc__, add_completion=False, no_args_is_help=True)


@app.command()
def todo(
    step: str, fresh: Annotated[bool, typer.Option("--fresh", help="also if it has passed")] = False
) -> None:
    """Print the hash of what STEP depends on, unless STEP has passed with it.

    STEP is an entry of `tests` in inputs.toml.
    """
    key = Inputs(ROOT).key(step)
    if fresh or step not in Store(Layout.locate(ROOT).cache).passed(key):
        print(key)


@app.command()
def record(
    step: str, key: Annotated[str, typer.Argument(help="what `todo` printed before the step")]
) -> None:
    """Record that STEP passed, if its inputs are still those of KEY."""
    if Inputs(ROOT).key(step) == key:
        Store(Layout.locate(ROOT).cache).add(key, [step])
    else:
        print(f"{step} is not recorded as passed: its inputs changed meanwhile")


@app.command()
def summary(
    files: Annotated[list[Path], typer.Argument(help="what pytest wrote with --summary")],
    step: Annotated[list[str] | None, typer.Option(help="a line about another step")] = None,
    record: Annotated[Path | None, typer.Option(help="also write it to this file, as JSON")] = None,
) -> None:
    """Print what a run of ci/test did, as its last lines."""
    for text in step or []:
        print(text)
    documents = {}
    for file in files:
        try:
            documents[file.stem] = json.loads(file.read_text())
        except FileNotFoundError:
            print(f"{file.stem}: did not run to its end")
            continue
        print(f"{file.stem}: ", end="")
        print("\n".join(lines(documents[file.stem])))
    if record is not None:
        facts = {
            "commit": commit(),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": f"{machine()}, Linux {platform.release()}",
        }
        write_json(record, {**facts, "steps": step or [], **documents})
        print(f"recorded in {record}")


@cache
def _package_of(prefix: Path) -> dict[str, str]:
    """By file of an environment, the name of its package."""
    owners = {}
    for meta in (prefix / "conda-meta").glob("*.json"):
        record = json.loads(meta.read_text())
        owners.update(dict.fromkeys(record["files"], record["name"]))
    return owners


def _undeclared_packages(inputs: Inputs, area: Area, paths: set[Path]) -> dict[str, Path]:
    """Packages of build/envs that were read and that the area does not name, each with a file."""
    declared = inputs.package_names(area)
    result: dict[str, Path] = {}
    for path in sorted(paths):
        if path.parts[:2] == ("build", "envs") and len(path.parts) > 3:
            prefix = Path(*path.parts[:3])
            name = _package_of(ROOT / prefix).get(str(path.relative_to(prefix)))
            if name is not None and name not in declared:
                result.setdefault(name, path)
    return result


def source_of(path: Path) -> Path:
    """The module whose compiled form is `path`; any other path as it is."""
    if path.parent.name == "__pycache__":
        return path.parent.parent / f"{path.name.partition('.')[0]}.py"
    return path


@app.command()
def check(
    tests: Annotated[list[str], typer.Argument(help="files of tests, as inputs.toml names them")],
    limit: Annotated[float, typer.Option(help="seconds that one file may take")] = 1800.0,
) -> None:
    """Run tests, and name each file and package that they read although inputs.toml does not list it.

    It needs root: the kernel reports every file that is opened in the clone, so run nothing else in it. Exits
    with 1 if something is not listed, or a test fails.
    """
    inputs = Inputs(ROOT)
    complete = True
    for test in tests:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long", test]
        status, paths = opened(ROOT, command, timeout_s=limit)
        files = {PurePosixPath(source_of(path)) for path in paths if path.parts[0] not in _UNLISTED}
        unlisted = files & (inputs.files.keys() - inputs.of(test).keys())
        undeclared = sorted(file for file in unlisted if not is_test_file(file))
        packages = _undeclared_packages(inputs, inputs.table.area(test), paths)
        complete = complete and status in (0, 5) and not undeclared and not packages
        print(f"{test}: exit code {status}, {len(undeclared)} files and {len(packages)} packages not listed")
        for file in undeclared:
            print(f"  {file}")
        for name, path in packages.items():
            print(f"  package {name} ({path})")
    raise typer.Exit(0 if complete else 1)


if __name__ == "__main__":
    app(prog_name="ci/result-cache")
