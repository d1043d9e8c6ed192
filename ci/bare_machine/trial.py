"""One trial: the README's two commands in a bare system, by root or by an ordinary user, step by step.

What is done is written down beside the system after each step, so that a trial that was stopped goes on in
the same system; one whose files have changed since starts anew.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from wmlce.util.errors import WmlceError
from wmlce.util.files import write_json

from bare_machine import clone, packages
from bare_machine.mirrors import Mirrors
from bare_machine.system import BareSystem, Ended, User

Form = Literal["short", "long", "copy", "system"]

FROM_NOTHING = ("python", "ddl")
"""What the short form builds, with all that these need; it takes the rest from the machine's cache."""
ORDINARY_USER = "newcomer"
STEP_LIMIT_S = 3 * 3600.0
MESSAGE_LIMIT_S = 120.0
_REMEDY = re.compile(r"sudo apt-get install --no-install-recommends ((?:[a-z0-9][a-z0-9+.-]*[ \n])+)")
_SUMMARY = re.compile(r"=+ (.*\b(?:passed|failed|error)\b.*) =+")


@dataclass(frozen=True)
class Conditions:
    """What is tried, and on what.

    form: "short" takes most packages from the machine's cache, "long" builds everything; "copy" is that of
        copies.py, "system" that of other_systems.py.
    release: of Debian; of the form "system", a system's name
    test: the second command.
    uncommitted: try the working tree as it is, rather than HEAD.
    """

    form: Form
    release: str
    user: str
    mirrors: Mirrors
    test: str = "./ci/test --quick"
    uncommitted: bool = False

    @property
    def name(self) -> str:
        return f"{self.form}-{self.release}-{self.user}"

    def content(self) -> str:
        """A hash over everything in the project that decides how the trial ends."""
        select = clone.needed_by_builds if self.form in ("short", "system") else _all_but_pages
        digest = clone.content_hash(select, uncommitted=self.uncommitted)
        return f"{self.name}-{digest}"


def _all_but_pages(name: str) -> bool:
    return not name.startswith("docs/")


@dataclass
class Result:
    """How a trial went: seconds by step, and the error that ended it, if one did."""

    form: str
    release: str
    user: str
    commit: str
    content: str
    date: str
    steps: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    trained: str = ""
    tests: str = ""

    @property
    def passed(self) -> bool:
        return self.error is None


