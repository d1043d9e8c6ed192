"""The GPUs of a host, raw: what the kernel and NVIDIA's library say. Runs in a process of its own, which
whoever starts it ends after a while, as a driver that hangs lets nobody go. It imports the standard library
only.

Prints lines of JSON, each an object: first what sysfs and /proc tell, then what NVML does. A reader that
loses patience has the lines so far. What the facts mean is the business of gpus.py.

ddl_validate imports the binding of NVML from here.
"""

import ctypes
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_NVIDIA = "0x10de"
_DISPLAY = "0x03"
#: Where NVIDIA's library is.
LIBRARIES = (
    "libnvidia-ml.so.1",
    "/.singularity.d/libs/libnvidia-ml.so.1",  # bound into an image
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
)
_BUS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# Names and numbers of nvml.h.
_SUCCESS, _NO_PERMISSION = 0, 4
#: NVLinks that a GPU can have.
MOST_LINKS = 18
_LINK_GPU, _LINK_SWITCH = 0, 2
_TEXT = 96


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):
        return ""


def _number(text: str, default: int = -1) -> int:
    try:
        return int(text)
    except ValueError:
        return default


# ---- the kernel


def bridges(device: Path) -> list[str]:
    """The way to a device of PCI from the processor: the host bridge (`pci0000:3a`), the root port, then the
    ports of switches.
    """
    try:
        parts = device.resolve().parts
    except (OSError, RuntimeError):
        return []
    return [part for part in parts[:-1] if part.startswith("pci0") or _BUS.fullmatch(part)]


def gpus_of_sysfs(sysfs: Path, proc: Path) -> list[dict[str, Any]]:
    """GPUs of NVIDIA on the bus, also without a driver: [{"bus", "node", "cpus", "path", "speed", "width",
    "model", "uuid"}], in the order of the bus. The last two are of the driver's own files.
    """
    gpus = []
    for device in sorted((sysfs / "bus/pci/devices").glob("*:*")):
        if _read(device / "vendor") != _NVIDIA or not _read(device / "class").startswith(_DISPLAY):
            continue
        lines = _read(proc / "driver/nvidia/gpus" / device.name / "information").splitlines()
        information = {
            key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)
        }
        uuid = information.get("GPU UUID", "")
        gpus.append(
            {
                "bus": device.name,
                "node": _number(_read(device / "numa_node")),
                "cpus": _read(device / "local_cpulist"),
                "path": bridges(device),
                "speed": _read(device / "current_link_speed"),
                "width": _number(_read(device / "current_link_width"), 0),
                "most_speed": _read(device / "max_link_speed"),
                "most_width": _number(_read(device / "max_link_width"), 0),
                "model": information.get("Model", ""),
                "uuid": "" if "?" in uuid else uuid,
            }
        )
    return gpus


def nics(sysfs: Path) -> list[dict[str, Any]]:
    """InfiniBand, Omni-Path and RoCE devices with an active port, and other network interfaces of PCI:
    [{"name", "port", "rate", "bus", "path", "node"}]. port: number of the active port, 0 for what is no such
    device. rate: in Mbit/s, 0: not known.
    """
    devices = []
    for device in sorted((sysfs / "class/infiniband").glob("*")):
        for port in sorted((device / "ports").glob("*")):
            if "ACTIVE" not in _read(port / "state"):
                continue
            rate = re.match(r"([\d.]+)\s*Gb", _read(port / "rate"))
            place = _place(device / "device")
            mbit = round(float(rate[1]) * 1000) if rate else 0
            devices.append({"name": device.name, "port": _number(port.name, 1), "rate": mbit, **place})
            break
    for interface in sorted((sysfs / "class/net").glob("*")):
        place = _place(interface / "device")
        if place["bus"] and _read(interface / "operstate") != "down":
            rate_mbit = max(0, _number(_read(interface / "speed"), 0))
            devices.append({"name": interface.name, "port": 0, "rate": rate_mbit, **place})
    return devices


def _place(device: Path) -> dict[str, Any]:
    try:
        real = device.resolve(strict=True)
    except (OSError, RuntimeError):
        return {"bus": "", "path": [], "node": -1}
    if not _BUS.fullmatch(real.name):
        return {"bus": "", "path": [], "node": -1}
    return {"bus": real.name, "path": bridges(device), "node": _number(_read(real / "numa_node"))}


def driver(proc: Path) -> str | None:
    """Version of NVIDIA's kernel driver, None where there is none."""
    text = _read(proc / "driver/nvidia/version")
    version = re.search(r"Kernel Module\D*?(?:x86_64|aarch64|ppc64le)?\s+(\d[\d.]+)", text)
    return version[1] if version else None


