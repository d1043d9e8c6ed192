"""The report of a validation: what it says, and how it looks in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import page_checks
import pytest
from browser import Browser, opened
from program_runner import Environment
from validate_documents import cluster, faulty, find, kinds, many_runs, slow

from ddl_validate.suite import document as documents
from ddl_validate.suite import published, report
from ddl_validate.suite.errors import ValidateError
from ddl_validate.suite.history import History
from ddl_validate.suite.model import CheckResult, Figure, Finding, Kind, Status
from ddl_validate.suite.report.render import render
from ddl_validate.suite.report.wording import FAULTS


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports: passed, worse than before, 64 hosts in 4 racks, with a slow path, with a broken check."""
    folder = tmp_path_factory.mktemp("reports")
    runs = many_runs(20)
    tier = Finding(Kind.SLOW_TIER, "rack 1", "rack 1 passes 4 GB/s, the others 11", "look at its uplink")
    made = {
        "passed": (cluster(), History()),
        "worse": (runs[-1], History(runs[:-1], ["runs/cut.json: Expecting value"])),
        "racks": (find(slow(cluster(64, 4, run=3), "rack 1", 0.4), "links", tier), History()),
        "path": (faulty(Kind.SLOW_LINK), History()),
        "broken": (faulty(Kind.NOT_CHECKED), History()),
    }
    return {name: report.write(*one, folder / name) for name, one in made.items()}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    page_checks.need_browser()
    with opened(tmp_path_factory.mktemp("browser")) as found:
        yield found


def without_scripts(text: str) -> str:
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_four_files_and_no_drafts(tmp_path: Path) -> None:
    document = faulty(Kind.SLOW_HOST)
    page = report.write(document, History(), tmp_path / "new")
    names = {path.name for path in page.parent.iterdir()}
    assert names == {"index.html", "figures.csv", "junit.xml", "validation.json"}
    assert documents.read(page.parent / "validation.json").as_json() == document.as_json()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValidateError, match="cannot be written"):
        report.write(document, History(), tmp_path / "file")


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_of_finding_comes_first(kind: Kind) -> None:
    document = faulty(kind)
    text = without_scripts(render(document, History()))
    finding = document.findings[0]
    verdict = text[text.index('id="verdict"') : text.index('id="findings"')]
    assert "✗ Failed" in verdict
    assert f"<strong>{FAULTS[kind]}: {finding.where}</strong>" in verdict
    assert "look at its cable &amp; counters" in verdict
    for host in finding.hosts:
        assert host in verdict
    at_fault = kind not in (Kind.SLOW_TRAINING, Kind.NOT_CHECKED)
    topology = text[text.index("<svg class=") : text.index("</svg>", text.index("<svg class="))]
    assert ("✗" in topology) is at_fault
    if kind in (Kind.SLOW_HOST, Kind.SLOW_MEMORY, Kind.SLOW_LINK, Kind.SLOW_TIER, Kind.SLOW_TRAINING):
        assert "✗ too low" in text
    else:
        assert "✗ too low" not in text


def test_the_most_severe_finding_is_the_headline() -> None:
    document = faulty(Kind.SLOW_TRAINING)
    find(
        document,
        "sums",
        Finding(Kind.WRONG_RESULT, "host node004", "it adds wrongly", "replace it", ("node004",)),
    )
    text = without_scripts(render(document, History()))
    assert "<strong>wrong results: host node004, and 1 more</strong>" in text


def test_a_passed_run_says_what_was_not_made() -> None:
    text = without_scripts(render(cluster(), History()))
    assert "✓ Passed" in text and "6 of 7 checks were made, and nothing is at fault" in text
    assert "no host has a GPU" in text
    assert 'id="findings"' not in text


def test_every_figure_is_in_a_table_with_its_command() -> None:
    document = cluster()
    text = without_scripts(render(document, History()))
    tables = text[text.index('id="figures"') :]
    rows = tables[: tables.index('id="run"')].count('<th scope="row"')
    assert rows == sum(len(result.figures) for result in document.results)
    for result in document.results:
        for figure in result.figures:
            assert f'data-copy="{figure.command}"' in tables


