"""What the recipes make is solvable before anything is built, on hosts with a GPU and without."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tree import ROOT
from wmlce.channel.verify import planned
from wmlce.channel.verify.planned import Package
from wmlce.util.layout import Layout


def unsolvable(tmp_path: Path, *packages: Package) -> list[str]:
    folder = planned.write_channel(tmp_path / "channel", packages)
    return asyncio.run(planned._unsolvable(folder, packages))


def test_the_variants_of_this_channel() -> None:
    checks = planned.closed(Layout(ROOT, ROOT / "build"), print)
    assert [check.name for check in checks] == ["closed as planned: cuda12", "closed as planned: plain"]
    assert not [finding for check in checks for finding in check.findings]


def test_a_requirement_that_no_package_fulfils(tmp_path: Path) -> None:
    base = Package("noarch", "base", "1.0", "h0_0")
    user = Package("linux-64", "user", "1.0", "h0_0", ("base >=2",))
    [found] = unsolvable(tmp_path, base, user)
    assert found.startswith("user ==1.0 h0_0, on a host without a GPU: ") and "base" in found


def test_what_says_that_it_needs_a_driver_is_solved_with_one(tmp_path: Path) -> None:
    """And what needs it without saying so is found on a host without."""
    driver = Package("linux-64", "for-gpus", "1.0", "cuda12_h0_0", ("__cuda >=12.4",))
    silent = Package("linux-64", "silent", "1.0", "h0_0", ("for-gpus",))
    [found] = unsolvable(tmp_path, driver, silent)
    assert found.startswith("silent ==1.0 h0_0, on a host without a GPU: ")
