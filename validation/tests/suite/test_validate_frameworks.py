"""Short trainings of each framework on two real ranks, and what is said of trainings that go wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from program_runner import Environment

from ddl_validate.common.mpi import MPI_AS_ROOT
from ddl_validate.suite.bench import Bench, Host
from ddl_validate.suite.checks import frameworks
from ddl_validate.suite.levels import LEVELS, Level
from ddl_validate.suite.model import CheckResult, Kind, Status

LOSSES = [2.3, 2.1, 1.8, 1.5, 1.2, 1.0]
HOSTS = ["h1", "h1", "h2", "h2", "h3", "h3"]


def bench_of(prefix: Path, folder: Path, level: Level) -> Bench:
    hosts = (Host("localhost", 2, 0, {}),)
    return Bench(prefix, (), hosts, False, 2, 0, level, 0.3, folder, lambda _: None)


@pytest.fixture(scope="module")
def result(ddl_env: Environment, tmp_path_factory: pytest.TempPathFactory) -> CheckResult:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (*MPI_AS_ROOT.items(), ("OMPI_MCA_mpi_yield_when_idle", "1")):
            patch.setenv(name, value)
        level = dataclasses.replace(LEVELS["daily"], steps=9, limit=200.0)
        return frameworks.check(bench_of(ddl_env.prefix, tmp_path_factory.mktemp("logs"), level), [])


def test_two_ranks_learn_in_every_framework(result: CheckResult) -> None:
    assert result.status is Status.PASSED, result
    assert result.not_judged == {}
    for name in ("ddp", "keras"):
        told = result.facts[name]
        assert told["ranks"] == 2 and len(told["losses"]) == 9
        # random guesses of ten classes have a loss of 2.3
        assert 1.5 < told["losses"][0] < 4 and told["losses"][-1] < 0.5 * told["losses"][0]
        first, second = told["marks"]
        assert first == second and len(first) == 16
    assert len(result.facts["nmt"]["losses"]) == 9


def test_each_has_a_figure(result: CheckResult) -> None:
    figures = {figure.name: figure for figure in result.figures}
    assert list(figures) == [
        "frameworks.ddp.steps_per_sec",
        "frameworks.keras.steps_per_sec",
        "frameworks.nmt.words_per_sec",
    ]
    for figure in figures.values():
        assert figure.value > 0 and figure.scale == {"hosts": 1, "ranks": 2}
        assert "bin/ddlrun -np 2" in figure.command
    assert len(result.commands) == len(result.logs) == 3


def test_weights_of_a_rank_that_differ_name_its_host() -> None:
    marks = ["aa"] * 6
    assert frameworks.findings("Keras", {"losses": LOSSES, "ranks": 6, "marks": marks}, 6, HOSTS) == []
    marks[3] = "ab"
    told = {"losses": LOSSES, "ranks": 6, "marks": marks}
    (finding,) = frameworks.findings("Keras", told, 6, HOSTS)
    assert (finding.kind, finding.where, finding.hosts) == (Kind.WRONG_RESULT, "host h2", ("h2",))
    assert "rank 3 on h2" in finding.text


def test_of_two_ranks_that_differ_nobody_knows_which_is_right() -> None:
    told = {"losses": LOSSES, "ranks": 2, "marks": ["aa", "ab"]}
    (finding,) = frameworks.findings("Keras", told, 2, ["h1", "h2"])
    assert (finding.where, finding.hosts) == ("cluster", ())


@pytest.mark.parametrize("losses", [[*reversed(LOSSES)], [2.3] * 6, [*LOSSES[:5], float("nan")]])
def test_a_training_that_does_not_learn_is_wrong(losses: list[float]) -> None:
    (finding,) = frameworks.findings("Keras", {"losses": losses, "ranks": 6}, 6, HOSTS)
    assert finding.kind is Kind.WRONG_RESULT and "does not learn" in finding.text


def test_ranks_that_do_not_find_each_other_are_named() -> None:
    """As with another MPI than that of the launcher: every rank is a job of its own, and learns."""
    told = {"losses": LOSSES, "ranks": 1, "marks": ["aa"]}
    (finding,) = frameworks.findings("Keras", told, 6, HOSTS)
    assert finding.kind is Kind.ENVIRONMENT and "each job had 1" in finding.text


def test_one_that_breaks_off_is_named_and_the_others_are_made(
    env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in MPI_AS_ROOT.items():
        monkeypatch.setenv(name, value)
    say = """print('{"losses": [2, 1], "ranks": 2, "seconds": 0.5}')"""
    made = [
        frameworks.Training("bad", "Bad", (), lambda _: ["false"], lambda _: None),
        frameworks.Training("dumb", "Dumb", (), lambda _: ["true"], frameworks.last_json),
        frameworks.Training("good", "Good", (), lambda _: ["python", "-c", say], frameworks.last_json),
        frameworks.Training("away", "Away", ("no-such-package",), lambda _: ["false"], lambda _: None),
    ]
    monkeypatch.setattr(frameworks, "TRAININGS", made)
    result = frameworks.check(bench_of(env.prefix, tmp_path, LEVELS["daily"]), [])
    assert result.status is Status.BROKEN
    bad, dumb = result.findings
    assert bad.kind is dumb.kind is Kind.NOT_CHECKED
    assert "with Bad broke off" in bad.text and str(tmp_path / "frameworks-bad.log") in bad.remedy
    assert "Dumb reported no losses" in dumb.text
    (figure,) = result.figures
    assert (figure.name, figure.value) == ("frameworks.good.steps_per_sec", 2.0)
    assert result.not_judged == {"Away": "the environment has no no-such-package"}


def test_an_environment_without_frameworks_is_passed_over(tmp_path: Path) -> None:
    result = frameworks.check(bench_of(tmp_path, tmp_path, LEVELS["daily"]), [])
    assert result.status is Status.SKIPPED and "the environment has no pytorch" in result.reason
