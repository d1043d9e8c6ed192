"""GPUs: a library that stands in for NVIDIA's tells faults, one at a time; and what is made of the words of
ddl-gpu-check and DCGM. None of this was run on a GPU.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from program_runner import ROOT, Environment

from ddl_validate.common.mpi import MPI_AS_ROOT
from ddl_validate.suite.bench import Bench, Host
from ddl_validate.suite.checks import gpu
from ddl_validate.suite.levels import LEVELS
from ddl_validate.suite.model import Kind, Severity, Status
from ddl_validate.suite.probe import lines

GOOD = """\
gpus 2
corrected 4
uncorrected 0
uncorrected_ever 0
rows_corrected 1
rows_pending 0
rows_failed 0
link0 1
link1 1
link_errors 5
highest_generation 5
generation 5
highest_width 16
width 16
replays 3
clock 1980
highest_clock 1980
temperature 61
slowdown 87
throttled 4
vbios 96.00.5E.00.01
ecc 1
mig 0
persistence 1
power_limit 700000
application_clock 1980
"""
_UPTIME = 7 * 86400.0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml_state.c")
    words = ["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(made), str(source)]
    subprocess.run(words, check=True, timeout=60)
    return made


class Machine:
    """A host whose GPUs are described; facts() by the program, as a host is asked."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.folder, self.library, self.text, self.log = folder, library, GOOD, ""

    def facts(self) -> Any:
        (self.folder / "state").write_text(self.text)
        (self.folder / "log").write_text(self.log)
        words = ["-m", "ddl_validate.suite.probe.gpu_state", "--library", str(self.library)]
        done = subprocess.run(
            [sys.executable, *words, "--kernel-log", str(self.folder / "log"), "--uptime", str(_UPTIME)],
            env={
                **os.environ,
                "NVML_STATE": str(self.folder / "state"),
                "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("validation", "ddl-core/ddlrun")),
            },
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        (told,) = lines.heard(done.stdout).values()
        return told


@pytest.fixture
def machine(tmp_path: Path, library: Path) -> Machine:
    return Machine(tmp_path, library)


def found(first: Any, second: Any, busy: bool = True) -> list[Any]:
    """h2 has been so; h1 and h3 are well."""
    before, after = ({"h1": first, "h2": told, "h3": first} for told in (first, second))
    texts = [*gpu.left_over(after), *gpu.state_texts(before, after)]
    texts += gpu.watch_texts(after, dict.fromkeys(after, busy))
    return [*gpu.findings(texts), *gpu.settings(after, {})]


def test_what_is_read(machine: Machine) -> None:
    machine.log = (
        f"[{_UPTIME - 25 * 3600:.6f}] NVRM: Xid (PCI:0000:02:00): 79, pid=0, GPU has fallen off the bus.\n"
        f"[{_UPTIME - 23 * 3600:.6f}] NVRM: Xid (PCI:0000:02:00): 13, pid=77, Graphics Exception\n"
        f"[{_UPTIME - 9:.6f}] NVRM: Xid (PCI:0000:02:00): 13, pid=78, Graphics Exception\n"
        f"[{_UPTIME - 8:.6f}] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress\n"
        "[2.0] other\n"
    )
    told = machine.facts()
    assert told["problem"] == "" and told["driver"] == "550.54.15" and len(told["gpus"]) == 2
    one, other = told["gpus"]
    assert one["name"] == "Stand-in" and (one["bus"], other["bus"]) == (
        "00000000:01:00.0",
        "00000000:02:00.0",
    )
    assert one["ecc"] == {"uncorrected": 0, "corrected": 4, "uncorrected_ever": 0}
    assert one["remapped"] == {"corrected": 1, "uncorrected": 0, "pending": 0, "failed": 0}
    assert one["retired"] is None
    assert one["nvlink"]["up"] == {"0": True, "1": True} and one["nvlink"]["errors"]["crc_flit"] == 10
    assert one["pcie"] == {"highest_generation": 5, "width": 16, "highest_width": 16, "replays": 3}
    assert told["load"][0] == {"generation": 5, "clock": 1980, "temperature": 61, "throttled": 4}
    # what is older than a day does not count, and each counts once
    assert told["events"] == [
        {"kind": "Xid", "bus": "0000:02:00", "number": 13, "text": "pid=78, Graphics Exception"},
        {"kind": "SXid", "bus": "0000:c1:00.0", "number": 12028, "text": "Non-fatal, Link 32 egress"},
    ]
    assert one["settings"] == {
        "vbios": "96.00.5E.00.01",
        "ecc": "on",
        "mig": "off",
        "persistence": "on",
        "power-limit": "700 W",
        "application-clock": "1980 MHz",
    }
    assert told["cuda"] == 12040 and one["processes"] == []


def test_good_gpus_have_no_finding(machine: Machine) -> None:
    """Nor an error of a program (Xid 13), nor corrected errors, nor a cap of power."""
    first = machine.facts()
    machine.log = "NVRM: Xid (PCI:0000:02:00): 13, pid=77, Graphics Exception\n"
    machine.text += "0.corrected 9\n0.replays 6\n"
    assert found(first, machine.facts()) == []


@pytest.mark.parametrize(
    ("changed", "log", "says"),
    [
        ("1.uncorrected 2", "", "GPU 1 (00000000:02:00.0) has 2 uncorrected errors of memory"),
        ("0.rows_pending 1", "", "GPU 0 (00000000:01:00.0) has a row of memory to remap"),
        ("0.rows_failed 1", "", "no spare one is left"),
        ("1.link1 0", "", "GPU 1 (00000000:02:00.0) has NVLink 1 down, of 2"),
        ("0.link_errors 9", "", "counted 8 NVLink errors (crc_data) during the check"),
        ("0.width 8", "", "has 8 of 16 PCIe lanes"),
        ("0.generation 3", "", "has PCIe 3 under load, not 5"),
        ("0.replays 900", "", "sent 897 PCIe packets again during the check"),
        ("1.throttled 0x40", "", "lowered its clock for heat (by hardware), at 61 °C"),
        ("1.throttled 0x88", "", "for hardware slowdown, power brake of the host"),
        ("1.lost 1", "", "cannot be queried: GPU 1 does not answer"),
        ("init 9", "", "cannot be queried: nvmlInit_v2: error 9"),
        ("gpus 1", "", "has 1 GPUs, and other hosts have 2"),
        (
            "",
            "NVRM: Xid (PCI:0000:02:00): 79, pid=0, GPU has fallen off the bus.",
            "Xid 79 of GPU 0000:02:00",
        ),
    ],
)
def test_each_fault_names_its_host_and_gpu(machine: Machine, changed: str, log: str, says: str) -> None:
    first = machine.facts()
    machine.text = (
        machine.text.replace("gpus 2\n", "") + changed if changed == "gpus 1" else (machine.text + changed)
    )
    machine.log = log
    (finding,) = found(first, machine.facts())
    assert (finding.kind, finding.where, finding.hosts) == (Kind.GPU, "host h2", ("h2",))
    assert says in finding.text and finding.text.startswith("h2: "), finding.text
    assert finding.remedy


# By NVIDIA's catalogue: what a reset or a repair is asked for; 13, 31 and 43 are a program's.
_DRAINS = [46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, *range(144, 151), 154, 155, 158]
_WARNS = [63, 68, 69, 92, 94, 121, 122, 123, 124, 125]


@pytest.mark.parametrize("xid", [*_DRAINS, *_WARNS])
def test_each_xid_has_a_severity(machine: Machine, xid: int) -> None:
    first = machine.facts()
    event = {"kind": "Xid", "bus": "0000:02:00", "number": xid, "text": "pid=0"}
    (finding,) = found(first, {**first, "events": [event]})
    assert finding.kind is Kind.GPU and f"Xid {xid} of GPU 0000:02:00" in finding.text
    assert finding.severity is (Severity.DRAIN if xid in _DRAINS else Severity.WARN)
    assert finding.figure == "gpu.xid"
    programs = [{**event, "number": number} for number in (13, 31, 43)]
    assert found(first, {**first, "events": programs}) == []


@pytest.mark.parametrize(
    ("kind", "number", "text", "severity"),
    [
        ("SXid", 20034, "Fatal, Link 28 LTSSM Fault Up", Severity.DRAIN),
        ("SXid", 12028, "Non-fatal, Link 32 egress non-posted PRIV error", Severity.WARN),
        ("Xid", 149, "NETIR_LINK_EVT Fatal   XC0 i0 Link 08", Severity.DRAIN),
        ("Xid", 149, "NETIR_LINK_EVT Nonfatal XC0 i0 Link 08", Severity.WARN),
        (
            "Xid",
            154,
            "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            Severity.DRAIN,
        ),
        ("Xid", 154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", None),
    ],
)
def test_what_the_driver_says_of_an_error(
    machine: Machine, kind: str, number: int, text: str, severity: Severity | None
) -> None:
    first = machine.facts()
    event = {"kind": kind, "bus": "0000:02:00", "number": number, "text": text}
    findings = found(first, {**first, "events": [event]})
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("changed", "figure", "severity", "says"),
    [
        ("vbios 92", "gpu.vbios", Severity.WARN, "h2 has another firmware of GPUs than the others: 92"),
        ("1.ecc 0", "gpu.ecc", Severity.DRAIN, "GPU 0: on, GPU 1: off, not on"),
        ("mig 1", "gpu.mig", Severity.DRAIN, "on, not off"),
        ("persistence 0", "gpu.persistence", Severity.WARN, "off, not on"),
        ("power_limit 400000", "gpu.power-limit", Severity.WARN, "400 W, not 700 W"),
        ("application_clock 1410", "gpu.application-clock", Severity.WARN, "1410 MHz, not 1980 MHz"),
    ],
)
def test_settings_that_differ(
    machine: Machine, changed: str, figure: str, severity: Severity, says: str
) -> None:
    first = machine.facts()
    kept = [line for line in GOOD.splitlines() if line.split()[0] != changed.split()[0]]
    machine.text = "\n".join([*kept, changed]) + "\n"
    (finding,) = found(first, machine.facts())
    assert (finding.figure, finding.severity) == (figure, severity) and says in finding.text, finding.text
    (finding,) = found(first, {**first, "driver": "535.1"})
    assert finding.figure == "gpu.driver-version" and finding.severity is Severity.WARN


def test_what_gpus_do_not_tell_is_not_judged(machine: Machine) -> None:
    first = machine.facts()
    assert gpu.not_judged({"h1": first}) == {}
    machine.text = machine.text.replace("mig 0\n", "")
    told = {**machine.facts(), "events": None}
    assert gpu.not_judged({"h1": first, "h2": told}) == {
        "gpu.mig": "the GPUs of h2 do not tell it",
        "gpu.xid": "ordinary users of h2 cannot read the kernel's log",
    }
    assert found(first, told) == []


def test_a_process_that_an_earlier_job_left_on_a_gpu(machine: Machine) -> None:
    first = machine.facts()
    machine.text += f"1.pid {os.getpid()}\n"
    (finding,) = found(first, machine.facts())
    assert (finding.figure, finding.hosts) == ("gpu.processes", ("h2",))
    assert f"h2: process {os.getpid()} (" in finding.text and "computes on GPU 1" in finding.text


def test_pages_are_looked_at_where_rows_cannot_be_remapped(machine: Machine) -> None:
    machine.text = machine.text.replace("rows_corrected 1\n", "pages 3\npages_pending 0\n")
    first = machine.facts()
    assert first["gpus"][0]["retired"] == {"pages": 6, "pending": 0} and found(first, first) == []
    machine.text += "0.pages_pending 1\n"
    (finding,) = found(first, machine.facts())
    assert "page of memory to retire" in finding.text


def test_a_gpu_at_rest_may_lower_its_link(machine: Machine) -> None:
    first = machine.facts()
    machine.text += "generation 1\n0.generation 1\n1.generation 1\n"
    assert found(first, machine.facts(), busy=False) == []


def test_without_the_library_the_host_is_named(machine: Machine) -> None:
    first = machine.facts()
    machine.library = machine.folder / "none.so"
    (finding,) = found(first, machine.facts())
    assert "cannot be queried" in finding.text and "none.so" in finding.text


COPIES = {
    "name": "copies",
    "title": "Copies",
    "verdict": "passed",
    "reason": "",
    "figures": {"bytes_per_second": {"to_device": 50e9, "to_host": 48e9}, "block": 1 << 26},
}
CELLS = [
    {"peer": peer, "bytes": size, "median": 1.0, "algbw": rate, "busbw": rate}
    for size, rate in ((1 << 20, 60e9), (1 << 26, 200e9))
    for peer in ("ddl", "nccl")
]
NCCL = {"name": "nccl", "title": "NCCL", "verdict": "passed", "reason": "", "figures": {"cells": CELLS}}


def loads() -> dict[str, Any]:
    told = {"check": {"checks": [COPIES, NCCL]}, "dcgm": None}
    return {host: copy.deepcopy(told) for host in ("h1", "h2", "h3")}


def test_bandwidth_is_compared_with_that_of_other_hosts() -> None:
    told = loads()
    made = gpu.figures(told, 0.2)
    assert {figure.name for figure in made} == {
        *("gpu.copy.to_device", "gpu.copy.to_host", "gpu.busbw.ddl", "gpu.busbw.nccl"),
    }
    assert len(made) == 12 and not any(figure.low for figure in made)
    assert {figure.value for figure in made if "busbw" in figure.name} == {200e9}  # of the largest size
    assert {figure.scale["bytes"] for figure in made} == {1 << 26}
    told["h3"]["check"]["checks"][0]["figures"]["bytes_per_second"]["to_host"] = 12e9
    low = [figure for figure in gpu.figures(told, 0.2) if figure.low]
    assert [(figure.name, figure.where) for figure in low] == [("gpu.copy.to_host", "host h3")]
    (finding,) = gpu._slow(low)
    assert finding.hosts == ("h3",) and "12 GB/s, of other hosts 48" in finding.text


def test_a_host_is_compared_with_the_median_of_the_others() -> None:
    """Its own figure would move the median towards itself."""
    hosts = loads()
    for host, rate in zip(hosts, (50e9, 40e9, 10e9), strict=True):
        hosts[host]["check"]["checks"][0]["figures"]["bytes_per_second"] = {"to_host": rate}
    expected = {
        figure.where: figure.expected.value
        for figure in gpu.figures(hosts, 0.2)
        if figure.name == "gpu.copy.to_host" and figure.expected
    }
    assert expected == {"host h1": 25e9, "host h2": 30e9, "host h3": 45e9}


def test_a_failed_check_and_a_failed_diagnosis_are_findings() -> None:
    told = loads()
    assert list(gpu.load_texts(told)) == []
    told["h1"]["check"]["checks"].append(
        {"name": "values", "title": "Every type", "verdict": "failed", "reason": "wrong sum", "figures": {}}
    )
    told["h2"]["check"] = {"error": "ddl-gpu-check did not end within 100 s"}
    tests = [
        {"name": "Memory", "results": [{"gpu_id": 3, "status": "Fail", "warnings": [{"warning": "row 7"}]}]},
        {"name": "PCIe", "results": [{"gpu_id": 0, "status": "Pass"}, {"gpu_ids": "1", "status": "Skip"}]},
    ]
    told["h3"]["dcgm"] = {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}}
    texts = {finding.where: finding.text for finding in gpu.findings(gpu.load_texts(told))}
    assert texts == {
        "host h1": "h1: ddl-gpu-check, Every type: wrong sum",
        "host h2": "h2: ddl-gpu-check: ddl-gpu-check did not end within 100 s",
        "host h3": "h3: DCGM: Memory failed on GPU 3: row 7",
    }


