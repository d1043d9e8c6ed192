"""`python -m …probe.gpu_state [--seconds S]`: the state of this host's GPUs by NVIDIA's management library.

Needs the standard library alone. With --seconds the GPUs are watched for so long, twice a second: clocks,
temperature and PCIe links say something only under load. A function that a GPU does not have is left out.
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
from typing import Any

from . import outside
from .lines import tell

LIBRARIES = ("libnvidia-ml.so.1", "/.singularity.d/libs/libnvidia-ml.so.1")
_LOG_LIMIT_SECONDS = 10.0
_PAUSE_SECONDS = 0.5

# Names and numbers of nvml.h.
_SUCCESS, _INSUFFICIENT_SIZE = 0, 7
_UNCORRECTED, _CORRECTED, _VOLATILE, _AGGREGATE = 1, 0, 0, 1
_CAUSES = (0, 1)  # of retired pages: several single-bit errors, a double-bit error
_SM_CLOCK = 1
_SLOWDOWN = 1
_MOST_LINKS = 18
_LINK_COUNTERS = {0: "replay", 1: "recovery", 2: "crc_flit", 3: "crc_data"}
_TEXT = 96

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): ([0-9]+),? ?(.*)")


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t"""

    _fields_ = (
        ("bus_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("device_id", ctypes.c_uint),
        ("subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


class Failed(Exception):
    """The library is missing, or its start fails."""


class Library:
    """NVML, begun."""

    def __init__(self, names: tuple[str, ...]) -> None:
        problems = []
        for name in names:
            try:
                self._nvml = ctypes.CDLL(name)
                break
            except OSError as error:
                problems.append(str(error))
        else:
            raise Failed("; ".join(problems))
        if (code := self._nvml.nvmlInit_v2()) != _SUCCESS:
            raise Failed(f"nvmlInit_v2 gives {code}: the driver is not loaded, or does not fit its library")

    def call(self, name: str, *arguments: Any, fine: tuple[int, ...] = (_SUCCESS,)) -> bool:
        """False where this library has no such function, or this GPU cannot do it."""
        try:
            function = getattr(self._nvml, name)
        except AttributeError:
            return False
        return function(*arguments) in fine

    def value(self, name: str, *arguments: Any, kind: Any = ctypes.c_uint) -> int | None:
        """The value that a function writes to its last argument."""
        result = kind()
        return int(result.value) if self.call(name, *arguments, ctypes.byref(result)) else None

    def text(self, name: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(_TEXT)
        return buffer.value.decode(errors="replace") if self.call(name, *arguments, buffer, _TEXT) else ""

    def handles(self) -> list[ctypes.c_void_p]:
        devices = []
        for number in range(self.value("nvmlDeviceGetCount_v2") or 0):
            handle = ctypes.c_void_p()
            if not self.call("nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(handle)):
                raise Failed(f"GPU {number} does not answer: it may have fallen off the bus (Xid 79)")
            devices.append(handle)
        return devices


def state(library: Library, gpu: ctypes.c_void_p) -> dict[str, Any]:
    """What changes slowly, and what counts errors."""
    value = library.value
    pci = PciInfo()
    located = library.call("nvmlDeviceGetPciInfo_v3", gpu, ctypes.byref(pci))
    return {
        "name": library.text("nvmlDeviceGetName", gpu),
        "bus": pci.bus_id.decode(errors="replace").lower() if located else "",
        "ecc": _ecc(library, gpu),
        "remapped": _remapped(library, gpu),
        "retired": _retired(library, gpu),
        "pcie": {
            "highest_generation": value("nvmlDeviceGetMaxPcieLinkGeneration", gpu),
            "width": value("nvmlDeviceGetCurrPcieLinkWidth", gpu),
            "highest_width": value("nvmlDeviceGetMaxPcieLinkWidth", gpu),
            "replays": value("nvmlDeviceGetPcieReplayCounter", gpu),
        },
        "nvlink": _nvlink(library, gpu),
        "slowdown_temperature": value("nvmlDeviceGetTemperatureThreshold", gpu, _SLOWDOWN),
        "highest_clock": value("nvmlDeviceGetMaxClockInfo", gpu, _SM_CLOCK),
    }


def _ecc(library: Library, gpu: ctypes.c_void_p) -> dict[str, int | None]:
    """Errors since the driver was loaded (volatile) and of the GPU's life (aggregate)."""
    errors = {}
    for name, corrected, counter in (
        ("uncorrected", _UNCORRECTED, _VOLATILE),
        ("corrected", _CORRECTED, _VOLATILE),
        ("uncorrected_ever", _UNCORRECTED, _AGGREGATE),
    ):
        errors[name] = library.value(
            "nvmlDeviceGetTotalEccErrors", gpu, corrected, counter, kind=ctypes.c_ulonglong
        )
    return errors


def _remapped(library: Library, gpu: ctypes.c_void_p) -> dict[str, int] | None:
    numbers = [ctypes.c_uint() for _ in range(4)]
    if not library.call("nvmlDeviceGetRemappedRows", gpu, *map(ctypes.byref, numbers)):
        return None
    names = ("corrected", "uncorrected", "pending", "failed")
    return {name: int(number.value) for name, number in zip(names, numbers, strict=True)}


def _retired(library: Library, gpu: ctypes.c_void_p) -> dict[str, int] | None:
    """Pages, of GPUs that cannot remap rows."""
    total = 0
    for cause in _CAUSES:
        number = ctypes.c_uint(0)
        call = ("nvmlDeviceGetRetiredPages", gpu, cause, ctypes.byref(number), None)
        if not library.call(*call, fine=(_SUCCESS, _INSUFFICIENT_SIZE)):
            return None
        total += number.value
    return {"pages": total, "pending": library.value("nvmlDeviceGetRetiredPagesPendingStatus", gpu) or 0}


def _nvlink(library: Library, gpu: ctypes.c_void_p) -> dict[str, Any]:
    """up: of each link that the GPU has. errors: of all links together."""
    up, errors = {}, dict.fromkeys(_LINK_COUNTERS.values(), 0)
    for link in range(_MOST_LINKS):
        active = library.value("nvmlDeviceGetNvLinkState", gpu, link)
        if active is None:
            continue
        up[str(link)] = bool(active)
        for counter, name in _LINK_COUNTERS.items():
            call = ("nvmlDeviceGetNvLinkErrorCounter", gpu, link, counter)
            errors[name] += library.value(*call, kind=ctypes.c_ulonglong) or 0
    return {"up": up, "errors": errors}


def load(library: Library, gpu: ctypes.c_void_p) -> dict[str, int | None]:
    """What depends on what the GPU does now."""
    value = library.value
    return {
        "generation": value("nvmlDeviceGetCurrPcieLinkGeneration", gpu),
        "clock": value("nvmlDeviceGetClockInfo", gpu, _SM_CLOCK),
        "temperature": value("nvmlDeviceGetTemperature", gpu, 0),
        "throttled": value("nvmlDeviceGetCurrentClocksThrottleReasons", gpu, kind=ctypes.c_ulonglong),
    }


def watched(library: Library, gpus: list[ctypes.c_void_p], seconds: float) -> list[dict[str, int | None]]:
    """The highest generation, clock and temperature of the time, and all reasons of lower clocks."""
    end, loads = time.monotonic() + seconds, [load(library, gpu) for gpu in gpus]
    while time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)
        for number, gpu in enumerate(gpus):
            for name, now in load(library, gpu).items():
                before = loads[number][name]
                if now is not None:
                    join: Callable[[int, int], int] = int.__or__ if name == "throttled" else max
                    loads[number][name] = now if before is None else join(before, now)
    return loads


def xids(log: Path | None) -> list[dict[str, Any]] | None:
    """The driver's errors in the kernel's log since the host was started; None: the log cannot be read."""
    try:
        if log is not None:
            text = log.read_text(errors="replace")
        else:
            done = outside.run(["dmesg"], _LOG_LIMIT_SECONDS)
            if done.returncode:
                return None
            text = done.stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    return [
        {"bus": bus.lower(), "xid": int(number), "text": rest[:120]}
        for bus, number, rest in _XID.findall(text)
    ]


def facts(names: tuple[str, ...], log: Path | None, seconds: float) -> dict[str, Any]:
    """problem: why the GPUs could not be asked."""
    report: dict[str, Any] = {"problem": "", "driver": "", "gpus": [], "load": [], "xids": xids(log)}
    try:
        library = Library(names)
        report["driver"] = library.text("nvmlSystemGetDriverVersion")
        gpus = library.handles()
        report["load"] = watched(library, gpus, seconds)
        report["gpus"] = [state(library, gpu) for gpu in gpus]
    except Failed as error:
        report["problem"] = str(error)
    return report


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Tell what NVIDIA's management library says of the GPUs.")
    parser.add_argument("--seconds", type=float, default=0.0, help="watch clocks and links for so long")
    parser.add_argument("--library", help="another one than the driver's")
    parser.add_argument("--kernel-log", type=Path, help="a file instead of dmesg")
    options = parser.parse_args(arguments)
    names = (options.library,) if options.library else LIBRARIES
    tell(facts(names, options.kernel_log, options.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
