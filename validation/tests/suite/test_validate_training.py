"""The check `training` of `wmlce validate`: what is expected of a run, and what is nobody's fault; and the
whole command on this machine, with its report in a browser.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import page_checks
import pytest
from browser import opened
from program_runner import PACKAGE, PYTHONPATH, Environment, run_program

from ddl_validate.common.mpi import MPI_AS_ROOT
from ddl_validate.suite import document as documents
from ddl_validate.suite import expect
from ddl_validate.suite.bench import Bench, Host
from ddl_validate.suite.checks.training import Judge, Trained, trained_of
from ddl_validate.suite.levels import LEVELS
from ddl_validate.suite.model import CheckResult, Expectation, Figure, Kind, Status

_GRADIENTS = 100 << 20
_LINK = 1e9
_SMOKE = ("environment", "imports", "hosts", "links", "sums", "allreduce", "training", "published")


def bench(env: Environment, folder: Path, hosts: int, ranks: int = 1) -> Bench:
    return Bench(
        prefix=env.prefix,
        options=(),
        hosts=tuple(Host(f"h{number}", ranks, 0, {}) for number in range(hosts)),
        has_racks=False,
        ranks=ranks,
        gpus=0,
        level=LEVELS["daily"],
        tolerance=0.15,
        folder=folder,
        say=lambda text: None,
    )


def measured() -> list[CheckResult]:
    figures = [
        Figure("link.bandwidth", "host h0", _LINK, "B/s"),
        Figure("link.latency", "host h0", 1e-5, "s"),
        Figure("host.memory", "host h0", 50e9, "B/s"),
    ]
    return [CheckResult("links", "links", Status.PASSED, figures=figures)]


def run(ranks: int, step: float, exchange: float, slowest: float = 1.0) -> Trained:
    """Of 32 images a rank and step; `step` and `exchange` in seconds. slowest: share of the others' speed."""
    each = [32 / step] * (ranks - 1) + [32 / step * slowest]
    return Trained(ranks, 32, ranks * 32 / (step / slowest + exchange), sum(each), tuple(each), _GRADIENTS)


def judged(one: Trained, expected: Expectation) -> Figure:
    return Figure("training.ddl.images_per_sec", "4 host(s)", one.speed, "images/s", expected=expected)


def test_an_exchange_as_fast_as_its_links_is_as_expected(env: Environment, tmp_path: Path) -> None:
    made = bench(env, tmp_path, 4)
    judge = Judge(made, measured())
    small = run(1, 0.2, 0.01)
    assert judge.expected("ddl", made.hosts[:1], small, _GRADIENTS).source == "ideal"
    wire = 1.5 * _GRADIENTS / _LINK  # a ring of 4 hosts
    good = run(4, 0.2, 0.01 + wire)
    expected = judge.expected("ddl", made.hosts, good, _GRADIENTS)
    assert expected.source == "prediction"
    assert expected.value == pytest.approx(good.speed, rel=0.1)
    assert not judged(good, expected).low
    slow = run(4, 0.2, 0.01 + 3 * wire)
    low = judged(slow, judge.expected("ddl", made.hosts, slow, _GRADIENTS))
    result = CheckResult("training", "training", Status.PASSED, figures=[low])
    expect.judge(result)
    (finding,) = result.findings
    assert (finding.kind, finding.where) == (Kind.SLOW_TRAINING, "4 host(s)")
    assert "the measured links let one expect" in finding.text


def test_a_slow_rank_is_not_the_exchange(env: Environment, tmp_path: Path) -> None:
    """All wait for it: that is expected, and the rank is named by its own speed."""
    made = bench(env, tmp_path, 4)
    judge = Judge(made, measured())
    judge.expected("ddl", made.hosts[:1], run(1, 0.2, 0.0), _GRADIENTS)
    late = run(4, 0.2, 1.5 * _GRADIENTS / _LINK, slowest=0.9)
    expected = judge.expected("ddl", made.hosts, late, _GRADIENTS)
    assert expected.source == "prediction" and not judged(late, expected).low
    much_later = run(4, 0.2, 0.2, slowest=0.5)
    assert judge.expected("ddl", made.hosts, much_later, _GRADIENTS).source == "ideal"


