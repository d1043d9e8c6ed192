"""pytest's part: leaves out what is known to pass, records what passes, and writes what a run did.

Only `ci/test` loads it (`-p result_cache.plugin`): who starts pytest means to run the tests.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from wmlce.util.files import write_json
from wmlce.util.layout import Layout

from result_cache.inputs import Inputs, is_test_file
from result_cache.store import Store

NOT_BEGUN = "not begun: the time was over (--limit of ci/test)"
"""Why a test was skipped that an earlier end of the run left out."""

_SAVE_EVERY_S = 10.0
_OURS = re.compile(r"run ci/(quickstart|test|bootstrap)|wmlce (channel build|env create)")
_STARTED = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("result cache")
    group.addoption(
        "--begin-within",
        type=float,
        metavar="SECONDS",
        help="skip tests that would begin later after the start",
    )
    group.addoption("--fresh", action="store_true", help="run also what has passed with the same inputs")
    group.addoption(
        "--summary", type=Path, metavar="FILE", help="write to FILE (JSON) what ran and what did not"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the test's fixtures, which may take longest."""
    within = item.config.getoption("--begin-within")
    if within is not None and time.monotonic() - _STARTED > within:
        pytest.skip(NOT_BEGUN)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """ci/test makes the channel, the environment and the programs: a test that lacks them has failed."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and _OURS.search(report.longrepr[2]):
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr[2]} (skipped, but ci/test is to provide it)"
    return report


def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", None)
    root = config.rootpath
    if worker is None:
        config.pluginmanager.register(Recorder(root, config), "result-cache-recorder")
    else:
        config.pluginmanager.register(
            Selection(**json.loads(worker["result_cache"])), "result-cache-selection"
        )


class Selection:
    """Leaves tests out of the collection, and orders it. Each worker of xdist must make the same one.

    Attributes:
        passed: Tests that are taken as passed.
        first: Files of tests that come first.
        seconds: How long each file took the last time. The longest come first, so that all workers end at
            about the same time; a new file comes before them.
    """

    def __init__(self, passed: list[str], first: list[str], seconds: dict[str, float]) -> None:
        self.passed = frozenset(passed)
        self.first = frozenset(first)
        self.seconds = seconds
        self.cached: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """After -m and -k have selected."""
        cached = [item for item in items if item.nodeid in self.passed]
        self.cached = [item.nodeid for item in cached]
        if cached:
            config.hook.pytest_deselected(items=cached)
        others = [item for item in items if item.nodeid not in self.passed]
        items[:] = sorted(others, key=lambda item: self._order(file_of(item.nodeid)))

    def _order(self, file: str) -> tuple[bool, float]:
        return file not in self.first, -self.seconds.get(file, float("inf"))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["result_cache"] = json.dumps(self.cached)


def file_of(test: str) -> str:
    """The file of a test's id."""
    return test.partition("::")[0]


class Recorder:
    """Lives in pytest's first process, which gets the reports of all workers."""

    def __init__(self, root: Path, config: pytest.Config) -> None:
        self.summary: Path | None = config.getoption("--summary")
        self.store = Store(Layout.locate(root).cache)
        self.inputs = Inputs(root)
        self.keys = {
            str(path): self.inputs.key(str(path)) for path in self.inputs.files if is_test_file(path)
        }
        passed: list[str] = []
        if not config.getoption("--fresh"):
            passed = sorted(test for key in self.keys.values() for test in self.store.passed(key))
        self.selection = Selection(passed, self.store.not_begun(), self.store.seconds())
        if not config.getoption("numprocesses", None):
            config.pluginmanager.register(self.selection, "result-cache-selection")
        self.failed: set[str] = set()
        self.finished: set[str] = set()
        self.rerun: set[str] = set()
        self.skipped: dict[str, str] = {}
        self.waiting: defaultdict[str, set[str]] = defaultdict(set)
        self.changed: set[str] = set()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.saved = time.monotonic()
        self.started = time.monotonic()

    def pytest_configure_node(self, node: Any) -> None:
        """Before a worker starts."""
        selection = self.selection
        arguments = {"passed": sorted(selection.passed), "first": sorted(selection.first)}
        node.workerinput["result_cache"] = json.dumps({**arguments, "seconds": selection.seconds})

    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended: each has made the same selection."""
        if cached := getattr(node, "workeroutput", {}).get("result_cache"):
            self.selection.cached = json.loads(cached)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid
        self.seconds[file_of(test)] += report.duration
        if str(report.outcome) == "rerun":  # pytest-rerunfailures: it failed, and is run again
            self.rerun.add(test)
        elif report.failed:
            self.failed.add(test)
        elif report.skipped:
            self.skipped[test] = _reason(report)
        elif report.when == "teardown":
            self.finished.add(test)
            if not {test} & (self.failed | self.rerun | self.skipped.keys()):
                self.waiting[file_of(test)].add(test)
        if time.monotonic() - self.saved > _SAVE_EVERY_S:
            self._save()

    def _save(self) -> None:
        """Adds what has passed to the store, unless an input of it has changed since the start."""
        now = Inputs(self.inputs.root, self.inputs.table)
        for file in self.waiting:
            if now.key(file) == self.keys.get(file):
                self.store.add(self.keys[file], sorted(self.waiting[file]))
            else:
                self.changed.add(file)
        self.waiting.clear()
        self.saved = time.monotonic()

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.selection.cached:
            session.exitstatus = pytest.ExitCode.OK  # all are taken as passed
        self._save()
        self.store.prune()
        begun = {file_of(test) for test in self.finished | self.failed}
        late = {file_of(test) for test, reason in self.skipped.items() if reason == NOT_BEGUN}
        self.store.add_seconds({file: self.seconds[file] for file in begun - late})
        if begun or late:
            self.store.set_not_begun((set(self.store.not_begun()) - begun) | late)
        if self.summary is not None:
            write_json(self.summary, self.document())

    def document(self) -> dict[str, Any]:
        """What the run did, in numbers, with the reasons of what it left out."""
        reasons = Counter(reason for reason in self.skipped.values() if reason != NOT_BEGUN)
        left_out = [test for test, reason in self.skipped.items() if reason == NOT_BEGUN]
        return {
            "seconds": round(time.monotonic() - self.started),
            "passed": len(self.finished - self.failed - self.skipped.keys()),
            "failed": sorted(self.failed),
            "rerun": sorted(self.rerun),
            "taken as passed": len(self.selection.cached),
            "skipped": dict(sorted(reasons.items())),
            "not begun": len(left_out),
            "changed meanwhile": sorted(self.changed),
        }

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("results by hash", sep="=")
        for line in lines(self.document()):
            terminalreporter.line(line)


def _reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail}"
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def lines(document: dict[str, Any]) -> Iterator[str]:
    """The document for people."""
    skipped = sum(document["skipped"].values())
    yield (
        f"{document['passed']} passed, {len(document['failed'])} failed, "
        f"{document['taken as passed']} taken as passed (they passed with the same inputs), "
        f"{skipped} skipped, {document['not begun']} not begun"
    )
    for test in document["rerun"]:
        yield f"  failed once and was run again: {test}"
    for file in document["changed meanwhile"]:
        yield f"  not recorded, as its inputs changed during the run: {file}"
    for reason, count in document["skipped"].items():
        yield f"  skipped {count}: {reason}"
