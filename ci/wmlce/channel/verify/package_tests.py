"""Each package's own test: passed for exactly this file when it was built, and run again on request.

A package comes into the cache, with its sha256 on record, only when its test has passed; so the record of a
hash is the record of its test.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import rattler_build
import yaml
from conda_package_streaming.package_streaming import stream_conda_component

from wmlce.builder import build_root, sandbox, worker
from wmlce.builder.log_excerpt import log_excerpt
from wmlce.channel import published
from wmlce.channel.verify.check import Check, Say
from wmlce.recipes.recipe_set import load_source_lock
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

LIMIT_S = 3600
_PLACE = "/build"
_CHANNEL = "/channel"
_TOOLS = "/tools"
_TESTS = "info/tests/tests.yaml"


def recorded(layout: Layout, folder: Path) -> Check:
    """For every package of the index: was its test passed by exactly this file?"""
    passed = _passed(layout)
    check = Check("each package's test", "")
    untested: list[str] = []
    unknown: list[str] = []
    for key, entry in published.entries(folder).items():
        check.parts[key] = []
        if entry["sha256"] not in passed:
            unknown.append(key)
        elif not has_tests(folder / key):
            untested.append(key)
    if unknown:
        check.notes.append(
            f"{len(unknown)} packages were not built with this cache: nothing is on record of their tests: "
            f"{_shown(unknown)}; run them: wmlce channel verify --run-tests"
        )
    if untested:
        check.notes.append(f"{len(untested)} packages have no test: {_shown(untested)}")
    count = len(check.parts)
    check.summary = f"{count - len(unknown) - len(untested)} of {count} packages passed theirs when built"
    return check


def _shown(keys: Sequence[str]) -> str:
    names = [published.package_name(key) for key in keys]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _passed(layout: Layout) -> set[str]:
    """sha256 of all that was built and passed."""
    passed = set()
    for manifest in (layout.cached_packages / "finished").glob("*/*.json"):
        try:
            passed |= {str(item["entry"]["sha256"]) for item in json.loads(manifest.read_text())["packages"]}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return passed


def has_tests(package: Path) -> bool:
    """Does a package bring tests? What cannot be read has none here: other checks name it."""
    try:
        for archive, member in stream_conda_component(str(package), component="info"):
            if member.name == _TESTS and (stream := archive.extractfile(member)) is not None:
                return bool(yaml.safe_load(stream.read()))
        return False
    except Exception:  # a damaged archive; the library's errors have no common type
        return False


def run_again(layout: Layout, folder: Path, names: Iterable[str], say: Say) -> Check:
    """Run the tests of the packages of these names (none: of all), each in a fresh environment in the build
    root: no network, nothing of this machine.
    """
    entries = published.entries(folder)
    selected = list(names)
    package_names = {str(entry["name"]) for entry in entries.values()}
    if absent := [name for name in selected if name not in package_names]:
        raise WmlceError(
            f"the channel has no package {absent[0]}", remedy="packages: see build/channel/*/repodata.json"
        )
    chosen = [key for key, entry in entries.items() if not selected or entry["name"] in selected]
    check = Check("tests run again", "")
    todo = [key for key in chosen if has_tests(folder / key)]
    if without := [key for key in chosen if key not in todo]:
        check.notes.append(f"{len(without)} packages have no test: {_shown(without)}")
    root = build_root.make(layout, build_root.read(layout), load_source_lock(layout), say)
    sandbox.require(root)
    count = 0
    with tempfile.TemporaryDirectory(prefix=".verify-", dir=layout.build) as scratch:
        while todo:
            answers = _run(Path(scratch), root, folder, todo, say)
            for key, (tests, failed) in answers.items():
                count += tests
                check.parts[key] = [
                    f"{key}: its test failed: {' | '.join(log_excerpt(text.splitlines()))[:600]}"
                    for text in failed
                ]
            # one that took the process with it has no answer; the next goes on behind it
            todo = [key for key in todo if key not in answers]
            if todo:
                check.parts[todo[0]] = [f"{todo[0]}: its test ended the process that ran it"]
                todo = todo[1:]
    check.findings = [finding for key in sorted(check.parts) for finding in check.parts[key]]
    check.summary = f"{count} tests of {len(check.parts)} packages"
    return check


def _run(
    scratch: Path, root: Path, folder: Path, todo: Sequence[str], say: Say
) -> dict[str, tuple[int, list[str]]]:
    """One process in the build root; the answers that it gave."""
    for name in ("home", "tmp", "cache"):
        (scratch / name).mkdir(exist_ok=True)
    (scratch / "job.json").write_text(json.dumps({"channel": _CHANNEL, "packages": list(todo)}))
    inside = sandbox.Sandbox(
        root=root,
        writable={_PLACE: scratch, "/tmp": scratch / "tmp"},
        readable={
            _CHANNEL: folder.resolve(),
            f"{_TOOLS}/worker.py": Path(worker.__file__),
            f"{_TOOLS}/package_test_worker.py": Path(__file__).with_name("package_test_worker.py"),
            f"{_TOOLS}/rattler_build": Path(rattler_build.__file__ or "").parent,
        },
        folder=_PLACE,
    )
    process = subprocess.Popen(
        inside.command_line(["/usr/bin/python3", f"{_TOOLS}/package_test_worker.py", f"{_PLACE}/job.json"]),
        stdin=subprocess.PIPE,  # its closing tells the process that this one is gone
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=sandbox.environment(
            HOME=f"{_PLACE}/home",
            RATTLER_CACHE_DIR=f"{_PLACE}/cache",
            PYTHONPATH=_TOOLS,
            PYTHONDONTWRITEBYTECODE="1",
        ),
        start_new_session=True,
    )
    answers: dict[str, tuple[int, list[str]]] = {}
    timer = threading.Timer(LIMIT_S, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("== ") and (key := line[3:].strip()) in todo:
                say(f"test {len(answers) + 1} of {len(todo)}: {key}")
            elif line.startswith("@answer "):
                answer = json.loads(line.removeprefix("@answer "))
                answers[str(answer["key"])] = (int(answer["tests"]), [str(text) for text in answer["failed"]])
        process.wait()
    finally:
        timer.cancel()
        process.kill()
        if process.stdin is not None:
            process.stdin.close()
    return answers
