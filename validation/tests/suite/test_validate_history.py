"""Runs are recorded whole and compared with those before; spreadsheets and CI read them."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest
from validate_documents import cluster, faulty, kinds, many_runs, slow

from ddl_validate.suite import history, junit, table
from ddl_validate.suite.errors import ValidateError
from ddl_validate.suite.history import History
from ddl_validate.suite.model import (
    HIGHER,
    LOWER,
    CheckResult,
    Expectation,
    Figure,
    Finding,
    Kind,
    Status,
)


def test_recorded_runs_come_back_in_their_order(tmp_path: Path) -> None:
    runs = many_runs(5)
    for document in reversed(runs):
        history.record(document, tmp_path / "runs")
    loaded = history.load(tmp_path / "runs")
    assert [one.as_json() for one in loaded.documents] == [one.as_json() for one in runs]
    assert not loaded.damaged
    assert not [path for path in (tmp_path / "runs").iterdir() if path.name.startswith(".")]


def test_runs_of_one_second_do_not_replace_each_other(tmp_path: Path) -> None:
    document = cluster()
    threads = [threading.Thread(target=history.record, args=(document, tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"20260301T060000-daily{number}.json" for number in ("-2", "-3", "-4", "")]


def test_damaged_files_are_named_and_passed_over(tmp_path: Path) -> None:
    history.record(cluster(), tmp_path)
    (tmp_path / "cut.json").write_text('{"kind": "cluster-valid')
    (tmp_path / "other.json").write_text('{"kind": "scaling"}')
    told = cluster().as_json()
    del told["checks"][0]["status"]
    (tmp_path / "partial.json").write_text(json.dumps(told))
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    loaded = history.load(tmp_path)
    assert len(loaded.documents) == 1
    assert len(loaded.damaged) == 4
    for name in ("cut.json", "other.json", "partial.json", "bytes.json"):
        assert any(name in line for line in loaded.damaged), name


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert history.load(tmp_path / "absent") == History()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValidateError, match=r"cannot be recorded.*--history"):
        history.record(cluster(), tmp_path / "file")


def test_a_regression_is_found_and_noise_is_not() -> None:
    runs = many_runs(20, regression=0.7, since=19)
    found = history.compare(runs[19], History(runs))
    names = {(one.figure.name, one.figure.where) for one in found}
    assert names == {
        ("training.ddl.images_per_sec", "4 host(s)"),
        ("training.horovod.images_per_sec", "4 host(s)"),
    }
    assert found[0].ratio == pytest.approx(0.7) and found[0].runs == history.LAST
    assert "70%" in found[0].text
    for number in range(1, 19):
        assert not history.compare(runs[number], History(runs)), number


def run_of(number: int, value: float) -> history.Document:
    """A run with a single figure."""
    document = cluster(run=number)
    document.results = [
        CheckResult("x", "x", Status.PASSED, figures=[Figure("host.core", "host a", value, "1")])
    ]
    return document


def test_the_scatter_of_earlier_runs_is_allowed() -> None:
    """A figure that varies by half its value says nothing when it is a quarter below its median."""
    values = [100.0, 60.0, 150.0, 90.0, 130.0, 70.0]
    before = History([run_of(number, value) for number, value in enumerate(values)])
    assert not history.compare(run_of(9, 70.0), before)
    steady = History([run_of(number, 95.0 + number % 2) for number in range(6)])
    assert [one.figure.value for one in history.compare(run_of(9, 70.0), steady)] == [70.0]
    # what is allowed is no regression yet
    exact = History([run_of(number, 100.0) for number in range(6)])
    assert not history.compare(run_of(9, 90.0), exact) and history.compare(run_of(9, 89.9), exact)


def test_runs_of_other_sites_do_not_count() -> None:
    runs = [cluster(run=run) for run in range(6)]
    for document in runs[:5]:
        document.site = "elsewhere"
    assert history.good_before(runs[5], History(runs)) == []
    runs[5].site = "elsewhere"
    assert history.good_before(runs[5], History(runs)) == runs[:5]


def test_failed_runs_and_other_sizes_are_no_measure() -> None:
    bad = [slow(cluster(run=run), "4 host(s)", 0.5) for run in range(5)]
    for document in bad:
        document.results[0].findings.append(Finding(Kind.ENVIRONMENT, "host a", "text", "remedy"))
    others = [cluster(8, run=run) for run in range(5, 10)]
    later = [cluster(run=run) for run in range(20, 25)]
    assert history.good_on_like_hosts(cluster(run=11), History(bad + others + later)) == []
    found = history.compare(slow(cluster(run=11), "4 host(s)", 0.1), History(bad + others + later))
    assert not [one for one in found if one.figure.where == "4 host(s)"]


def test_lower_is_better_for_times() -> None:
    runs = [cluster(run=run) for run in range(6)]
    late = slow(cluster(run=6), "hosts node001 and node002", 0.25)
    found = {one.figure.name: one for one in history.compare(late, History(runs))}
    assert set(found) == {"link.bandwidth", "link.latency"}
    assert found["link.latency"].ratio == pytest.approx(0.25, rel=0.1)


def figures(number: int, **values: float) -> history.Document:
    """A run of host a with figures, whose names have a dot for the first underscore."""
    document = run_of(number, 1.0)
    document.results[0].figures = [
        Figure(name.replace("_", ".", 1), "host a", value, "1", better=LOWER)
        for name, value in values.items()
    ]
    return document


def test_noise_of_what_is_next_to_nothing_is_not_judged() -> None:
    """A share of late steps of 0.16 % after ones of 0.1 %, a latency of 14.5 µs after ones of 12."""
    before = History([figures(n, host_jitter=0.0009 + n % 3 * 1e-4, link_latency=12e-6) for n in range(10)])
    assert not history.compare(figures(20, host_jitter=0.0016, link_latency=14.5e-6), before)
    found = history.compare(figures(20, host_jitter=0.05, link_latency=30e-6), before)
    assert {one.figure.name for one in found} == {"host.jitter", "link.latency"}
    expected = Expectation(0.001, "baseline", 0.1)
    assert not Figure("host.jitter", "host a", 0.02, "1", LOWER, expected).low
    assert Figure("host.jitter", "host a", 0.03, "1", LOWER, expected).low


@pytest.mark.parametrize(("name", "value"), [("level", "burn-in"), ("release", "9.9"), ("site", "other")])
def test_runs_of_another_level_or_release_are_no_measure(name: str, value: str) -> None:
    runs = [run_of(number, 5000.0) for number in range(8)]
    assert history.compare(run_of(9, 3400.0), History(runs))
    for document in runs:
        setattr(document, name, value)
    assert not history.compare(run_of(9, 3400.0), History(runs))


def test_other_hosts_of_the_same_kinds() -> None:
    """A nightly job gets other hosts each time."""

    def night(number: int, value: float, hosts: list[str], kinds: list[str]) -> history.Document:
        document = run_of(number, value)
        document.hosts, document.kinds = hosts, kinds
        document.results[0].figures.append(Figure("training.kept", "4 host(s)", value, "1"))
        return document

    before = [night(n, 100.0, [f"n{n}", f"n{n + 1}"], ["old", "new"]) for n in range(8)]
    today = night(20, 50.0, ["n30", "n31"], ["new", "old"])
    assert {one.figure.where for one in history.compare(today, History(before))} == {"host a", "4 host(s)"}
    today.kinds = ["new", "new"]
    assert {one.figure.where for one in history.compare(today, History(before))} == {"host a"}
    for document in before:  # recorded by an earlier release
        document.kinds = []
    assert {one.figure.where for one in history.compare(today, History(before))} == {"host a"}


@pytest.mark.parametrize("share", [0.985, 1.015])
def test_a_slow_decline(share: float) -> None:
    """Each run is as good as the ten before it, and the last one at two thirds of the first."""
    better = HIGHER if share < 1 else LOWER

    def run(number: int, noise: float = 0.0) -> history.Document:
        document = run_of(number, 1.0)
        figure = Figure("host.core", "host a", 100 * share**number * (1 + noise), "1", better)
        document.results[0].figures = [figure]
        return document

    runs = [run(number, (number * 7 % 5 - 2) * 0.01) for number in range(28)]
    (found,) = history.compare(run(28), History(runs), tolerance=0.15)
    assert found.since == runs[0].started and found.ratio == pytest.approx(0.68, abs=0.06)
    assert "has become worse from run to run" in found.text and found.since[:10] in found.text
    # none of the last ten alone says so
    assert not history.compare(run(28), History(runs[-10:]), tolerance=0.15)
    steady = [run_of(number, 100.0 + number * 7 % 5) for number in range(60)]
    assert not history.compare(run_of(61, 97.0), History(steady), tolerance=0.15)


def test_a_baseline_has_the_medians_and_refuses_failed_runs() -> None:
    runs = many_runs(5, since=99)
    told = history.baseline(runs)
    figures = {(one["name"], one["where"]): one for one in told["figures"]}
    where = "hosts node001 and node002"
    rates = sorted(history.figures_of(one)[("link.bandwidth", where, ())].value for one in runs)
    assert figures["link.bandwidth", where]["value"] == rates[2]
    assert figures["training.ddl.images_per_sec", "4 host(s)"]["scale"] == {"hosts": 4, "ranks": 16}
    assert all(0.1 <= one["tolerance"] <= 0.5 for one in told["figures"])
    json.dumps(told)
    # however much a figure scatters, half of it is too little
    wild = history.baseline([run_of(number, value) for number, value in enumerate((100.0, 10.0, 190.0))])
    assert wild["figures"][0]["tolerance"] == 0.5
    with pytest.raises(ValidateError, match="cannot be a baseline"):
        history.baseline([*runs, faulty(Kind.SLOW_HOST)])
    with pytest.raises(ValidateError, match="record one first"):
        history.baseline([])


def test_csv_has_a_row_for_every_figure() -> None:
    document = cluster()
    host = Figure(
        "host.core", 'host "a", b', 3.5, "1", expected=Expectation(7.0, "peers", 0.1), command="x\ny"
    )
    document.results[1].figures.append(host)
    rows = list(csv.DictReader(io.StringIO(table.as_csv(document), newline="")))
    assert len(rows) == sum(len(result.figures) for result in document.results)
    assert tuple(rows[0]) == table.COLUMNS
    own = next(row for row in rows if row["where"] == 'host "a", b')
    assert (own["value"], own["expected"], own["ratio"], own["low"], own["command"]) == (
        "3.5",
        "7.0",
        "0.5",
        "1",
        "x\ny",
    )
    trained = next(
        row for row in rows if row["name"] == "training.ddl.images_per_sec" and row["hosts"] == "4"
    )
    assert trained["ranks"] == "16"
    size = next(row for row in rows if row["name"] == "allreduce.busbw")
    assert size["scale"] == "bytes=65536"


# What readers of JUnit XML take, after the schema of Jenkins' xUnit plugin and GitLab's documentation:
# element -> (attributes that it must have, that it may have, its children).
_JUNIT: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": ({"name", "tests", "failures", "errors"}, {"time", "skipped"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
        {"hostname"},
        {"properties", "testcase"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": ({"classname", "name", "time"}, set(), {"failure", "error", "skipped", "system-out"}),
    "failure": ({"message", "type"}, set(), set()),
    "error": ({"message", "type"}, set(), set()),
    "skipped": ({"message"}, set(), set()),
    "system-out": (set(), set(), set()),
}


def check_junit(element: ElementTree.Element) -> None:
    must, may, children = _JUNIT[element.tag]
    assert must <= set(element.attrib) <= must | may, (element.tag, element.attrib)
    for child in element:
        assert child.tag in children, (element.tag, child.tag)
        check_junit(child)
    if element.tag in ("testsuites", "testsuite"):
        cases = list(element.iter("testcase"))
        assert int(element.attrib["tests"]) == len(cases)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            if name in element.attrib:
                assert int(element.attrib[name]) == sum(case.find(tag) is not None for case in cases)
        assert float(element.attrib["time"]) >= 0
    if element.tag == "testsuite":
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", element.attrib["timestamp"])
    if element.tag == "testcase":
        assert sum(child.tag in ("failure", "error", "skipped") for child in element) <= 1
        assert float(element.attrib["time"]) >= 0


@pytest.mark.parametrize("kind", kinds())
def test_junit_has_a_failure_for_every_finding(kind: Kind) -> None:
    root = ElementTree.fromstring(junit.as_xml(faulty(kind)).encode())
    check_junit(root)
    failures = list(root.iter("failure"))
    assert [one.attrib["type"] for one in failures] == [kind.value]
    assert "what <the others> give" in failures[0].attrib["message"]
    assert "look at its cable & counters" in str(failures[0].text)


def test_junit_of_a_passed_run_has_skips_with_reasons() -> None:
    document = cluster()
    document.results.append(
        CheckResult("odd", "odd\x00name\x1b[0m", Status.BROKEN, reason="\x08 the program failed")
    )
    root = ElementTree.fromstring(junit.as_xml(document).encode())
    check_junit(root)
    assert [one.attrib["message"] for one in root.iter("skipped")] == ["no host has a GPU"]
    assert not list(root.iter("failure"))
    assert [one.attrib["message"] for one in root.iter("error")] == ["\ufffd the program failed"]
    assert len({case.attrib["name"] for case in root.iter("testcase")}) == len(document.results)
