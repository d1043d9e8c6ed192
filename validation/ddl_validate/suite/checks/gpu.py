"""GPUs: errors of memory and links, lowered clocks, narrow or slow PCIe, what copies and NCCL reach, and what
DCGM finds.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ...common.running import RunFailed
from ..attribution import different, listed
from ..bench import Bench
from ..errors import ValidateError
from ..kinds import by_kind, kinds_of
from ..model import CheckResult, Expectation, Figure, Finding, Kind, Status, status_of
from .asking import ask

TITLE = "GPUs: errors, links, clocks, bandwidth"

_DCGM_LEVELS = {"smoke": 1, "daily": 2, "burn-in": 3}
_WATCH_SECONDS = {"smoke": 20.0, "daily": 60.0, "burn-in": 120.0}

# Bits of nvmlClocksThrottleReasons. A cap of power is usual at full load.
_THROTTLED = {
    0x8: "hardware slowdown",
    0x20: "heat (by software)",
    0x40: "heat (by hardware)",
    0x80: "power brake of the host",
}
# Xids that NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors, for A100 and newer) answers by a reset of
# the GPU, a restart of the host or work on NVLink: the GPU is not to be used before.
_XIDS = {
    46: "the GPU stopped processing",
    48: "double-bit error of memory",
    62: "its controller halted",
    64: "a page or row of memory could not be taken out of use",
    74: "error of NVLink",
    79: "the GPU has fallen off the bus",
    95: "uncontained error of memory",
    109: "a context could not be switched in time",
    110: "security fault",
    119: "the GPU's own processor does not answer",
    120: "error of the GPU's own processor",
    136: "a link could not be trained",
    140: "unrecovered error of memory",
    143: "the GPU could not be initialised",
    154: "the driver asks for another recovery",
    155: "error of NVLink's software",
    158: "fatal timeout",
}
_XIDS |= dict.fromkeys(range(144, 151), "error of NVLink")
# Those that it answers by a restart of the program, or not at all.
_XIDS_WARN = {
    63: "a page or row of memory was taken out of use",
    68: "exception of a video decoder",
    69: "error of a graphics class",
    92: "many single-bit errors of memory",
    94: "contained error of memory: the program has ended",
    121: "corrected error of the link to the processor (C2C)",
    122: "its firmware's memory could not be read",
    123: "its firmware's memory could not be written",
    124: "its firmware's memory could not be erased",
    125: "error of its firmware's file system",
}
_RECOVERY = 154
_SETTINGS = {
    "driver-version": "GPU driver",
    "cuda-version": "version of CUDA by the driver",
    "vbios": "firmware of GPUs",
    "ecc": "setting of ECC",
    "mig": "setting of MIG",
    "persistence": "setting of persistence",
    "power-limit": "power limit of GPUs",
    "application-clock": "application clock of GPUs",
}
_SERVICES = ("nvidia-cuda-mps", "nv-hostengine")  # that compute for others, or watch them
_PCIE_REPLAYS = 10  # in a check: a good link has some now and then

_REMEDIES = {
    "processes": "end what an earlier job has left, and look at the scheduler's epilog",
    "xid": "look for the number in NVIDIA's Xid catalogue, and at dmesg and nvidia-smi on the host",
    "memory": "reset the GPU (nvidia-smi -r) or restart the host; if it comes again, replace it",
    "links": "reseat the GPU or its bridge; look at nvidia-smi nvlink -s and nvidia-smi topo -m",
    "clocks": "look at fans, inlet temperature and power supplies; nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
    "driver": "look at nvidia-smi and dmesg on the host; restart it",
    "speed": "run ddl-gpu-check on the host and on a good one",
    "diagnosis": "run dcgmi diag -r 3 on the host",
}


def check(bench: Bench, before: list[CheckResult]) -> CheckResult:
    """The state is read before and after; meanwhile the GPUs are busy, and watched."""
    start = time.monotonic()
    result = CheckResult("gpu", TITLE, Status.SKIPPED)
    if not bench.gpus:
        without = [host.name for host in bench.hosts if not host.facts.get("gpus")]
        result.reason = f"no GPU on {', '.join(without[:4])}{' …' if len(without) > 4 else ''}"
        return result
    hours = ("--hours", f"{bench.log_hours:g}")
    first = ask(bench, result, "gpu_state", hours, "gpu-before")
    watch = _WATCH_SECONDS.get(bench.level.name, min(_WATCH_SECONDS.values()))
    limit = max(30.0, bench.level.limit - 20)
    level = _DCGM_LEVELS.get(bench.level.name, min(_DCGM_LEVELS.values()))
    aside = replace(result, commands=[], logs=[])
    with ThreadPoolExecutor(1) as beside:
        seen = beside.submit(ask, bench, aside, "gpu_state", ("--seconds", f"{watch:g}"), "gpu-watch")
        try:
            loads = ask(bench, result, "gpu_load", (f"{limit:g}", str(level)), "gpu-load")
        except (RunFailed, ValidateError) as error:
            loads = {}
            result.facts["load"] = str(error)
        watched = seen.result()
    result.commands += aside.commands
    result.logs += aside.logs
    second = ask(bench, result, "gpu_state", hours, "gpu-after")
    result.figures = figures(loads, bench.tolerance)
    texts = [*left_over(first), *state_texts(first, second), *watch_texts(watched, busy=_busy(loads))]
    texts += load_texts(loads)
    kinds = kinds_of({host.name: host.facts for host in bench.hosts})
    result.findings = [*findings(texts), *_slow(result.figures), *settings(second, kinds)]
    result.not_judged = not_judged(second)
    result.facts["hosts"] = {
        host: {**state, "load": watched.get(host, {}).get("load", []), **loads.get(host, {})}
        for host, state in second.items()
    }
    result.status = status_of(result.findings)
    result.seconds = time.monotonic() - start
    return result


class Text(NamedTuple):
    """What is wrong with a host's GPUs. remedy: key of _REMEDIES."""

    host: str
    text: str
    remedy: str
    warns: bool = False


