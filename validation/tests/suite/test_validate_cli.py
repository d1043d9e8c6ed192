"""`wmlce validate` as people type it: bad input, what is kept, stopping and going on, exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from program_runner import ROOT, Environment, Result
from validate_documents import faulty, find

from ddl_validate.common import running
from ddl_validate.common.mpi import MPI_AS_ROOT
from ddl_validate.suite import document as documents
from ddl_validate.suite import registry
from ddl_validate.suite.bench import Bench
from ddl_validate.suite.cli import drain_reasons, main
from ddl_validate.suite.model import CheckResult, Figure, Finding, Kind, Status
from ddl_validate.suite.rounds import merged, number_of

_LIMIT = 120


def validate(env: Environment, *words: str | Path) -> subprocess.Popen[str]:
    """The command of this tree, on the environment under test."""
    return subprocess.Popen(
        [sys.executable, "-m", "ddl_validate.suite", "--prefix", env.prefix, *words],
        cwd=ROOT,
        env={**os.environ, **MPI_AS_ROOT},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_signals,
    )


def _hear_signals() -> None:
    """Tests that run in the background inherit what is ignored there."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def ended(child: subprocess.Popen[str]) -> Result:
    out, err = child.communicate(timeout=_LIMIT)
    assert "Traceback" not in err, err
    return Result(child.returncode, out, err)


@pytest.fixture
def some_checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Callable[..., Any]]]:
    """Checks of a test in place of the real ones; `environment` stays. Each is a function of the bench."""
    made: dict[str, Callable[..., Any]] = {}

    class Made(registry.Check):
        @property
        def title(self) -> str:
            return "of a test" if self.name in made else super().title

        @property
        def run(self) -> Callable[[Bench, list[CheckResult]], CheckResult]:
            return lambda bench, before: made[self.name](bench)

    monkeypatch.setattr(
        "ddl_validate.suite.cli.checks", lambda: {name: Made(name) for name in ("environment", *made)}
    )
    yield made


def passed(name: str, value: float = 100.0) -> CheckResult:
    figure = Figure("link.bandwidth", "hosts a and b", value, "B/s")
    facts = {"rounds": 0}  # a check's own, of another meaning
    return CheckResult(name, "of a test", Status.PASSED, 0.1, figures=[figure], facts=facts)


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """The command takes signals; this process keeps its own."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def run_here(env: Environment, *words: str | Path) -> int:
    """The command in this process, so that its checks can be a test's."""
    return main(["--prefix", str(env.prefix), *map(str, words)])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--only", "imprts"], "--only 'imprts': no such check; there are: environment"),
        (["--skip", "environment,what"], "--skip 'what': no such check"),
        (["--only", "environment", "--skip", "environment"], "leave no check"),
        (["--hostfile", "/nonexistent/hosts"], "--hostfile /nonexistent/hosts: No such file or directory"),
        (["-H", "a,b", "--hostfile", "/dev/null"], "-H and --hostfile exclude each other"),
        (["-H", "a,,b"], "-H 'a,,b': write names with commas"),
        (["-H", "a:0"], "-H 'a:0': write names with commas"),
        (["-H", "a;id"], "-H 'a;id': write names with commas"),
        (["-H", "a:2,b:4"], "the same number of ranks"),
        (["--tolerance", "1.5"], "--tolerance 1.5: a share between 0 and 1"),
        (["--racks", "0"], "--racks 0: 1 or more"),
        (["--ranks", "-1"], "--ranks -1: 1 or more"),
        (["--hours", "3"], "--hours is for --level burn-in"),
        (["--level", "burn-in", "--hours", "nan"], "--hours nan: more than 0"),
        (["--sustained", "-1"], "--sustained -1: 0 or more seconds"),
        (["--log-hours", "0"], "--log-hours 0: more than 0"),
        (["--resume"], "--resume needs --output"),
        (["--save-baseline", "x"], "--save-baseline needs --history"),
        (["--ddlrun", "-x 'A"], "No closing quotation"),
        (["--level", "quick"], "invalid choice: 'quick'"),
        (["--json", "--drain-reason"], "not allowed with"),
        (["--tol", "0.1"], "unrecognized arguments: --tol"),
    ],
)
def test_a_wrong_command_line_is_one_clear_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err.splitlines()[-1]


