"""The ways to train, side by side: what a run is asked, what is read of it, the document and the page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import page_checks
import pytest
from browser import opened
from program_runner import PYTHONPATH, ROOT, Environment, run_program

from ddl_validate.cluster import missing_requirements
from ddl_validate.common.environment import missing_modules
from ddl_validate.common.running import RunFailed
from ddl_validate.compare import cli
from ddl_validate.compare.measure import Measured, busiest, measure
from ddl_validate.compare.page import render
from ddl_validate.compare.results import Results
from ddl_validate.compare.ways import ALL, Work, named

PARAMETERS = 61_706  # of LeNet
HEAD = {
    "time": "2026-01-01T00:00:00+00:00",
    "host": {"name": "a", "processor": "b", "cores": 2, "system": "c"},
    "place": "4 emulated hosts",
    "racks": 2,
    "work": {"workers": 4, "batch": 32, "epochs": 20, "rate": 0.05},
    "accuracy": 0.95,
    "left_out": ["Large Model Support: env has no lms"],
    "identity": "x",
}


def say(folder: Path, *lines: str) -> list[str]:
    """A program that prints the lines, and a moment passes before each."""
    program = folder / "say.py"
    program.write_text(
        "import time\n" + "".join(f"time.sleep(0.05); print({line!r}, flush=True)\n" for line in lines)
    )
    return [sys.executable, str(program)]


def test_a_run_is_read(tmp_path: Path) -> None:
    counts = iter([{"rack0 out": 100, "rack0 in": 40}, {"rack0 out": 1100, "rack0 in": 2040}])
    command = say(
        tmp_path,
        "Batch size:  64 global",
        "Num batches: 10",
        "Accuracy @ 1 = 0.9900",
        "Running warm up",
        "Accuracy @ 1 = 0.5000 Accuracy @ 5 = 0.9000 [360 examples]",
        "Accuracy @ 1 = 0.9600",
        "Accuracy @ 1 = 0.9100",
        "total images/sec: 123.50",
    )
    found = measure(command, "a way", tmp_path / "log", 30, lambda: next(counts))
    assert (found.speed, found.images) == (123.5, 640)
    # what was said before the first step is not of this training
    assert [value for _, value in found.accuracies] == [0.5, 0.96, 0.91]
    assert found.accuracies[0][0] < found.accuracies[1][0] == found.seconds_to(0.95)
    assert found.seconds_to(0.97) is None
    assert found.carried == {"rack0 out": 1000, "rack0 in": 2000}


def test_steps_of_asynchronous_workers_count_one_by_one(tmp_path: Path) -> None:
    header = ["Batch size:  64 global", "             32 per device", "Num batches: 10", "Sync:        False"]
    words = ["Running warm up", "Accuracy @ 1 = 0.5", "total images/sec: 1.00"]
    assert measure(say(tmp_path, *header, *words), "a way", tmp_path / "log", 30, None).images == 320
    header[-1] = "Sync:        True"
    assert measure(say(tmp_path, *header, *words), "a way", tmp_path / "log", 30, None).images == 640


@pytest.mark.parametrize(
    "lost", ["Running warm up", "total images/sec: 1.00", "Accuracy @ 1 = 0.5", "trained images: 7"]
)
def test_a_run_that_does_not_say_all_is_no_result(lost: str, tmp_path: Path) -> None:
    lines = ["Running warm up", "Accuracy @ 1 = 0.5", "trained images: 7", "total images/sec: 1.00"]
    lines.remove(lost)
    with pytest.raises(RunFailed, match=r"did not print .*; log"):
        measure(say(tmp_path, *lines), "a way", tmp_path / "log", 30, None)


def test_the_slowest_link() -> None:
    carried = {"h1 out": 9, "h1 in": 2, "rack0 out": 3, "rack0 in": 4}
    assert busiest(carried, racks=2) == ("rack0 in", 4)
    assert busiest({"h1 out": 9, "h1 in": 2}, racks=1) == ("h1 out", 9)
    assert busiest({}, racks=2) is None


def test_ways(tmp_path: Path) -> None:
    assert len({way.name for way in ALL}) == len({way.title for way in ALL}) == len(ALL)
    for way in ALL:
        assert (ROOT / "docs/train" / way.page).is_file(), way.name
        assert f"| `{way.name}` |" in (ROOT / "docs/cluster/compare.md").read_text()
        assert missing_modules(way.packages, tmp_path) == list(way.packages) != []
    (tmp_path / "snapml").mkdir()
    assert missing_modules(named("snapml").packages, tmp_path, tmp_path) == []
    work = Work(workers=4, batch=32, epochs=3, rate=0.08)
    assert "--init_learning_rate=0.08" in named("ps").program(work)
    # four times as many updates, each from a quarter of the images
    assert "--init_learning_rate=0.02" in named("ps-async").program(work)
    assert "--learning-rate=0.02" in named("parameter-server-strategy").program(work)


def rounds(path: Path, fresh: bool = False) -> Results:
    return Results(path, HEAD, fresh)


def test_medians_and_what_was_measured_before(tmp_path: Path) -> None:
    path = tmp_path / "compare.json"
    results = rounds(path)
    row = results.row(named("ddl"))
    for number, speed in enumerate((100.0, 300.0, 200.0)):
        row.add(Measured(speed, [(1.0 + number, 0.9), (2.0 + number, 0.96)], 10, {"rack0 in": 50 + number}))
    results.row(named("ps")).error = "ended with exit code 1"
    results.write()
    first, second = json.loads(path.read_text())["rows"]
    assert (first["speed"], first["seconds_to_accuracy"], first["bytes_per_image"]) == (200.0, 3.0, 5.1)
    assert (first["best_accuracy"], second["speed"], second["error"]) == (
        0.96,
        None,
        "ended with exit code 1",
    )
    assert rounds(path).row(named("ddl")).speeds == [100.0, 300.0, 200.0]
    assert rounds(path, fresh=True).rows == []
    assert Results(path, {**HEAD, "identity": "y"}, False).rows == []
    path.write_text(path.read_text()[:-5])
    assert rounds(path).rows == []
    # one round did not come so far: there is no time
    row.add(Measured(100.0, [(1.0, 0.9)], 10, {}))
    assert row.seconds_to(0.95) is None


def test_page(tmp_path: Path) -> None:
    page_checks.need_browser()
    results = rounds(tmp_path / "compare.json")
    for number, way in enumerate(ALL):
        course = [(0.5 * step + number, min(0.98, 0.3 + 0.1 * step)) for step in range(9)]
        results.row(way).add(Measured(1000.0 + 100 * number, course, 100, {"rack0 in": 5000 + number}))
    results.row(named("ps")).error = "<b>lost</b>"
    page = tmp_path / "compare.html"
    page.write_text(render(results))
    assert "&lt;b&gt;lost" in page.read_text()
    # written out, not as a power of ten
    assert f'"{1000 + 100 * (len(ALL) - 1):,}"' in page.read_text()
    with opened(tmp_path / "browser") as browser:
        page_checks.check_drawn(browser, page, 4)
        page_checks.check_colours(browser, page)
        page_checks.check_structure(browser, page)


def test_wrong_options(env: Environment, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = str(env.prefix)
    for words, said in (
        (["--rounds", "0"], "at least 1"),
        (["--accuracy", "95"], "such as 0.95"),
        (["--hosts", "1,x"], "such as 1,1,1,1"),
        (["--hosts", "1,1", "--rate", "fast"], "fast"),
        (["--output", "page.html"], "ends with .json"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(["--env", prefix, *words])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["--env", "/nowhere"])
    assert "wmlce env create" in capsys.readouterr().err


def test_on_two_racks(env: Environment, tmp_path: Path) -> None:
    """Bytes on the uplink are those of the gradients; a way that fails does not stop the others."""
    if reasons := missing_requirements():
        pytest.skip("; ".join(reasons))
    output = tmp_path / "compare.json"
    words = ["--hosts", "1,1", "--epochs", "2", "--rounds", "1", "--output", str(output), "--timeout", "150"]
    ways = ["--way", "torch-ddl", "--way", "torch-gloo"]
    command = [sys.executable, "-m", "ddl_validate.compare", "--env", str(env.prefix), *words, *ways]
    done = run_program(command, 400, PYTHONPATH=PYTHONPATH).ok()
    rows = {row["name"]: row for row in json.loads(output.read_text())["rows"]}
    for name in ("torch-ddl", "torch-gloo"):
        row = rows[name]
        # by the clock of whoever reads the lines: from the first step to the last evaluation
        seconds = row["accuracies"][0][-1][0]
        assert 0.02 * seconds < row["images"][0] / row["speed"] < 1.1 * seconds
        assert row["images"] == [2 * (1437 // 64) * 64]
        assert 0.1 < row["best_accuracy"] <= 1
        # each direction of the uplink carries all gradients once a step, and a step is 64 images
        assert 0.95 < row["bytes_per_image"] / (4 * PARAMETERS / 64) < 1.6, name
    assert "PyTorch DDP, DDL" in done.out and output.with_suffix(".html").is_file()

    # what was measured stays; a way that fails is named, with its log, and the exit code tells
    words[words.index("--timeout") + 1] = "1"
    command = [*command[: command.index("--hosts")], *words, "--way", "horovod", "--way", "torch-ddl"]
    again = run_program(command, 200, PYTHONPATH=PYTHONPATH)
    assert again.rc == 1 and "gave no result: Horovod, TensorFlow" in again.err, again
    assert "exceeded its 1 s; log " in again.out
    after = {row["name"]: row for row in json.loads(output.read_text())["rows"]}
    assert after["torch-ddl"] == rows["torch-ddl"]
    assert after["horovod"]["error"] and not after["horovod"]["speeds"]
