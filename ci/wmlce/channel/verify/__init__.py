"""What a finished channel and an installed environment must be, checked from the outside.

Each check looks at what a user gets (files, index, prefixes), not at what the builder believes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from wmlce.channel import published
from wmlce.channel.verify.check import Check
from wmlce.channel.verify.report import VerifiedState, verified_state
from wmlce.util.files import write_json
from wmlce.util.layout import Layout

__all__ = ["Check", "VerifiedState", "of_channel", "run", "verified_state"]


def run(
    layout: Layout,
    prefix: Path | None,
    say: Callable[[str], None],
    *,
    pairs: bool = False,
    tests: Sequence[str] | None = None,
) -> list[Check]:
    """All checks of the published channel, and of the environment `prefix` if given; writes verify.json,
    verified.json, verify.xml and, when all passed, the bills of materials into it.

    pairs: train with the frameworks of the environment in one process, too
    tests: run the tests of the packages of these names again; of all where it is empty
    """
    with published.reading(layout, layout.channel, say):
        return _run(layout, published.require(layout), prefix, say, pairs, tests)


def of_channel(layout: Layout, folder: Path, say: Callable[[str], None]) -> list[Check]:
    """The checks of what a channel in `folder` holds: the published one, or that of a release."""
    from wmlce.channel import conda_forge_overlay
    from wmlce.channel.verify import contents, floor, index, licenses, origins, owners, paths, solvable

    say("index, files and licences")
    checks = [index.matches_files(folder), index.build_strings(folder), licenses.allowed(folder)]
    if (folder / conda_forge_overlay.FOLDER).is_dir():
        part = index.matches_files(
            folder / conda_forge_overlay.FOLDER, conda_forge_overlay.members(layout, folder)
        )
        part.name = f"{part.name}: {conda_forge_overlay.FOLDER}"
        checks.append(part)
    say("every package solvable from this channel alone")
    checks.append(solvable.closed(folder))
    say("no path of the build machine in any package")
    checks.append(paths.no_build_paths(layout, folder, say))
    say("glibc that packages need")
    checks.append(floor.packages(layout, folder))
    say("no file in two packages")
    checks.append(owners.one_owner(folder, contents.of_channel(layout, folder)))
    say("owners of the shared objects")
    checks.append(origins.every_object(layout, folder, say))
    return checks


def _run(
    layout: Layout,
    folder: Path,
    prefix: Path | None,
    say: Callable[[str], None],
    train: bool,
    tests: Sequence[str] | None,
) -> list[Check]:
    from wmlce.channel import sbom
    from wmlce.channel.verify import (
        copies,
        environment,
        floor,
        installed,
        package_tests,
        pairs,
        planned,
        report,
        symbols,
    )

    checks = of_channel(layout, folder, say)
    checks += planned.closed(layout, say)
    say("tests of the packages")
    checks.append(package_tests.recorded(layout, folder))
    if tests is not None:
        checks.append(package_tests.run_again(layout, folder, tests, say))
    if prefix is not None:
        say(f"every file of {layout.display(prefix)}")
        checks.append(installed.files(prefix, folder))
        checks.append(floor.environment(layout, prefix))
        say(f"libraries of {layout.display(prefix)}")
        elf_files = environment.scan(prefix)
        checks.append(environment.libraries(prefix, elf_files))
        checks.append(symbols.undefined(prefix, elf_files, say))
        checks.append(copies.libraries(prefix, elf_files))
        checks.append(copies.clobbered(prefix))
        say("pip check")
        checks.append(environment.pip_check(prefix))
        checks.append(environment.python_requirements(prefix))
        if train:
            checks.append(pairs.together(prefix, say))
    document = {
        "ok": all(check.ok for check in checks),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": str(prefix) if prefix else None,
        "packages": len(published.entries(folder)),
        "checks": [check.to_json() for check in checks],
    }
    write_json(folder / "verify.json", document)
    say("hashes of all that was verified")
    report.write(folder, checks, prefix)
    if document["ok"]:
        say("bill of materials")
        for form, name in sbom.FILES.items():
            sbom.write(folder / name, sbom.of_channel(layout, folder, form))
    else:
        for name in sbom.FILES.values():
            (folder / name).unlink(missing_ok=True)
    return checks
