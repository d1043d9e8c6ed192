"""What was built on this machine, on other releases of Debian: the environment trains there, and DDL's C++
tests pass.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

from bare_machine import clone
from bare_machine.mirrors import Mirrors
from bare_machine.system import BareSystem, User
from bare_machine.trial import ORDINARY_USER, Result, timed

RELEASES = ("bullseye", "trixie")
"""Older and newer than the release that everything is otherwise tried on."""

_LIMIT_S = 3600.0
_RANKS = 2
_SUMMARY = re.compile(r"100% tests passed(?:, 0 tests failed)? out of (\d+)")


class CopyTrial:
    """An ordinary user without a network, who has the clone at its path, read-only."""

    def __init__(
        self, release: str, system: BareSystem, mirrors: Mirrors, layout: Layout, say: Callable[[str], None]
    ) -> None:
        self._release = release
        self._system = system
        self._mirrors = mirrors
        self._layout = layout
        self._say = say
        self._log = layout.logs / f"bare-copy-{release}.log"

    @property
    def name(self) -> str:
        return f"copy-{self._release}"

    def run(self) -> Result:
        """Both steps; the system is deleted when they have passed."""
        result = Result("copy", self._release, ORDINARY_USER, clone.head(), "", time.strftime("%Y-%m-%d"))
        self._log.unlink(missing_ok=True)
        try:
            _require_builds(self._layout)
            self._step(result, "minimal Debian", lambda: self._system.make(self._release, self._mirrors))
            user = self._system.user(ORDINARY_USER)
            self._step(result, "frameworks", lambda: self._train(user, result))
            self._step(result, "test", lambda: self._cpp_tests(user, result))
        except WmlceError as error:
            result.error = str(error)
        else:
            self._system.remove()
        return result

    def _step(self, result: Result, name: str, work: Callable[[], object]) -> None:
        with timed(f"{self.name}: {name}", self._say) as took:
            work()
        result.steps[name] = round(took[0], 1)

    def _train(self, user: User, result: Result) -> None:
        prefix = self._layout.envs / "powerai"
        output = f"{user.home}/examples.json"
        command = [str(prefix / "bin/python"), "-P", "-m", "ddl_validate.trainings", "examples"]
        self._run([*command, "--env", str(prefix), "--ranks", str(_RANKS), "--output", output], user)
        rows = json.loads(self._system.outside(output).read_text())["rows"]
        result.trained = ", ".join(f"{row['title']}: {row['figures']['best_accuracy']:.2f}" for row in rows)

    def _cpp_tests(self, user: User, result: Result) -> None:
        tests = f"{user.home}/ctest"
        _copy_test_lists(self._layout.build / "ddl-core", self._system.outside(tests), user)
        program = str(self._layout.envs / "dev/bin/ctest")
        output = self._run([program, "--test-dir", tests, "--output-on-failure", "--timeout", "300"], user)
        summary = _SUMMARY.search(output)
        if summary is None or int(summary[1]) == 0:
            raise WmlceError(f"{self.name}: ctest ran no tests", log=self._log)
        result.tests = f"{summary[1]} C++ tests passed"

    def _run(self, command: list[str], user: User) -> str:
        root = self._layout.root
        ended = self._system.run(
            command,
            user,
            limit_s=_LIMIT_S,
            log=self._log,
            environment={"PYTHONPATH": str(root / "validation"), "PYTHONDONTWRITEBYTECODE": "1"},
            network=False,
            binds={root: str(root)},
        )
        return self._system.require(ended, f"{self.name}: {' '.join(command)}", self._log).output


def _require_builds(layout: Layout) -> None:
    for path in (
        layout.envs / "powerai/bin/ddlrun",
        layout.envs / "dev/bin/ctest",
        layout.build / "ddl-core/CTestTestfile.cmake",
    ):
        if not path.exists():
            raise WmlceError(
                f"there is no {layout.display(path)} to be tried elsewhere",
                remedy="./ci/test --quick makes it, and the rest that is needed",
            )


def _copy_test_lists(build: Path, target: Path, user: User) -> None:
    """The files that tell ctest what there is: it writes its logs beside them, and the clone is read-only.
    The programs that they name stay where they are.
    """
    for file in build.rglob("CTestTestfile.cmake"):
        place = target / file.relative_to(build)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    for path in (target, *target.rglob("*")):
        shutil.chown(path, user.uid, user.gid)