def test_without_measured_links_or_on_one_machine_nothing_is_expected(
    env: Environment, tmp_path: Path
) -> None:
    made = bench(env, tmp_path, 4)
    boots = {"boots": {"h0": "same", "h1": "same"}}
    shared = [*measured(), CheckResult("imports", "imports", Status.PASSED, facts=boots)]
    for before in ([], shared):
        judge = Judge(made, before)
        judge.expected("ddl", made.hosts[:1], run(1, 0.2, 0.0), _GRADIENTS)
        slow = run(4, 0.2, 5.0)
        assert judge.expected("ddl", made.hosts, slow, _GRADIENTS) == Expectation(slow.alone, "ideal", 0.15)


def test_what_the_program_prints() -> None:
    cost = {
        "images_per_sec": [10.0, 30.0, 20.0],
        "images_per_sec_without": [40.0, 60.0, 50.0],
        "rank_images_per_sec_without": [24.0, 26.0],
    }
    call = "allreduce of 1000 float16 elements in 9 buffers"
    told = {"ranks": 2, "batch_per_device": 8, "exchange_cost": cost, "ddl": {"last": {"call": call}}}
    found = trained_of(f"Step\n{json.dumps(told)}\nthe launcher's last words\n")
    assert found == Trained(2, 8, 20.0, 50.0, (24.0, 26.0), 2000)
    assert found.step == pytest.approx(0.8) and found.step_alone == pytest.approx(8 / 24)
    assert replace(found, size=None) == trained_of(json.dumps({**told, "ddl": None}))
    for text in ("", "no JSON", "{broken", json.dumps({"ranks": 2})):
        with pytest.raises(ValueError, match="printed no result with exchange_cost"):
            trained_of(text)


def test_smoke_on_this_machine(ddl_env: Environment, tmp_path: Path) -> None:
    """The whole command on 2 ranks. No figure is expected of a machine that does other things meanwhile."""
    words = ["--ranks", "2", "--only", ",".join(_SMOKE), "--output", str(tmp_path), "--site", "here"]
    path = os.pathsep.join([PYTHONPATH, str(PACKAGE / "src")])
    command = [sys.executable, "-m", "ddl_validate.suite", "--prefix", ddl_env.prefix, *words]
    done = run_program(command, 560, PYTHONPATH=path, **MPI_AS_ROOT)
    assert done.rc == 0, done.out + done.err
    document = documents.read(tmp_path / "validation.json")
    by_name = {result.name: result for result in document.results}
    made = {name for name, result in by_name.items() if result.status is Status.PASSED}
    assert made == {*_SMOKE} - {"links"}
    figures = {figure.key: figure for result in document.results for figure in result.figures}
    ddl = figures["training.ddl.images_per_sec", "1 host(s)", (("hosts", 1), ("ranks", 2))]
    alone = figures["training.none.images_per_sec", "1 host(s)", (("hosts", 1), ("ranks", 2))]
    single = figures["training.single.images_per_sec", "1 host(s)", (("hosts", 1), ("ranks", 1))]
    assert min(ddl.value, alone.value, single.value) > 0
    each = by_name["training"].facts["per_rank"]
    assert len(each) == 2 and min(each) > 0
    assert by_name["training"].facts["gradients"] == pytest.approx(270_000 * 4, rel=0.01), "of ResNet-20"
    busbw = [figure for figure in figures.values() if figure.name == "allreduce.busbw"]
    assert [figure.scale["bytes"] for figure in busbw] == [1 << 16, 1 << 20, 1 << 24]
    assert document.software["tensorflow"] and document.software["ddl"]
    page_checks.need_browser()
    page = (tmp_path / "index.html").read_text()
    with opened(tmp_path / "browser") as browser:
        page_checks.check_drawn(browser, tmp_path / "index.html", page.count('class="plot"'))
    for title in (
        "Scaling",
        "Every rank",
        "Time in each tier",
        "All-reduce against the wire",
        "Summit, up to 954 hosts",
    ):
        assert f">{title}<" in page, title