def findings(texts: Iterable[Text]) -> list[Finding]:
    """One for each host, remedy and severity."""
    by_fault: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
    for text in texts:
        by_fault[text.host, text.remedy, text.warns].append(text.text)
    return [
        Finding(
            Kind.GPU,
            f"host {host}",
            f"{host}: {'; '.join(faults)}",
            _REMEDIES[remedy],
            () if warns else (host,),
            f"gpu.{remedy}",
            warns,
        )
        for (host, remedy, warns), faults in by_fault.items()
    ]


def state_texts(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Text]:
    """What is wrong with the GPUs, or has happened to them during the check."""
    numbers = [len(state["gpus"]) for state in second.values()]
    usual = max(numbers, default=0)
    for host, state in second.items():
        if state["problem"]:
            yield Text(host, f"the GPUs cannot be queried: {state['problem']}", "driver")
            continue
        if len(state["gpus"]) < usual:
            yield Text(host, f"has {len(state['gpus'])} GPUs, and other hosts have {usual}", "driver")
        earlier = {gpu["bus"]: gpu for gpu in first.get(host, {}).get("gpus", ())}
        for number, gpu in enumerate(state["gpus"]):
            name = f"GPU {number} ({gpu['bus'] or gpu['name']})"
            yield from (Text(host, f"{name} {text}", remedy) for text, remedy in _memory(gpu))
            yield from (Text(host, f"{name} {text}", remedy) for text, remedy in _links(gpu))
            if gpu["bus"] in earlier:
                grown = _grown(earlier[gpu["bus"]], gpu)
                yield from (Text(host, f"{name} {text}", remedy) for text, remedy in grown)
        yield from (text for event in state["events"] or () for text in _event(host, event))


def _event(host: str, event: Mapping[str, Any]) -> Iterator[Text]:
    number, detail = event["number"], event["text"]
    harmless = "non-fatal" in detail.lower() or "nonfatal" in detail.lower()
    if event["kind"] == "SXid":
        yield Text(host, f"SXid {number} of NVSwitch {event['bus']}: {detail}", "xid", harmless)
    elif number == _RECOVERY and detail.rstrip(".)").endswith("None"):
        return
    elif number in _XIDS:
        more = f" ({detail})" if number == _RECOVERY else ""
        yield Text(host, f"Xid {number} of GPU {event['bus']}: {_XIDS[number]}{more}", "xid", harmless)
    elif number in _XIDS_WARN:
        yield Text(host, f"Xid {number} of GPU {event['bus']}: {_XIDS_WARN[number]}", "xid", True)


