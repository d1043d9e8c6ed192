"""The emulated cluster: separate hosts, real ssh, real rates, nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ddl_validate.cluster import (
    Cluster,
    ClusterError,
    ClusterSpec,
    HostSpec,
    missing_requirements,
    scheduling,
)
from ddl_validate.cluster.process import in_namespaces
from ddl_validate.cluster.spec import rate_in_bits

ROOT = Path(__file__).resolve().parents[3]
# A link to it may lie in a folder that the hosts do not see.
PYTHON = str(Path(sys.executable).resolve())


class Namespaces:
    """Network namespaces of one cluster's hosts and fabric, and who is in them.

    Other tests of this machine make namespaces too: only those that processes of the cluster are in count.
    They are held open, or the kernel might give the number of an ended one to another cluster.
    """

    def __init__(self) -> None:
        self._open: dict[int, int] = {}

    def add(self, *pids: int) -> None:
        for pid in pids:
            handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            number = os.stat(handle).st_ino
            if number in self._open:
                os.close(handle)
            else:
                self._open[number] = handle

    def __len__(self) -> int:
        return len(self._open)

    def processes(self) -> list[int]:
        """Processes of this machine that are in one of them."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/ns/net"):
            try:
                if entry.stat().st_ino in self._open:
                    found.append(int(entry.parts[2]))
            except OSError:
                pass  # ended meanwhile
        return found

    def empty_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self.processes():
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def close(self) -> None:
        for handle in self._open.values():
            os.close(handle)


@pytest.fixture
def namespaces() -> Iterator[Namespaces]:
    made = Namespaces()
    yield made
    made.close()


def pids_of(cluster: Cluster) -> list[int]:
    """The first process of each host and of the fabric between them."""
    return [pid for pid, _ in cluster._pids.values()]


@pytest.fixture(scope="module")
def pair(able: None) -> Iterator[Cluster]:
    """Two racks of one host; the uplinks are slower than the links."""
    rates = {"link_rate": "400mbit", "uplink_rate": "80mbit"}
    spec = ClusterSpec.even(2, 2, 2, environment={"GREETING": "a b"}, shared=(sys.prefix,), **rates)
    with Cluster(spec) as cluster:
        yield cluster


def test_hosts_are_apart(pair: Cluster) -> None:
    for name in ("h1", "h2"):
        assert pair.run(name, ["hostname"], timeout=10).stdout == f"{name}\n"
    pair.run("h1", ["touch", "/tmp/mark", "/dev/shm/mark"], timeout=10, check=True)
    assert pair.run("h2", ["ls", "/tmp", "/dev/shm"], timeout=10).stdout.count("mark") == 0
    seen = pair.run("h1", ["sh", "-c", "ls -d /proc/[0-9]* | wc -l"], timeout=10).stdout
    assert int(seen) < 20  # only its own processes


def test_ssh_between_hosts(pair: Cluster) -> None:
    answer = pair.run("h1", ["ssh", "h2", "hostname; echo $GREETING"], timeout=20)
    assert answer.stdout == "h2\na b\n", answer.stderr


def test_commands(pair: Cluster) -> None:
    assert pair.run("h1", ["cat"], timeout=10, stdin="text").stdout == "text"
    assert pair.run("h1", ["sh", "-c", "exit 7"], timeout=10).returncode == 7
    with pytest.raises(ClusterError, match=r"on h1: .*exit code 7"):
        pair.run("h1", ["sh", "-c", "exit 7"], timeout=10, check=True)
    began = time.monotonic()
    with pytest.raises(ClusterError, match=r"not finished after 0\.5 s"):
        pair.run("h1", ["sleep", "30"], timeout=0.5)
    assert time.monotonic() - began < 5
    with pytest.raises(ClusterError, match=r"no running host 'h9'; hosts of this cluster: h1, h2"):
        pair.run("h9", ["true"], timeout=1)


