"""What the checks find: on emulated hosts that are really different, and on many stand-in hosts at once."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ddlrun.checks import diagnostics, probe
from ddlrun.checks.inventory import Domain, HostInventory, Interface, parse
from ddlrun.checks.preflight import _ahead
from ddlrun.errors import Code, LaunchError
from ddlrun.hosts import this_machine
from ddlrun.report import host_report
from ddlrun_program import PROGRAMS, Ddlrun
from hypothesis import given
from hypothesis import strategies as st

from ddl_validate.cluster import Cluster, ClusterSpec, HostSpec, missing_requirements

ROOT = Path(__file__).resolve().parents[3]
HERE = HostInventory(
    "h1",
    (Domain(0, 0, (0, 1)),),
    cpu="EPYC",
    ddl="2.0",
    mpi="Open MPI 5.0.11",
    shm_bytes=1 << 30,
    shm_free_bytes=1 << 30,
    memory_bytes=8 << 30,
    memory_free_bytes=4 << 30,
    temporary="/tmp",
    temporary_free_bytes=1 << 30,
    interface=Interface("eth0", 10000, 1500),
)

Start = Callable[..., "subprocess.CompletedProcess[str]"]


# ---- real hosts


def patched(source: Path, target: Path, old: bytes, new: bytes) -> str:
    """A copy of a library in which one text is another one of the same length."""
    data = source.read_bytes()
    assert len(old) == len(new) and data.count(old) == 1, (source, data.count(old))
    target.write_bytes(data.replace(old, new))
    return str(target)


@pytest.fixture(scope="module")
def hosts(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """h1 and h2 are alike; the others are each wrong in one way, which its name tells."""
    reasons = missing_requirements()
    if reasons:
        pytest.skip("; ".join(reasons))
    folder = tmp_path_factory.mktemp("overlays")
    library = next(path for path in sorted((prefix / "lib").glob("libddl.so.*")) if not path.is_symlink())
    version = library.name.removeprefix("libddl.so.").encode()
    older = b"0" * len(version)
    ddl = patched(library, folder / "libddl", b"\0" + version + b"\0", b"\0" + older + b"\0")
    mpi = prefix / "lib/libmpi.so.40"
    told, other = b"Open MPI v%d.%d.%d\0", b"Open MPI v4.1.4\0\0\0\0"
    (folder / "mpirun").write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
    (folder / "mpirun").chmod(0o755)
    (folder / "speed").write_text("1000\n")
    shared = tuple(str(path) for path in (prefix, ROOT) if path.is_relative_to("/tmp"))
    spec = ClusterSpec(
        (
            HostSpec("h1", slots=2),
            HostSpec("h2", slots=2),
            HostSpec("olderddl", overlays=((str(library), ddl),)),
            HostSpec("othermpirun", overlays=((str(prefix / "bin/mpirun"), str(folder / "mpirun")),)),
            HostSpec("otherlibmpi", overlays=((str(mpi), patched(mpi, folder / "libmpi", told, other)),)),
            HostSpec("smallshm", shm_bytes=4 << 20),
            HostSpec("fullshm", shm_bytes=64 << 20),
            HostSpec("slow", overlays=(("/sys/class/net/eth0/speed", str(folder / "speed")),)),
        ),
        shared=shared,
        environment={"SHLVL": "1"},
        life_seconds=600,
    )
    with Cluster(spec, tmp_path_factory.mktemp("cluster") / "state") as cluster:
        fill = ["dd", "if=/dev/zero", "of=/dev/shm/left-by-an-old-job", "bs=1M", "count=60"]
        cluster.run("fullshm", fill, timeout=20, check=True)
        yield cluster


@pytest.fixture
def start(hosts: Cluster, ddlrun: Ddlrun) -> Start:
    """Runs ddlrun on h1."""

    def on_h1(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return hosts.run("h1", [*ddlrun.words, *words], timeout=60, env={**ddlrun.variables, **more})

    return on_h1


@pytest.mark.parametrize(
    ("host", "number", "reason"),
    [
        ("olderddl", 9, r"DDL 0+ is installed there, and \S+ here"),
        ("othermpirun", 10, r"Open MPI 4\.1\.4 is installed there, and Open MPI \S+ here"),
        (
            "otherlibmpi",
            10,
            r"DDL gets Open MPI 4\.1\.4 from /\S*/libmpi\.so\.40, and mpirun is Open MPI \S+",
        ),
        ("smallshm:2", 21, r"/dev/shm is too small: 4 MiB of 4 MiB are free, and 2 ranks need 6 MiB"),
        ("fullshm:2", 21, r"/dev/shm is full: 4 MiB of 64 MiB are free, and 2 ranks need 6 MiB"),
    ],
)
def test_a_host_that_cannot_take_part_is_named(start: Start, host: str, number: int, reason: str) -> None:
    run = start("-H", f"h1:1,h2:1,{host}", "touch", "/tmp/started")
    assert run.returncode == 1 and run.stdout == ""
    name = host.partition(":")[0]
    assert re.search(rf"\[ERROR DDL-2-{number}\] {reason}; host {name}; \w", run.stderr), run.stderr
    assert "; host h2; " not in run.stderr


def test_one_rank_needs_no_shared_memory(start: Start) -> None:
    run = start("-H", "h1:1,smallshm:1", "python", str(PROGRAMS / "joined.py"))
    assert run.returncode == 0, run.stderr


def test_check_prints_one_table_and_starts_nothing(start: Start) -> None:
    run = start("-check", "-H", "h1:2,h2:2,slow:1,olderddl:1")
    assert run.returncode == 1
    lines = run.stdout.splitlines()
    assert re.fullmatch(r"4 hosts looked at in \d+\.\d s, 1 cannot take part", lines[0])
    assert lines[1].startswith("everywhere: processor ") and "MPI Open MPI" in lines[1]
    titles = re.split(r"  +", lines[2])
    rows = {line.split()[0]: re.split(r"  +", line) for line in lines[3:]}
    assert titles[:2] == ["host", "state"] and list(rows) == ["h1", "h2", "slow", "olderddl"]
    assert rows["h1"][1] == "ok" and rows["olderddl"][1] == "wrong DDL"
    at = titles.index("network")
    assert rows["h2"][at] == "eth0 10 Gbit/s" and rows["slow"][at] == "eth0 1 Gbit/s"
    assert "; host olderddl; " in run.stderr
    assert (
        "[WARN DDL-2-17] the network of host slow is slower than the others': 1 Gbit/s (eth0), 10 Gbit/s"
        in run.stderr
    )
    good = start("-check", "-H", "h1:2,h2:2")
    assert good.returncode == 0 and "2 hosts looked at" in good.stdout and "[ERROR" not in good.stderr


def test_check_as_json(start: Start) -> None:
    run = start("-check", "-json", "-H", "h1:2,fullshm:2")
    assert run.returncode == 1
    told = json.loads(run.stdout)
    first, second = told["hosts"]
    assert (first["host"], first["state"]) == ("h1", "ok")
    assert first["facts"]["interface"] == {"name": "eth0", "speed_mbit": 10000, "mtu": 1500}
    assert (second["host"], second["state"], second["code"]) == ("fullshm", "failed", 21)
    assert second["facts"]["shm_bytes"] == 64 << 20


# ---- many hosts, by a stand-in for ssh


@pytest.fixture
def standin(ddlrun: Ddlrun) -> dict[str, str]:
    """A PATH whose `ssh` answers after a second, with noise, as slow logins do.

    On node01 and node02 the probe really runs; were it to run 64 times, that would measure this machine's two
    cores. The others say what the probe said here.
    """
    folder = ddlrun.folder / "bin"
    folder.mkdir()
    package = ddlrun.prefix / "lib/python3.11/site-packages/ddl"
    mpirun = ddlrun.prefix / "bin/mpirun"
    python = str(ddlrun.prefix / "bin/python3")
    said = subprocess.run(
        [python, "-S", "-E", str(probe.__file__), "00", str(ddlrun.prefix), str(package), str(mpirun)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout
    (folder / "said").write_text(said.strip().removeprefix("@@ddlrun:00@@").removesuffix("@@ddlrun:00@@"))
    (folder / "ssh").write_text(
        "#!/bin/sh\n"
        'while [ "$1" != -- ]; do shift; done\n'
        'sleep 1; echo "Last login: today on $2"; echo "@@ddlrun:" >&2\n'
        'host=$2; rename() { sed "s/\\"identity\\": \\"/&$host /"; }\n'
        'case "$2" in\n'
        'node0[12]) eval "$3" | rename ;;\n'
        "*) nonce=${3##* ddlrun }; mark=@@ddlrun:${nonce%%;*}@@; cat >/dev/null\n"
        f'  echo; echo "$mark$(cat {folder}/said)$mark" | rename ;;\n'
        'esac; echo "logout"\n'
    )
    (folder / "ssh").chmod(0o755)
    path = ddlrun.environment()["PATH"]
    return {"PATH": f"{folder}:{path}"}


def test_64_hosts_are_checked_in_less_than_10_seconds(ddlrun: Ddlrun, standin: dict[str, str]) -> None:
    names = ",".join(f"node{number:02}" for number in range(1, 65))
    began = time.monotonic()
    run = ddlrun("-check", "-json", "-H", names, **standin)
    seconds = time.monotonic() - began
    assert run.code == 0, run.err
    told = json.loads(run.out)
    assert [one["state"] for one in told["hosts"]] == ["ok"] * 64
    assert seconds < 10 and told["seconds"] <= seconds


# ---- what the facts mean


def test_what_ddl_reserves_is_what_is_asked_for() -> None:
    header = (ROOT / "ddl-core/libddl/src/transport/shared_segment.hpp").read_text()
    found = re.search(r"kLeastStageBytes = std::size_t\{(\d+)\} << (\d+);", header)
    assert found
    stage = int(found[1]) << int(found[2])
    assert stage < diagnostics.SHM_BYTES_A_RANK <= stage + 8192
    assert diagnostics.shm_needed(1) == 0


def test_differences_name_the_odd_host() -> None:
    many = {f"h{number}": HERE for number in range(1, 7)}
    assert diagnostics.differences(many) == []
    odd = replace(
        HERE,
        cpu="Xeon",
        domains=(Domain(0, 0, (0,)),),
        clock_s=-3.5,
        interface=Interface("eth1", 1000, 9000),
    )
    said = diagnostics.differences({**many, "h7": odd})
    assert said == [
        "cores differ: 1 on h7, 2 on h1, h2, h3 and 3 others",
        "processors differ: Xeon on h7, EPYC on h1, h2, h3 and 3 others",
        "packet sizes (MTU) differ: 9000 on h7, 1500 on h1, h2, h3 and 3 others",
        "the network of host h7 is slower than the others': 1 Gbit/s (eth1), 10 Gbit/s elsewhere",
        "the clock of host h7 is 3.5 s behind this machine's: times in logs and checkpoints will not fit",
    ]


def test_a_clock_is_only_wrong_beyond_the_way_of_the_answer() -> None:
    assert _ahead(100.5, 100.0, 104.0) == 0
    assert _ahead(110.0, 100.0, 104.0) == 6
    assert _ahead(90.0, 100.0, 104.0) == -10
    assert _ahead("soon", 100.0, 104.0) == 0


def test_shortages() -> None:
    poor = replace(HERE, memory_free_bytes=100 << 20, temporary_free_bytes=1 << 20)
    assert list(diagnostics.shortages({"a": HERE, "b": poor})) == [
        "host b has little memory left: 100 MiB of 8.0 GiB",
        "host b has little room left in /tmp: 1 MiB",
    ]


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"ddl": None}, Code.DDL, "DDL is not installed there"),
        ({"ddl": "1.9"}, Code.DDL, "DDL 1.9 is installed there, and 2.0 here"),
        ({"release": "1.7.0"}, Code.ENVIRONMENT, "the release there is 1.7.0, and none here"),
        ({"mpi": None}, Code.MPI, "mpirun is missing"),
        ({"load_problem": "GLIBC_2.38 not found"}, Code.DDL, "cannot be loaded there: GLIBC_2.38 not found"),
        ({"temporary_problem": "Read-only file system"}, Code.FOLDER, "no file can be made in /tmp"),
    ],
)
def test_environments_that_cannot_work_together(change: dict[str, Any], code: Code, text: str) -> None:
    with pytest.raises(LaunchError) as caught:
        diagnostics.compare("odd", replace(HERE, **change), HERE)
    assert caught.value.code == code and text in str(caught.value) and "; host odd; " in str(caught.value)


def test_the_table_says_common_things_once() -> None:
    two = {"a": HERE, "b": replace(HERE, memory_free_bytes=1 << 30)}
    text = host_report.as_text(["a", "b", "c"], two, {"c": LaunchError(Code.REFUSED, "x", "y", "z")}, 0.25)
    assert text.splitlines() == [
        "3 hosts looked at in 0.2 s, 1 cannot take part",
        "everywhere: processor EPYC; cores 2; network eth0 10 Gbit/s; free /dev/shm 1.0 GiB; "
        "free temporary 1.0 GiB; DDL 2.0; MPI Open MPI 5.0.11",
        "host  state          free memory",
        "a     ok             4.0 GiB",
        "b     ok             1.0 GiB",
        "c     login refused",
    ]


# ---- answers


ANSWER = json.loads(json.dumps(probe.facts("/nowhere", "/nowhere/ddl", "/nowhere/mpirun", ["localhost"])))


def test_the_probes_own_answer_is_understood() -> None:
    facts = parse(ANSWER)
    assert facts.core_count >= 1 and facts.ddl is None and facts.mpi is None
    assert facts.memory_bytes and facts.memory_free_bytes and facts.temporary_problem is None


junk = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)


@given(st.sampled_from(sorted(ANSWER)), junk)
def test_a_broken_answer_is_refused_or_harmless(key: str, value: Any) -> None:
    try:
        facts = parse({**ANSWER, key: value})
    except ValueError:
        return
    host_report.as_text(["a"], {"a": facts}, {}, 0.1)
    diagnostics.differences({"a": HERE, "b": facts})
    list(diagnostics.shortages({"b": facts}))


def test_texts_of_hosts_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in parse({**ANSWER, "cpu": "\x1b[31mred"}).cpu


@pytest.mark.parametrize(("allowed", "found"), [(2, True), (0, False)])
def test_names_are_told_apart_at_the_limit_of_processes(
    monkeypatch: pytest.MonkeyPatch, allowed: int, found: bool
) -> None:
    """By the threads that there are; without any, names that have to be looked up count as remote."""
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def scarce(self: threading.Thread) -> None:
        if len(started) >= allowed:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    names = ["127.0.0.2", "127.0.0.3", *(f"no-such-host-{i}.invalid" for i in range(20))]
    assert this_machine.local_names(names) == ({"127.0.0.2", "127.0.0.3"} if found else set())