def settings(states: Mapping[str, Any], kinds: Mapping[str, str]) -> Iterator[Finding]:
    """Versions and settings that differ between hosts of a kind; of a host whose GPUs differ, all of them."""
    for group in by_kind(states, kinds):
        for name in _SETTINGS:
            values = {host: _setting(states[host], name) for host in group}
            present = {host: value for host, value in values.items() if value}
            yield from different(present, f"gpu.{name}", _SETTINGS[name], partial(_is_fault, name))


def _is_fault(name: str, value: str) -> bool:
    """Without ECC results are at risk, and with MIG there are other GPUs; what else differs is a warning."""
    return name == "mig" or (name == "ecc" and value != "on")


def _setting(state: Mapping[str, Any], name: str) -> str:
    if name in ("driver-version", "cuda-version"):
        return str(state[name.removesuffix("-version")] or "")
    values = [gpu["settings"][name] for gpu in state["gpus"]]
    if len(set(values)) == 1:
        return str(values[0] or "")
    return ", ".join(f"GPU {number}: {value or 'unknown'}" for number, value in enumerate(values))


def not_judged(states: Mapping[str, Any]) -> dict[str, str]:
    """What no GPU of some hosts tells."""
    reasons = {}
    for name in _SETTINGS:
        silent = [host for host, state in states.items() if not _setting(state, name)]
        if silent:
            reasons[f"gpu.{name}"] = f"the GPUs of {listed(silent)} do not tell it"
    if silent := [host for host, state in states.items() if state["events"] is None]:
        reasons["gpu.xid"] = f"ordinary users of {listed(silent)} cannot read the kernel's log"
    if silent := [
        host for host, state in states.items() if None in [gpu["processes"] for gpu in state["gpus"]]
    ]:
        reasons["gpu.processes"] = f"the driver of {listed(silent)} does not tell them"
    return reasons


def left_over(states: Mapping[str, Any]) -> Iterator[Text]:
    """Programs on GPUs before anything was started on them."""
    for host, state in states.items():
        for number, gpu in enumerate(state["gpus"]):
            for process in gpu["processes"] or ():
                if process["command"].startswith(_SERVICES):
                    continue
                text = f"process {process['pid']} ({process['command']}) of {process['user']} computes on"
                yield Text(host, f"{text} GPU {number} ({gpu['bus'] or gpu['name']})", "processes")