RECEIVE = """
import socket, time
server = socket.create_server(("", 5001)); print("ready", flush=True)
peer, _ = server.accept(); total = 0; began = None
while data := peer.recv(1 << 20):
    began = began or time.monotonic(); total += len(data)
print(total * 8 / (time.monotonic() - began))
"""
SEND = """
import socket, sys
socket.create_connection((sys.argv[1], 5001), 10).sendall(bytes(int(sys.argv[2])))
"""


@contextmanager
def receiver(cluster: Cluster, host: str) -> Iterator[subprocess.Popen[str]]:
    """A process on a host that is ready to receive, and prints the rate."""
    command = cluster.command(host, [PYTHON, "-c", RECEIVE])
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout and child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.kill()
        child.wait()


def test_the_slowest_link_sets_the_rate(pair: Cluster) -> None:
    with receiver(pair, "h2") as child:
        pair.run("h1", [PYTHON, "-c", SEND, "h2", "20_000_000"], timeout=60, check=True)
        out, _ = child.communicate(timeout=60)
    assert 0.8 * 80e6 < float(out) < 1.1 * 80e6


def test_links_count_what_they_carry(able: None) -> None:
    """A known number of bytes from h1 to h2, over the uplinks of both racks."""
    size = 3_000_000
    with Cluster(ClusterSpec.even(hosts=2, racks=2)) as cluster:
        before = cluster.sent_bytes()
        with receiver(cluster, "h2") as child:
            cluster.run("h1", [PYTHON, "-c", SEND, "h2", str(size)], timeout=20, check=True)
            child.wait(20)
        after = cluster.sent_bytes()
    carried = {link: after[link] - count for link, count in before.items()}
    forward = {"h1 out", "rack0 out", "rack1 in", "h2 in"}
    assert set(carried) == forward | {"h1 in", "rack0 in", "rack1 out", "h2 out"}
    for link, count in carried.items():
        # frames have headers; what comes back is acknowledgements
        assert size <= count < 1.1 * size if link in forward else count < 0.1 * size, (link, count)


def test_hosts_that_differ(able: None) -> None:
    """A host's own link rate, share of processor time and variables; a rack's own uplink rate."""
    try:
        scheduling.remove_group(scheduling.make_limited_group("h2", 1))
    except ClusterError as error:
        pytest.skip(str(error))
    spec = ClusterSpec(
        (
            HostSpec("h1", environment=(("COLOUR", "blue"),)),
            HostSpec("h2", rack=1, cores=0.5, link_rate="40mbit", environment=(("COLOUR", "red  one"),)),
        ),
        link_rate="400mbit",
        uplink_rates=((1, "80mbit"),),
        environment={"COLOUR": "none", "GREETING": "hello"},
    )
    with Cluster(spec) as cluster:
        shown = ["sh", "-c", "tc qdisc show dev eth0"]
        assert "rate 400Mbit" in cluster.run("h1", shown, timeout=10).stdout
        assert "rate 40Mbit" in cluster.run("h2", shown, timeout=10).stdout
        fabric = in_namespaces(cluster._pids["fabric"][0], "n", ["tc", "qdisc", "show"])
        told = subprocess.run(fabric, capture_output=True, text=True, timeout=10, check=True).stdout
        rates = {
            line.split()[4]: line.split("rate ")[1].split()[0] for line in told.splitlines() if "rate" in line
        }
        assert rates == {"port0": "400Mbit", "port1": "40Mbit", "up1": "80Mbit", "down1": "80Mbit"}
        for words in (["sh", "-c", "echo $COLOUR,$GREETING"], ["ssh", "h2", "echo $COLOUR,$GREETING"]):
            assert cluster.run("h2", words, timeout=20).stdout == "red one,hello\n"
        assert cluster.run("h1", ["sh", "-c", "echo $COLOUR"], timeout=20).stdout == "blue\n"
        # also what comes by ssh is limited, and no other host
        limited = cluster._limited["h2"]
        spin = ["timeout", "0.5", "sh", "-c", "while :; do :; done"]
        before = stopped(limited)
        for _ in range(60):  # a machine with other work may leave it less than its limit for a while
            cluster.run("h1", ["ssh", "h2", *spin[:3], "'-c'", "'while :; do :; done'"], timeout=20)
            if stopped(limited) > before:
                break
        assert stopped(limited) > before
        before = stopped(limited)
        cluster.run("h1", spin, timeout=20)
        assert stopped(limited) == before
        assert Cluster.attach(cluster.state)._limited == cluster._limited
    assert not limited.exists()


