"""The all-reduce benchmark treats all peers alike: in order, medians, cores and processor time."""

from __future__ import annotations

import io
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from program_runner import ROOT, Environment
from rich.console import Console
from test_allreduce_run import bench, cores_of, places, preloaded, started

from ddl_validate.allreduce import cpu_share, launch
from ddl_validate.allreduce.cpu_share import Clock, CpuShare, NotAllowed, Quota, parse_share, slowed
from ddl_validate.allreduce.errors import BenchError, LaunchFailed
from ddl_validate.allreduce.peers import PEERS, Ddl, OneCcl, OpenMpi, Peer, Setting
from ddl_validate.allreduce.peers.base import Launch
from ddl_validate.allreduce.programs import default_cache
from ddl_validate.allreduce.results import Cell, Outcome, Round, Store
from ddl_validate.allreduce.rotation import interleave, order
from ddl_validate.allreduce.runner import Effort, Runner
from ddl_validate.allreduce.scenarios import Scenario, named
from ddl_validate.allreduce.table import scenario_table
from ddl_validate.allreduce.testbed import DirectTestbed, Testbed
from ddl_validate.cluster import cgroups
from ddl_validate.cluster.process import start_time

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs of this file alone: tests beside it look which ranks of theirs still run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDL_BENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def test_each_round_is_the_same_circle_from_another_start() -> None:
    assert [order("abcd", number, 2) for number in range(2)] == [list("abcd"), list("cdab")]
    assert [order("abc", number, 3) for number in range(3)] == [list("abc"), list("bca"), list("cab")]
    assert order("", 1, 3) == []
    for count in range(1, 12):
        for rounds in range(1, 40):
            turns = [order(range(count), number, rounds) for number in range(rounds)]
            assert all(sorted(turn) == list(range(count)) for turn in turns)
            if rounds % count == 0:
                # everybody is at every place equally often
                for place in range(count):
                    at = [turn[place] for turn in turns]
                    assert {at.count(entry) for entry in range(count)} == {rounds // count}
            elif rounds < count:
                # nobody starts twice, and the starts are as far from each other as can be
                starts = [turn[0] for turn in turns]
                gaps = [b - a for a, b in zip(starts, [*starts[1:], starts[0] + count], strict=True)]
                assert max(gaps) - min(gaps) <= 1


def test_the_settings_of_a_peer_are_spread_over_a_round() -> None:
    assert interleave(["d", "abc", "", "xy"]) == ["d", "a", "x", "b", "y", "c"]
    assert interleave([]) == []


def round_of(*seconds: float, user: float = 0.0, system: float = 0.0) -> Round:
    return Round(list(seconds), [9.0], [user] * len(seconds), [system] * len(seconds))


def cell(peer: str, *rounds: Round, setting: str = "defaults", size: int = 4000, cut: bool = False) -> Cell:
    return Cell(peer, setting, size, "x", 4, list(rounds), cut)


def test_figures_of_a_cell() -> None:
    one = cell(
        "ddl",
        round_of(1, 2, 9, user=4, system=1),
        # one disturbed round does not count, whether times or processor times are disturbed
        round_of(100, user=50, system=7),
        round_of(3, 5, user=6, system=2),
    )
    # the mean of the first round is 4, and that of all three is another
    assert one.round_times == [2, 100, 4]
    assert one.median == 4
    # 2 (4-1)/4 x 4000 B / 4 s
    assert one.busbw == 1500
    assert (one.cpu_user, one.cpu_system) == (6, 2)
    # medians of the rounds are 2, 100, 4; their means 4, 100, 4
    assert Cell(**{**vars(one), "statistic": "mean"}).round_times == [4, 100, 4]
    # means within a round: the kernel's ticks hit one sample or another
    assert cell("ddl", Round([1, 1], [1], [0.0, 4.0], [0.0, 0.0])).cpu_user == 2
    shown = one.as_json()
    assert (shown["median"], shown["least"], shown["algbw"], shown["busbw"]) == (4, 1, 1000, 1500)
    assert Cell.from_json(json.loads(json.dumps(shown))) == one
    for broken in ({"rounds": []}, {"rounds": [{"seconds": [1], "warmup": [], "user": [], "system": [0]}]}):
        with pytest.raises(ValueError, match="no times"):
            Cell.from_json({**shown, **broken})


def test_bandwidths_are_those_of_nccl_tests() -> None:
    """1 GiB in 10 ms: 1073741824 B / 0.01 s is 107.374 GB/s; 8 ranks: x 2 x 7/8 is 187.905 GB/s."""
    one = Cell("ddl", "defaults", 1 << 30, "x", 8, [round_of(0.01)])
    assert (one.algbw, one.busbw) == (107_374_182_400, pytest.approx(187_904_819_200, rel=1e-12))
    # of 2 ranks each sends the buffer once
    assert Cell("ddl", "defaults", 1 << 30, "x", 2, [round_of(0.01)]).busbw == one.algbw
    assert "busbw" in (text := printed(one)) and "188 GB/s" in text and " to " not in text


def test_the_table_tells_how_much_rounds_differ() -> None:
    assert "10 ms to 14 ms" in printed(cell("ddl", round_of(0.012), round_of(0.014), round_of(0.01)))


def printed(one: Cell) -> str:
    """The table of a scenario with one cell."""
    outcome = Outcome(named("1x2"), cells=[one])
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(scenario_table(outcome.as_json(), {"ddl": "DDL"}))
    return console.export_text()


def test_summary_and_the_best_setting() -> None:
    outcome = Outcome(named("1x2"))
    outcome.cells = [
        cell("ddl", round_of(2, user=3, system=1), round_of(2, user=3, system=1)),
        cell("openmpi", round_of(6), round_of(6)),
        # its only round was slow at first sight; luck later on cannot be told, so it is no candidate
        cell("openmpi", round_of(1), setting="ring", cut=True),
        cell("mpich", round_of(4, user=5, system=3), round_of(4, user=5, system=3), setting="ring"),
    ]
    row = outcome.summary(4000)
    assert row["best_peer"]["peer"] == "mpich" and row["speedup"] == 2
    assert (row["ddl_cpu"], row["best_peer"]["cpu"], row["cpu_ratio"]) == (4, 8, 0.5)
    assert row["best_peer"]["busbw"] == 1500 and row["ddl_busbw"] == 3000


SCRIPT = """
import json, pathlib, sys
log, name, factor, fails, cores = sys.argv[1:6]
rounds = pathlib.Path(log).read_text().split().count(name)
with open(log, "a") as file: file.write(name + "\\n")
def emit(**event): print("@ddl-bench", json.dumps(event), flush=True)
emit(event="start", library=name, hosts=["a", "a"], cores=cores.split())
if fails == str(rounds): sys.exit("broken")
for word in sys.argv[6].split(","):
    size = int(word.partition(":")[0])
    # slow at large sizes alone
    time = (float(factor) if size > 5000 else 1.0) + 0.01 * rounds
    emit(event="size", bytes=size, warmup=[9.0], seconds=[time], user=[0.1], system=[0.1])
emit(event="end", description=None, abandoned=False)
"""


class Scripted(Peer):
    """A peer whose times are known beforehand. log: the settings in the order of their starts. fails: the
    round, from 0, in which a setting ends without a result."""

    title = "scripted"
    log: Path
    fails: dict[str, int]
    chosen: tuple[str, ...] = ("defaults", "slow", "other")
    factors: ClassVar[dict[str, float]] = {"slow": 3.0, "near": 1.4, "far": 1.6}
    cores = "0-1 0-1"

    def version(self) -> str:
        return "1"

    def prepare(self) -> str:
        return "1"

    def settings(self, testbed: Testbed) -> list[Setting]:
        return [Setting(name) for name in self.chosen]

    def launch(self, testbed: Testbed, setting: Setting, arguments: Sequence[str]) -> Launch:
        name = f"{self.name}.{setting.name}"
        factor = str(self.factors.get(setting.name, 1.0))
        words = [sys.executable, "-c", SCRIPT, str(self.log), name, factor, str(self.fails.get(name, -1))]
        return Launch([*words, self.cores, *arguments])


class First(Scripted):
    name = "ddl"


class Second(Scripted):
    name = "mpich"
    chosen = ("defaults",)


Run = Callable[..., tuple[Outcome, list[str], Runner]]


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Run]:
    """Runs both scripted peers over two sizes; what came of it, the starts, and the runner."""
    log = tmp_path / "log"

    def go(
        rounds: int, resume: bool = False, conditions: dict[str, Any] | None = None, **fails: int
    ) -> tuple[Outcome, list[str], Runner]:
        log.write_text("")
        peers: list[Peer] = []
        for kind in (First, Second):
            peer = kind(tmp_path, tmp_path)
            peer.log, peer.fails = log, {key.replace("_", "."): value for key, value in fails.items()}
            peers.append(peer)
        runner = Runner(
            Store(tmp_path / "out"),
            peers,
            (4096, 8192),
            lambda line: None,
            Effort(rounds=rounds),
            resume=resume,
            conditions=conditions or {},
            open_testbed=lambda scenario, peers: DirectTestbed(scenario),
        )
        runner.prepare({})
        return runner.run(named("1x2")), log.read_text().split(), runner

    yield go