def bench_of(prefix: Path, folder: Path, gpus: int) -> Bench:
    hosts = (Host("localhost", 1, 0, {"gpus": [{}] * gpus}),)
    return Bench(prefix, (), hosts, False, 1, gpus, LEVELS["smoke"], 0.3, folder, lambda _: None)


def test_hosts_without_gpus_are_passed_over(tmp_path: Path) -> None:
    result = gpu.check(bench_of(tmp_path, tmp_path, 0), [])
    assert result.status is Status.SKIPPED and result.reason == "no GPU on localhost"


def test_the_whole_check_by_ddlrun(
    env: Environment, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the stand-in for the library, and ddl-gpu-check, which finds no GPU and makes no check."""
    (tmp_path / "state").write_text(GOOD + "1.uncorrected 7\n")
    for name, value in MPI_AS_ROOT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NVML_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(machine.library.parent))
    monkeypatch.setattr(gpu, "_WATCH_SECONDS", {"smoke": 0.5})
    variables = gpu.ask.__globals__["module_variables"]
    more = {"NVML_STATE": str(tmp_path / "state"), "LD_LIBRARY_PATH": str(machine.library.parent)}
    monkeypatch.setitem(gpu.ask.__globals__, "module_variables", lambda: {**variables(), **more})
    result = gpu.check(bench_of(env.prefix, tmp_path / "logs", 2), [])
    (finding,) = result.findings
    assert "GPU 1 (00000000:02:00.0) has 7 uncorrected errors" in finding.text, result
    facts = result.facts["hosts"]["localhost"]
    assert len(facts["gpus"]) == 2 and facts["check"]["verdict"] == "not run"
    assert len(result.logs) == len(result.commands) == 4