def stopped(group: Path) -> int:
    """In how many periods a control group had spent its time."""
    lines = (line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return {name: int(value) for name, value in lines}["nr_throttled"]


def test_down_leaves_nothing(able: None, namespaces: Namespaces) -> None:
    cluster = Cluster(ClusterSpec.even(hosts=2))
    cluster.up()
    namespaces.add(*pids_of(cluster))
    before = len(namespaces.processes())
    cluster.run("h1", ["sh", "-c", "setsid sleep 300 >/dev/null 2>&1 &"], timeout=10)
    assert len(namespaces) == 3 and len(namespaces.processes()) > before >= 3
    with pytest.raises(ClusterError, match="up already"):
        cluster.up()
    state = cluster.state
    cluster.down()
    assert not state.exists()
    assert not namespaces.processes()
    cluster.down()


def test_processes_of_all_hosts_are_scheduled_as_one_group(able: None) -> None:
    """Also those that ssh starts; what runs on the hosts must not depend on how sessions share processors."""
    with Cluster(ClusterSpec.even(hosts=2)) as cluster:
        group = cluster._group
        if group is None:
            pytest.skip("no autogroups, or no right to make a control group for processor time")
        ask = ["cat", "/proc/self/cgroup"]
        for words in (ask, ["ssh", "h2", *ask]):
            assert f"/{group.name}\n" in cluster.run("h1", words, timeout=20, check=True).stdout
        assert f"/{group.name}\n" not in Path("/proc/self/cgroup").read_text()
        assert Cluster.attach(cluster.state)._group == group
    assert not group.exists()


def test_groups_that_were_abandoned_are_removed(able: None) -> None:
    with Cluster(ClusterSpec.even(hosts=1)) as cluster:
        if cluster._group is None:
            pytest.skip("no autogroups, or no right to make a control group for processor time")
        ended = subprocess.Popen(["true"])
        ended.wait()
        left = cluster._group.with_name(f"emulated-hosts.{ended.pid}.1")
        left.mkdir()
        with Cluster(ClusterSpec.even(hosts=1)) as other:
            assert other._group and other._group.exists()
            assert not left.exists() and cluster._group.exists()


def test_a_failed_start_leaves_nothing(
    able: None, namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_cable(spec: ClusterSpec, fabric: int, hosts: list[int]) -> None:
        namespaces.add(fabric, *hosts)
        raise ClusterError("no cable")

    monkeypatch.setattr("ddl_validate.cluster.network.connect", no_cable)
    cluster = Cluster(ClusterSpec.even(hosts=2))
    with pytest.raises(ClusterError, match="no cable"):
        cluster.up()
    assert not cluster.state.exists()
    assert len(namespaces) == 3 and not namespaces.processes()


def test_its_life_is_limited(able: None, namespaces: Namespaces, tmp_path: Path) -> None:
    cluster = Cluster(ClusterSpec.even(hosts=1, life_seconds=2), tmp_path / "state", tied=False)
    cluster.up()
    namespaces.add(*pids_of(cluster))
    assert namespaces.empty_within(10)
    with pytest.raises(ClusterError, match="no running host"):
        cluster.run("h1", ["true"], timeout=5)
    cluster.down()


def test_it_ends_with_its_owner_even_a_killed_one(able: None, namespaces: Namespaces, tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from ddl_validate.cluster import *\n"
        "Cluster(ClusterSpec.even(hosts=1), Path(sys.argv[1])).up(); print('up', flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "state")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "validation")},
    )
    assert owner.stdout and owner.stdout.readline() == "up\n"
    namespaces.add(*pids_of(Cluster.attach(tmp_path / "state")))
    assert namespaces.processes()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert namespaces.empty_within(10)


def test_a_host_can_fail(able: None) -> None:
    with Cluster(ClusterSpec.even(hosts=2)) as cluster:
        cluster.kill_host("h2")
        assert cluster.alive("h1") and not cluster.alive("h2")


def test_odd_hosts(able: None, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "file").touch()
    spec = ClusterSpec(
        (
            HostSpec("plain"),
            HostSpec("odd", hidden=(str(hidden),), noise="hello 'you'", shm_bytes=1 << 20),
            HostSpec("locked", accepts_key=False),
        ),
        shared=(str(tmp_path),),
    )
    with Cluster(spec) as cluster:
        assert cluster.run("plain", ["ls", str(hidden)], timeout=10).stdout == "file\n"
        assert cluster.run("odd", ["ls", str(hidden)], timeout=10).stdout == ""
        shown = cluster.run("odd", ["df", "--output=size", "-B1", "/dev/shm"], timeout=10).stdout
        assert shown.split()[-1] == str(1 << 20)
        assert cluster.run("plain", ["ssh", "odd", "echo x"], timeout=20).stdout == "hello 'you'\nx\n"
        refused = cluster.run("plain", ["ssh", "-o", "BatchMode=yes", "locked", "true"], timeout=20)
        assert refused.returncode == 255 and "Permission denied" in refused.stderr


def test_command_line(able: None, tmp_path: Path) -> None:
    def cluster(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ddl_validate.cluster", "--state", str(tmp_path / "state"), *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert cluster("status").returncode == 1
    up = cluster("up", "--slots", "2,1", "--life", "60")
    try:
        assert up.returncode == 0, up.stderr
        assert cluster("hostfile").stdout == "h1 slots=2\nh2 slots=1\n"
        assert cluster("exec", "h1", "ssh", "h2", "hostname").stdout == "h2\n"
        assert "h2\tup\t1 slots\track 0" in cluster("status").stdout
    finally:
        assert cluster("down").returncode == 0
    assert "no cluster is up" in cluster("down").stderr


def test_impossible_specs_are_refused() -> None:
    for make, word in (
        (lambda: ClusterSpec.even(0), "0 hosts"),
        (lambda: ClusterSpec.even(2, racks=3), "3 racks for 2 hosts"),
        (lambda: ClusterSpec.even(2, slots=0), "0 slots"),
        (lambda: ClusterSpec.even(1, link_rate="fast"), "rate 'fast'"),
        (lambda: ClusterSpec((HostSpec("a"), HostSpec("a"))), "given twice: a"),
        (lambda: HostSpec("-x"), "host name '-x'"),
        (lambda: ClusterSpec((HostSpec("a", rack=1),)), "racks are numbered"),
        (lambda: ClusterSpec.even(1, shared=("/absent",)), "cannot share '/absent'"),
        (lambda: HostSpec("a", link_rate="slow"), "rate 'slow'"),
        (lambda: HostSpec("a", cores=0), "host a: the time of 0 cores"),
        (lambda: ClusterSpec.even(1, uplink_rates=((1, "1gbit"),)), "the uplink of rack 1"),
    ):
        with pytest.raises(ClusterError, match=word):
            make()


def test_spec_round_trip() -> None:
    spec = ClusterSpec.uneven([3, 2, 2, 1], racks=2, link_rate="1gbit", absent=("gone",))
    assert ClusterSpec.from_dict(json.loads(json.dumps(spec.as_dict()))) == spec
    assert [host.rack for host in spec.hosts] == [0, 0, 1, 1]
    odd = HostSpec(
        "odd", link_rate="1mbit", cores=0.5, environment=(("A", "b c"),), overlays=(("/x", __file__),)
    )
    spec = ClusterSpec((odd,), uplink_rates=((0, "1gbit"),))
    assert ClusterSpec.from_dict(json.loads(json.dumps(spec.as_dict()))) == spec
    assert rate_in_bits("200mbit") == 200_000_000 and rate_in_bits(None) is None


def test_missing_programs_are_named_with_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **more: None if name == "sshd" else real(name, **more))
    assert missing_requirements() == ["sshd not found (Debian package openssh-server)"]
