"""Settings, mounts, errors of memory and left-over processes: described hosts, and this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from program_runner import ROOT, Environment

from ddl_validate.common.mpi import MPI_AS_ROOT
from ddl_validate.suite.bench import Bench, Host
from ddl_validate.suite.checks import settings
from ddl_validate.suite.levels import LEVELS
from ddl_validate.suite.model import Finding, Kind, Severity, Status
from ddl_validate.suite.probe import lines
from ddl_validate.suite.probe import settings as probe

_OPTIONS = "rw,vers=4.2,rsize=1048576,clientaddr=10.0.0.1,addr=10.0.0.9"
_NFS = f"36 25 0:31 / /sw rw,noatime shared:9 - nfs4 store:/sw {_OPTIONS}"
_UNLIMITED = "unlimited            unlimited"
_FILES = {
    "proc/sys/kernel/osrelease": "5.14.0-570.el9\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "proc/sys/kernel/numa_balancing": "0\n",
    "sys/devices/system/cpu/vulnerabilities/retbleed": "Mitigation: untrained return thunk\n",
    "proc/cpuinfo": "processor\t: 0\nmicrocode\t: 0xa0011d1\n",
    "proc/self/limits": "Limit  Soft Limit  Hard Limit  Units\n"
    "Max stack size            8388608              unlimited            bytes\n"
    "Max open files            1024                 524288               files\n"
    "Max locked memory         unlimited            unlimited            bytes\n",
    "proc/self/mountinfo": f"{_NFS}\n40 25 8:1 / /tmp rw - ext4 /dev/sda1 rw\n",
    "proc/modules": "nvidia_peermem 16384 0 - Live 0x0\nnvidia 9 0 - Live 0x0\n",
    "proc/interrupts": "  MCE:          0          0   Machine check exceptions\n",
    "proc/7/comm": "chronyd\n",
    "proc/8/comm": "nv-fabricmanage\n",
    "sys/devices/system/edac/mc/mc0/ce_count": "3\n",
    "sys/devices/system/edac/mc/mc0/ue_count": "0\n",
    "sys/class/infiniband/mlx5_0/node_type": "1: CA\n",
}


class Tree:
    """The proc and sys of a host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in _FILES.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def replace(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def facts(self) -> Any:
        """By the program, as a host is asked."""
        words = [sys.executable, "-m", "ddl_validate.suite.probe.settings", "--root", str(self.root)]
        done = subprocess.run(
            [*words, "--seconds", "0"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
        )
        (told,) = lines.heard(done.stdout).values()
        return told


def findings(states: dict[str, Any]) -> list[Finding]:
    return [*settings.compare(states, {}), *settings.of_each(states)]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "root")


def test_what_is_read(tree: Tree) -> None:
    told = tree.facts()
    values = told["settings"]
    assert values["kernel"] == "5.14.0-570.el9" and values["transparent-hugepages"] == "madvise"
    assert values["memlock"] == "unlimited (hard unlimited)" and values["nofile"] == "1024 (hard 524288)"
    assert values["microcode"] == "0xa0011d1" and values["time-service"] == "chronyd"
    assert values["mitigation-retbleed"].startswith("Mitigation: untrained")
    assert (values["nvidia-peermem"], values["fabric-manager"]) == ("loaded", "runs")
    assert values["firmware"] is None and values["clock-synchronised"] in ("yes", "no", None)
    # local ones, and what is each host's own, are left out
    assert told["mounts"] == {"/sw": "nfs4 noatime,rsize=1048576,rw,vers=4.2"}
    assert (told["memory_errors"], told["machine_checks"]) == ({"corrected": 3, "uncorrected": 0}, 0)
    assert told["rdma"] and told["processes"] == [] and told["occupied"] == ""


def test_hosts_that_are_alike_have_no_finding(tree: Tree) -> None:
    told = tree.facts()
    states = {"h1": told, "h2": told, "h3": told}
    assert findings(states) == [] and findings({"h1": told}) == []
    silent = settings.not_judged(states)
    assert "ordinary user of h1, h2, h3" in silent["firmware"] and "memlock" not in silent


# name: (what another host has, severity, the fact, words of the finding)
FAULTS: dict[str, tuple[Callable[[Tree], None], Severity, str, str]] = {
    "kernel": (
        lambda tree: tree.write("proc/sys/kernel/osrelease", "5.14.0-503.el9"),
        *(
            Severity.WARN,
            "kernel",
            "h2 has another kernel than the others: 5.14.0-503.el9, not",
        ),
    ),
    "hugepages": (
        lambda tree: tree.write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
        *(Severity.WARN, "transparent-hugepages", "always, not madvise"),
    ),
    "mitigation": (
        lambda tree: tree.write("sys/devices/system/cpu/vulnerabilities/retbleed", "Vulnerable"),
        *(Severity.WARN, "mitigation-retbleed", "Vulnerable, not Mitigation"),
    ),
    "memlock": (
        lambda tree: tree.replace("proc/self/limits", _UNLIMITED, "1073741823 8"),
        *(Severity.DRAIN, "memlock", "1073741823 (hard 8), not 1 GiB or more"),
    ),
    "open files": (
        lambda tree: tree.replace("proc/self/limits", "1024 ", "256 "),
        *(Severity.WARN, "nofile", "256 (hard 524288), not 1024"),
    ),
    "not mounted": (
        lambda tree: tree.write("proc/self/mountinfo", ""),
        *(Severity.DRAIN, "mount:/sw", "another mount of /sw than the others: not mounted"),
    ),
    "mounted otherwise": (
        lambda tree: tree.replace("proc/self/mountinfo", "1048576", "32768"),
        *(Severity.WARN, "mount:/sw", "rsize=32768"),
    ),
    "Fabric Manager": (
        lambda tree: tree.write("proc/8/comm", "other"),
        *(Severity.DRAIN, "fabric-manager", "does not run, not runs"),
    ),
    "peermem": (
        lambda tree: tree.write("proc/modules", "nvidia 9 0 - Live 0x0\n"),
        *(Severity.DRAIN, "nvidia-peermem", "not loaded, not loaded"),
    ),
    "uncorrected": (
        lambda tree: tree.write("sys/devices/system/edac/mc/mc0/ue_count", "2"),
        *(Severity.DRAIN, "memory-errors", "h2 has counted 2 uncorrected errors of memory"),
    ),
    "corrected": (
        lambda tree: tree.write("sys/devices/system/edac/mc/mc0/ce_count", "4000"),
        *(Severity.WARN, "memory-errors", "4000 corrected errors"),
    ),
    "machine check": (
        lambda tree: tree.write("proc/interrupts", "  MCE:   0   1   Machine check exceptions\n"),
        *(Severity.WARN, "machine-checks", "1 machine check exceptions"),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_difference_names_its_host(tree: Tree, name: str) -> None:
    good = tree.facts()
    change, severity, fact, says = FAULTS[name]
    change(tree)
    (finding,) = findings({"h1": good, "h2": tree.facts(), "h3": good})
    assert (finding.kind, finding.where) == (Kind.ENVIRONMENT, "host h2")
    assert (finding.severity, finding.figure) == (severity, fact)
    assert says in finding.text and finding.remedy, finding.text


def test_a_host_that_has_more_than_the_others_is_not_drained(tree: Tree) -> None:
    """Nor one whose limit follows the size of its memory."""
    good = tree.facts()
    tree.replace("proc/self/limits", _UNLIMITED, "8396800000 8396800000")
    assert findings({"h1": good, "h2": tree.facts(), "h3": good}) == []
    tree.write("proc/self/mountinfo", "")
    tree.write("proc/8/comm", "other")
    less = tree.facts()
    found = findings({"h1": less, "h2": good, "h3": less})
    assert {finding.figure for finding in found} == {"mount:/sw", "fabric-manager"}
    assert {(finding.where, finding.severity) for finding in found} == {("host h2", Severity.WARN)}


def test_hosts_of_another_kind_are_another_comparison(tree: Tree) -> None:
    good = tree.facts()
    tree.write("proc/sys/kernel/osrelease", "6.8")
    states = {**dict.fromkeys(("a1", "a2", "a3"), good), **dict.fromkeys(("b1", "b2", "b3"), tree.facts())}
    assert list(settings.compare(states, {name: name[0] for name in states})) == []


def test_a_limit_that_all_hosts_share(tree: Tree) -> None:
    tree.replace("proc/self/limits", _UNLIMITED, "8388608 8388608")
    told = tree.facts()
    (finding,) = findings({"h1": told, "h2": told})
    assert finding.where == "cluster" and "ranks on h1, h2 may lock 8388608" in finding.text
    assert findings({"h1": {**told, "rdma": False}}) == []


def test_mounts_on_demand_are_not_compared(tree: Tree) -> None:
    tree.write("proc/self/mountinfo", f"30 25 0:40 / /sw rw - autofs auto.sw rw\n{_NFS}\n")
    assert tree.facts()["mounts"] == {}


def test_a_process_that_an_earlier_job_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of a user who has no job."""
    if os.getuid() != 0:
        pytest.skip("only root starts a process of another user")
    monkeypatch.setattr(probe, "_BUSY", 0.05)  # other programs have the cores, too
    child = subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"], user=12345, cwd="/")
    try:
        told = probe.processes(Path("/"), 1.0)
    finally:
        child.kill()
        child.wait()
    (process,) = [one for one in told if one["pid"] == child.pid]
    assert (process["user"], process["command"]) == ("12345", "sh")
    state = Tree(tmp_path).facts() | {"processes": [process]}
    (finding,) = findings({"h1": state})
    assert finding.hosts == ("h1",) and f"process {child.pid} (sh) of 12345 uses" in finding.text
    assert findings({"h1": {**state, "occupied": "job 77 runs here"}}) == []
    assert (
        settings.not_judged({"h1": {**state, "occupied": "job 77 runs here"}})["processes"]
        == "jobs run, or may run, on h1"
    )


def test_the_whole_check_on_this_machine(
    env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in MPI_AS_ROOT.items():
        monkeypatch.setenv(name, value)
    hosts = (Host("localhost", 1, 0, {}),)
    bench = Bench(env.prefix, (), hosts, False, 1, 0, LEVELS["smoke"], 0.3, tmp_path, lambda _: None)
    result = settings.check(bench, [])
    (told,) = result.facts["hosts"].values()
    assert told["settings"]["kernel"] == os.uname().release
    assert told["settings"]["nofile"] and told["settings"]["stack"]
    assert result.status in (Status.PASSED, Status.FAILED) and not any(
        finding.figure in told["settings"] and finding.figure != "memlock" for finding in result.findings
    )
