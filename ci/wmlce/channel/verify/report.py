"""What `channel verify` leaves in the channel: verified.json, verify.xml, the bill of materials.

verified.json holds the digest of every file that was verified, and no time: the same channel, verified again,
gives the same bytes.
"""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wmlce.channel import conda_forge_overlay, published
from wmlce.channel.verify.check import Check
from wmlce.util import conda_meta
from wmlce.util.files import sha256_file, write_atomic, write_json
from wmlce.util.host import cpu_count
from wmlce.util.layout import Layout

VERIFIED = "verified.json"
JUNIT = "verify.xml"
_FORMAT = 1


@dataclass(frozen=True)
class VerifiedState:
    """Is a channel the one that was verified?

    verified:    it is, and it passed
    reason:      why not, in one line
    differences: the files that are not as they were, and how
    checks:      names of the checks that it passed
    """

    verified: bool
    reason: str | None = None
    differences: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)


def digests(folder: Path) -> dict[str, str]:
    """Path -> sha256 of all that clients read of a channel: packages, every form of the index, and what was
    recorded when it was published.
    """
    roots = [folder, folder / conda_forge_overlay.FOLDER]
    files = [path for path in (root / "channel.json" for root in roots) if path.is_file()]
    for root in roots:
        for subdir in published.subdirs(root):
            files += [path for path in (root / subdir).rglob("*") if path.is_file()]
    # the part for users of conda-forge has links to the same files
    inodes = {(status.st_dev, status.st_ino): path for path in files if (status := os.stat(path))}
    with ThreadPoolExecutor(cpu_count()) as pool:
        by_inode = dict(zip(inodes, pool.map(sha256_file, inodes.values()), strict=True))
    by_name = {}
    for path in files:
        status = os.stat(path)
        by_name[str(path.relative_to(folder))] = by_inode[status.st_dev, status.st_ino]
    return dict(sorted(by_name.items()))


def write(folder: Path, checks: Sequence[Check], prefix: Path | None) -> None:
    """verified.json and verify.xml of a run."""
    document: dict[str, Any] = {
        "format": _FORMAT,
        "ok": all(check.ok for check in checks),
        "files": digests(folder),
        "checks": [check.to_json() for check in checks],
        "environment": _installed(prefix) if prefix else None,
    }
    write_json(folder / VERIFIED, document)
    write_atomic(folder / JUNIT, junit(checks))


def _installed(prefix: Path) -> dict[str, str]:
    return {
        f"{record['subdir']}/{record.get('fn')}": str(record.get("sha256", ""))
        for record in conda_meta.readable(prefix)
    }


def junit(checks: Sequence[Check]) -> str:
    """The result as JUnit XML: a test case for each check, and for each package that a check looked at by
    itself.
    """
    suites = ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", name="wmlce channel verify")
    failures = tests = 0
    for check in checks:
        cases = {check.name: check.findings} if not check.parts else check.parts
        group = "channel" if not check.parts else check.name
        for name, findings in cases.items():
            case = ET.SubElement(suite, "testcase", classname=_text(group), name=_text(name))
            tests += 1
            if findings:
                failures += 1
                failure = ET.SubElement(case, "failure", message=_text(findings[0]), type="finding")
                failure.text = _text("\n".join(findings))
            elif not check.parts:
                ET.SubElement(case, "system-out").text = _text("\n".join([check.summary, *check.notes]))
    suite.set("tests", str(tests))
    suite.set("failures", str(failures))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _text(text: str) -> str:
    """Without the control characters that XML has no way to write."""
    return "".join(
        char if char in "\t\n" or ord(char) >= 32 else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def verified_state(layout: Layout, folder: Path | None = None) -> VerifiedState:
    """Does the channel (default: build/channel) equal what `channel verify` has verified? Reads every byte of
    it.
    """
    channel = folder or layout.channel
    path = channel / VERIFIED
    try:
        document = json.loads(path.read_text())
        recorded = {str(name): str(digest) for name, digest in document["files"].items()}
        checks = [str(check["name"]) for check in document["checks"]]
        failed = [str(check["name"]) for check in document["checks"] if not check["ok"]]
        passed, readable = document["ok"] is True, document["format"] == _FORMAT
    except FileNotFoundError:
        return VerifiedState(False, f"{layout.display(channel)} was not verified")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return VerifiedState(False, f"{layout.display(path)} cannot be read")
    if not readable:
        return VerifiedState(False, f"{layout.display(path)} was written by another version of wmlce")
    if failed or not passed:
        return VerifiedState(False, f"{layout.display(channel)} did not pass: {', '.join(failed)}", failed)
    current = digests(channel)
    differences = [f"{name} is missing" for name in recorded.keys() - current.keys()]
    differences += [f"{name} was added" for name in current.keys() - recorded.keys()]
    differences += [
        f"{name} has changed" for name in current.keys() & recorded.keys() if current[name] != recorded[name]
    ]
    if differences:
        return VerifiedState(
            False, f"{layout.display(channel)} is not what was verified", sorted(differences), checks
        )
    return VerifiedState(True, checks=checks)
