"""The report shows what was found, says what is missing, and cannot be tricked into running what it shows."""

from __future__ import annotations

import json
from pathlib import Path

import page_checks
import pytest
from browser import opened

from ddl_validate.report.__main__ import main
from ddl_validate.trainings.document import Document, Row
from ddl_validate.trainings.figures import write
from ddl_validate.trainings.methods import METHODS
from ddl_validate.trainings.run import Sample

HOST = {"name": "host", "processor": "Xeon", "cores": 2, "system": "Linux"}


def write_trainings(path: Path, works: dict[str, str], *rows: Row) -> None:
    head = {"time": "now", "host": HOST, "place": "2 ranks here", "racks": 2, "accuracy": 0.95}
    named = {name: {"text": text} for name, text in works.items()}
    document = Document(path, {**head, "works": named, "left_out": ["Snap ML: none"], "identity": "x"})
    document.rows = list(rows)
    write(document)


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build folder as the quickstart leaves it, and with comparisons of speeds and methods."""
    (tmp_path / "report").mkdir()
    (tmp_path / "channel" / "linux-64").mkdir(parents=True)
    plan = {"size": 2, "last": {"algorithm": "<b>two tiers</b>"}}
    write_trainings(
        tmp_path / "report/scaling.json",
        {"resnet20": "resnet20 on synthetic images"},
        Row("resnet20", "ddl", 1, "DDL", 32, samples=[Sample(20.0, "now", 300.25)]),
        Row("resnet20", "ddl", 2, "DDL", 32, log="two.log", samples=[Sample(21, "now", 555.5, plan=plan)]),
    )
    learned = [Sample(7.25, "now", accuracies=[(7, 0.954)])]
    examples = {"examples": "Examples of the frameworks"}
    row = Row("examples", "pytorch", 2, "PyTorch (pytorch 2.13.0)", samples=learned)
    write_trainings(tmp_path / "report/examples.json", examples, row)
    write_trainings(
        tmp_path / "report/speed.json",
        {"lenet": "lenet, batch 32 a rank"},
        Row("lenet", "independent", 2, "none", 32, samples=[Sample(1, "", own) for own in (812.5, 810.25)]),
        Row(
            "lenet",
            "ddl-groups",
            2,
            "DDL in <groups>",
            32,
            samples=[Sample(1, "", 700.125, efficiency=0.938)],
        ),
    )
    digits = [
        Row("digits", name, 4, method.title, 32) for name, method in METHODS.items() if name[:2] != "ho"
    ]
    for number, row in enumerate(digits):
        course = [(0.5 * step + number, min(0.98, 0.3 + 0.1 * step)) for step in range(9)]
        row.samples.append(Sample(9, "", 1000.0 + 100 * number, course, 100, {"rack0 in": 5000 + number}))
    digits[-1].error = "<b>lost</b>"
    write_trainings(tmp_path / "report/digits.json", {"digits": "LeNet"}, *digits)
    record = {"name": "ddl", "version": "2.0.0", "build": "h1_0", "license": "Apache-2.0", "size": 5_000_000}
    index = {"packages": {}, "packages.conda": {"ddl-2.0.0-h1_0.conda": record}}
    (tmp_path / "channel" / "linux-64" / "repodata.json").write_text(json.dumps(index))
    return tmp_path


def page(build: Path) -> str:
    assert main(["--build", str(build)]) == 0
    return (build / "report" / "index.html").read_text()


def test_page_holds_every_figure(build: Path) -> None:
    text = page(build)
    channel = ("ddl", "Apache-2.0", "1 packages, 5 MB", "Not verified yet")
    lenet = ("lenet, batch 32 a rank", "2 ranks here", "810.25 to 812.50", "DDL in &lt;groups&gt;", "0.938")
    for shown in ("300.25", "555.50", "0.93", *channel, *lenet):
        assert shown in text, shown
    assert '<th scope="row">PyTorch (pytorch 2.13.0)</th>' in text and "0.954" in text
    assert "Left out: Snap ML: none" in text and "two.log" in text
    # written out, not as a power of ten
    last = 1000 + 100 * (sum(name[:2] != "ho" for name in METHODS) - 1)
    assert f'"{last:,}"' in text


def test_page_needs_no_network(build: Path) -> None:
    text = page(build)
    assert "Plotly.newPlot" in text
    assert 'src="http' not in text and "<link" not in text


def test_untrusted_text_is_shown_not_run(build: Path) -> None:
    text = page(build)
    assert "<b>two tiers</b>" not in text and "&lt;b&gt;two tiers&lt;/b&gt;" in text
    assert "&lt;b&gt;lost" in text and "<b>lost" not in text


def test_failed_verification_is_shown(build: Path) -> None:
    checks = {"checks": [{"name": "libraries", "ok": False, "summary": "2 libraries of the host"}]}
    (build / "channel" / "verify.json").write_text(json.dumps(checks))
    text = page(build)
    assert "2 libraries of the host" in text and "1 failed" in text


def test_trainings_of_another_release_are_named(build: Path) -> None:
    """Their figures had other names."""
    path = build / "report" / "speed.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 0}))
    renamed = build / "report" / "digits.json"
    renamed.write_text(renamed.read_text().replace('"method": "ps"', '"method": "server"'))
    text = page(build)
    assert "digits.json: has methods of another release" in text
    assert "speed.json: of another release" in text and "lenet, batch 32" not in text


def test_damaged_result_is_named_and_the_rest_shown(build: Path) -> None:
    (build / "report" / "other.json").write_text("{ not json")
    text = page(build)
    assert "other.json" in text and "555.50" in text


def test_empty_build_says_what_to_run(tmp_path: Path) -> None:
    text = page(tmp_path)
    assert "run ./ci/quickstart" in text and "wmlce channel build" in text


def test_missing_build_folder_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--build", str(tmp_path / "absent")])
    assert ended.value.code == 2 and "no such folder" in capsys.readouterr().err


@pytest.mark.slow
def test_the_page_in_a_browser(build: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    page_checks.need_browser()
    page(build)
    path = build / "report" / "index.html"
    with opened(tmp_path_factory.mktemp("browser")) as browser:
        page_checks.check_drawn(browser, path, 6)
        page_checks.check_colours(browser, path)
        page_checks.check_structure(browser, path)
        page_checks.check_keyboard(browser, path)