def test_rounds_rotate_and_only_what_is_near_the_best_of_its_peer_goes_on(scripted: Run) -> None:
    outcome, started, _ = scripted(4)
    circle = ["ddl.defaults", "mpich.defaults", "ddl.slow", "ddl.other"]
    assert started == [name for number in range(4) for name in [*circle[number:], *circle[:number]]]
    assert [[f"{peer}.{setting}" for peer, setting in one] for one in outcome.launches] == [
        [*circle[number:], *circle[:number]] for number in range(4)
    ]
    rounds = {(c.peer, c.setting, c.bytes): (len(c.rounds), c.cut) for c in outcome.cells}
    assert rounds.pop(("ddl", "slow", 8192)) == (1, True)
    assert set(rounds.values()) == {(4, False)} and len(rounds) == 7
    # 1.00, 1.01, 1.02, 1.03
    found = outcome.find("mpich", "defaults", 4096)
    assert found and found.median == pytest.approx(1.015)
    assert [one.warmup for one in found.rounds] == [[9.0]] * 4


def test_a_run_goes_on_in_the_round_in_which_it_was_stopped(scripted: Run, tmp_path: Path) -> None:
    whole, _, _ = scripted(3)
    files = sorted((tmp_path / "out" / "cells").rglob("*.json"))
    assert len(files) == 8
    victim = tmp_path / "out" / "cells" / "1x2" / "mpich.defaults.4096.json"
    data = json.loads(victim.read_text())
    victim.write_text(json.dumps({**data, "rounds": data["rounds"][:1]}))
    again, started, _ = scripted(3, resume=True)
    assert started == ["mpich.defaults"] * 2
    assert {len(c.rounds) for c in again.cells if c.setting == "defaults"} == {3}
    assert [c.cut for c in again.cells].count(True) == 1 == [c.cut for c in whole.cells].count(True)
    # other effort: nothing of before counts
    _, started, _ = scripted(2, resume=True)
    assert len(started) == 8


