"""What ci/bench says of a run: targets, what is worse than recorded, and the page that is made of records."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from program_runner import ROOT, Environment

from ddl_validate.allreduce import launch
from ddl_validate.allreduce.errors import BenchError
from ddl_validate.allreduce.peers import OpenMpi, Setting
from ddl_validate.allreduce.peers.base import Peer
from ddl_validate.allreduce.programs import default_cache
from ddl_validate.allreduce.results import Cell, Outcome, Round
from ddl_validate.allreduce.runner import Turn
from ddl_validate.allreduce.testbed import DirectTestbed
from ddl_validate.common.measured import commit_of, source_hash
from ratios import cli, page, record
from ratios.measure import cell_of, fastest, in_order, look_size, warmups
from ratios.targets import LARGE, LAYOUTS, MIB, layout

KIB = 1 << 10


@pytest.fixture(autouse=True)
def signals_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "end_on_sigterm", lambda: None)


def cell(
    name: str, size: int, ddl: list[float], peer: list[float], cpu: float = 1e-6, peer_cpu: float = 2e-6
) -> dict[str, Any]:
    """A cell as a run makes it, of the rounds' times of DDL and of MPICH."""
    outcome = Outcome(layout(name).scenario)
    for who, rounds, used in (("ddl", ddl, cpu), ("mpich", peer, peer_cpu)):
        made = Cell(who, "defaults", size, "", layout(name).scenario.ranks)
        made.rounds = [Round([seconds], [], [used], [0.0]) for seconds in rounds]
        if rounds:
            outcome.cells.append(made)
    found = cell_of(layout(name), outcome, size)
    assert found is not None
    return found


def run_of(*cells: dict[str, Any], peers: str = "ddl,mpich,openmpi", **others: Any) -> dict[str, Any]:
    return {
        "kind": record.KIND,
        "schema": record.SCHEMA,
        "time": "2026-11-27T10:00:00+00:00",
        "commit": "0123456789",
        "dirty": False,
        "sources": "abc",
        "machine": {"processor": "Made-up CPU", "cores": 2, "system": "Linux-6.1"},
        "cpu_share": {"share": 1, "method": "none"},
        "peers": {
            name: {"title": name.upper(), "available": True, "version": "1.0"} for name in peers.split(",")
        },
        "cells": list(cells),
        **others,
    }


def slower(run: dict[str, Any], who: str, factor: float) -> dict[str, Any]:
    """The run with one side slower in every cell; its figures are those of its times."""
    changed = copy.deepcopy(run)
    for i, one in enumerate(changed["cells"]):
        times = {
            side: [t * (factor if side in who else 1) for t in one[side]["rounds"]]
            for side in ("ddl", "peer")
        }
        changed["cells"][i] = cell(
            one["layout"], one["bytes"], times["ddl"], times["peer"], one["ddl"]["cpu"], one["peer"]["cpu"]
        )
    return changed


BEFORE = run_of(
    cell("1x2", 4 * KIB, [2.0e-6, 2.1e-6, 2.05e-6], [4.0e-6, 4.1e-6, 4.2e-6]),
    cell("4x2-1rack", LARGE, [0.86, 0.86, 0.87], [1.0, 1.01, 1.02]),
)


def test_a_cell_is_judged_by_its_targets() -> None:
    good = cell("1x2", 4 * KIB, [1e-6, 2e-6, 9e-6], [3e-6, 2.4e-6, 1e-6])
    assert good["ratio"] == pytest.approx(1.2)
    assert good["targets"]["ratio"] == {"limit": 1.2, "met": True}
    assert good["targets"]["cpu_ratio"] == {"limit": 1.0, "met": True}
    assert cell("1x2", 4 * KIB, [2.1e-6] * 3, [2.4e-6] * 3)["targets"]["ratio"]["met"] is False
    bound = layout("4x2-1rack").bound
    wire = cell("4x2-1rack", LARGE, [0.9] * 3, [1.2] * 3, cpu=1.25, peer_cpu=1.0)
    # 2 x 3/4 x 64 MiB over 1 Gbit/s, of which 1448/1514 is payload
    assert wire["over_bound"] == pytest.approx(0.9 / (1.5 * LARGE * 8 * 1514 / 1448 / 1e9))
    assert wire["targets"]["over_bound"] == {"limit": bound, "met": False}
    assert wire["targets"]["ratio"]["met"] is True
    assert wire["targets"]["cpu_ratio"] == {"limit": 1.2, "met": False}