def test_files_are_read_before_anything_is_started(
    env: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "baseline.json"
    damaged.write_text('{"figures": [{"name": "link.bandwidth"')
    for words in (["--baseline", damaged], ["--reference", tmp_path / "absent"], ["--reference", tmp_path]):
        assert run_here(env, *words, "-H", "no-such-host") == 3
        told = capsys.readouterr().err
        assert told.startswith(f"wmlce validate: {words[1]}: ") and len(told.splitlines()) == 1
    assert run_here(env, "--reference", "dgx-z9", "-H", "no-such-host") == 3
    assert "--reference dgx-z9: neither a file nor one of: ac922, dgx-a100" in capsys.readouterr().err


def test_there_is_nothing_to_validate_on(
    env: Environment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--prefix", str(tmp_path)]) == 3
    assert f"{tmp_path} has no ddlrun; name an environment by --prefix" in capsys.readouterr().err
    hosts = tmp_path / "hosts"
    hosts.write_text("\n")
    assert run_here(env, "--hostfile", hosts) == 3
    assert str(hosts) in capsys.readouterr().err
    assert run_here(env, "--exclude", "localhost") == 3
    assert "0 hosts are left of this machine" in capsys.readouterr().err
    assert run_here(env, "--racks", "2", "--only", "published") == 3
    assert "--racks 2: 1 hosts are not 2 racks of one size" in capsys.readouterr().err
    assert run_here(env, "-H", "no-such-host.invalid", "--only", "published") == 3
    assert "ddlrun cannot start on no-such-host.invalid: " in capsys.readouterr().err


def test_a_host_that_does_not_answer_is_to_be_drained(env: Environment, tmp_path: Path) -> None:
    words = ["-H", "no-such-host.invalid", "--drain-reason", "--output", tmp_path]
    found = ended(validate(env, *words))
    assert found.rc == 11
    host, tab, reason = found.out.rstrip("\n").partition("\t")
    assert (host, tab) == ("no-such-host.invalid", "\t")
    assert reason.startswith("wmlce: environment: ddlrun cannot start on no-such-host.invalid")
    kept = documents.read(tmp_path / "validation.json")
    assert kept.verdict == "failed" and kept.hosts == []
    assert {path.name for path in tmp_path.iterdir()} >= {"index.html", "junit.xml", "figures.csv"}


def test_hosts_are_drained_for_the_most_severe_finding() -> None:
    document = faulty(Kind.SLOW_MEMORY)
    find(document, "sums", Finding(Kind.WRONG_RESULT, "host node001", "it adds\nwrongly", "", ("node001",)))
    find(document, "hosts", Finding(Kind.SLOW_HOST, "host login1", "slow " * 99, "", ("login1",)))
    told = dict(drain_reasons(document))
    assert told["node001"] == "wmlce: wrong-result: it adds wrongly", "the most severe one, on one line"
    assert set(told) == {"node001", "login1"} and len(told["login1"]) == 200


def test_json_is_all_that_is_printed(env: Environment) -> None:
    found = ended(validate(env, "--only", "environment", "--json", "--site", "here"))
    told = json.loads(found.ok().out)
    assert (told["verdict"], told["exit_code"], told["site"]) == ("passed", 0, "here")
    # its name, which it has in jobs, too
    assert told["hosts"] == [socket.gethostname().partition(".")[0]] and told["ranks"][0] >= 1
    assert (
        told["release"] and told["software"]["mpi"].startswith("Open MPI") and told["machine"]["cores"] >= 1
    )
    assert "passed    environment" in found.err


def test_a_check_that_breaks_off_is_a_finding_and_the_others_go_on(
    env: Environment, some_checks: dict[str, Callable[..., Any]], tmp_path: Path
) -> None:
    def broken(bench: Bench) -> CheckResult:
        raise ZeroDivisionError("of a test")

    some_checks |= {"one": broken, "two": lambda bench: passed("two")}
    assert run_here(env, "--output", tmp_path) == 18
    kept = documents.read(tmp_path / "validation.json")
    assert [(one.name, one.status) for one in kept.results] == [
        ("environment", Status.PASSED),
        ("one", Status.BROKEN),
        ("two", Status.PASSED),
    ]
    (finding,) = kept.findings
    assert (finding.kind, finding.text) == (Kind.NOT_CHECKED, "the check one broke off: of a test")
    assert "ZeroDivisionError" in (tmp_path / "logs/one.error.log").read_text()


def test_a_program_that_fails_is_told_with_its_last_words(
    env: Environment, some_checks: dict[str, Callable[..., Any]], tmp_path: Path
) -> None:
    log = tmp_path / "program.log"
    code = "print('loading'); raise SystemExit('no such device\\nThe log is elsewhere')"
    some_checks["one"] = lambda bench: running.run_program([sys.executable, "-c", code], log, 30, "a program")
    assert run_here(env, "--output", tmp_path) == 18
    (finding,) = documents.read(tmp_path / "validation.json").findings
    assert finding.text == (
        f"the check one broke off: a program ended with exit code 1; log {log}: no such device"
    )


def test_nothing_that_can_be_made_is_no_success(
    env: Environment, some_checks: dict[str, Callable[..., Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    some_checks["gpu"] = lambda bench: CheckResult("gpu", "of a test", Status.SKIPPED, reason="no GPU")
    assert run_here(env, "--only", "gpu") == 3
    assert "none of these checks can be made here" in capsys.readouterr().err
    assert run_here(env) == 0


def test_a_figure_is_measured_and_not_judged(
    env: Environment, some_checks: dict[str, Callable[..., Any]], tmp_path: Path
) -> None:
    baseline = tmp_path / "good.json"
    baseline.write_text(json.dumps({"figures": [{"name": "link.bandwidth", "value": 200.0}]}))
    some_checks["one"] = lambda bench: passed("one")
    words = ["--baseline", baseline, "--output", tmp_path / "out"]
    assert run_here(env, *words) == 15
    assert run_here(env, *words, "--skip-figure", "link.latency,link.bandwidth") == 0
    kept = documents.read(tmp_path / "out/validation.json")
    assert kept.results[1].figures[0].low and kept.verdict == "passed"
    (entry,) = kept.not_judged
    assert (entry["check"], entry["what"]) == ("one", "link.bandwidth")
    assert entry["why"].startswith("left out by --skip-figure; link.bandwidth of hosts a and b is 100 B/s")


def test_a_run_that_is_stopped_keeps_what_it_found_and_goes_on(
    env: Environment, some_checks: dict[str, Callable[..., Any]], tmp_path: Path
) -> None:
    def stops(bench: Bench) -> CheckResult:
        raise KeyboardInterrupt

    made: list[str] = []

    def first(bench: Bench) -> CheckResult:
        made.append("one")
        return passed("one")

    some_checks |= {"one": first, "two": stops, "three": lambda bench: passed("three")}
    history = tmp_path / "history"
    words = ["--output", tmp_path / "out", "--history", history]
    assert run_here(env, *words) == 130
    kept = documents.read(tmp_path / "out/validation.json")
    states = {one.name: one.status for one in kept.results}
    assert states == {
        "environment": Status.PASSED,
        "one": Status.PASSED,
        "two": Status.SKIPPED,
        "three": Status.SKIPPED,
    }
    assert kept.verdict == "incomplete" and not kept.findings
    assert "Not finished" in (tmp_path / "out/index.html").read_text()
    assert not history.exists(), "no run to compare with"

    some_checks["two"] = lambda bench: passed("two")
    assert run_here(env, *words, "--resume") == 0
    whole = documents.read(tmp_path / "out/validation.json")
    assert whole.verdict == "passed" and whole.started == kept.started and whole.seconds > kept.seconds
    assert [one.name for one in whole.results] == ["environment", "one", "two", "three"]
    assert made == ["one"], "what was made is not made again"
    assert len(list(history.iterdir())) == 1


def test_two_runs_do_not_write_to_one_folder(
    env: Environment,
    some_checks: dict[str, Callable[..., Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def check(bench: Bench) -> CheckResult:
        assert run_here(env, "--output", tmp_path) == 3
        assert f"another validation writes to {tmp_path}; wait" in capsys.readouterr().err
        return passed("one")

    some_checks["one"] = check
    assert run_here(env, "--output", tmp_path) == 0


def test_only_the_same_run_is_gone_on_with(
    env: Environment,
    some_checks: dict[str, Callable[..., Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    some_checks["one"] = lambda bench: passed("one")
    assert run_here(env, "--output", tmp_path) == 0
    assert run_here(env, "--output", tmp_path, "--resume", "--level", "daily") == 3
    assert (
        "--resume: the run in the --output folder has level smoke, this one daily" in capsys.readouterr().err
    )
    assert documents.read(tmp_path / "validation.json").level == "smoke"


def test_a_burn_in_goes_on_until_its_time_is_over(
    env: Environment, some_checks: dict[str, Callable[..., Any]], tmp_path: Path
) -> None:
    rounds = iter(range(1000))

    def odd(bench: Bench) -> CheckResult:
        time.sleep(0.2)
        number = next(rounds)
        result = passed("one", 100.0 + number)
        if number == 1:
            result.findings.append(Finding(Kind.SLOW_LINK, "hosts a and b", "slow for once", ""))
            result.status = Status.FAILED
        return result

    some_checks["one"] = odd
    words = ["--level", "burn-in", "--hours", "0.0005", "--output", tmp_path]
    assert run_here(env, *words) == 15
    one = documents.read(tmp_path / "validation.json").results[1]
    made = number_of(one)
    assert made == next(rounds) >= 3
    assert one.status is Status.FAILED and [f.text for f in one.findings] == ["slow for once (round 2)"]
    assert one.figures[0].value == pytest.approx(100.0 + (made - 1) / 2), "the median of all rounds"
    assert one.seconds == pytest.approx(0.1 * made)


def test_rounds_are_one_result() -> None:
    values = [5.0, 1.0, 3.0, 9.0]
    results = [passed("one", value) for value in values]
    results[2].status, results[2].reason = Status.BROKEN, "it broke"
    whole = results[0]
    for result in results[1:]:
        whole = merged(whole, result)
    assert number_of(whole) == 4 and whole.status is Status.BROKEN and whole.reason == "it broke"
    assert [figure.value for figure in whole.figures] == [4.0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything_that_was_started(
    env: Environment, tmp_path: Path, number: signal.Signals
) -> None:
    """A copy of ddlrun's name that does not end by itself, and tells who it is."""
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    started = tmp_path / "started"
    ddlrun = prefix / "bin/ddlrun"
    ddlrun.write_text(
        f"#!/bin/sh\nsleep 300 &\ntrap 'kill $!; wait; exit 1' TERM\n"
        f"echo $! > {started}.new\nmv {started}.new {started}\nwait\n"
    )
    ddlrun.chmod(0o755)
    child = validate(Environment(prefix))
    limit = time.monotonic() + 30
    while not started.exists() and time.monotonic() < limit:
        time.sleep(0.05)
    child.send_signal(number)
    found = ended(child)
    assert found.rc == 128 + number and "stopped before anything was found" in found.err
    # a process that has ended but was not waited for yet has an empty command line
    command = b""
    with contextlib.suppress(OSError):  # gone
        command = Path(f"/proc/{started.read_text().strip()}/cmdline").read_bytes()
    assert command != b"sleep\x00300\x00"


def test_runs_are_recorded_and_what_becomes_worse_fails(
    env: Environment,
    some_checks: dict[str, Callable[..., Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = iter([100.0, 101.0, 99.0, 100.0, 100.0, 50.0])
    some_checks["links"] = lambda bench: passed("links", next(values))
    words = ["--history", tmp_path / "runs"]
    assert run_here(env, *words, "--save-baseline", tmp_path / "good.json") == 0
    for _ in range(4):
        time.sleep(1.1)  # runs are told apart by the second that they began in
        assert run_here(env, *words) == 0
    time.sleep(1.1)
    capsys.readouterr()
    assert run_here(env, *words, "--json", "--save-baseline", tmp_path / "good.json") == 15
    told = json.loads(capsys.readouterr().out)
    (finding,) = [one for check in told["checks"] for one in check["findings"]]
    assert (
        finding["kind"] == "slow-link" and "50% of 100, the median of the last 5 good runs" in finding["text"]
    )
    baseline = json.loads((tmp_path / "good.json").read_text())
    assert [one["value"] for one in baseline["figures"]] == [100.0], "of good runs alone"
    assert len(baseline["runs"]) == 5