def _memory(gpu: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if gpu["ecc"]["uncorrected"]:
        yield f"has {gpu['ecc']['uncorrected']} uncorrected errors of memory since its driver began", "memory"
    rows = gpu["remapped"]
    if rows and rows["failed"]:
        yield "could not remap a row of memory: no spare one is left", "memory"
    elif rows and rows["pending"]:
        yield "has a row of memory to remap at its next reset", "memory"
    pages = gpu["retired"]
    if not rows and pages and pages["pending"]:
        yield "has a page of memory to retire at its next reset", "memory"


def _links(gpu: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    down = [link for link, up in gpu["nvlink"]["up"].items() if not up]
    # a GPU without a bridge has none up
    if down and len(down) < len(gpu["nvlink"]["up"]):
        yield f"has NVLink {', '.join(down)} down, of {len(gpu['nvlink']['up'])}", "links"
    width, highest = gpu["pcie"]["width"], gpu["pcie"]["highest_width"]
    if width and highest and width < highest:
        yield f"has {width} of {highest} PCIe lanes", "links"


def _grown(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in now["nvlink"]["errors"].items():
        if value > earlier["nvlink"]["errors"].get(name, value):
            more = value - earlier["nvlink"]["errors"][name]
            yield f"counted {more} NVLink errors ({name}) during the check", "links"
    replays, before = now["pcie"]["replays"], earlier["pcie"]["replays"]
    if replays is not None and before is not None and replays - before > _PCIE_REPLAYS:
        yield f"sent {replays - before} PCIe packets again during the check", "links"


def watch_texts(loads: Mapping[str, Any], busy: Mapping[str, bool]) -> Iterator[Text]:
    """busy: hosts whose GPUs have worked meanwhile. A GPU at rest lowers its clock and its PCIe link."""
    for host, facts in loads.items():
        for number, (gpu, load) in enumerate(zip(facts["gpus"], facts["load"], strict=True)):
            name = f"GPU {number} ({gpu['bus'] or gpu['name']})"
            reasons = [text for bit, text in _THROTTLED.items() if (load["throttled"] or 0) & bit]
            if reasons:
                at = f", at {load['temperature']} °C" if load["temperature"] is not None else ""
                yield Text(host, f"{name} lowered its clock for {', '.join(reasons)}{at}", "clocks")
            highest = gpu["pcie"]["highest_generation"]
            if busy.get(host) and load["generation"] and highest and load["generation"] < highest:
                yield Text(host, f"{name} has PCIe {load['generation']} under load, not {highest}", "links")


def load_texts(loads: Mapping[str, Any]) -> Iterator[Text]:
    """What ddl-gpu-check and DCGM said."""
    for host, facts in loads.items():
        document = facts["check"]
        if "error" in document:
            yield Text(host, f"ddl-gpu-check: {document['error']}", "speed")
        for check in document.get("checks", ()):
            if check["verdict"] == "failed":
                yield Text(host, f"ddl-gpu-check, {check['title']}: {check['reason']}", "speed")
        for text in dcgm_texts(facts["dcgm"]):
            yield Text(host, f"DCGM: {text}", "diagnosis")


def dcgm_texts(report: Mapping[str, Any] | None) -> Iterator[str]:
    """Tests that failed. The outermost name differs between releases of DCGM."""
    if report is None:
        return
    if "error" in report:
        yield str(report["error"])
    for outer in report.values():
        if not isinstance(outer, dict):
            continue
        for category in outer.get("test_categories", ()):
            for test in category.get("tests", ()):
                for outcome in test.get("results", ()):
                    if str(outcome.get("status", "")).lower() == "fail":
                        gpu = outcome.get("gpu_id", outcome.get("gpu_ids", outcome.get("entity_id")))
                        where = f" on GPU {gpu}" if gpu is not None else ""
                        yield f"{test.get('name', 'a test')} failed{where}{_warning(outcome)}"


def _warning(result: Mapping[str, Any]) -> str:
    warnings = result.get("warnings") or result.get("info") or ""
    if isinstance(warnings, list):
        warnings = "; ".join(
            str(warning.get("warning", warning) if isinstance(warning, dict) else warning)
            for warning in warnings
        )
    return f": {warnings}" if warnings else ""


def _busy(loads: Mapping[str, Any]) -> dict[str, bool]:
    return {
        host: any(
            check["name"] == "copies" and check["verdict"] == "passed"
            for check in facts["check"].get("checks", ())
        )
        for host, facts in loads.items()
    }


def figures(loads: Mapping[str, Any], tolerance: float) -> list[Figure]:
    """What copies and NCCL reach on each host, against the median of the others."""
    values: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for host, facts in loads.items():
        for check in facts["check"].get("checks", ()):
            if check["verdict"] != "passed":
                continue
            measured = check["figures"]
            if check["name"] == "copies":
                for way, rate in measured["bytes_per_second"].items():
                    values[f"gpu.copy.{way}", measured["block"]][host] = float(rate)
            elif check["name"] == "ipc-copies":
                rate = float(measured["bytes_per_second"])
                values["gpu.copy.processes", measured["block"]][host] = rate
            elif check["name"] == "nccl":
                for cell in _largest(measured["cells"]):
                    values[f"gpu.busbw.{cell['peer']}", cell["bytes"]][host] = float(cell["busbw"])
    figures_of_hosts = []
    for (name, size), rates in values.items():
        for host, value in rates.items():
            others = [rate for other, rate in rates.items() if other != host]
            # of two hosts nobody knows which one is right, but no fault makes a GPU faster
            usual = statistics.median(others) if others else None
            expected = Expectation(usual, "peers", tolerance) if usual else None
            figures_of_hosts.append(
                Figure(
                    name,
                    f"host {host}",
                    value,
                    "B/s",
                    expected=expected,
                    command="ddl-gpu-check",
                    scale={"bytes": size},
                )
            )
    return figures_of_hosts


def _largest(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    most = max((cell["bytes"] for cell in cells), default=0)
    return [cell for cell in cells if cell["bytes"] == most and cell["busbw"]]


def _slow(figures: Iterable[Figure]) -> Iterator[Finding]:
    for figure in figures:
        if figure.low and figure.expected is not None:
            rates = f"{figure.value / 1e9:.3g} GB/s, of other hosts {figure.expected.value / 1e9:.3g}"
            host = figure.where.removeprefix("host ")
            text = f"{host}: {figure.name} is {rates}"
            yield Finding(Kind.GPU, figure.where, text, _REMEDIES["speed"], (host,), figure.name)
