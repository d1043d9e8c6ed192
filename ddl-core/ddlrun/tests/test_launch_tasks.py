"""Clusters of TensorFlow's tasks: what each is told, when they end, what happens when one fails. The programs
are small ones without TensorFlow, which tests/tensorflow has.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from ddlrun.command_line.parser import parse
from ddlrun.errors import LaunchError
from ddlrun.placement.slots import Placement, Slot
from ddlrun.tasks import plan, supervisor
from ddlrun.tasks.cluster import address_of, taken_port
from ddlrun_program import PROGRAMS, Ddlrun, Run, is_alive
from emulated import assert_nothing_left, kill, shared_folders, started_on_h1

from ddl_validate.cluster import Cluster, ClusterSpec, missing_requirements

TASK = ("python", str(PROGRAMS / "task.py"))


def told(text: str) -> list[dict[str, Any]]:
    """What the tasks have told, in the order of its coming."""
    return [json.loads(line[line.index("{") :]) for line in text.splitlines() if '{"task"' in line]


def by_task(run: Run) -> dict[str, dict[str, Any]]:
    return {one["task"]: one for one in told(run.out)}


def assert_gone(pids: list[int], within: float = 10.0) -> None:
    until = time.monotonic() + within
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


# ---- what is planned


def placed(*hosts: str) -> Placement:
    return Placement(tuple(Slot(rank, host) for rank, host in enumerate(hosts)), True, False)


def test_where_the_tasks_are() -> None:
    hosts = placed("a", "a", "b")
    names = {
        words: [
            (str(task), task.host, task.rank) for task in plan.tasks(parse([*words.split(), "prog"]), hosts)
        ]
        for words in ("-np 3", "-tf-config worker", "-ps 3", "-ps 1 -tf-config chief")
    }
    workers = [("worker 0", "a", 0), ("worker 1", "a", 1), ("worker 2", "b", 2)]
    assert names["-np 3"] == [] and names["-tf-config worker"] == workers
    assert names["-ps 3"] == [*workers, ("ps 0", "a", None), ("ps 1", "b", None), ("ps 2", "a", None)]
    assert names["-ps 1 -tf-config chief"] == [
        *(("chief 0", "a", 0), ("worker 0", "a", 1), ("worker 1", "b", 2)),
        ("ps 0", "a", None),
    ]


def test_the_plan_shows_them(ddlrun: Ddlrun) -> None:
    shown = ddlrun("-np", "2", "-ps", "1", "--dry-run", "true")
    assert "tasks: worker 0 on localhost, worker 1 on localhost, ps 0 on localhost" in shown.out, shown.err
    tasks = json.loads(ddlrun("-np", "1", "--ps", "1", "--json", "true").out)["tasks"]
    assert tasks == [
        {"type": "worker", "index": 0, "host": "localhost", "rank": 0},
        {"type": "ps", "index": 0, "host": "localhost"},
    ]
    assert "tasks" not in json.loads(ddlrun("-np", "1", "--json", "true").out)


def test_who_starts_servers_is_warned_once(ddlrun: Ddlrun) -> None:
    """Of what TensorFlow lets everybody do; also with -quiet."""
    for words, times in ((("-ps", "1"), 1), (("-tf-config", "worker"), 1), ((), 0)):
        run = ddlrun("-q", "-np", "2", *words, "true")
        assert run.code == 0 and run.err.count("[WARN DDL-2-35]") == times, run.err


def test_without_mpi4py_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse(["-ps", "1", "prog"])
    assert plan.variables(parse(["prog"]), placed("a")) == {}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert plan.read(plan.variables(options, placed("a"))[plan.VARIABLE]).servers == 1
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(LaunchError, match=r"DDL-2-34\].*install the package mpi4py"):
        plan.variables(options, placed("a"))


@pytest.mark.parametrize("launcher", ["jsrun", "flux"])
def test_launchers_that_start_no_cluster(launcher: str) -> None:
    for asked in (["-ps", "1"], ["-tf-config", "worker"]):
        with pytest.raises(LaunchError, match=f"-launcher {launcher} starts no TensorFlow cluster"):
            parse([*asked, "-launcher", launcher, "prog"])
        assert parse([*asked, "-launcher", "srun", "prog"]).launcher == "srun"


def test_a_port_is_kept_and_can_be_listened_at() -> None:
    with taken_port() as kept:
        port = kept.getsockname()[1]
        with socket.socket() as other, pytest.raises(OSError):  # of another job
            other.bind(("", port))
        with socket.create_server(("127.0.0.1", port)):
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with socket.create_server(("127.0.0.1", port)):  # again, after a restart
            socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_the_address_of_an_interface() -> None:
    assert address_of("lo") == "127.0.0.1"
    with pytest.raises(LaunchError, match=r"DDL-2-34\] the network interface none0 has no address"):
        address_of("none0")


def test_pauses_before_restarts() -> None:
    assert [supervisor.pause_before(n) for n in (1, 2, 3, 9)] == [0.5, 1.0, 2.0, 30.0]


# ---- what the tasks are told, and when they end


def test_every_task_has_its_config_and_servers_end_with_the_workers(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "2", "-ps", "2", *TASK, "worker.0=meet", "worker.1=meet")
    assert run.code == 0, run.err
    assert "worker 0 has reached all" in run.out and "worker 1 has reached all" in run.out
    tasks = by_task(run)
    assert set(tasks) == {"worker 0", "worker 1", "ps 0", "ps 1"} and len(told(run.out)) == 4
    clusters = [one["config"]["cluster"] for one in tasks.values()]
    assert all(cluster == clusters[0] for cluster in clusters)
    assert {name: len(of) for name, of in clusters[0].items()} == {"worker": 2, "ps": 2}
    addresses = [address for of in clusters[0].values() for address in of]
    assert len(set(addresses)) == 4 and all(one.startswith("127.0.0.1:") for one in addresses)
    assert [tasks[f"worker {rank}"]["rank"] for rank in range(2)] == ["0", "1"]
    assert tasks["worker 0"]["gpus"] is None
    for index in range(2):
        server = tasks[f"ps {index}"]
        assert server["rank"] is None and server["gpus"] == "-1"
        # those of the whole host, not those of the worker beside it
        assert set(server["cpus"]) == set(tasks["worker 0"]["cpus"]) | set(tasks["worker 1"]["cpus"])
    assert not any(one["launcher"] for one in tasks.values())
    assert_gone([one["pid"] for one in tasks.values()], within=0.1)


def test_the_end_of_the_chief_is_the_end_of_all(ddlrun: Ddlrun) -> None:
    words = ("-np", "3", "-ps", "1", "-tf-config", "chief")
    run = ddlrun(*words, *TASK, "chief.0=reach", "worker.0=serve", "worker.1=serve")
    assert run.code == 0, run.err
    tasks = by_task(run)
    assert {task: one["rank"] for task, one in tasks.items()} == {
        **{"chief 0": "0", "worker 0": "1", "worker 1": "2"},
        "ps 0": None,
    }
    sizes = {name: len(of) for name, of in tasks["ps 0"]["config"]["cluster"].items()}
    assert sizes == {"chief": 1, "worker": 2, "ps": 1}
    assert_gone([one["pid"] for one in tasks.values()], within=0.1)


def test_without_servers_the_job_ends_with_the_last_worker(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "2", "-tf-config", "worker", *TASK)
    assert run.code == 0 and set(by_task(run)) == {"worker 0", "worker 1"}, run.err
    assert set(by_task(run)["worker 0"]["config"]["cluster"]) == {"worker"}


def test_ddl_in_a_task_is_alone(ddlrun: Ddlrun) -> None:
    program = "import os, ddl; print(os.environ['RANK'], ddl.rank(), ddl.size(), flush=True)"
    run = ddlrun("-np", "2", "-tf-config", "worker", "python", "-c", program)
    assert run.code == 0 and run.lines == ["0 0 1", "1 0 1"], run.out + run.err


def test_one_core_is_no_trap(ddlrun: Ddlrun) -> None:
    """TensorFlow would have one thread for operators there, and ParameterServerStrategy needs two."""
    threads = ("python", "-c", "import os; print('threads', os.environ.get('TF_NUM_INTEROP_THREADS'))")
    one, many = ("-np", "1", "-cores", "1", "-tf-config", "worker"), ("-np", "1", "-tf-config", "worker")
    assert "threads 2" in ddlrun(*one, *threads).out
    assert "threads 5" in ddlrun(*one, "-x", "TF_NUM_INTEROP_THREADS=5", *threads).out
    if len(os.sched_getaffinity(0)) > 1:
        assert "threads None" in ddlrun(*many, *threads).out


def test_a_job_inside_a_task_is_refused(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "1", "-tf-config", "worker", *ddlrun.words, "-np", "1", "true")
    assert run.code == 1 and "[ERROR DDL-2-11] ddlrun was started inside rank 0" in run.err, run.err


def test_ranks_placed_by_hand(ddlrun: Ddlrun) -> None:
    """Which host a rank is on is known to that host alone."""
    (ddlrun.folder / "ranks").write_text("rank 0=localhost slot=0\n")
    run = ddlrun("-rankfile", "ranks", "-ps", "2", *TASK, "worker.0=reach")
    assert run.code == 0, run.err
    assert set(by_task(run)) == {"worker 0", "ps 0", "ps 1"} and len(told(run.out)) == 3


def test_marks_of_servers(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "1", "-ps", "1", "-tag-output", *TASK, "worker.0=reach")
    assert run.code == 0, run.err
    marks = sorted(line.partition("{")[0] for line in run.lines if "{" in line)
    assert marks == ["[0] ", "[0] [ps 0] "], run.out


def test_standard_input_is_that_of_rank_0(ddlrun: Ddlrun) -> None:
    # One write a task: what several tasks write comes in any order.
    script = """