# ---- NVIDIA's library


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("kind", ctypes.c_uint),
        ("subsystem", ctypes.c_uint),
        ("text", ctypes.c_char * 32),
    ]

    @property
    def place(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.0"


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class NvmlError(Exception):
    """A call of NVML failed, or there is no such library (code: None)."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(text)
        self.code = code


class Nvml:
    """The library's functions, by name; each raises NvmlError where it does not succeed, or is missing."""

    def __init__(self, names: Iterable[str] = LIBRARIES) -> None:
        """The first library of these that is there, initialised."""
        problem = ""
        for name in names:
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError as error:
                problem = problem or str(error)
        else:
            raise NvmlError(None, problem)
        self("nvmlInit_v2")

    def __call__(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NvmlError(13, f"{name}: not in this driver's library") from None
        code = function(*arguments)
        if code != _SUCCESS:
            raise NvmlError(code, f"{name}: {self._text_of(code)}")

    def _text_of(self, code: int) -> str:
        try:
            function = self._library.nvmlErrorString
            function.restype = ctypes.c_char_p
            return str((function(code) or b"").decode(errors="replace")) or f"error {code}"
        except AttributeError:
            return f"error {code}"

    def succeeds(self, name: str, *arguments: Any) -> bool:
        try:
            self(name, *arguments)
        except NvmlError:
            return False
        return True

    def text(self, name: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(_TEXT)
        self(name, *arguments, buffer, _TEXT)
        return buffer.value.decode(errors="replace")

    def number(self, name: str, *arguments: Any, kind: Any = ctypes.c_uint) -> int:
        """What the function writes to its last argument, which is of this kind."""
        result = kind()
        self(name, *arguments, ctypes.byref(result))
        return int(result.value)

    def handle(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        result = ctypes.c_void_p()
        self(name, *arguments, ctypes.byref(result))
        return result


def or_else(default: Any, ask: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """What is asked; the default where this GPU or driver has no answer."""
    try:
        return ask(*arguments, **keywords)
    except NvmlError:
        return default


def _links(nvml: Nvml, gpu: ctypes.c_void_p) -> list[dict[str, Any]]:
    """NVLinks of a GPU: [{"active", "to", "bus"}]. to: gpu, switch, or other (such as a POWER9)."""
    links = []
    for link in range(MOST_LINKS):
        active = or_else(None, nvml.number, "nvmlDeviceGetNvLinkState", gpu, link)
        if active is None:
            continue
        far = PciInfo()
        kind = None
        if active:
            # Older drivers do not tell what is at the other end; its place on the bus tells whether it is a
            # GPU.
            kind = or_else(None, nvml.number, "nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link)
            if nvml.succeeds("nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu, link, ctypes.byref(far)):
                links.append({"active": True, "to": _end(kind), "bus": far.place})
                continue
        links.append({"active": bool(active), "to": _end(kind), "bus": ""})
    return links


def _end(kind: int | None) -> str:
    return {None: "", _LINK_GPU: "gpu", _LINK_SWITCH: "switch"}.get(kind, "other")


def _parts(nvml: Nvml, gpu: ctypes.c_void_p) -> list[dict[str, str]] | None:
    """MIG devices of a GPU that is divided into such; None where it is not."""
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    succeeded = nvml.succeeds("nvmlDeviceGetMigMode", gpu, ctypes.byref(current), ctypes.byref(pending))
    if not succeeded or not current.value:
        return None
    devices = []
    for number in range(or_else(0, nvml.number, "nvmlDeviceGetMaxMigDeviceCount", gpu)):
        part = or_else(None, nvml.handle, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, number)
        if part is not None:
            uuid = or_else("", nvml.text, "nvmlDeviceGetUUID", part)
            devices.append({"uuid": uuid, "model": or_else("", nvml.text, "nvmlDeviceGetName", part)})
    return devices


def gpus_of_nvml(nvml: Nvml) -> list[dict[str, Any]]:
    """All GPUs in the order of the bus: [{"bus", "uuid", "model", "memory", "mode", "links", "parts"}]; of
    one that this process may not use only {"closed": true}.
    """
    gpus: list[dict[str, Any]] = []
    for number in range(nvml.number("nvmlDeviceGetCount_v2")):
        try:
            gpu = nvml.handle("nvmlDeviceGetHandleByIndex_v2", number)
        except NvmlError as error:
            gpus.append({"closed": True} if error.code == _NO_PERMISSION else {"problem": str(error)})
            continue
        try:
            pci, memory = PciInfo(), _Memory()
            nvml("nvmlDeviceGetPciInfo_v3", gpu, ctypes.byref(pci))
            has_memory = nvml.succeeds("nvmlDeviceGetMemoryInfo", gpu, ctypes.byref(memory))
            gpus.append(
                {
                    "bus": pci.place,
                    "uuid": nvml.text("nvmlDeviceGetUUID", gpu),
                    "model": or_else("", nvml.text, "nvmlDeviceGetName", gpu),
                    "memory": memory.total if has_memory else 0,
                    "mode": or_else(0, nvml.number, "nvmlDeviceGetComputeMode", gpu),
                    "links": _links(nvml, gpu),
                    "parts": _parts(nvml, gpu),
                }
            )
        except NvmlError as error:
            gpus.append({"problem": str(error)})
    return gpus


def nvml_facts() -> dict[str, Any]:
    """{"state": "ok", "driver", "cuda", "gpus"}, or {"state": "absent" or "failed", "said", "code"}. cuda: as
    the library counts, 12020 for 12.2.
    """
    try:
        nvml = Nvml()
        version = or_else("", nvml.text, "nvmlSystemGetDriverVersion")
        cuda = or_else(0, nvml.number, "nvmlSystemGetCudaDriverVersion_v2")
        facts = {"state": "ok", "driver": version, "cuda": cuda, "gpus": gpus_of_nvml(nvml)}
    except NvmlError as error:
        state = "absent" if error.code is None else "failed"
        return {"state": state, "said": str(error)[:300], "code": error.code}
    return facts


if __name__ == "__main__":
    _root = Path(sys.argv[1])
    _sys, _proc = _root / "sys", _root / "proc"
    _told = {"driver": driver(_proc), "gpus": gpus_of_sysfs(_sys, _proc), "nics": nics(_sys)}
    sys.stdout.write(json.dumps(_told) + "\n")
    sys.stdout.flush()
    sys.stdout.write(json.dumps({"nvml": nvml_facts()}) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the library may have threads of its own