def test_without_a_peer_nothing_is_met_or_missed() -> None:
    alone = cell("1x2", 4 * KIB, [1e-6], [])
    assert alone["peer"] is None and alone["ratio"] is None
    assert alone["targets"]["ratio"]["met"] is None
    assert "1x2, 4 KiB" in record.lacking(run_of(alone))
    assert cell_of(layout("1x2"), Outcome(layout("1x2").scenario), 4 * KIB) is None


def test_a_run_is_worse_by_its_ratio_to_the_peers() -> None:
    both = ["1x2", "4x2-1rack"]
    assert record.compare(BEFORE, BEFORE, both) == []
    # everything is slower, or DDL a little
    assert record.compare(slower(BEFORE, "ddl peer", 3), BEFORE, both) == []
    assert record.compare(slower(BEFORE, "ddl", 1.1), BEFORE, both) == []
    worse = record.compare(slower(BEFORE, "ddl", 1.3), BEFORE, both)
    assert len(worse) == 2 and worse[0].startswith("1x2, 4 KiB: 1.5") and "recorded 2.00x" in worse[0]
    assert worse[1].startswith("4x2-1rack, 64 MiB: ")
    # faster peers make the same call a worse one: they show what the machine can do
    assert record.compare(slower(BEFORE, "peer", 0.6), BEFORE, both)
    assert record.compare(slower(BEFORE, "ddl", 1.3), BEFORE, ["8x1-4racks"]) == []


def test_rounds_that_differ_widen_what_is_allowed_and_one_disturbed_round_does_not() -> None:
    def compared(rounds: list[float]) -> list[str]:
        steady = run_of(cell("1x2", 4 * KIB, [2e-6] * 3, [4e-6] * 3))
        return record.compare(run_of(cell("1x2", 4 * KIB, rounds, [4e-6] * 3)), steady, ["1x2"])

    assert compared([2.5e-6, 2.5e-6, 2.5e-6])
    assert compared([2.5e-6, 2.5e-6, 9e-6])
    assert not compared([2.2e-6, 2.5e-6, 2.9e-6])


def test_more_processor_time_than_recorded_is_worse_beside_the_same_setting() -> None:
    before = run_of(cell("1x2", 4 * KIB, [2e-6] * 3, [4e-6] * 3, cpu=2e-6, peer_cpu=4e-6))
    after = run_of(cell("1x2", 4 * KIB, [2e-6] * 3, [4e-6] * 3, cpu=3e-6, peer_cpu=4e-6))
    (line,) = record.compare(after, before, ["1x2"])
    assert "0.75x the processor time of mpich" in line
    after["cells"][0]["peer"]["setting"] = "another"
    assert record.compare(after, before, ["1x2"]) == []


def test_a_cell_or_a_peer_that_a_run_lacks_is_worse() -> None:
    less = run_of(*BEFORE["cells"][1:])
    assert record.compare(less, BEFORE, ["1x2", "4x2-1rack"]) == [
        "1x2, 4 KiB: not measured, but is part of the record"
    ]
    assert record.compare(less, BEFORE, ["4x2-1rack"]) == []
    fewer = run_of(*BEFORE["cells"], peers="ddl,mpich")
    (line,) = record.compare(fewer, BEFORE, ["1x2"])
    assert line.startswith("openmpi was not measured")
    assert record.compare(BEFORE, fewer, ["1x2"]) == []


def test_a_record_reads_as_it_was_written(tmp_path: Path) -> None:
    path = record.write(BEFORE, tmp_path)
    assert path.name == "made-up-cpu-2-cores.json"
    assert record.compare(record.read(path), BEFORE, ["1x2", "4x2-1rack"]) == []
    lines = path.read_text().splitlines()
    assert sum('"layout"' in line for line in lines) == len(BEFORE["cells"])
    slow = run_of(*BEFORE["cells"], cpu_share={"share": 0.5, "method": "clock"})
    assert record.write(slow, tmp_path).name == "made-up-cpu-2-cores-share-0.5.json"
    assert len(record.read_all(tmp_path)) == 2
    path.write_text('{"kind": "allreduce"}')
    with pytest.raises(BenchError, match="ci/bench --record"):
        record.read_all(tmp_path)