import json, os, sys
sys.stdout.write(f"{json.loads(os.environ['TF_CONFIG'])['task']} {sys.stdin.read()!r}\\n")
"""
    words = [*ddlrun.words, "-np", "2", "-ps", "1", "python", "-c", script]
    environment = ddlrun.environment()
    done = subprocess.run(words, input="lines\n", env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "{'type': 'worker', 'index': 0} 'lines\\n'" in done.stdout
    assert "{'type': 'worker', 'index': 1} ''" in done.stdout


# ---- failures


@pytest.mark.parametrize(
    ("deed", "code", "message"),
    [
        (
            "worker.1=exit.3",
            3,
            "[ERROR DDL-2-13] rank 1 (worker 1) ended with exit code 3; on host localhost",
        ),
        ("worker.1=signal.9", 137, "[ERROR DDL-2-13] rank 1 (worker 1) was killed by signal 9 (SIGKILL)"),
        ("ps.0=exit.5", 5, "[ERROR DDL-2-33] ps 0 on localhost ended with exit code 5"),
        ("ps.0=signal.11", 139, "[ERROR DDL-2-33] ps 0 on localhost ended with signal 11"),
    ],
)
def test_without_restarts_a_failure_ends_the_job(ddlrun: Ddlrun, deed: str, code: int, message: str) -> None:
    run = ddlrun("-np", "2", "-ps", "1", *TASK, "worker.0=serve", "worker.1=serve", deed)
    assert run.code == code and message in run.err, (run.code, run.err)
    assert_gone([one["pid"] for one in told(run.out)])


def test_a_program_that_is_not_there(ddlrun: Ddlrun) -> None:
    run = ddlrun("-np", "1", "-ps", "1", "-skip-checks", "no-such-program")
    assert run.code == 127 and "no-such-program: No such file or directory" in run.err


@pytest.mark.parametrize("task", ["worker.1", "ps.0"])
def test_a_failed_task_is_started_again_while_the_others_go_on(ddlrun: Ddlrun, task: str) -> None:
    # The second start of the one that fails ends the wait of worker 0, which has to reach all.
    rules = {"worker.0": "serve", "worker.1": "serve"} | {f"{task}@0": "signal.9", f"{task}@1": "exit.4"}
    child = ddlrun.start(
        "-np",
        "2",
        "-ps",
        "1",
        "-max-restarts",
        "3",
        *TASK,
        *(f"{name}={deed}" for name, deed in rules.items()),
    )
    assert child.stdout
    lines: list[dict[str, Any]] = []
    while sum(one["task"] == task.replace(".", " ") for one in lines) < 3:
        line = child.stdout.readline()
        assert line, ddlrun.finish(child).err
        lines += told(line)
    starts = [one for one in lines if one["task"] == task.replace(".", " ")]
    others = [one for one in lines if one["task"] != task.replace(".", " ")]
    assert len(others) == 2 and all(is_alive(one["pid"]) for one in others)
    child.send_signal(signal.SIGTERM)
    run = ddlrun.finish(child)
    name = task.replace(".", " ")
    assert f"[WARN DDL-2-33] {name} on localhost ended with signal 9; started again (1 of 3)" in run.err
    assert f"[WARN DDL-2-33] {name} on localhost ended with exit code 4; started again (2 of 3)" in run.err
    assert [(one["start"], one["reason"]) for one in starts] == [
        ("0", ""),
        ("1", f"{name} on localhost ended with signal 9"),
        ("2", f"{name} on localhost ended with exit code 4"),
    ]
    assert all(one["config"] == starts[0]["config"] for one in starts)
    assert_gone([one["pid"] for one in lines])


def test_the_limit_of_restarts(ddlrun: Ddlrun) -> None:
    words = ("-np", "2", "-ps", "1", "-max-restarts", "1")
    run = ddlrun(*words, *TASK, "worker.0=serve", "worker.1=signal.9")
    assert run.code == 137, run.err
    assert [one["task"] for one in told(run.out)].count("worker 1") == 2
    assert "worker 1 on localhost ended with signal 9; started 2 times; -max-restarts 1 allows no" in run.err
    assert "[ERROR DDL-2-13] rank 1 (worker 1) ended with exit code 137; on host localhost" in run.err
    assert "DDL-2-23" not in run.err  # the job is not started again
    assert_gone([one["pid"] for one in told(run.out)])


def test_without_servers_the_whole_job_starts_again(ddlrun: Ddlrun) -> None:
    words = ("-np", "2", "-tf-config", "worker", "-max-restarts", "1")
    run = ddlrun(*words, *TASK, "worker.0@0=serve", "worker.1@0=signal.9")
    assert run.code == 0, run.err
    assert "[WARN DDL-2-23] restart 1 of 1, after: rank 1 (worker 1) was killed by signal 9" in run.err
    assert sorted((one["task"], one["start"]) for one in told(run.out)) == [
        *(("worker 0", "0"), ("worker 0", "1"), ("worker 1", "0"), ("worker 1", "1"))
    ]


def test_in_the_time_of_grace_servers_still_answer(ddlrun: Ddlrun) -> None:
    child = ddlrun.start("-np", "1", "-ps", "1", "-grace", "20", *TASK, "worker.0=save")
    assert child.stdout
    lines = [*told(child.stdout.readline()), *told(child.stdout.readline())]
    child.send_signal(signal.SIGTERM)
    run = ddlrun.finish(child)
    assert "worker 0 saved" in run.out, run.out + run.err
    assert run.code == 143
    assert_gone([one["pid"] for one in lines])


@pytest.mark.parametrize("victim", ["ddlrun-TERM", "ddlrun-KILL", "supervisor-KILL"])
def test_nothing_is_left(ddlrun: Ddlrun, victim: str) -> None:
    child = ddlrun.start("-np", "2", "-ps", "1", *TASK, "worker.0=serve", "worker.1=serve")
    assert child.stdout
    lines = [one for _ in range(3) for one in told(child.stdout.readline())]
    assert len(lines) == 3
    who, _, name = victim.partition("-")
    pid = child.pid if who == "ddlrun" else lines[0]["supervisor"]
    os.kill(pid, signal.Signals[f"SIG{name}"])
    assert_gone([one[of] for one in lines for of in ("pid", "supervisor")])
    run = ddlrun.finish(child)
    assert run.code != 0


def test_what_a_program_has_started_does_not_outlive_a_supervisor(ddlrun: Ddlrun) -> None:
    """It would also hold the rank's output open, for which mpirun waits."""
    program = ("sh", "-c", 'python "$@"; exit $?', "sh", TASK[1], "worker.0=serve", "worker.1=serve")
    child = ddlrun.start("-np", "2", "-ps", "1", *program)
    assert child.stdout
    lines = [one for _ in range(3) for one in told(child.stdout.readline())]
    shell = lines[0]["supervisor"]  # its own parent
    supervisor = psutil.Process(shell).ppid()
    os.kill(supervisor, signal.SIGKILL)
    assert_gone([*(one["pid"] for one in lines), shell, supervisor])
    run = ddlrun.finish(child)
    assert run.code == 137 and "was killed by signal 9 (SIGKILL)" in run.err, run.err


