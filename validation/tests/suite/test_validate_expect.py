"""What a site expects: files, tolerances, which figure is at fault, and what is only an effect."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from program_runner import ROOT
from validate_documents import cluster, faulty, find, many_runs

from ddl_validate.suite import document as documents
from ddl_validate.suite import expect, history, report
from ddl_validate.suite.errors import ValidateError
from ddl_validate.suite.expect import Reference
from ddl_validate.suite.levels import LEVELS, level_of, scales
from ddl_validate.suite.model import (
    EXIT_CODES,
    LOWER,
    CheckResult,
    Expectation,
    Figure,
    Finding,
    Kind,
    Severity,
    Status,
    exit_code,
    warning,
)
from ddl_validate.suite.registry import ORDER


def figure(name: str, where: str, value: float, **more: Any) -> Figure:
    return Figure(name, where, value, "B/s", **more)


def result(*figures: Figure) -> CheckResult:
    return CheckResult("links", "links", Status.PASSED, figures=list(figures))


def written(folder: Path, told: object) -> Path:
    path = folder / "reference.json"
    path.write_text(json.dumps(told))
    return path


def test_a_reference_has_tolerances_of_its_own(tmp_path: Path) -> None:
    told = {
        "figures": [
            {"name": "host.memory", "where": "host a", "value": 100.0, "tolerance": 0.5},
            {"name": "host.memory", "where": "host b", "value": 100.0},
            {"name": "allreduce.busbw", "where": "all", "value": 1e9, "scale": {"bytes": 65536, "ranks": 2}},
        ]
    }
    wanted = expect.read_reference(written(tmp_path, told))
    assert wanted["allreduce.busbw", "all", (("bytes", 65536), ("ranks", 2))] == Reference(
        1e9, "reference", None
    )
    found = result(figure("host.memory", "host a", 60.0), figure("host.memory", "host b", 60.0))
    expect.apply(found, wanted, 0.1)
    expect.judge(found)
    (finding,) = found.findings
    assert (finding.kind, finding.where, finding.hosts) == (Kind.SLOW_MEMORY, "host b", ("b",))
    assert "is 60 B/s; the reference says 100 (60%)" in finding.text
    assert found.status is Status.FAILED


def test_a_run_and_a_saved_baseline_are_baselines(tmp_path: Path) -> None:
    runs = many_runs(5)
    kept = history.record(runs[0], tmp_path / "runs")
    from_run = expect.read_reference(kept)
    saved = expect.read_reference(written(tmp_path, history.baseline(runs)))
    assert from_run.keys() == saved.keys()
    assert {one.source for one in (*from_run.values(), *saved.values())} == {"baseline"}
    assert {one.tolerance for one in from_run.values()} == {None}
    assert all(one.tolerance and one.tolerance >= history.TOLERANCE for one in saved.values())


def test_a_baseline_of_figures_that_are_nothing_has_the_usual_tolerance() -> None:
    runs = [
        replace(
            run,
            results=[
                replace(found, figures=[replace(one, value=0.0) for one in found.figures])
                for found in run.results
            ],
        )
        for run in many_runs(5)
    ]
    saved = history.baseline(runs)
    assert {one["tolerance"] for one in saved["figures"]} == {history.TOLERANCE}


@pytest.mark.parametrize(
    "told",
    [
        [],
        {"figures": [{"name": "a", "where": "b"}]},
        {"figures": [{"where": "b", "value": 1}]},
        {"figures": [{"name": "a", "where": "b", "value": "fast"}]},
        {"figures": [{"name": "a", "where": "b", "value": -1}]},
        {"figures": [{"name": "a", "where": "b", "value": 1, "tolerance": 2}]},
        {"figures": [{"name": "a", "where": "b", "value": 1, "scale": {"ranks": "two"}}]},
        {"figures": {"a": 1}},
        {"checks": [{}]},
    ],
)
def test_a_damaged_reference_is_refused(tmp_path: Path, told: object) -> None:
    path = written(tmp_path, told)
    with pytest.raises(ValidateError, match=f"{path}: .*neither a result of `wmlce validate` nor an object"):
        expect.read_reference(path)


@pytest.mark.parametrize("source", ["prediction", "baseline", "reference", "peers", "ideal"])
def test_what_is_judged(source: str) -> None:
    """The comparison of hosts with each other is the check's own, and an ideal is nobody's duty."""
    found = result(figure("link.bandwidth", "hosts a and b", 0.5, expected=Expectation(1.0, source, 0.2)))
    expect.judge(found)
    assert [one.kind for one in found.findings] == (
        [Kind.SLOW_LINK] if source not in ("peers", "ideal") else []
    )
    near = result(figure("link.bandwidth", "hosts a and b", 0.81, expected=Expectation(1.0, source, 0.2)))
    expect.judge(near)
    assert near.findings == []


def test_what_is_as_low_as_the_tolerance_allows_is_not_low() -> None:
    wanted = Expectation(1.0, "baseline", 0.25)
    assert not figure("host.core", "host a", 0.75, expected=wanted).low
    assert figure("host.core", "host a", 0.74, expected=wanted).low


def test_nothing_measured_has_no_ratio() -> None:
    wanted = Expectation(1.0, "baseline", 0.25)
    none = figure("host.core", "host a", 0.0, expected=wanted)
    assert none.ratio is None and none.low
    at_once = figure("link.latency", "host a", 0.0, better=LOWER, expected=wanted)
    assert at_once.ratio is None and not at_once.low


def test_times_are_worse_when_they_are_longer() -> None:
    late = figure("link.latency", "host a", 2e-5, better=LOWER, expected=Expectation(1e-5, "baseline", 0.3))
    early = figure("link.latency", "host b", 1e-6, better=LOWER, expected=Expectation(1e-5, "baseline", 0.3))
    found = result(late, early)
    expect.judge(found)
    assert [finding.where for finding in found.findings] == ["host a"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("host.memory", Kind.SLOW_MEMORY),
        ("host.core", Kind.SLOW_HOST),
        ("link.bandwidth", Kind.SLOW_LINK),
        ("rack.bandwidth", Kind.SLOW_TIER),
        ("gpu.copy", Kind.GPU),
        ("training.ddl.images_per_sec", Kind.SLOW_TRAINING),
        ("allreduce.busbw", Kind.SLOW_TRAINING),
    ],
)
def test_what_is_at_fault(name: str, kind: Kind) -> None:
    found = result(figure(name, "rack 1", 0.5, expected=Expectation(1.0, "baseline", 0.2)))
    expect.judge(found)
    assert [one.kind for one in found.findings] == [kind]
    assert exit_code([found]) == 10 + list(Kind).index(kind)
    mildest = replace(found, findings=[replace(found.findings[0], kind=list(Kind)[-1])])
    assert exit_code([mildest, found]) == exit_code([found, mildest]) == exit_code([found])


def test_a_host_that_is_named_already_is_not_named_for_its_paths() -> None:
    before = result()
    before.findings.append(Finding(Kind.SLOW_HOST, "host a", "slow", "", ("a",)))
    low = Expectation(1.0, "baseline", 0.2)
    found = result(
        figure("link.bandwidth", "hosts a and b", 0.5, expected=low),
        figure("link.bandwidth", "hosts b and c", 0.5, expected=low),
        figure("host.memory", "host a", 0.5, expected=low),
    )
    expect.judge(found, [before])
    assert [one.where for one in found.findings] == ["hosts b and c"]


def test_slow_training_is_an_effect_of_what_is_slow() -> None:
    document = faulty(Kind.SLOW_TRAINING)
    expect.leave_out_effects(document.results)
    assert [one.kind for one in document.findings] == [Kind.SLOW_TRAINING], "nothing else is slow"
    find(document, "hosts", Finding(Kind.SLOW_MEMORY, "host node001", "slow", "", ("node001",)))
    expect.leave_out_effects(document.results)
    assert [one.kind for one in document.findings] == [Kind.SLOW_MEMORY]
    training = document.results[-1]
    assert training.reason.startswith("the effect of what was found elsewhere: 4 host(s) gives")
    assert len(training.not_judged) == 1
    expect.leave_out_effects(document.results)
    assert len(training.not_judged) == 1, "once is enough"


@pytest.mark.parametrize(
    "cause",
    [Kind.WRONG_RESULT, Kind.GPU, Kind.SLOW_HOST, Kind.SLOW_MEMORY, Kind.SLOW_LINK, Kind.SLOW_TIER],
)
def test_each_cause_of_slow_training_leaves_it_out(cause: Kind) -> None:
    document = faulty(Kind.SLOW_TRAINING)
    find(document, "hosts", Finding(cause, "host node001", "text", "remedy", ("node001",)))
    expect.leave_out_effects(document.results)
    assert [finding.kind for finding in document.findings] == [cause]


@pytest.mark.parametrize("kind", [Kind.ENVIRONMENT, Kind.NOT_CHECKED])
def test_what_slows_nothing_down_hides_no_slow_training(kind: Kind) -> None:
    document = faulty(Kind.SLOW_TRAINING)
    find(document, "hosts", Finding(kind, "host node001", "text", "remedy", ("node001",)))
    expect.leave_out_effects(document.results)
    assert {finding.kind for finding in document.findings} == {Kind.SLOW_TRAINING, kind}


def test_a_regression_is_a_finding_of_its_check() -> None:
    runs = many_runs(6, regression=0.7, since=5)
    worse = history.compare(runs[5], history.History(runs))
    expect.judge_regressions(runs[5].results, worse)
    training = next(one for one in runs[5].results if one.name == "training")
    assert training.status is Status.FAILED
    assert {one.kind for one in training.findings} == {Kind.SLOW_TRAINING}
    assert all("of the last 5 good runs" in one.text or "good runs" in one.text for one in training.findings)
    assert runs[5].verdict == "failed" and cluster().verdict == "passed"


def test_warnings_fail_nothing_and_drain_nothing(tmp_path: Path) -> None:
    document = cluster()
    hosts = next(one for one in document.results if one.name == "hosts")
    hosts.findings.append(warning(Kind.ENVIRONMENT, "host node001", "odd <kernel>", "look", "kernel"))
    hosts.not_judged["host.memory.share"] = "no channels"
    assert (document.exit_code, document.verdict, document.faults) == (0, "passed", [])
    report.write(document, history.History(), tmp_path)
    told = json.loads((tmp_path / "validation.json").read_text())
    (entry,) = [one for check in told["checks"] for one in check["findings"]]
    assert (entry["severity"], entry["figure"]) == ("warn", "kernel")
    entry = {"check": "hosts", "what": "host.memory.share", "why": "no channels"}
    assert entry in told["not_judged"]
    junit = (tmp_path / "junit.xml").read_text()
    assert 'failures="0"' in junit and "warning: odd &lt;kernel&gt;" in junit
    assert "not judged: host.memory.share: no channels" in junit
    page = (tmp_path / "index.html").read_text()
    assert "✓ Passed" in page and "Not judged" in page and "no channels" in page
    assert documents.read(tmp_path / "validation.json").findings[0].severity is Severity.WARN
    expect.judge_regressions(document.results, [])
    low = [replace(one, expected=Expectation(2 * one.value, "baseline", 0.1)) for one in hosts.figures[:1]]
    hosts.figures = low
    expect.judge(hosts)
    (_, slow) = hosts.findings
    assert slow.severity is Severity.DRAIN and document.verdict == "failed" and document.exit_code == 13


def test_a_reference_without_places_is_of_all(tmp_path: Path) -> None:
    """A host's own one goes before. What all hosts fall short of drains none."""
    told = {
        "figures": [
            {"name": "host.memory", "value": 100.0},
            {"name": "host.memory", "where": "host c", "value": 50.0},
            {"name": "allreduce.busbw", "value": 10.0, "scale": {"bytes": 64}},
        ]
    }
    wanted = expect.read_reference(written(tmp_path, told))

    def judged(a: float, b: float, c: float) -> list[tuple[str, tuple[str, ...]]]:
        rates = {"host a": a, "host b": b, "host c": c}
        found = result(*(figure("host.memory", where, rate) for where, rate in rates.items()))
        found.figures += [figure("allreduce.busbw", "all", 5.0, scale={"bytes": size}) for size in (32, 64)]
        expect.apply(found, wanted, 0.1)
        assert [one.expected is not None for one in found.figures] == [True, True, True, False, True]
        expect.judge(found)
        return [(one.where, one.hosts) for one in found.findings if one.figure == "host.memory"]

    assert judged(95, 95, 50) == []
    assert judged(95, 60, 50) == [("host b", ("b",))]
    assert judged(60, 60, 30) == [("host a", ()), ("host b", ()), ("host c", ())]