def test_the_page_says_that_its_figures_are_older_than_the_code_only_if_they_are() -> None:
    fresh, old = (page.block([BEFORE], source) for source in ("abc", "abd"))
    assert page.STALE not in fresh and page.STALE in old
    assert old.replace(page.STALE + "\n", "") == fresh
    slow = run_of(*BEFORE["cells"], sources="abd", cpu_share={"share": 0.5, "method": "clock"})
    assert page.block([BEFORE, slow], "abc").count(page.STALE) == 1
    assert page.STALE not in page.block([], "abc") and page.NOTHING in page.block([], "abc")


def test_the_page_has_every_cell_and_marks_what_misses_its_target() -> None:
    missing = cell("8x1-4racks", MIB, [2e-3] * 3, [])
    text = page.block([run_of(*slower(BEFORE, "ddl", 2)["cells"], missing, dirty=True)], "abc")
    assert "| 1 x 2 | 4 KiB | 4.1 µs | - | MPICH: 4.1 µs | **1.00x** (1.2) | 0.50x |" in text
    assert "| 8 x 1, 4 racks | 1 MiB | 2 ms | 0.03 | - | - | - |" in text
    assert "commit 0123456789 with changes that were not committed" in text
    assert "2026-11-27" in text and "Made-up CPU, 2 cores" in text and "MPICH 1.0" in text


def test_the_page_is_rewritten_between_its_marks(tmp_path: Path) -> None:
    text = f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n"
    made = page.block([BEFORE], "abc")
    assert page.replaced(text, made) == f"before\n{made}\nafter\n"
    assert page.replaced(page.replaced(text, made), made) == page.replaced(text, made)
    with pytest.raises(BenchError, match="put it back"):
        page.replaced("no marks", made)


def test_the_hash_of_the_sources_follows_names_and_contents(tmp_path: Path) -> None:
    """Without git, as in an unpacked release."""
    for name in ("include", "src"):
        shutil.copytree(ROOT / "ddl-core/libddl" / name, tmp_path / "ddl-core/libddl" / name)
    same = source_hash(record.SOURCES, ROOT)
    assert source_hash(record.SOURCES, tmp_path) == same
    assert commit_of(record.SOURCES, tmp_path) == (None, False)
    header = tmp_path / "ddl-core/libddl/include/ddl.h"
    text = header.read_text()
    header.write_text(text + "\n")
    assert source_hash(record.SOURCES, tmp_path) != same
    header.write_text(text)
    assert source_hash(record.SOURCES, tmp_path) == same
    header.rename(header.with_name("other.h"))
    assert source_hash(record.SOURCES, tmp_path) != same


class Stub(Peer):
    """A peer of which only the name counts."""

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]

    version = prepare = settings = launch = lambda *_: None  # type: ignore[assignment]


def test_the_settings_of_the_last_record_are_looked_at_first() -> None:
    openmpi = [("openmpi", name) for name in ("defaults", "ring in segments of 256 KiB", "odd")]
    settings = [("ddl", "defaults"), *openmpi, ("mpich", "defaults"), ("mpich", "ring")]
    turns = [Turn(Stub(peer), Setting(name), Setting(name)) for peer, name in settings]

    def names(crowded: bool) -> list[tuple[str, str]]:
        return [turn.key for turn in in_order(turns, [("mpich", "ring")], crowded)]

    assert names(True) == [("mpich", "ring"), *openmpi]
    assert ("mpich", "defaults") in names(False)


def test_settings_close_to_the_fastest_go_on() -> None:
    cells = []
    for name, seconds in (("a", 1.0), ("b", 1.05), ("c", 1.06), ("d", 1.2)):
        cells.append(Cell("mpich", name, MIB, "", 8, [Round([seconds], [], [0], [0])]))
    assert fastest(cells, MIB) == [("mpich", "a"), ("mpich", "b")]
    assert fastest(cells, MIB, 1) == [("mpich", "a")]
    assert fastest(cells, 4) == []


def test_settings_are_compared_by_calls_that_are_short() -> None:
    assert look_size(layout("1x2")) == LARGE
    assert look_size(layout("4x2-1rack")) == 16 * MIB
    assert look_size(layout("8x1-4racks")) == 4 * MIB


def test_the_page_is_what_the_records_and_the_sources_make_it() -> None:
    """Also when ddl-core/libddl/src has changed since the last record: then the page must say so."""
    assert page.PAGE.read_text() == page.expected(), (
        "docs/reference/allreduce-benchmark.md is not up to date: ci/bench --page"
    )


