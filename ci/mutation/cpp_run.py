"""Tries mutants of C++ files: each is compiled in the build root, and linked into the unit tests."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mutation.cpp_mutants import CppMutant, mutants
from mutation.run import ROOT, Outcome, Result, Target, Trial, draw, try_each

_BUILD = ROOT / "build/ddl-core"
_PROGRAM = "libddl/tests/ddl_unit"
_COMPILE_LIMIT_S = 300.0
_STILLBORN = 77
_TRY = f"""
cd "$1"
sh "$2/compile" || exit {_STILLBORN}
sh "$2/link" || exit {_STILLBORN}
exec timeout "$4" "$2/ddl_unit" --gtest_filter="$3" --gtest_fail_fast
"""


@dataclass(frozen=True)
class _Compiler:
    """Compiles one file as CMake would, and links it before the library that has the file as it is."""

    root: Path
    commands: dict[str, str]
    link: str

    def run(self, file: Path, mutant: CppMutant | None, tests: str, limit_s: float) -> int:
        """Returns the exit code of the unit tests, _STILLBORN where there are none."""
        from wmlce.builder import sandbox

        # beside the build folder, as the programs of the build root see the clone alone
        with tempfile.TemporaryDirectory(prefix="mutant-", dir=_BUILD) as folder:
            source, target = Path(folder, file.name), Path(folder, "mutant.o")
            source.write_text(mutant.text if mutant else file.read_text())
            command_line = shlex.split(self.commands[str(file)])
            command_line = [argument for argument in command_line if Path(argument).name != "ccache"]
            command_line[command_line.index("-o") + 1] = str(target)
            command_line[command_line.index(str(file))] = str(source)
            # -O0 for the time that it takes to compile
            command_line += ["-O0", "-g0", "-iquote", str(file.parent)]
            Path(folder, "compile").write_text(shlex.join(command_line) + "\n")
            link = self.link.replace(f"-o {_PROGRAM}", f"-o {folder}/ddl_unit {target}")
            Path(folder, "link").write_text(link + "\n")
            inside = sandbox.Sandbox(
                root=self.root,
                readable={str(ROOT): ROOT},
                writable={folder: Path(folder)},
                folder=str(_BUILD),
            )
            command = ["/bin/bash", "-c", _TRY, "bash", str(_BUILD), folder, tests, f"{limit_s:.0f}"]
            done = subprocess.run(
                inside.command_line(command),
                env=sandbox.environment(HOME="/tmp"),
                capture_output=True,
                timeout=_COMPILE_LIMIT_S + limit_s,
                check=False,
            )
            return done.returncode


def _compiler() -> _Compiler:
    # not before: a mutant of a module that is imported already would change nothing
    from wmlce.builder import build_root
    from wmlce.recipes.recipe_set import load_source_lock
    from wmlce.util.layout import Layout

    commands = _BUILD / "compile_commands.json"
    if not (_BUILD / _PROGRAM).is_file():
        raise RuntimeError("there is no build/ddl-core: compile it first with `wmlce dev --target ddl_unit`")
    layout = Layout.locate(ROOT)
    root = build_root.make(layout, build_root.read(layout), load_source_lock(layout), print)
    by_file = {entry["file"]: entry["command"] for entry in json.loads(commands.read_text())}
    ninja = subprocess.run(
        ["ninja", "-C", str(_BUILD), "-t", "commands", "-s", _PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    link = next(line for line in ninja.stdout.splitlines() if f"-o {_PROGRAM}" in line)
    # what CMake does after the link, such as listing the tests, is for its own program
    link = link.removeprefix(": && ").partition(" && ")[0]
    return _Compiler(root, by_file, link)


def try_target(
    target: Target,
    *,
    sample: int | None,
    seed: int,
    on_outcome: Callable[[Outcome], None],
) -> Result:
    """Runs a target's unit tests once as the code is, then once for each mutant that compiles.

    Raises:
        RuntimeError: The tests fail without any mistake, or nothing is compiled.
    """
    compiler = _compiler()
    tests = ":".join(target.tests)
    start = time.monotonic()
    if compiler.run(target.files[0], None, tests, 300.0):
        raise RuntimeError(f"{target.name}: the tests fail as the code is; mend them first")
    limit_s = 20.0 + 5 * (time.monotonic() - start)

    def killed(file: Path, mutant: CppMutant) -> bool | None:
        code = compiler.run(file, mutant, tests, limit_s)
        return None if code == _STILLBORN else code != 0

    trials = [
        Trial(file, mutant.line, mutant.description, partial(killed, file, mutant))
        for file in target.files
        for mutant in mutants(file.read_text())
    ]
    outcomes, equivalent = try_each(target, draw(trials, sample, seed), on_outcome)
    return Result(outcomes, equivalent=equivalent)
