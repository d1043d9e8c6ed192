"""Builds and tests one recipe, in a process of its own: `python -m wmlce.builder.worker JOB.json`.

A process of its own because the build's output goes to one log file, because a crash of the builder must not
take the others with it, and because a build can then be ended with everything it started.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def _end_with_parent() -> None:
    """Wait for the end of the starting process (its end of our standard input closes), then end our whole
    group.
    """
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


class _LogLines:
    """Progress callback that writes every message of the build at once, so that a killed build's log is
    whole.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()

    def _say(self, text: str) -> None:
        # a build's log is also where one sees what took its time
        print(f"[{time.monotonic() - self._started:7.1f}] {text}", flush=True)

    def on_download_start(self, event: Any) -> None: ...

    def on_download_progress(self, event: Any) -> None: ...

    def on_download_complete(self, event: Any) -> None: ...

    def on_build_step(self, event: Any) -> None:
        self._say(f"== {event.step_name}: {event.message}")

    def on_log(self, event: Any) -> None:
        mark = {"error": "ERROR ", "warn": "WARNING "}.get(str(event.level).lower(), "")
        self._say(f"{mark}{event.message}")


def build(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Build what `job` describes; returns the packages: file, subdir, repodata entry."""
    from rattler_build import Stage0Recipe, ToolConfiguration, VariantConfig

    from wmlce.builder.repack import forget_channels

    output = Path(job["output"])
    variants = VariantConfig(job["host_variant"])
    if job["variants"]:
        variants = VariantConfig.from_file(job["variants"]).merge(variants)
    results = Stage0Recipe.from_file(job["recipe"]).run_build(
        variant_config=variants,
        tool_config=ToolConfiguration(test_strategy="native", compression_threads=job["threads"]),
        output_dir=output,
        channels=[Path(job["channel"]).as_uri()],
        package_format="conda:3",
        progress_callback=_LogLines(),
        # the rendered recipe would carry this machine's paths into the package
        no_include_recipe=True,
    )
    packages = []
    for result in results:
        for path in result.packages:
            subdir = path.parent.name
            repodata = json.loads((output / subdir / "repodata.json").read_text())
            entry = {**repodata["packages.conda"][path.name], **forget_channels(path)}
            packages.append({"path": str(path), "subdir": subdir, "entry": entry})
    return packages


def main() -> int:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job = json.loads(Path(sys.argv[1]).read_text())
    try:
        packages = build(job)
    except Exception as error:  # the log is the place for every kind of failure
        print(f"ERROR {type(error).__name__}: {error}", flush=True)
        return 1
    result = Path(job["result"])
    part = result.with_suffix(".part")
    part.write_text(json.dumps(packages))
    part.replace(result)
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # the builder's worker threads may outlive the build and must not meet an interpreter that is shutting
    # down
    os._exit(status)