def test_all_ratios_of_the_page_are_from_a_record() -> None:
    text = page.PAGE.read_text()
    by_hand = page.replaced(text, "")
    assert re.findall(r"\b[0-9]+\.[0-9]+x", by_hand) == []


@pytest.mark.parametrize("path", sorted(record.FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_records_are_whole(path: Path) -> None:
    found = record.read(path)
    assert path.name == record.file_name(found["machine"], found["cpu_share"]["share"])
    assert record.lacking(found) == []
    assert {cell["layout"] for cell in found["cells"]} == set(LAYOUTS)


def test_a_record_needs_all_layouts_and_the_library_of_this_tree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--record", "--layout", "1x2"]) == cli.USAGE
    assert "leave out --layout" in capsys.readouterr().err
    # ci/bench itself says with --prefix where the library is that it has built
    given = [ROOT / "ci/bench", "--record", "--prefix", f"ddl={tmp_path}"]
    done = subprocess.run(given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--prefix ddl" in done.stderr
    assert cli.main(["--layout", "2x1"]) == cli.USAGE
    assert "4x2-1rack" in capsys.readouterr().err


def test_without_emulated_hosts_one_host_is_measured_and_nothing_recorded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "missing_requirements", lambda: ["no root"])
    assert [one.name for one in cli._layouts([], False)] == ["1x2", "1x16", "1x64"]
    assert "run as root for all layouts" in capsys.readouterr().out
    for names, full in ((["8x1-4racks"], False), ([], True)):
        with pytest.raises(BenchError, match=r"8x1-4racks.*: no hosts can be emulated here: no root"):
            cli._layouts(names, full)


@pytest.mark.slow
def test_a_short_run_measures_keeps_and_compares(
    env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """DDL beside Open MPI on two ranks; the other peers are left out."""
    monkeypatch.setattr(cli, "OTHERS", ("openmpi",))
    monkeypatch.setattr(record, "FOLDER", tmp_path / "measured")
    words = ["--layout", "1x2", "--minutes", "0.1", "--output", str(tmp_path / "out")]
    words += [word for peer in ("ddl", "openmpi") for word in ("--prefix", f"{peer}={env.prefix}")]

    assert cli.main([*words, "--compare"]) == cli.INCOMPLETE
    assert "No run is recorded for this kind of machine" in capsys.readouterr().out
    run = json.loads((tmp_path / "out/share-1/run.json").read_text())
    assert [(one["layout"], one["bytes"]) for one in run["cells"]] == [
        ("1x2", size) for size in (4 * KIB, 64 * KIB, MIB, LARGE)
    ]
    for one in run["cells"]:
        assert one["peer"]["name"] == "openmpi"
        assert len(one["ddl"]["rounds"]) == 3 and min(one["ddl"]["rounds"]) > 0
        assert one["ratio"] == pytest.approx(one["peer"]["seconds"] / one["ddl"]["seconds"])
    assert run["sources"] == source_hash(record.SOURCES) and run["peers"]["ddl"]["version"]
    assert str(tmp_path) not in json.dumps(run) and str(env.prefix) not in json.dumps(run)

    # what was measured stays, and is no worse than itself
    record.write(run, record.FOLDER)
    assert cli.main([*words, "--compare"]) == cli.OK
    assert "measured before" in capsys.readouterr().out
    for one in run["cells"]:
        one["ratio"] *= 10
    record.write(run, record.FOLDER)
    assert cli.main(words) == cli.OK
    assert cli.main([*words, "--compare"]) == cli.WORSE
    assert "worse than recorded" in capsys.readouterr().out


@pytest.mark.slow
def test_each_size_has_its_own_number_of_repetitions_before_those_that_count(
    env: Environment, tmp_path: Path
) -> None:
    """In the timing program in C: all peers but Gloo have it."""
    sizes = (4 * KIB, 64 * KIB, MIB, LARGE)
    assert [warmups(layout("1x2"), size) for size in sizes] == [1, 2, 18, 2]
    assert warmups(layout("4x2-2racks"), LARGE) == 0 and warmups(layout("4x2-1rack"), LARGE) == 2
    peer = OpenMpi(env.prefix, default_cache())
    with DirectTestbed(layout("1x2").scenario) as testbed:
        words = ["1048576,2097152,3145728,4194304", "0", "1", "1", "0,3,1"]
        report = launch.run(testbed, peer.launch(testbed, peer.settings(testbed)[0], words), 100)
    assert [len(sample.times.warmup) for sample in report.samples] == [0, 3, 1, 1]
