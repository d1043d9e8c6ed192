"""The report shows what was found, says what is missing, and cannot be tricked into running what it shows."""

from __future__ import annotations

import json
from pathlib import Path

import page_checks
import pytest
from browser import opened

from ddl_validate.report.__main__ import main

RUNS = [
    {
        "ranks": 1,
        "images_per_sec": 300.25,
        "seconds": 20,
        "command": ["ddlrun", "-np", "1"],
        "log": "one.log",
        "steps": [{"step": 1, "images_per_sec": 299, "uncertainty": 0, "jitter": 0, "loss": 2}],
        "plan": {},
        "efficiency": 1.0,
        "chose": "-",
    },
    {
        "ranks": 2,
        "images_per_sec": 555.5,
        "seconds": 21,
        "command": ["ddlrun", "-np", "2"],
        "log": "two.log",
        "steps": [],
        "plan": {"note": "<script>alert(1)</script>"},
        "efficiency": 0.925,
        "chose": "<b>two tiers</b>",
    },
]


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build folder as the quickstart leaves it."""
    (tmp_path / "report").mkdir()
    (tmp_path / "channel" / "linux-64").mkdir(parents=True)
    host = {"name": "host", "cores": 2, "machine": "x86_64", "system": "Linux"}
    document = {
        "kind": "scaling",
        "time": "now",
        "host": host,
        "model": "resnet20",
        "data": "cifar10 (synthetic)",
        "batch_per_rank": 32,
        "cores_per_rank": 1,
        "variable_update": "ddl",
        "runs": RUNS,
    }
    (tmp_path / "report" / "scaling.json").write_text(json.dumps(document))
    trained = {"framework": "PyTorch", "version": "2.13.0", "ranks": 2, "accuracy": 0.954, "seconds": 7.25}
    frameworks = {"kind": "frameworks", "time": "now", "ranks": 2, "frameworks": [trained]}
    (tmp_path / "report" / "frameworks.json").write_text(json.dumps(frameworks))
    host = {"name": "host", "processor": "Xeon", "cores": 2}
    limit = {"configuration": "independent", "title": "no communication", "speeds": [812.5, 815.5, 810.25]}
    limit |= {
        "parallel_efficiency": None,
        "ddl_ahead": None,
        "exchange": None,
        "overlap": None,
        "median": 812.5,
    }
    ddl = {"configuration": "ddl-groups", "title": "DDL in <groups>", "speeds": [700.125], "median": 700.125}
    ddl |= {
        "parallel_efficiency": 0.8617,
        "communication_efficiency": 0.9375,
        "ddl_ahead": None,
        "exchange": 0.0125,
        "overlap": 0.0031,
    }
    rows = [{"model": "lenet", "batch": 32, **row} for row in (limit, ddl)]
    speeds = {
        "kind": "training-speed",
        "schema": 2,
        "time": "now",
        "place": "2 ranks here",
        "host": host,
        "rows": rows,
    }
    (tmp_path / "report" / "training-speed.json").write_text(json.dumps(speeds))
    record = {"name": "ddl", "version": "2.0.0", "build": "h1_0", "license": "Apache-2.0", "size": 5_000_000}
    index = {"packages": {}, "packages.conda": {"ddl-2.0.0-h1_0.conda": record}}
    (tmp_path / "channel" / "linux-64" / "repodata.json").write_text(json.dumps(index))
    return tmp_path


def page(build: Path) -> str:
    assert main(["--build", str(build)]) == 0
    return (build / "report" / "index.html").read_text()


def test_page_holds_every_figure(build: Path) -> None:
    text = page(build)
    for shown in ("300.25", "555.50", "0.93", "ddl", "Apache-2.0", "1 packages, 5 MB", "Not verified yet"):
        assert shown in text, shown
    for shown in (
        "lenet, batch 32 a rank",
        "2 ranks here",
        "810.25 to 815.50",
        "DDL in &lt;groups&gt;",
        "0.86",
        "0.938",
    ):
        assert shown in text, shown
    assert "0.013 s" in text and "0.003 s" in text
    assert '<th scope="row">PyTorch</th><td>2.13.0</td>' in text and "0.954" in text


def test_page_needs_no_network(build: Path) -> None:
    text = page(build)
    assert "Plotly.newPlot" in text
    assert 'src="http' not in text and "<link" not in text


def test_untrusted_text_is_shown_not_run(build: Path) -> None:
    text = page(build)
    assert "<b>two tiers</b>" not in text and "&lt;b&gt;two tiers&lt;/b&gt;" in text
    assert "<script>alert(1)</script>" not in text


def test_failed_verification_is_shown(build: Path) -> None:
    checks = {"checks": [{"name": "libraries", "ok": False, "summary": "2 libraries of the host"}]}
    (build / "channel" / "verify.json").write_text(json.dumps(checks))
    text = page(build)
    assert "2 libraries of the host" in text and "1 failed" in text


def test_speeds_of_an_earlier_release_are_named(build: Path) -> None:
    """Their figures had other names."""
    path = build / "report" / "training-speed.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 1}))
    text = page(build)
    assert "training-speed.json: of an earlier release" in text and "lenet, batch 32" not in text


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
        page_checks.check_drawn(browser, path, 3)
        page_checks.check_colours(browser, path)
        page_checks.check_structure(browser, path)
        page_checks.check_keyboard(browser, path)