def test_a_lost_supervisor_starts_the_job_again(ddlrun: Ddlrun) -> None:
    words = ("-np", "1", "-ps", "1", "-max-restarts", "1")
    child = ddlrun.start(*words, *TASK, "worker.0@0=serve")
    assert child.stdout
    lines = [*told(child.stdout.readline()), *told(child.stdout.readline())]
    os.kill(lines[0]["supervisor"], signal.SIGKILL)
    run = ddlrun.finish(child)
    assert run.code == 0 and "[WARN DDL-2-23] restart 1 of 1" in run.err, run.err
    assert_gone([one["pid"] for one in lines])


# ---- on several hosts


@pytest.fixture(scope="module")
def hosts(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    spec = ClusterSpec.even(
        hosts=2, shared=shared_folders(prefix), environment={"SHLVL": "1"}, life_seconds=600
    )
    with Cluster(spec, tmp_path_factory.mktemp("cluster") / "state") as cluster:
        yield cluster


def test_tasks_on_two_hosts_reach_each_other(hosts: Cluster, ddlrun: Ddlrun) -> None:
    words = ("-H", "h1:2,h2:1", "-ps", "3", *TASK, *(f"worker.{rank}=meet" for rank in range(3)))
    run = hosts.run("h1", [*ddlrun.words, *words], timeout=90, env=ddlrun.variables)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("has reached all") == 3
    tasks = {one["task"]: one for one in told(run.stdout)}
    assert {task: one["host"] for task, one in tasks.items()} == {
        **{"worker 0": "h1", "worker 1": "h1", "worker 2": "h2"},
        **{"ps 0": "h1", "ps 1": "h2", "ps 2": "h1"},
    }
    cluster = tasks["ps 1"]["config"]["cluster"]
    at = {name: [address.partition(":")[0] for address in of] for name, of in cluster.items()}
    assert at == {"worker": ["h1", "h1", "h2"], "ps": ["h1", "h2", "h1"]}
    assert_nothing_left(hosts, ("h1", "h2"))


def test_a_task_of_another_host_is_started_again(hosts: Cluster, ddlrun: Ddlrun) -> None:
    rules = ("worker.0=serve", "worker.1=serve", "worker.1@0=signal.9")
    with started_on_h1(hosts, ddlrun) as start:
        child = start("-H", "h1,h2", "-ps", "2", "-max-restarts", "1", *TASK, *rules)
        assert child.stdout and child.stderr
        lines = [one for _ in range(5) for one in told(child.stdout.readline())]
        again = next(one for one in lines if one["start"] == "1")
        assert again["task"] == "worker 1" and again["host"] == "h2"
        assert again["reason"] == "worker 1 on h2 ended with signal 9"
        kill(hosts, "h1", f"{ddlrun.prefix}/bin/python3 -I {ddlrun.words[0]} ")
        assert_nothing_left(hosts, ("h1", "h2"))
