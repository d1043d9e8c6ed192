"""`python -m …probe.gpu_state [--seconds S]`: the state of this host's GPUs by NVIDIA's management library.

With --seconds the GPUs are watched for so long, twice a second: clocks, temperature and PCIe links say
something only under load. A function that a GPU does not have is left out.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from ddlrun.checks.gpu_probe import LIBRARIES, MOST_LINKS, Nvml, NvmlError, PciInfo, or_else

from . import outside
from .lines import tell
from .settings import text, user_of

_LOG_LIMIT_SECONDS = 10.0
_PAUSE_SECONDS = 0.5

# Names and numbers of nvml.h.
_INSUFFICIENT_SIZE = 7
_UNCORRECTED, _CORRECTED, _VOLATILE, _AGGREGATE = 1, 0, 0, 1
_CAUSES = (0, 1)  # of retired pages: several single-bit errors, a double-bit error
_SM_CLOCK = 1
_SLOWDOWN = 1
_LINK_COUNTERS = {0: "replay", 1: "recovery", 2: "crc_flit", 3: "crc_data"}

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): ([0-9]+),? ?(.*)")
_SXID = re.compile(r"nvidia-nvswitch[0-9]+:? SXid \(PCI:([0-9A-Fa-f:.]+)\): ([0-9]+),? ?(.*)")
_SECONDS_UP = re.compile(r"^(?:<[0-9]+>)?\[ *([0-9]+\.[0-9]+)\]")
_MOST_PROCESSES = 64


def handles(nvml: Nvml) -> list[ctypes.c_void_p]:
    """All GPUs. Raises NvmlError."""
    devices = []
    for number in range(nvml.number("nvmlDeviceGetCount_v2")):
        try:
            devices.append(nvml.handle("nvmlDeviceGetHandleByIndex_v2", number))
        except NvmlError as error:
            problem = f"GPU {number} does not answer: it may have fallen off the bus (Xid 79)"
            raise NvmlError(error.code, problem) from error
    return devices


def value(nvml: Nvml, name: str, *arguments: Any, kind: Any = ctypes.c_uint) -> int | None:
    """The number that a function tells; None where this library lacks it, or this GPU cannot do it."""
    number: int | None = or_else(None, nvml.number, name, *arguments, kind=kind)
    return number


def state(nvml: Nvml, gpu: ctypes.c_void_p) -> dict[str, Any]:
    """What changes slowly, and what counts errors."""
    pci = PciInfo()
    located = nvml.succeeds("nvmlDeviceGetPciInfo_v3", gpu, ctypes.byref(pci))
    return {
        "name": or_else("", nvml.text, "nvmlDeviceGetName", gpu),
        "bus": pci.text.decode(errors="replace").lower() if located else "",
        "ecc": _ecc(nvml, gpu),
        "remapped": _remapped(nvml, gpu),
        "retired": _retired(nvml, gpu),
        "pcie": {
            "highest_generation": value(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", gpu),
            "width": value(nvml, "nvmlDeviceGetCurrPcieLinkWidth", gpu),
            "highest_width": value(nvml, "nvmlDeviceGetMaxPcieLinkWidth", gpu),
            "replays": value(nvml, "nvmlDeviceGetPcieReplayCounter", gpu),
        },
        "nvlink": _nvlink(nvml, gpu),
        "settings": _settings(nvml, gpu),
        "processes": _processes(nvml, gpu),
        "slowdown_temperature": value(nvml, "nvmlDeviceGetTemperatureThreshold", gpu, _SLOWDOWN),
        "highest_clock": value(nvml, "nvmlDeviceGetMaxClockInfo", gpu, _SM_CLOCK),
    }


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t of nvml.h."""

    _fields_: ClassVar = [
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def _processes(nvml: Nvml, gpu: ctypes.c_void_p) -> list[dict[str, Any]] | None:
    """Programs that compute on it now."""
    count, listed = ctypes.c_uint(_MOST_PROCESSES), (_Process * _MOST_PROCESSES)()
    if not nvml.succeeds("nvmlDeviceGetComputeRunningProcesses_v3", gpu, ctypes.byref(count), listed):
        return None
    paths = [Path(f"/proc/{process.pid}") for process in listed[: count.value]]
    return [
        {"pid": int(path.name), "user": user_of(path), "command": text(path / "comm") or "unknown"}
        for path in paths
    ]


def _settings(nvml: Nvml, gpu: ctypes.c_void_p) -> dict[str, str | None]:
    """What an administrator sets, in words; None: this GPU has no such setting, or does not tell it."""

    def mode(name: str) -> str | None:
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        if not nvml.succeeds(name, gpu, ctypes.byref(current), ctypes.byref(pending)):
            return None
        return "on" if current.value else "off"

    persistence = value(nvml, "nvmlDeviceGetPersistenceMode", gpu)
    power = value(nvml, "nvmlDeviceGetPowerManagementLimit", gpu)
    clock = value(nvml, "nvmlDeviceGetApplicationsClock", gpu, _SM_CLOCK)
    return {
        "vbios": or_else(None, nvml.text, "nvmlDeviceGetVbiosVersion", gpu),
        "ecc": mode("nvmlDeviceGetEccMode"),
        "mig": mode("nvmlDeviceGetMigMode"),
        "persistence": None if persistence is None else "on" if persistence else "off",
        "power-limit": None if power is None else f"{power / 1000:g} W",
        "application-clock": None if clock is None else f"{clock} MHz",
    }


def _ecc(nvml: Nvml, gpu: ctypes.c_void_p) -> dict[str, int | None]:
    """Errors since the driver was loaded (volatile) and of the GPU's life (aggregate)."""
    errors = {}
    for name, corrected, counter in (
        ("uncorrected", _UNCORRECTED, _VOLATILE),
        ("corrected", _CORRECTED, _VOLATILE),
        ("uncorrected_ever", _UNCORRECTED, _AGGREGATE),
    ):
        call = ("nvmlDeviceGetTotalEccErrors", gpu, corrected, counter)
        errors[name] = value(nvml, *call, kind=ctypes.c_ulonglong)
    return errors


def _remapped(nvml: Nvml, gpu: ctypes.c_void_p) -> dict[str, int] | None:
    numbers = [ctypes.c_uint() for _ in range(4)]
    if not nvml.succeeds("nvmlDeviceGetRemappedRows", gpu, *map(ctypes.byref, numbers)):
        return None
    names = ("corrected", "uncorrected", "pending", "failed")
    return {name: int(number.value) for name, number in zip(names, numbers, strict=True)}


def _retired(nvml: Nvml, gpu: ctypes.c_void_p) -> dict[str, int] | None:
    """Pages, of GPUs that cannot remap rows."""
    total = 0
    for cause in _CAUSES:
        number = ctypes.c_uint(0)
        try:
            nvml("nvmlDeviceGetRetiredPages", gpu, cause, ctypes.byref(number), None)
        except NvmlError as error:
            if error.code != _INSUFFICIENT_SIZE:
                return None
        total += number.value
    return {"pages": total, "pending": value(nvml, "nvmlDeviceGetRetiredPagesPendingStatus", gpu) or 0}


def _nvlink(nvml: Nvml, gpu: ctypes.c_void_p) -> dict[str, Any]:
    """up: of each link that the GPU has. errors: of all links together."""
    up, errors = {}, dict.fromkeys(_LINK_COUNTERS.values(), 0)
    for link in range(MOST_LINKS):
        active = value(nvml, "nvmlDeviceGetNvLinkState", gpu, link)
        if active is None:
            continue
        up[str(link)] = bool(active)
        for counter, name in _LINK_COUNTERS.items():
            call = ("nvmlDeviceGetNvLinkErrorCounter", gpu, link, counter)
            errors[name] += value(nvml, *call, kind=ctypes.c_ulonglong) or 0
    return {"up": up, "errors": errors}


def load(nvml: Nvml, gpu: ctypes.c_void_p) -> dict[str, int | None]:
    """What depends on what the GPU does now."""
    return {
        "generation": value(nvml, "nvmlDeviceGetCurrPcieLinkGeneration", gpu),
        "clock": value(nvml, "nvmlDeviceGetClockInfo", gpu, _SM_CLOCK),
        "temperature": value(nvml, "nvmlDeviceGetTemperature", gpu, 0),
        "throttled": value(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", gpu, kind=ctypes.c_ulonglong),
    }


def watched(nvml: Nvml, gpus: list[ctypes.c_void_p], seconds: float) -> list[dict[str, int | None]]:
    """The highest generation, clock and temperature of the time, and all reasons of lower clocks."""
    end, loads = time.monotonic() + seconds, [load(nvml, gpu) for gpu in gpus]
    while time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)
        for number, gpu in enumerate(gpus):
            for name, now in load(nvml, gpu).items():
                before = loads[number][name]
                if now is not None:
                    join: Callable[[int, int], int] = int.__or__ if name == "throttled" else max
                    loads[number][name] = now if before is None else join(before, now)
    return loads


def events(log: Path | None, hours: float, uptime: float) -> list[dict[str, Any]] | None:
    """Errors of GPUs (Xid) and NVSwitches (SXid) in the kernel's log of the last hours, each once; None: it
    cannot be read. uptime: seconds.
    """
    try:
        if log is not None:
            lines = log.read_text(errors="replace")
        else:
            done = outside.run(["dmesg"], _LOG_LIMIT_SECONDS)
            if done.returncode:
                return None
            lines = done.stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    recent: dict[tuple[str, str, int], dict[str, Any]] = {}
    for line in lines.splitlines():
        stamp = _SECONDS_UP.match(line)
        if stamp and float(stamp[1]) < uptime - hours * 3600:
            continue
        for kind, pattern in (("Xid", _XID), ("SXid", _SXID)):
            if match := pattern.search(line):
                bus, number = match[1].lower(), int(match[2])
                event = {"kind": kind, "bus": bus, "number": number, "text": match[3][:120]}
                recent[kind, bus, number] = event
    return list(recent.values())


def facts(
    names: tuple[str, ...], log: Path | None, seconds: float, hours: float, uptime: float
) -> dict[str, Any]:
    """problem: why the GPUs could not be asked."""
    report: dict[str, Any] = {"problem": "", "driver": "", "cuda": None, "gpus": [], "load": []}
    report["events"] = events(log, hours, uptime)
    try:
        nvml = Nvml(names)
        report["driver"] = or_else("", nvml.text, "nvmlSystemGetDriverVersion")
        report["cuda"] = value(nvml, "nvmlSystemGetCudaDriverVersion_v2", kind=ctypes.c_int)
        gpus = handles(nvml)
        report["load"] = watched(nvml, gpus, seconds)
        report["gpus"] = [state(nvml, gpu) for gpu in gpus]
    except NvmlError as error:
        report["problem"] = str(error)
    return report


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Tell what NVIDIA's management library says of the GPUs.")
    parser.add_argument("--seconds", type=float, default=0.0, help="watch clocks and links for so long")
    parser.add_argument("--library", help="another one than the driver's")
    parser.add_argument("--kernel-log", type=Path, help="a file instead of dmesg")
    parser.add_argument("--hours", type=float, default=24.0, help="of the kernel's log that count")
    up = float(Path("/proc/uptime").read_text().split()[0])
    parser.add_argument("--uptime", type=float, default=up, help="seconds since the host was started")
    options = parser.parse_args(arguments)
    names = (options.library,) if options.library else LIBRARIES
    tell(facts(names, options.kernel_log, options.seconds, options.hours, options.uptime))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
