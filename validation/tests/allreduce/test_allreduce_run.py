"""The all-reduce benchmark measures real ranks of every peer, and says what went wrong when it cannot."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from program_runner import PYTHONPATH, ROOT, Environment, Result, run_program

from ddl_validate.allreduce import launch
from ddl_validate.allreduce.errors import LaunchFailed, WrongSum
from ddl_validate.allreduce.peers import OpenMpi, Setting
from ddl_validate.allreduce.peers.base import Launch
from ddl_validate.allreduce.programs import default_cache
from ddl_validate.allreduce.scenarios import named
from ddl_validate.allreduce.sizes import show_seconds
from ddl_validate.allreduce.testbed import DirectTestbed
from ddl_validate.cluster import Cluster, ClusterSpec
from ddl_validate.report.__main__ import main as report

KIB, MIB = 1 << 10, 1 << 20
WMLCE = ROOT / "build" / "tools" / "bin" / "wmlce"


def environment_of_peer(name: str, package: str) -> Path:
    """build/envs/NAME, made out of the channel when it is not there."""
    prefix = ROOT / "build" / "envs" / name
    if not (prefix / "conda-meta" / ".wmlce-complete").exists():
        if not WMLCE.exists():
            pytest.skip(f"no {prefix} and no wmlce to make it: run ci/bootstrap.sh")
        made = run_program([WMLCE, "--root", ROOT, "env", "create", name, package], 300)
        if made.rc:
            pytest.skip(f"no {prefix}: wmlce env create {name} {package}: {made.err.strip()[-300:]}")
    return prefix


@pytest.fixture(scope="session")
def mpich() -> Path:
    return environment_of_peer("peers-mpich", "mpich")


@pytest.fixture(scope="session")
def gloo() -> Path:
    return environment_of_peer("peers-gloo", "pytorch")


def bench(*words: str | Path, timeout: float = 300, cwd: Path = ROOT, **variables: str) -> Result:
    command = [sys.executable, "-m", "ddl_validate.allreduce", *words]
    return run_program(command, timeout, PYTHONPATH=PYTHONPATH, **variables)


def places(env: Environment, **others: Path) -> list[str]:
    """--prefix for each peer: the environment under test, and what the tests made."""
    found = {"ddl": env.prefix, "openmpi": env.prefix, **others}
    return [word for peer, prefix in found.items() for word in ("--prefix", f"{peer}={prefix}")]


def check_cell(cell: dict[str, Any], ranks: int, effort: dict[str, Any]) -> None:
    """The samples of a cell, and the figures that are worked out of them."""
    assert len(cell["rounds"]) == (1 if cell["cut"] else effort["rounds"])
    for one in cell["rounds"]:
        assert len(one["seconds"]) == len(one["user"]) == len(one["system"]) >= effort["least"]
        assert len(one["warmup"]) == effort["warmups"]
        assert all(time > 0 for time in one["seconds"] + one["warmup"])
        assert all(used >= 0 for used in one["user"] + one["system"])
    medians = [statistics.median(one["seconds"]) for one in cell["rounds"]]
    assert cell["round_times"] == medians and cell["median"] == statistics.median(medians)
    assert cell["busbw"] == pytest.approx(2 * (ranks - 1) / ranks * cell["bytes"] / cell["median"])
    for part in ("user", "system"):
        means = [statistics.fmean(one[part]) for one in cell["rounds"]]
        assert cell[f"cpu_{part}"] == pytest.approx(statistics.median(means))
    if cell["bytes"] >= MIB:
        assert cell["cpu_user"] + cell["cpu_system"] > 0


def check_launches(one: dict[str, Any], rounds: int) -> None:
    """Each round goes on in the circle of the first one, from another start."""
    first, *others = one["launches"]
    assert len(others) == rounds - 1 and len({tuple(entry) for entry in first}) == len(first)
    for number, launches in enumerate(others, 1):
        start = number * len(first) // rounds if rounds < len(first) else number % len(first)
        turned = [*first[start:], *first[:start]]
        assert launches == [entry for entry in turned if entry in launches]
        assert {peer for peer, _ in launches} == {peer for peer, _ in first}


def check_document(document: dict[str, Any], scenarios: Sequence[str], sizes: Sequence[int]) -> None:
    """Everything that the documentation promises of results.json."""
    assert (document["kind"], document["schema"]) == ("allreduce", 3)
    assert document["failures"] == []
    assert {"name", "processor", "cores", "memory", "system"} <= document["host"].keys()
    for peer in ("ddl", "openmpi", "mpich", "gloo"):
        assert document["peers"][peer]["available"] and document["peers"][peer]["version"]
    assert [one["name"] for one in document["scenarios"]] == list(scenarios)
    for one in document["scenarios"]:
        measured = {(cell["peer"], cell["bytes"]) for cell in one["cells"]}
        assert measured == {(peer, size) for peer in ("ddl", "openmpi", "mpich", "gloo") for size in sizes}
        for cell in one["cells"]:
            check_cell(cell, one["ranks"], document["effort"])
        check_launches(one, document["effort"]["rounds"])
        assert len(one["cores"]) == one["ranks"] and all(one["cores"])
        for row in one["summary"]:
            others = [c for c in one["cells"] if c["bytes"] == row["bytes"] and c["peer"] != "ddl"]
            own = [c for c in one["cells"] if c["bytes"] == row["bytes"] and c["peer"] == "ddl"]
            # what was cut after the first round is not compared with medians of all
            best = min(cell["median"] for cell in others if not cell["cut"])
            assert row["ddl"] == min(cell["median"] for cell in own)
            assert row["best_peer"]["median"] == best
            assert row["speedup"] == pytest.approx(best / row["ddl"])
            if row["lower_bound"] is not None:
                assert row["ddl_over_lower_bound"] == pytest.approx(row["ddl"] / row["lower_bound"])


@pytest.mark.long
def test_every_peer_on_one_host(env: Environment, mpich: Path, gloo: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["run", "--scenario", "1x2", "--sizes", "4K,1M", "--budget", "0.1", "--rounds", "2"]
    words += ["--output", out, "--json"]
    done = bench(*words, *places(env, mpich=mpich, gloo=gloo)).ok()
    document = json.loads(done.out)
    check_document(document, ["1x2"], [4 * KIB, MIB])
    assert document == json.loads((out / "results.json").read_text())
    fixed = {"ring", "Rabenseifner", "recursive doubling", "ring in segments of 256 KiB"}
    cells = document["scenarios"][0]["cells"]
    assert {cell["setting"] for cell in cells if cell["peer"] == "openmpi"} >= {"defaults", *fixed}
    page = (out / "allreduce.html").read_text()
    assert "Plotly" in page and "MPICH" in page

    # the same again measures nothing: as many files, none of them newer
    before = {path: path.stat().st_mtime_ns for path in (out / "cells").rglob("*.json")}
    refused = bench(*words, *places(env, mpich=mpich, gloo=gloo))
    assert refused.rc == 1 and "already holds results: --resume continues them" in refused.err
    victim = next(path for path in before if path.name == f"gloo.defaults.{MIB}.json")
    victim.write_text("{")
    resumed = bench(*words, "--resume", *places(env, mpich=mpich, gloo=gloo)).ok()
    after = {path: path.stat().st_mtime_ns for path in (out / "cells").rglob("*.json")}
    assert [path for path in before if after[path] != before[path]] == [victim]
    assert json.loads(victim.read_text())["bytes"] == MIB
    assert "DDL, defaults: all sizes are measured already" in resumed.err
    document = json.loads(resumed.out)
    check_document(document, ["1x2"], [4 * KIB, MIB])

    # the report of a build folder takes it in
    shutil.copytree(out, tmp_path / "build" / "report" / "allreduce")
    assert report(["--build", str(tmp_path / "build")]) == 0
    text = (tmp_path / "build" / "report" / "index.html").read_text()
    row = document["scenarios"][0]["summary"][1]
    assert "All-reduce: DDL beside its peers" in text and "MPICH 5" in text
    assert "1 MiB" in text and show_seconds(row["best_peer"]["median"]) in text

    shown = bench("show", out, "--all-settings").ok()
    assert "recursive doubling" in shown.out and "DDL against" in shown.out


def test_every_peer_on_emulated_hosts(
    env: Environment, able: None, mpich: Path, gloo: Path, tmp_path: Path
) -> None:
    words = ["run", "--hosts", "2,1,1", "--racks", "2", "--order", "shuffled", "--uplink-rate", "100mbit"]
    words += ["--sizes", "4K,260K", "--budget", "0.1", "--rounds", "2", "--settings", "defaults"]
    words += ["--measure-links", "--json"]
    done = bench(*words, "--output", str(tmp_path), *places(env, mpich=mpich, gloo=gloo)).ok()
    document = json.loads(done.out)
    check_document(document, ["2+1+1-2racks-shuffled"], [4 * KIB, 260 * KIB])
    (one,) = document["scenarios"]
    assert one["sequence"] == ["h1", "h3", "h2", "h1"]
    assert [tier["groups"] for tier in one["tiers"]] == [3, 2]
    # 260 KiB over 95.64 Mbit/s
    assert one["summary"][1]["lower_bound"] == pytest.approx(260 * KIB * 8 / 95.64e6, rel=1e-3)
    assert one["measured_payload_bytes_per_second"]["rack uplinks"] * 8 == pytest.approx(95.64e6, rel=0.1)
    described = one["descriptions"]["ddl, defaults"]
    assert [host["name"] for host in described["topology"]["hosts"]] == ["h1", "h3", "h2"]


def test_a_wire_format_has_its_own_bound(env: Environment, able: None, tmp_path: Path) -> None:
    """Sums may be off by what the format rounds, which without --wire is a wrong sum."""
    words = ["run", "--hosts", "1,1", "--peers", "ddl,openmpi", "--sizes", "260K", "--budget", "0.1"]
    words += ["--rounds", "1", "--settings", "defaults", "--json", *places(env)]
    for wire, part in (("bf16", 1 / 2), ("q8", 260 / 1024)):
        done = bench(*words, "--wire", wire, "--output", str(tmp_path / wire)).ok()
        document = json.loads(done.out)
        (one,) = document["scenarios"]
        (row,) = one["summary"]
        bounds = {cell["peer"]: cell["lower_bound"] for cell in one["cells"]}
        assert document["wire"] == wire and bounds["ddl"] == pytest.approx(part * bounds["openmpi"])
        assert row["ddl_over_lower_bound"] == pytest.approx(row["ddl"] / bounds["ddl"])
        assert f"DDL sends {wire}" in bench("show", str(tmp_path / wire)).ok().out
    exact = bench(*words, "--ddl-options", "-wire q8", "--output", str(tmp_path / "exact"))
    assert exact.rc == 1 and "DDL, defaults: FAILED: wrong sum at 260 KiB" in exact.err, exact.err


def test_real_hosts_by_name_and_by_scheduler(env: Environment, able: None, tmp_path: Path) -> None:
    """Two hosts that the benchmark did not make, reached by ssh as a cluster's are."""
    spec = ClusterSpec.even(hosts=2, environment={"SHLVL": "1"}, shared=(str(tmp_path),))
    words = ["run", "--peers", "ddl,openmpi", "--sizes", "4K", "--budget", "0.1", "--settings", "defaults"]
    words += ["--rounds", "1", "--json", *places(env)]
    command = [sys.executable, "-m", "ddl_validate.allreduce", *words]
    cache = str(tmp_path / "cache")
    variables = {"PYTHONPATH": PYTHONPATH, "DDL_BENCH_CACHE": cache, "HOME": str(Path.home())}
    job = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "h1 2 h2 1"}
    with Cluster(spec) as cluster:
        runs: list[tuple[list[str], dict[str, str], list[str]]] = [
            (["-H", "h1:1,h2:2", "--host-rate", "10gbit"], {}, ["h1", "h2", "h2"]),
            (["--hosts-from", "scheduler", "--order", "shuffled"], job, ["h1", "h2", "h1"]),
        ]
        for number, (options, extra, ranks) in enumerate(runs):
            line = [*command, *options, "--output", str(tmp_path / str(number))]
            done = cluster.run("h1", line, timeout=120, env={**variables, **extra}, cwd=tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr
            document = json.loads(done.stdout)
            (one,) = document["scenarios"]
            assert one["sequence"] == ranks
            assert {cell["peer"] for cell in one["cells"]} == {"ddl", "openmpi"}
            check_cores_of_real_hosts(ranks, one["cores"])
            assert (one["summary"][0]["lower_bound"] is None) == (number == 1)


def cores_of(text: str) -> set[int]:
    """The numbers in a list of ranges such as 0-3,8."""
    ranges = [part.partition("-") for part in text.split(",")]
    return {core for first, _, last in ranges for core in range(int(first), int(last or first) + 1)}


def check_cores_of_real_hosts(hosts: Sequence[str], cores: Sequence[str]) -> None:
    """The ranks of a host have divided its cores, where there are enough; all of its cores are in use."""
    every = os.sched_getaffinity(0)
    for host in set(hosts):
        own = [cores_of(text) for text, place in zip(cores, hosts, strict=True) if place == host]
        if len(own) <= len(every):
            assert sum(map(len, own)) == len(every)
        assert set().union(*own) == every


WRONG = """
#include <mpi.h>
int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  int rank, rc = PMPI_Allreduce(in, out, count, type, op, comm);
  MPI_Comm_rank(comm, &rank);
  if (type == MPI_FLOAT && rank == 1 && count > 5000) ((float*)out)[4321] += 1;
  return rc;
}
"""


@pytest.fixture
def testbed() -> Any:
    with DirectTestbed(named("1x2")) as made:
        yield made


def start(
    env: Environment, testbed: DirectTestbed, sizes: str, silence: float = 60, **options: str
) -> list[int]:
    """Sizes that Open MPI measured on the testbed before the launch ended or failed."""
    peer = OpenMpi(env.prefix, default_cache())
    seen: list[int] = []
    order = peer.launch(testbed, Setting("test", options), [sizes, "0.1", "2", "5", "1"])
    try:
        launch.run(testbed, order, silence, lambda sample: seen.append(sample.bytes))
    except LaunchFailed as error:
        error.add_note(str(seen))
        raise
    return seen


def test_a_wrong_sum_is_found(env: Environment, testbed: DirectTestbed, tmp_path: Path) -> None:
    assert start(env, testbed, "4096,65536") == [4096, 65536]
    # in the first repetition (4321 + 3 r) mod 1024 is 225 and 228
    expected = r"wrong sum at 64 KiB: element 4321 on rank 1 is 454, not 453"
    with pytest.raises(WrongSum, match=expected) as caught:
        start(env, testbed, "4096,65536", LD_PRELOAD=preloaded(env, tmp_path, WRONG))
    assert caught.value.__notes__ == ["[4096]"]


# Both count calls, which timing.c makes 64 of in a repetition of 4 KiB, and one of 1 MiB.
LAST_CALL_WRONG = """
#include <mpi.h>
int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  static int calls;
  int rc = PMPI_Allreduce(in, out, count, type, op, comm);
  if (type == MPI_FLOAT && ++calls % 64 == 0) ((float*)out)[7] += 1;
  return rc;
}
"""
ONE_RANK_LATE = """
#include <mpi.h>
#include <unistd.h>
int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  int rank, rc = PMPI_Allreduce(in, out, count, type, op, comm);
  MPI_Comm_rank(comm, &rank);
  if (type == MPI_FLOAT && rank == 1) usleep(50000);
  return rc;
}
"""


def preloaded(env: Environment, folder: Path, source: str) -> str:
    """A library of the source, for LD_PRELOAD."""
    library = folder / "libpreloaded.so"
    (folder / "preloaded.c").write_text(source)
    command = [env.prefix / "bin" / "mpicc", "-shared", "-fPIC", "-pthread", "-o", library]
    subprocess.run([*command, folder / "preloaded.c"], check=True, timeout=60)
    return str(library)


def test_every_call_of_a_repetition_is_checked(
    env: Environment, testbed: DirectTestbed, tmp_path: Path
) -> None:
    """All but the last call of a repetition are right."""
    library = preloaded(env, tmp_path, LAST_CALL_WRONG)
    with pytest.raises(WrongSum, match="wrong sum at 4 KiB: element 7 on rank 0 is"):
        start(env, testbed, "4096", LD_PRELOAD=library)


def test_the_time_of_a_call_is_the_slowest_rank_s(
    env: Environment, testbed: DirectTestbed, tmp_path: Path
) -> None:
    """Rank 1 leaves each call 50 ms later than rank 0."""
    setting = Setting("test", {"LD_PRELOAD": preloaded(env, tmp_path, ONE_RANK_LATE)})
    order = OpenMpi(env.prefix, default_cache()).launch(testbed, setting, [str(MIB), "0", "5", "5", "1"])
    (sample,) = launch.run(testbed, order, 60).samples
    assert len(sample.times.seconds) == 5 and min(sample.times.seconds) >= 0.05


def test_a_wrong_sum_makes_the_command_fail(env: Environment, tmp_path: Path) -> None:
    words = ["run", "--scenario", "1x2", "--peers", "openmpi", "--sizes", "4K,64K", "--budget", "0.1"]
    words += ["--settings", "defaults", "--output", str(tmp_path / "out"), "--json", *places(env)]
    done = bench(*words, LD_PRELOAD=preloaded(env, tmp_path, WRONG))
    assert done.rc == 1, done.err
    (failure,) = json.loads(done.out)["failures"]
    assert failure["wrong"] and failure["peer"] == "openmpi" and "element 4321 on rank 1" in failure["reason"]


def test_a_silent_peer_is_ended(env: Environment, testbed: DirectTestbed) -> None:
    peer = OpenMpi(env.prefix, default_cache())
    order = peer.launch(testbed, Setting("test"), ["67108864", "1000", "100000", "100000", "1"])
    with pytest.raises(LaunchFailed, match=r"nothing came for 2 s"):
        launch.run(testbed, order, silence=2)
    program = next(word for word in order.command if "bench_mpi" in word)
    assert not left_over(program), "ranks are left over"


def left_over(program: str) -> list[str]:
    """Pids of processes that still run a program some time after they were told to end."""
    until = time.monotonic() + 20
    while (found := running(program)) and time.monotonic() < until:
        time.sleep(0.2)
    return found


def running(program: str) -> list[str]:
    """Pids of processes that run a program."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "exe") == program:
                found.append(folder.name)
        except OSError:
            continue
    return found


@contextmanager
def started(
    words: Sequence[str], program: str, ranks: int
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The command, and the pids of the ranks that it has started; it is ended in any case."""
    command = [sys.executable, "-m", "ddl_validate.allreduce", *words]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 120
        while len(pids := running(program)) < ranks:
            assert child.poll() is None and time.monotonic() < end, "the ranks do not start"
            time.sleep(0.05)
        yield child, pids
    finally:
        child.kill()
        child.communicate()


def test_a_stopped_run_leaves_no_ranks(env: Environment, tmp_path: Path) -> None:
    words = ["run", "--scenario", "1x2", "--peers", "openmpi", "--sizes", "64M", "--budget", "1000"]
    words += ["--most", "100000", "--settings", "defaults", "--output", str(tmp_path / "out"), *places(env)]
    program = str(default_cache() / OpenMpi(env.prefix, default_cache()).prepare())
    with started(words, program, 1) as (child, _):
        child.terminate()
        assert child.wait(40) == 128 + signal.SIGTERM
    assert not left_over(program), "ranks are left over"


def test_ranks_in_the_wrong_place_are_refused(env: Environment) -> None:
    event = {"event": "start", "library": "x", "hosts": ["a", "b"], "cores": ["0", "1"]}
    code = f"print('@ddl-bench', {json.dumps(event)!r}, flush=True)"
    with (
        DirectTestbed(named("1x2")) as testbed,
        pytest.raises(
            LaunchFailed, match="the launcher put the ranks on a, b; asked for localhost, localhost"
        ),
    ):
        launch.run(testbed, Launch([sys.executable, "-c", code]), silence=10)


def test_a_peer_that_is_missing_or_broken_is_named_and_the_rest_is_measured(
    env: Environment, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    (broken / "bin").mkdir(parents=True)
    (broken / "lib").mkdir()
    (broken / "lib" / "libmpi.so.12").touch()
    for name, text in (
        ("mpichversion", "echo 'MPICH Version: 9.9'"),
        ("mpicc", "echo no headers >&2; exit 1"),
    ):
        (broken / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (broken / "bin" / name).chmod(0o755)
    empty = tmp_path / "empty"
    empty.mkdir()
    words = ["run", "--scenario", "1x2", "--sizes", "4K", "--budget", "0.1", "--rounds", "1"]
    words += ["--settings", "defaults", "--json"]
    done = bench(*words, "--output", str(tmp_path / "out"), *places(env, mpich=broken, gloo=empty))
    assert done.rc == 3, done.err
    document = json.loads(done.out)
    assert {cell["peer"] for cell in document["scenarios"][0]["cells"]} == {"ddl", "openmpi"}
    reasons = {failure["peer"]: failure["reason"] for failure in document["failures"]}
    assert "its timing program does not compile" in reasons["mpich"] and "no headers" in reasons["mpich"]
    assert f"not in {empty}; install it (wmlce env create peers-gloo pytorch)" in reasons["gloo"]
    listed = bench("peers", *places(env, mpich=broken, gloo=empty))
    assert listed.rc == 3 and "no headers" in listed.out


def test_a_host_that_cannot_be_reached(env: Environment, tmp_path: Path) -> None:
    words = ["run", "-H", "nowhere.invalid:2", "--peers", "openmpi", "--sizes", "4K", *places(env)]
    done = bench(*words, "--output", str(tmp_path / "out"), timeout=90)
    assert done.rc == 1
    assert "ddl-bench: no hosts: " in done.err, done.err
    assert "[ERROR DDL-2-6] " in done.err and "; host nowhere.invalid; " in done.err, done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scenario", "4x3"], "unknown scenario '4x3'; one of: 4x2-1rack,"),
        (["--hosts", "2;2"], "--hosts '2;2': write numbers with commas: 3,2,2,1"),
        (["--hosts", "2,2", "--racks", "3"], "3 racks for 2 host(s); 1 to 2"),
        (["--hosts", "2,2", "-H", "a:2"], "--hosts and -H: choose one of them"),
        (["--racks", "2"], "--racks, --order and the rates belong to --hosts, -H or --hosts-from"),
        (["--peers", "rccl"], "unknown peer 'rccl'; one of: ddl, openmpi, mpich, gloo, ucc, oneccl"),
        (["--prefix", "ddl"], "--prefix 'ddl': write PEER=DIR"),
        (["--sizes", "4X"], "size '4X'"),
        (["--scenario", "1x2", "--least", "5", "--most", "2"], "1 <= least <= most"),
        (["--hosts", "2,2", "--host-rate", "fast"], "rate 'fast'"),
        (["--scenario", "1x2", "--rounds", "0"], "--rounds"),
        (["--scenario", "1x2", "--cpu-share", "0"], "--cpu-share '0': write a number above 0 and at most 1"),
        (["--scenario", "1x2", "--cpu-share", "1.5"], "--cpu-share '1.5'"),
        (["--scenario", "1x2", "--cpu-share=-1"], "--cpu-share '-1'"),
        (["--scenario", "1x2", "--cpu-share", "nan"], "--cpu-share 'nan'"),
        (["--scenario", "1x2", "--cpu-share", "half"], "--cpu-share 'half'"),
        (["-H", "a:2", "--cpu-share", "0.5"], "not those of real hosts"),
    ],
)
def test_what_cannot_be_understood_is_an_error_with_a_remedy(
    words: list[str], message: str, tmp_path: Path
) -> None:
    done = bench("run", *words, "--output", str(tmp_path / "out"), timeout=60)
    assert done.rc == 1 and "Traceback" not in done.err
    assert done.err.startswith("ddl-bench: ") and message in done.err, done.err
    assert not (tmp_path / "out").exists()


def test_help_teaches() -> None:
    text = bench("run", "--help").ok().out
    options = ("--resume", "--hosts-from", "--measure-links", "--cpu-share", "--bind", "--rounds")
    for word in ("exit codes:", "examples:", *options):
        assert word in text
    assert "4x2-2racks-shuffled" in bench("scenarios").ok().out


def test_results_of_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"kind": "scaling"}')
    done = bench("show", tmp_path)
    assert done.rc == 1 and "no result of this benchmark" in done.err
    shutil.rmtree(tmp_path)
    done = bench("show", tmp_path)
    assert done.rc == 1 and "name the --output folder of a run" in done.err
