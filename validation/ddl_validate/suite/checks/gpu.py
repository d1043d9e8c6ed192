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
from typing import Any

from ...common.running import RunFailed
from ..bench import Bench
from ..errors import ValidateError
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
# Errors of the driver that mean hardware, not a program: NVIDIA's list of Xid errors.
_XIDS = {
    48: "double-bit error of memory",
    63: "a page or row of memory was taken out of use",
    64: "a page or row of memory could not be taken out of use",
    74: "error of NVLink",
    79: "the GPU has fallen off the bus",
    92: "many single-bit errors of memory",
    94: "contained error of memory",
    95: "uncontained error of memory",
    110: "security fault",
    119: "the GPU's own processor does not answer",
    120: "error of the GPU's own processor",
}
_PCIE_REPLAYS = 10  # in a check: a good link has some now and then

_REMEDIES = {
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
    first = ask(bench, result, "gpu_state", (), "gpu-before")
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
    second = ask(bench, result, "gpu_state", (), "gpu-after")
    result.figures = figures(loads, bench.tolerance)
    texts = [*state_texts(first, second), *watch_texts(watched, busy=_busy(loads))]
    texts += [*load_texts(loads), *_slow(result.figures)]
    result.findings = findings(texts)
    result.facts["hosts"] = {
        host: {**state, "load": watched.get(host, {}).get("load", []), **loads.get(host, {})}
        for host, state in second.items()
    }
    result.status = status_of(result.findings)
    result.seconds = time.monotonic() - start
    return result


Text = tuple[str, str, str]  # host, what is wrong, key of _REMEDIES


def findings(texts: Iterable[Text]) -> list[Finding]:
    """One for each host."""
    by_fault: dict[str, list[Text]] = defaultdict(list)
    for text in texts:
        by_fault[text[0]].append(text)
    return [
        Finding(
            Kind.GPU,
            f"host {host}",
            f"{host}: {'; '.join(text for _, text, _ in faults)}",
            "; ".join(dict.fromkeys(_REMEDIES[remedy] for _, _, remedy in faults)),
            (host,),
        )
        for host, faults in by_fault.items()
    ]


def state_texts(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Text]:
    """What is wrong with the GPUs, or has happened to them during the check."""
    numbers = [len(state["gpus"]) for state in second.values()]
    usual = max(numbers, default=0)
    for host, state in second.items():
        if state["problem"]:
            yield host, f"the GPUs cannot be queried: {state['problem']}", "driver"
            continue
        if len(state["gpus"]) < usual:
            yield host, f"has {len(state['gpus'])} GPUs, and other hosts have {usual}", "driver"
        earlier = {gpu["bus"]: gpu for gpu in first.get(host, {}).get("gpus", ())}
        for number, gpu in enumerate(state["gpus"]):
            name = f"GPU {number} ({gpu['bus'] or gpu['name']})"
            yield from ((host, f"{name} {text}", remedy) for text, remedy in _memory(gpu))
            yield from ((host, f"{name} {text}", remedy) for text, remedy in _links(gpu))
            if gpu["bus"] in earlier:
                grown = _grown(earlier[gpu["bus"]], gpu)
                yield from ((host, f"{name} {text}", remedy) for text, remedy in grown)
        for event in state["xids"] or ():
            if event["xid"] in _XIDS:
                yield host, f"Xid {event['xid']} of GPU {event['bus']}: {_XIDS[event['xid']]}", "driver"


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
                yield host, f"{name} lowered its clock for {', '.join(reasons)}{at}", "clocks"
            highest = gpu["pcie"]["highest_generation"]
            if busy.get(host) and load["generation"] and highest and load["generation"] < highest:
                yield host, f"{name} has PCIe {load['generation']} under load, not {highest}", "links"


def load_texts(loads: Mapping[str, Any]) -> Iterator[Text]:
    """What ddl-gpu-check and DCGM said."""
    for host, facts in loads.items():
        document = facts["check"]
        if "error" in document:
            yield host, f"ddl-gpu-check: {document['error']}", "speed"
        for check in document.get("checks", ()):
            if check["verdict"] == "failed":
                yield host, f"ddl-gpu-check, {check['title']}: {check['reason']}", "speed"
        for text in dcgm_texts(facts["dcgm"]):
            yield host, f"DCGM: {text}", "diagnosis"


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


def _slow(figures: Iterable[Figure]) -> Iterator[Text]:
    for figure in figures:
        if figure.low and figure.expected is not None:
            rates = f"{figure.value / 1e9:.3g} GB/s, of other hosts {figure.expected.value / 1e9:.3g}"
            yield figure.where.removeprefix("host "), f"{figure.name} is {rates}", "speed"