class Trial:
    """Runs one."""

    def __init__(
        self,
        conditions: Conditions,
        system: BareSystem,
        logs: Path,
        cache: Path,
        say: Callable[[str], None],
    ) -> None:
        self._conditions = conditions
        self._system = system
        self._log = logs / f"bare-{conditions.name}.log"
        self._cache = cache
        self._say = say
        self._state = system.folder.with_name(system.folder.name + ".json")
        self._facts: dict[str, Any] = {}

    def run(self) -> Result:
        """All steps that are still to be done. The system is deleted when they have passed."""
        conditions = self._conditions
        content = conditions.content()
        self._facts = self._remembered(content)
        if not self._facts:
            self._log.unlink(missing_ok=True)
        commit = clone.head() + (" and uncommitted changes" if conditions.uncommitted else "")
        result = Result(
            conditions.form,
            conditions.release,
            conditions.user,
            commit,
            content,
            time.strftime("%Y-%m-%d"),
        )
        try:
            if not self._facts:
                self._facts = {"content": content, "steps": {}}
                self._step("minimal Debian", self._make)
            self._steps()
        except WmlceError as error:
            result.error = str(error)
        result.steps = dict(self._facts.get("steps", {}))
        result.trained = self._facts.get("trained", "")
        result.tests = self._facts.get("tests", "")
        if result.passed:
            self._system.remove()
            self._state.unlink(missing_ok=True)
        return result

    def _make(self) -> None:
        self._system.make(self._conditions.release, self._conditions.mirrors)

    def _remembered(self, content: str) -> dict[str, Any]:
        try:
            facts = json.loads(self._state.read_text())
            if facts["content"] == content and self._system.complete:
                return dict(facts)
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return {}

    def _steps(self) -> None:
        conditions = self._conditions
        user = self._system.user(conditions.user)
        folder = self._system.bring_clone(user, uncommitted=conditions.uncommitted)
        if user.uid != 0:
            self._step(
                "quickstart names packages", lambda: self._install_as_told(user, folder, "./ci/quickstart")
            )
        home_cache = self._system.outside(f"{user.home}/.cache/wmlce")
        if conditions.form == "short":
            script = (
                f'. ci/bootstrap.sh && bootstrap build && "$WMLCE" channel build {" ".join(FROM_NOTHING)}'
            )
            self._step("python and ddl from nothing", lambda: self._bash(user, folder, script))
            self._step("packages from the cache", lambda: self._take_packages(user, folder, home_cache))
        self._step("quickstart", lambda: self._quickstart(user, folder))
        if conditions.form == "short":
            # what no machine had built before need not be built by it a second time
            self._step("packages into the cache", lambda: packages.copy(home_cache, self._cache, 0, 0))
            return
        if user.uid != 0:
            self._step("test names packages", lambda: self._install_as_told(user, folder, "./ci/test"))
        self._step("test", lambda: self._tests(user, folder))

    def _step(self, name: str, work: Callable[[], object]) -> None:
        done: dict[str, float] = self._facts["steps"]
        if name in done:
            self._say(f"{self._conditions.name}: {name}: done before, in {done[name]:.0f} s")
            return
        before = self._facts.get("unfinished", {}).get(name, 0.0)
        try:
            with timed(f"{self._conditions.name}: {name}", self._say) as took:
                work()
        except BaseException:
            self._facts.setdefault("unfinished", {})[name] = before + took[0]
            self._remember()
            raise
        done[name] = round(before + took[0], 1)
        self._remember()

    def _remember(self) -> None:
        if self._system.complete:
            write_json(self._state, self._facts)

    def _bash(self, user: User, folder: str, script: str) -> Ended:
        command = ["bash", "-c", script]
        ended = self._system.run(command, user, limit_s=STEP_LIMIT_S, log=self._log, folder=folder)
        return self._system.require(ended, f"{self._conditions.name}: {script}", self._log)

    def _install_as_told(self, user: User, folder: str, script: str) -> None:
        """The user's command must end soon with one error that names packages; root installs just these."""
        ended = self._system.run([script], user, limit_s=MESSAGE_LIMIT_S, log=self._log, folder=folder)
        names = named_packages(ended.output)
        if ended.code != 1 or ended.output.count("error: ") != 1 or not names:
            raise WmlceError(
                f"{self._conditions.name}: {script} on a bare system should end with one error that names "
                f"the missing packages, and ended with exit code {ended.code}",
                detail=ended.output.splitlines()[-8:],
                log=self._log,
            )
        install = f"apt-get update -q && apt-get install -y -q --no-install-recommends {' '.join(names)}"
        self._bash(self._system.user("root"), "/", install)

    def _take_packages(self, user: User, folder: str, home_cache: Path) -> None:
        """Copy the packages that the clone would build: the machine's cache has other releases, too."""
        file = "build/forecast.json"
        plan = f'mkdir -p build && "$WMLCE" --json channel build --dry-run >{file}'
        self._bash(user, folder, f". ci/bootstrap.sh && bootstrap build && {plan}")
        recipes = json.loads(self._system.outside(f"{folder}/{file}").read_text())["recipes"]
        hashes = {name: facts["hash"] for name, facts in recipes.items()}
        packages.copy(self._cache, home_cache, user.uid, user.gid, hashes)

    def _quickstart(self, user: User, folder: str) -> None:
        self._bash(user, folder, "./ci/quickstart")
        report = self._system.outside(f"{folder}/build/report/scaling.json")
        self._facts["trained"] = trained(report)

    def _tests(self, user: User, folder: str) -> None:
        ended = self._bash(user, folder, self._conditions.test)
        summaries = _SUMMARY.findall(ended.output)
        self._facts["tests"] = "; ".join(summaries)


@contextmanager
def timed(title: str, say: Callable[[str], None]) -> Iterator[list[float]]:
    """Say that a step begins, and how long it took; the list holds the seconds when it has ended."""
    say(title)
    took = [0.0]
    started = time.monotonic()
    try:
        yield took
    finally:
        took[0] = time.monotonic() - started
    say(f"{title}: {took[0]:.0f} s")


def named_packages(output: str) -> list[str]:
    """The packages that a message of ci/bootstrap.sh asks for."""
    match = _REMEDY.search(output + "\n")
    return match[1].split() if match else []


def trained(report: Path) -> str:
    """Images a second at each number of ranks, from the quickstart's own report."""
    try:
        rows = json.loads(report.read_text())["rows"]
        return ", ".join(f"{row['ranks']}: {row['figures']['images_per_sec']:.0f}" for row in rows)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WmlceError(f"the quickstart left no readable {report}: {error!r}") from None