def test_what_has_become_worse_is_named(pages: dict[str, Path]) -> None:
    text = without_scripts(pages["worse"].read_text())
    assert "training.ddl.images_per_sec of 4 host(s)" in text and "70% of" in text
    assert "2 figures have</span>" not in text and "2 figures have become worse" in text
    assert "runs/cut.json: Expecting value" in text
    assert "Worse than before:" not in without_scripts(pages["passed"].read_text())


def test_flight_records_of_a_broken_check(pages: dict[str, Path]) -> None:
    text = without_scripts(pages["broken"].read_text())
    assert "3 ranks were in call 118" in text and "flight-record.html" in text
    assert 'id="records"' not in pages["passed"].read_text()


def test_text_of_hosts_and_programs_is_shown_not_run() -> None:
    evil = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
    document = cluster()
    document.hosts = [evil, *document.hosts[1:]]
    document.command = document.site = document.release = evil
    document.machine = {evil: {evil: evil}}
    bad = Figure("host." + evil, f"host {evil}", 1.0, evil, command=f'"{evil}')
    result = CheckResult(evil, evil, Status.FAILED, reason=evil, figures=[bad], commands=[evil], logs=[evil])
    result.findings.append(Finding(Kind.SLOW_HOST, f"host {evil}", evil, evil, (evil,)))
    result.facts = {"flight_record": [evil], "per_rank": [1.0], "tiers": [{"tier": evil, "seconds": 1.0}]}
    document.results.append(result)
    text = render(document, History([], [evil]))
    assert "<script>alert(1)" not in text and "<img" not in without_scripts(text)
    assert "</script><script>alert" not in text


def test_documents_with_little_in_them() -> None:
    """One host, no figure, no check: no picture, and so no Plotly."""
    empty = documents.Document("smoke", ["h1"], [1])
    text = render(empty, History())
    assert "No check has measured anything." in text and len(text) < 100_000
    empty.results.append(
        CheckResult("x", "x", Status.PASSED, figures=[Figure("host.core", "host h1", 0.0, "1")])
    )
    empty.results.append(
        CheckResult("y", "y", Status.PASSED, figures=[Figure("link.bandwidth", "hosts a and b", 0.0, "B/s")])
    )
    assert "host.core: 1 figure" in render(empty, History([empty]))
    render(documents.Document("smoke", [], []), History())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "plots"), [("worse", 15), ("racks", 10), ("broken", 10)])
def test_drawn_without_errors_requests_or_overflow(
    browser: Browser, pages: dict[str, Path], name: str, plots: int
) -> None:
    page_checks.check_drawn(browser, pages[name], plots)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["worse", "broken"])
