"""What a finished channel and an installed environment must be, checked from the outside.

Each check looks at what a user gets (files, index, prefixes), not at what the builder believes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wmlce.channel import published
from wmlce.util.files import write_json
from wmlce.util.layout import Layout


@dataclass
class Check:
    """One row of the result.

    summary:  what was looked at, in numbers
    findings: what is wrong; empty means passed
    notes:    what a reader should know although nothing is wrong
    """

    name: str
    summary: str
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        summary = self.summary if self.ok else f"{len(self.findings)} findings; {self.summary}"
        return {**asdict(self), "ok": self.ok, "summary": summary}


def run(layout: Layout, prefix: Path | None, say: Callable[[str], None]) -> list[Check]:
    """All checks of the published channel, and of the environment `prefix` if given; writes verify.json
    beside it.
    """
    with published.reading(layout, layout.channel, say):
        return _run(layout, published.require(layout), prefix, say)


def _run(layout: Layout, folder: Path, prefix: Path | None, say: Callable[[str], None]) -> list[Check]:
    from wmlce.channel import beside
    from wmlce.channel.verify import environment, floor, index, paths, solvable

    say("index, files and licences")
    checks = [index.matches_files(folder), index.licenses(folder)]
    if (folder / beside.FOLDER).is_dir():
        part = index.matches_files(folder / beside.FOLDER, beside.wanted(layout, folder))
        part.name = f"{part.name}: {beside.FOLDER}"
        checks.append(part)
    say("every package solvable from this channel alone")
    checks.append(solvable.closed(folder))
    say("no path of the build machine in any package")
    checks.append(paths.no_build_paths(layout, folder, say))
    say("glibc that packages need")
    checks.append(floor.packages(layout, folder))
    if prefix is not None:
        checks.append(floor.environment(layout, prefix))
        say(f"libraries of {layout.shown(prefix)}")
        checks.append(environment.libraries(prefix))
        say("pip check")
        checks.append(environment.pip_check(prefix))
    document = {
        "ok": all(check.ok for check in checks),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": str(prefix) if prefix else None,
        "packages": sum(len(entries) for entries in published.repodata(folder).values()),
        "checks": [check.to_json() for check in checks],
    }
    write_json(folder / "verify.json", document)
    return checks
