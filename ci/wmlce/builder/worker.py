"""Builds and tests a recipe, or tests finished packages, inside the build root: `python3 worker.py JOB.json`.

It runs with the build root's Python (3.9), and imports nothing but py-rattler-build. A process of its own
because the build's output goes to one log file, because a crash of the builder must not take the others with
it, and because a build can then be ended with everything it started.
"""

from __future__ import annotations
import __future__

import ast
import importlib.machinery
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


class _OlderPython(importlib.machinery.SourceFileLoader):
    """Loads py-rattler-build's modules, which are written for Python 3.10, on 3.9: the compiled one is for
    any from 3.8 on, and of the others only type annotations are newer (`int | str`).
    """

    def get_code(self, fullname: str) -> Any:
        tree = ast.parse(self.get_data(str(self.path)))
        for node in tree.body:
            value = node.value if isinstance(node, ast.Assign) else None
            if (
                isinstance(node, ast.Assign)
                and isinstance(value, ast.BinOp)
                and isinstance(value.op, ast.BitOr)
            ):
                # a name for such a type
                node.value = ast.copy_location(ast.Name("object", ast.Load()), value)
        flags = __future__.annotations.compiler_flag
        return compile(tree, self.path, "exec", flags=flags, dont_inherit=True)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Any, target: Any = None) -> Any:
        if name.split(".")[0] != "rattler_build":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _OlderPython(spec.loader.name, spec.loader.path)
        return spec


def _end_with_parent() -> None:
    """Wait for the end of the starting process (its end of our standard input closes), then end our whole
    group.
    """
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


STEPS = (
    ("Starting build of", "install"),
    ("✔ Successfully updated the host environment", "compile"),
    ("Package statistics", "compress"),
    ("Archive written", "unpack"),
    ("Collecting tests", "test"),
    ("✔ all tests passed", "other"),
)
"""How the messages begin with which py-rattler-build enters the steps of a build."""


class _LogLines:
    """Progress callback that writes every message of the build at once, so that a killed build's log is
    whole, and measures the build's steps.
    """

    def __init__(self) -> None:
        self._started = self._entered = time.monotonic()
        self._step = "other"
        self.seconds: dict[str, float] = {}

    def enter(self, step: str) -> None:
        now = time.monotonic()
        self.seconds[self._step] = self.seconds.get(self._step, 0.0) + now - self._entered
        self._step, self._entered = step, now

    def _say(self, text: str) -> None:
        # a build's log is also where one sees what took its time
        print(f"[{time.monotonic() - self._started:7.1f}] {text}", flush=True)

    def on_download_start(self, event: Any) -> None: ...

    def on_download_progress(self, event: Any) -> None: ...

    def on_download_complete(self, event: Any) -> None: ...

    def on_build_step(self, event: Any) -> None:
        self._say(f"== {event.step_name}: {event.message}")

    def on_log(self, event: Any) -> None:
        for beginning, step in STEPS:
            if event.message.startswith(beginning):
                self.enter(step)
        mark = {"error": "ERROR ", "warn": "WARNING "}.get(str(event.level).lower(), "")
        self._say(f"{mark}{event.message}")


def build(job: dict[str, Any]) -> dict[str, Any]:
    """Build what `job` describes; returns the packages (path, subdir, repodata entry), and the seconds that
    each step took.
    """
    from rattler_build import Stage0Recipe, ToolConfiguration, VariantConfig

    output = Path(job["output"])
    lines = _LogLines()
    variants = VariantConfig.from_file(job["variants"])
    results = Stage0Recipe.from_file(job["recipe"]).run_build(
        variant_config=variants,
        tool_config=ToolConfiguration(test_strategy="native", compression_threads=job["threads"]),
        output_dir=output,
        channels=[Path(job["channel"]).as_uri()],
        # it is packed again, with normalized dates and owners
        package_format="conda:1",
        progress_callback=lines,
        # with the time in the folder's name, the placeholder prefix would differ from build to build
        no_build_id=True,
        # the rendered recipe would carry this build's paths into the package
        no_include_recipe=True,
    )
    packages = []
    for result in results:
        for path in result.packages:
            subdir = path.parent.name
            repodata = json.loads((output / subdir / "repodata.json").read_text())
            packages.append(
                {"path": str(path), "subdir": subdir, "entry": repodata["packages.conda"][path.name]}
            )
    lines.enter("")
    return {"packages": packages, "seconds": lines.seconds}


def run_tests(channel: str, key: str, lines: _LogLines) -> tuple[int, list[str]]:
    """Run the tests of a package of a channel; returns their number, and the output of those that failed."""
    from rattler_build import Package

    package = Package.from_file(f"{channel}/{key}")
    results = package.run_tests(channel=[Path(channel).as_uri()], progress_callback=lines)
    return len(results), ["\n".join(list(result.output)[-200:]) for result in results if not result.success]


def test(job: dict[str, Any]) -> dict[str, Any]:
    """Run the tests of the packages that `job` lists, as they are in its channel."""
    lines = _LogLines()
    lines.enter("test")
    for key in job["test"]:
        print(f"Collecting tests of {key}", flush=True)
        _, failed = run_tests(job["channel"], key, lines)
        if failed:
            raise RuntimeError("Test failed: " + failed[0])
    lines.enter("")
    return {"packages": [], "seconds": lines.seconds}


def main() -> int:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.meta_path.insert(0, _Finder)
    job = json.loads(Path(sys.argv[1]).read_text())
    try:
        built = test(job) if "test" in job else build(job)
    except Exception as error:  # the log is the place for every kind of failure
        print(f"ERROR {type(error).__name__}: {error}", flush=True)
        return 1
    result = Path(job["result"])
    part = result.with_suffix(".part")
    part.write_text(json.dumps(built))
    part.replace(result)
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # the builder's worker threads may outlive the build and must not meet an interpreter that is shutting
    # down
    os._exit(status)
