"""What `channel verify` records, and whether a channel is still the one that was verified."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from scratch_clone import Clone
from test_integrity import poison
from wmlce.channel.verify import verified_state
from wmlce.channel.verify.check import Check
from wmlce.channel.verify.report import junit
from wmlce.util.files import sha256_file
from wmlce.util.layout import Layout


def layout_of(clone: Clone) -> Layout:
    return Layout(clone.root, clone.cache)


def test_recorded_twice_alike(library_and_program: Clone) -> None:
    clone = library_and_program
    clone.built()
    clone.ok("env", "create", "program")
    channel = clone.root / "build/channel"
    layout = layout_of(clone)
    assert verified_state(layout).reason == "build/channel was not verified"
    written = []
    for _ in range(2):
        clone.ok("channel", "verify", "--env", "program")
        written.append([(channel / name).read_bytes() for name in ("verified.json", "verify.xml")])
    assert written[0] == written[1]
    document = json.loads((channel / "verified.json").read_text())
    packages = {str(path.relative_to(channel)): sha256_file(path) for path in channel.glob("*/*.conda")}
    assert len(packages) == 2 and packages.items() <= document["files"].items()
    assert {"linux-64/repodata.json", "noarch/repodata.json.zst", "channel.json"} <= document["files"].keys()
    assert document["environment"] == packages
    state = verified_state(layout)
    assert state.verified and "index matches files" in state.checks
    # a copy elsewhere is the same channel
    shutil.copytree(channel, clone.root / "copy")
    assert verified_state(layout, clone.root / "copy").verified


@pytest.mark.parametrize("change", ["package", "index", "added", "missing", "record"])
def test_a_change_after_it_is_noticed(clone: Clone, change: str) -> None:
    clone.recipe("a")
    clone.built()
    clone.ok("channel", "verify")
    channel = clone.root / "build/channel"
    [package] = channel.glob("linux-64/a-*.conda")
    name = f"linux-64/{package.name}"
    if change == "package":
        poison(package)
        expected = f"{name} has changed"
    elif change == "index":
        path = channel / "noarch/repodata.json"
        path.write_text(path.read_text() + "\n")
        expected = "noarch/repodata.json has changed"
    elif change == "added":
        (channel / "noarch/b-1-0.conda").write_text("more")
        expected = "noarch/b-1-0.conda was added"
    elif change == "missing":
        package.unlink()
        expected = f"{name} is missing"
    else:
        (channel / "verified.json").write_text("{")
        expected = None
    state = verified_state(layout_of(clone))
    assert not state.verified and state.reason
    assert state.differences == ([expected] if expected else [])


def test_what_did_not_pass_is_not_verified(clone: Clone) -> None:
    clone.recipe("bare", license_=None)
    clone.built()
    clone.fails("channel", "verify")
    state = verified_state(layout_of(clone))
    assert not state.verified and state.reason == "build/channel did not pass: licences"
    suite = ET.parse(clone.root / "build/channel/verify.xml").getroot().find("testsuite")
    assert suite is not None and suite.get("failures") == "1"
    [failed] = [case for case in suite if case.find("failure") is not None]
    assert failed.get("name") == "licences"
    text = failed.findtext("failure")
    assert text is not None and "bare-1.0" in text
    assert len(suite) == int(suite.get("tests", "0")) > 4


def test_junit_of_parts_and_odd_characters(tmp_path: Path) -> None:
    """A check of many packages has a case for each; what a program printed cannot break the file."""
    parts: dict[str, list[str]] = {"good": [], "bad": ["first\x1b[31m <&>", "second"]}
    check = Check("test of each package", "2 packages", parts["bad"], parts=parts)
    root = ET.fromstring(junit([check, Check("other", "nothing")]).split("\n", 1)[1])
    cases = {(case.get("classname"), case.get("name")): case for case in root.iter("testcase")}
    assert cases.keys() == {
        ("test of each package", "good"), ("test of each package", "bad"), ("channel", "other")
    }  # fmt: skip
    failure = cases["test of each package", "bad"].find("failure")
    assert failure is not None and "[31m <&>" in str(failure.get("message")) and "second" in str(failure.text)
    assert len(list(root.iter("failure"))) == 1