def test_packaged_references_have_sources_and_are_on_the_page() -> None:
    page = (ROOT / "docs/cluster/validate.md").read_text()
    section = page.partition("\n## References\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.+?) \|", section, re.MULTILINE)
    assert dict(rows) == expect.packaged_references() and len(rows) >= 6
    names = ("link.bandwidth", "host.memory", "gpu.copy.to_device", "gpu.copy.to_host", "gpu.busbw.nccl")
    for name in expect.packaged_references():
        file = expect.reference_file(name)
        assert expect.read_reference(file)
        for entry in json.loads(file.read_text())["figures"]:
            assert len(entry["source"]) > 40 and "tolerance" not in entry and "where" not in entry
            assert entry["name"] in names


def test_a_figure_can_be_left_out() -> None:
    wanted = Expectation(1.0, "baseline", 0.1)
    found = result(
        figure("link.bandwidth", "host a", 0.5, expected=wanted),
        figure("link.rate", "host b", 0.5, expected=wanted),
    )
    expect.judge(found)
    expect.leave_out(found, ["link.bandwidth", "absent"])
    assert [one.figure for one in found.findings] == ["link.rate"] and found.status is Status.FAILED
    ((name, why),) = found.not_judged.items()
    assert name == "link.bandwidth" and why.startswith("left out by --skip-figure; link.bandwidth of host a")
    expect.leave_out(found, ["link.rate"])
    assert found.findings == [] and found.status is Status.PASSED