def test_light_and_dark_can_be_read(browser: Browser, pages: dict[str, Path], name: str) -> None:
    page_checks.check_colours(browser, pages[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["worse", "broken"])
def test_structure_for_screen_readers(browser: Browser, pages: dict[str, Path], name: str) -> None:
    page_checks.check_structure(browser, pages[name])
    unfolded = (
        "[...document.querySelectorAll('figure')].filter((one) => !one.querySelector('details table')).length"
    )
    assert browser.value(unfolded) == 0
    assert browser.value("document.querySelectorAll('nav[aria-label]').length") == 1


@pytest.mark.slow
def test_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    page_checks.check_keyboard(browser, pages["path"])


@pytest.mark.slow
def test_a_scheme_that_changes_is_followed(browser: Browser, pages: dict[str, Path]) -> None:
    """As when the system turns dark in the evening: pictures too, without loading the page again."""
    ink = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    browser.show(pages["passed"])
    before = browser.value(ink)
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", features=[dark])
    browser.settle()
    assert browser.value(ink) != before


@pytest.mark.slow
def test_commands_are_copied(browser: Browser, pages: dict[str, Path]) -> None:
    browser.show(pages["path"])
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.call("Emulation.setFocusEmulationEnabled", enabled=True)
    browser.value("document.querySelector('#run').parentElement.querySelector('button.copy').click()")
    said = "new Promise((done) => setTimeout(() => done(document.getElementById('status').textContent), 200))"
    assert browser.value(said) == "copied to the clipboard"
    assert browser.value("navigator.clipboard.readText()") == "wmlce validate --level daily"


@pytest.mark.slow
def test_the_pictures_of_the_topology_show_the_culprit(browser: Browser, pages: dict[str, Path]) -> None:
    """At fault is outlined in another colour and marked by a sign, at a place that can be seen."""
    browser.show(pages["racks"])
    told = browser.value(
        "[...document.querySelectorAll('.topology .rack')].map((one) => [one.matches('.culprit'), "
        "getComputedStyle(one).stroke, one.nextElementSibling.textContent, one.getBBox().width])"
    )
    assert [one[0] for one in told] == [False, True, False, False]
    assert told[1][1] != told[0][1] and told[1][2].startswith("✗ rack 1") and told[1][3] > 100
    browser.show(pages["path"])
    path = browser.value("document.querySelector('.topology .path').getBoundingClientRect().width")
    assert path > 5


@pytest.fixture(scope="module")
def reproduced(env: Environment) -> CheckResult:
    return published.check(env.prefix)


@pytest.mark.slow
def test_published_figures_are_recomputed(reproduced: CheckResult, env: Environment) -> None:
    """The same by ddl.predict in Python, from the descriptions that the result holds."""
    assert reproduced.status is Status.PASSED, reproduced.reason
    facts = json.loads(json.dumps(reproduced.facts))
    code = """
import json, sys, ddl
facts = json.loads(sys.argv[1])
def planned(told):
    return {one["ranks"]: one for one in told["predictions"] if one["algorithm"] == "planned"}
print(json.dumps({
    "resnet50": [[planned(ddl.predict(one, 102_000_000, [4, 40]))[n]["allreduce_s"] for n in (4, 40)]
                 for one in facts["resnet50"]["clusters"]],
    "nmt": ddl.predict("ac922-4-ethernet", 717_000_000, steps="nmt-ac922")["calibration"]["steps"],
    "summit": planned(ddl.predict("summit", 102_000_000, [1, 5724]))[5724]["step_s"],
}))
"""
    again = env.evaluate(code, json.dumps(facts))
    # images/s of 40 GPUs: the published step of 4, with the all-reduce of 40 in place of theirs
    step = 4 * 64 / 1248.06
    for (few, many), row in zip(again["resnet50"], facts["resnet50"]["rows"], strict=True):
        assert row["predicted"] == pytest.approx(40 * 64 / (step - few + many), rel=1e-9)
        assert row["off"] == pytest.approx(row["predicted"] / 12043.78 - 1, abs=1e-9)
    assert facts["resnet50"]["efficiency"] == pytest.approx(0.965, abs=5e-4)
    published_steps = {1: 0.36, 2: 0.45, 4: 0.56, 8: 0.68, 12: 0.69, 16: 0.70}
    assert {row["gpus"]: row["published_s"] for row in facts["nmt"]["rows"]} == pytest.approx(published_steps)
    for one, row in zip(again["nmt"], facts["nmt"]["rows"], strict=True):
        assert row["predicted_s"] == pytest.approx(one["predicted_s"], rel=1e-9)
        assert row["off"] == pytest.approx(one["predicted_s"] / published_steps[row["gpus"]] - 1, abs=1e-6)
    assert [row["gpus"] for row in facts["nmt"]["rows"] if row["fitted"]] == [1, 2, 8]
    last = facts["summit"]["rows"][-1]
    assert (last["hosts"], last["gpus"]) == (954, 5724)
    assert last["step_s"] == pytest.approx(again["summit"], rel=1e-9)


@pytest.mark.slow
def test_published_figures_are_part_of_the_page(
    reproduced: CheckResult, browser: Browser, tmp_path: Path
) -> None:
    document = cluster()
    document.results.append(reproduced)
    page = report.write(document, History(), tmp_path)
    text = without_scripts(page.read_text())
    for shown in ("12043.78 images/s", "1248.06 images/s", "96.5%", "-4.5%", "+7.9%", "954", "5724"):
        assert shown in text, shown
    assert "this run" in text and "Assumptions of Summit" in text
    page_checks.check_drawn(browser, page, 12)
    page_checks.check_structure(browser, page)


def test_no_prediction_without_an_environment(tmp_path: Path) -> None:
    result = published.check(tmp_path)
    assert result.status is Status.SKIPPED and "--prefix" in result.reason
    document = cluster()
    document.results.append(result)
    assert 'id="published"' not in render(document, History())