def test_a_setting_is_cut_from_one_and_a_half_times_the_best_of_its_peer(
    scripted: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(First, "chosen", ("defaults", "near", "far"))
    outcome, _, _ = scripted(2)
    assert {(c.setting, len(c.rounds)) for c in outcome.cells if (c.peer, c.bytes) == ("ddl", 8192)} == {
        ("defaults", 2),
        ("near", 2),
        ("far", 1),
    }


def test_cells_of_other_conditions_are_not_resumed(scripted: Run) -> None:
    """Times at half the speed of the cores are none at full speed."""
    _, first, _ = scripted(1, conditions={"share": 0.5})
    _, same, _ = scripted(1, resume=True, conditions={"share": 0.5})
    _, other, _ = scripted(1, resume=True, conditions={"share": 1.0})
    assert (len(first), same, other) == (4, [], first)


def test_what_fails_in_a_round_is_named_once_and_not_started_again(scripted: Run) -> None:
    outcome, started, runner = scripted(3, ddl_other=1)
    assert started.count("ddl.other") == 2 and started.count("ddl.defaults") == 3
    (failure,) = runner.failures
    assert (failure.peer, failure.setting) == ("ddl", "other") and "broken" in failure.reason
    assert not failure.wrong
    found = outcome.find("ddl", "other", 4096)
    assert found and len(found.rounds) == 1


def test_a_peer_on_other_cores_than_the_others_is_not_measured(
    scripted: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Second, "cores", "0 1")
    outcome, _, runner = scripted(2)
    (failure,) = runner.failures
    assert failure.peer == "mpich" and "run on the cores 0; 1" in failure.reason
    assert {cell.peer for cell in outcome.cells} == {"ddl"} and outcome.cores == ["0-1", "0-1"]


def test_ranks_that_run_on_other_cores_than_those_before_are_refused() -> None:
    event = {"event": "start", "library": "x", "hosts": ["a", "a"], "cores": ["0", "1"]}
    words = [sys.executable, "-c", f"print('@ddl-bench', {json.dumps(event)!r}, flush=True)"]
    with (
        DirectTestbed(named("1x2")) as testbed,
        pytest.raises(LaunchFailed, match="run on the cores 0; 1; those of the others on 0-3; 0-3"),
    ):
        launch.run(testbed, Launch(words), 10, None, ["0-3", "0-3"])


def test_an_event_that_lacks_something_is_an_error() -> None:
    words = [sys.executable, "-c", 'print(\'@ddl-bench {"event": "start"}\', flush=True)']
    with (
        DirectTestbed(named("1x2")) as testbed,
        pytest.raises(LaunchFailed, match="its output cannot be read"),
    ):
        launch.run(testbed, Launch(words), 10)


def test_places_on_machines() -> None:
    real = Scenario("x", (1, 2), order="shuffled", names=("a", "b"), host_rate=None, uplink_rate=None)
    for bind, places_of_ranks in (("auto", "0/1,0/2,1/2"), ("cores", "0/1,0/2,1/2"), ("none", None)):
        with DirectTestbed(real, bind=bind) as testbed:
            assert testbed.variables.get("DDL_BENCH_PLACES") == places_of_ranks
    for bind, places_of_ranks in (("auto", None), ("cores", "0/2,1/2")):
        with DirectTestbed(named("1x2"), bind=bind) as testbed:
            assert testbed.variables.get("DDL_BENCH_PLACES") == places_of_ranks


BURNS = """
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
/* 10 ms in user mode, in a thread of its own; 20 ms in the kernel, in the calling thread */
static void* compute(void* unused) {
  struct timespec used;
  do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used); while (used.tv_sec == 0 && used.tv_nsec < 10000000);
  return unused;
}
static double in_kernel(void) {
  struct rusage used;
  getrusage(RUSAGE_THREAD, &used);
  return (double)used.ru_stime.tv_sec + 1e-6 * (double)used.ru_stime.tv_usec;
}
int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (type == MPI_FLOAT) {
    pthread_t thread;
    pthread_create(&thread, NULL, compute, NULL);
    double end = in_kernel() + 0.02;
    char byte;
    int ends[2];
    if (pipe(ends)) return MPI_ERR_OTHER;
    while (in_kernel() < end)
      for (int i = 0; i < 1000; i++)
        if (write(ends[1], "x", 1) != 1 || read(ends[0], &byte, 1) != 1) return MPI_ERR_OTHER;
    close(ends[0]);
    close(ends[1]);
    pthread_join(thread, NULL);
  }
  return PMPI_Allreduce(in, out, count, type, op, comm);
}
"""


def test_processor_time_is_of_all_threads_of_all_ranks(env: Environment, tmp_path: Path) -> None:
    """Two ranks burn 20 ms in the kernel and 10 ms in another thread a call, however busy the machine."""
    library = preloaded(env, tmp_path, BURNS)
    peer = OpenMpi(env.prefix, default_cache())
    with DirectTestbed(named("1x2")) as testbed:
        used = Setting("test", {"LD_PRELOAD": library, "OMPI_MCA_mpi_yield_when_idle": "1"})
        # one call a repetition
        order = peer.launch(testbed, used, [str(MIB), "0", "8", "8", "1"])
        (sample,) = launch.run(testbed, order, 60).samples
    times = sample.times
    assert len(times.seconds) == len(times.user) == len(times.system) == 8 and len(times.warmup) == 1
    assert statistics.fmean(times.system) >= 2 * 0.019
    # The kernel divides what it counts exactly into the two by samples: together they cannot be too small.
    both = [user + system for user, system in zip(times.user, times.system, strict=True)]
    assert statistics.fmean(both) >= 2 * 0.029


@pytest.mark.parametrize("told", [True, False])
def test_ddl_is_told_the_racks_or_nothing(told: bool, tmp_path: Path) -> None:
    peer = Ddl(tmp_path, tmp_path)
    peer.describe_racks, peer.options = told, "-dbg_level 1"
    scenario = Scenario("x", (1, 1), 2, names=("a", "b"), host_rate=None, uplink_rate=None)
    with DirectTestbed(scenario) as testbed:
        (setting,) = peer.settings(testbed)
        words = setting.options["DDL_OPTIONS"].split()
        assert words[-2:] == ["-dbg_level", "1"]
        assert words[:-2] == (["-topology", str(testbed.folder / "topology.json")] if told else [])
        assert (testbed.folder / "topology.json").exists() == told


def test_every_peer_is_bound_alike(env: Environment, tmp_path: Path) -> None:
    every = os.sched_getaffinity(0)
    for bind in ("cores", "none"):
        out = tmp_path / bind
        words = ["run", "--scenario", "1x2", "--peers", "ddl,openmpi", "--sizes", "4K", "--budget", "0"]
        words += ["--rounds", "1", "--settings", "defaults", "--bind", bind, "--output", out, "--json"]
        document = json.loads(bench(*words, *places(env)).ok().out)
        first, second = (cores_of(text) for text in document["scenarios"][0]["cores"])
        if bind == "cores" and len(every) >= 2:
            assert not first & second and first | second == every
        else:
            assert first == second == every
        assert document["bind"] == bind and document["failures"] == []


@pytest.mark.parametrize("text", ["0", "-0.5", "1.01", "nan", "inf", "half", ""])
def test_shares_that_are_none(text: str) -> None:
    with pytest.raises(
        BenchError, match=r"--cpu-share .*: write a number above 0 and at most 1, such as 0.5"
    ):
        parse_share(text)


def test_shares() -> None:
    assert [parse_share(text) for text in ("1", "0.5", "1e-3")] == [1.0, 0.5, 0.001]


def allowed(kind: type[CpuShare]) -> None:
    """Skips the test where this way of slowing down is not possible for this user."""
    try:
        way = kind(0.5, cpu_share._program(default_cache())) if kind is Clock else kind(0.5)
        with way:
            pass
    except NotAllowed as error:
        pytest.skip(str(error))


def processor_seconds(pid: int) -> float:
    """Of all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.25])
def test_the_clock_takes_the_rest_of_every_core(share: float) -> None:
    allowed(Clock)
    with slowed(share, "clock", default_cache()) as (way, facts):
        assert isinstance(way, Clock) and way._child
        assert (facts["share"], facts["method"]) == (share, "clock")
        # at least the share is gone; other work on the machine takes more
        assert 0 < facts["spinning"] <= share * 1.1
        pid = way._child.pid
        # of real-time priority on every core: other work cannot keep it from its part
        threads = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
        takers = [one for one in threads if os.sched_getscheduler(one) == os.SCHED_FIFO]
        cores = os.sched_getaffinity(0)
        assert sorted(map(tuple, map(os.sched_getaffinity, takers))) == sorted((core,) for core in cores)
        # and it takes no more than its part; a virtual machine that waits for its host takes less
        began, used = time.monotonic(), processor_seconds(pid)
        time.sleep(1)
        taken = (processor_seconds(pid) - used) / (time.monotonic() - began)
        assert 0 < taken / len(cores) <= 1 - share + 0.1
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
def test_a_share_that_the_kernel_does_not_leave_to_real_time_threads() -> None:
    most = cpu_share.realtime_fraction()
    if most == 1:
        pytest.skip("the kernel leaves all of a core to real-time threads")
    share = (1 - most) / 2
    with (
        pytest.raises(
            BenchError, match=r"--cpu-share .* is not possible here: clock: the kernel lets real-time"
        ),
        slowed(share, "clock", default_cache()),
    ):
        pytest.fail("nothing can be slowed down so far")


@pytest.mark.slow
def test_the_clock_ends_with_the_command_however_that_ends(tmp_path: Path) -> None:
    allowed(Clock)
    code = """
import sys, time
from ddl_validate.allreduce.cpu_share import slowed
from ddl_validate.allreduce.programs import default_cache
with slowed(0.9, "clock", default_cache()) as (way, _):
    print(way._child.pid, flush=True)
    time.sleep(60)
"""
    child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout
        pid = int(child.stdout.readline())
        os.kill(pid, 0)
        child.send_signal(signal.SIGKILL)
        child.wait(20)
        end = time.monotonic() + 20
        while start_time(pid) is not None:
            assert time.monotonic() < end, "it slows the machine down for ever"
            time.sleep(0.1)
    finally:
        child.kill()
        child.wait()
        if child.stdout:
            child.stdout.close()


def test_the_quota_holds_ranks_of_emulated_hosts_back(env: Environment, able: None, tmp_path: Path) -> None:
    """The daemons of the hosts start ranks, too: none of them escapes."""
    allowed(Quota)
    words = ["run", "--hosts", "1,1", "--peers", "openmpi", "--sizes", "4K", "--budget", "3", "--rounds", "1"]
    words += ["--settings", "defaults", "--cpu-share", "0.1", "--cpu-share-by", "quota", "--json"]
    words += ["--output", str(tmp_path / "out"), *places(env)]
    program = str(default_cache() / OpenMpi(env.prefix, default_cache()).prepare())
    before = Path("/proc/self/cgroup").read_text()
    with started(words, program, 2) as (child, ranks):
        groups = [Path(f"/proc/{pid}/cgroup").read_text() for pid in ranks]
        own = Path(f"/proc/{child.pid}/cgroup").read_text()
        out, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    share = json.loads(out)["cpu_share"]
    name = Path(share["group"]).name
    assert name == f"ddl-bench.{child.pid}"
    # both ranks are in the group, and the command itself is where it was
    assert len(groups) == 2 and all(f"/{name}\n" in text for text in groups)
    assert own == before
    assert (share["share"], share["method"]) == (0.1, "quota")
    # what computes all the time gets no more than its share, and less where the machine is busy otherwise
    assert 0 < share["spinning"] <= 0.1 * 1.1 + 0.01
    # ranks that only wait for each other compute all the time, too: they were stopped
    assert share["statistics"]["nr_throttled"] > 0
    assert not Path(share["group"]).exists()
    shown = bench("show", tmp_path / "out").ok().out
    assert "cores at 0.1 of their speed, by quota: a control group" in shown


@pytest.mark.slow
def test_a_quota_without_effect_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed(Quota)
    monkeypatch.setattr(Quota, "limits", lambda self: (1_000_000, 10_000))
    with (
        pytest.raises(BenchError, match=r"by quota has no effect: spinning processes got .*--cpu-share-by"),
        slowed(0.01, "quota", default_cache()),
    ):
        pytest.fail("a quota of 100 cores slows nothing down")


def test_quotas_that_the_kernel_takes() -> None:
    cores = len(os.sched_getaffinity(0))
    for share in (0.5, 0.001, 1e-6):
        quota, period = Quota(share).limits()
        assert quota >= 1000
        assert quota / period == pytest.approx(share * cores, rel=1e-3)


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_written_where_by_the_version_of_control_groups(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files in place of the kernel's: one of the two versions alone limits processor time on a machine."""
    top = tmp_path if version == 2 else tmp_path / "cpu,cpuacct"
    lines = {1: "3:cpu,cpuacct:/jobs/7\n0::/\n", 2: "0::/jobs/7\n"}
    home = top / "jobs" / "7"
    home.mkdir(parents=True)
    if version == 2:
        (top / "cgroup.controllers").write_text("cpuset cpu io\n")
        (top / "cgroup.subtree_control").write_text("io\n")
    read_text = Path.read_text

    def reading(self: Path, *words: Any, **options: Any) -> str:
        return lines[version] if self == Path("/proc/self/cgroup") else read_text(self, *words, **options)

    monkeypatch.setattr(Path, "read_text", reading)
    monkeypatch.setattr(cgroups, "CGROUPS", tmp_path)
    monkeypatch.setattr(cpu_share.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    way = Quota(0.5)
    way.__enter__()
    group = top / f"ddl-bench.{os.getpid()}"
    written = {file.name: file.read_text() for file in group.iterdir()}
    # half of four cores, in periods of 10 ms; this process has joined once, and went home
    assert written.pop("cgroup.procs") == "0" == (home / "cgroup.procs").read_text()
    if version == 2:
        assert written == {"cpu.max": "20000 10000"}
        assert (top / "cgroup.subtree_control").read_text() == "+cpu"
    else:
        assert written == {"cpu.cfs_period_us": "10000", "cpu.cfs_quota_us": "20000"}
    join = way.wrap(["sh", "-c", "echo started"])
    assert subprocess.run(join, capture_output=True, text=True, check=True).stdout == "started\n"
    assert (group / "cgroup.procs").read_text() == "0\n"


def test_nothing_allowed_names_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: CpuShare) -> CpuShare:
        raise NotAllowed("no")

    monkeypatch.setattr(Clock, "__enter__", refuse)
    monkeypatch.setattr(Quota, "__enter__", refuse)
    with (
        pytest.raises(BenchError, match=r"--cpu-share 0.5 is not possible here: clock: no; quota: no"),
        slowed(0.5, "auto", default_cache()),
    ):
        pytest.fail("neither way was allowed")


def test_the_report_shows_bandwidth_processor_time_and_the_speed_of_the_cores(
    env: Environment, tmp_path: Path
) -> None:
    allowed(Clock)
    words = ["run", "--scenario", "1x2", "--peers", "ddl,openmpi,oneccl", "--sizes", "4K,1M", "--least", "2"]
    words += ["--budget", "0", "--rounds", "2", "--settings", "defaults", "--cpu-share", "0.5"]
    done = bench(*words, "--output", tmp_path / "out", *places(env, oneccl=tmp_path))
    # oneCCL was asked for by name, so that the run is incomplete without it
    assert done.rc == 3, done.err
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    one = document["scenarios"][0]
    assert [len(launches) for launches in one["launches"]] == [2, 2]
    assert one["launches"][0] == one["launches"][1][::-1]
    for row in one["summary"]:
        assert row["ddl_busbw"] == pytest.approx(row["bytes"] / row["ddl"])
        assert row["cpu_ratio"] == pytest.approx(row["ddl_cpu"] / row["best_peer"]["cpu"])
    for found in one["cells"]:
        means = [statistics.fmean(part["seconds"]) for part in found["rounds"]]
        assert found["statistic"] == "mean" and found["round_times"] == pytest.approx(means)
    assert document["cpu_share"]["method"] == "clock"
    for text in ("busbw", "processor time of a call", "cores at 0.5 of their speed, by clock: a real-time"):
        assert text in done.out
    assert "not measured: oneccl: not in" in done.out and "pip install --prefix" in done.out
    picture = (tmp_path / "out" / "allreduce.html").read_text()
    for text in ("processor time of a call, all ranks", "Open MPI, system", "busbw"):
        assert text in picture


def test_optional_peers_that_are_missing_are_named_and_the_run_is_complete(
    env: Environment, tmp_path: Path
) -> None:
    assert {name for name, kind in PEERS.items() if kind.optional} == {"nccl", "oneccl", "ucc"}
    runner = Runner(Store(tmp_path), [], (4096,), lambda line: None)
    runner._lack("ucc", "not here")
    assert runner.failures == [] and runner.versions["ucc"] == {"available": False, "reason": "not here"}
    runner.requested = ("ucc",)
    runner._lack("ucc", "not here")
    assert [failure.peer for failure in runner.failures] == ["ucc"]
    # an Open MPI without the component is no UCC, and a prefix with half of oneCCL is refused by name
    listed = bench("peers", *places(env, ucc=env.prefix)).out
    assert "--with-ucc" in listed
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libccl.so.1").touch()
    assert not OneCcl.found_in(tmp_path)


def test_oneccl_measures(env: Environment, tmp_path: Path) -> None:
    """Where somebody has installed it: $DDL_BENCH_ONECCL names the prefix of the wheels."""
    given = os.environ.get("DDL_BENCH_ONECCL")
    if not given:
        pytest.skip(f"no oneCCL: {OneCcl.remedy}, and set DDL_BENCH_ONECCL=DIR")
    words = ["run", "--scenario", "1x2", "--peers", "oneccl", "--sizes", "4K,1M", "--budget", "0", "--json"]
    words += ["--rounds", "1", "--settings", "defaults", "--output", tmp_path / "out"]
    document: dict[str, Any] = json.loads(bench(*words, *places(env, oneccl=Path(given))).ok().out)
    assert {one["bytes"] for one in document["scenarios"][0]["cells"]} == {4 * KIB, MIB}
    assert "oneCCL" in document["peers"]["oneccl"]["library"]