def test_levels_and_scales() -> None:
    assert [scales(number, True) for number in (1, 2, 3, 4, 6, 8)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 4],
        [1, 2, 4, 6],
        [1, 2, 4, 8],
    ]
    assert [scales(number, False) for number in (1, 2, 6)] == [[1], [1, 2], [1, 6]]
    assert [level.name for level in LEVELS.values() if level.repeats] == ["burn-in"]
    with pytest.raises(ValidateError, match="one of: smoke, daily, burn-in"):
        level_of("hourly")
    with pytest.raises(ValidateError, match="no hosts"):
        scales(0, True)


def test_the_page_has_every_kind_code_and_check_and_its_reference_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs/cluster/validate.md").read_text()
    told = re.findall(r"^\| (1\d) \| \[(\S+)\]\(#\2\) \|$", page, re.MULTILINE)
    assert [(int(code), kind) for code, kind in told] == [(EXIT_CODES[kind], kind.value) for kind in Kind]
    assert re.findall(r"^### (.+)$", page, re.MULTILINE) == [kind.value for kind in Kind]
    table = page.partition("\n## Checks\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == list(ORDER)
    (example,) = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    wanted = expect.read_reference(written(tmp_path, json.loads(example)))
    assert len(wanted) == 3 and {one.tolerance for one in wanted.values()} == {0.1, None}
