"""`python -m …probe.fabric [--sys DIR]`: what the kernel says of this host's network ports and PCIe links.

Needs the standard library alone. Everything is of sysfs: ports of InfiniBand and RoCE, network interfaces of
hardware, and the PCIe links of these and of NVIDIA's GPUs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import settings
from .lines import tell

_NVIDIA, _DISPLAY = "0x10de", "0x03"
_INTERFACE_COUNTERS = ("collisions",)


_WORDS = ("port_xmit_data", "port_rcv_data")  # counters of InfiniBand and RoCE, in words of four bytes
_BYTES = ("tx_bytes", "rx_bytes")  # of interfaces, and of RDMA devices that have none of the above


def facts(root: Path) -> dict[str, Any]:
    """links: speeds in transfers a second and lane; `highest` is what both ends can do."""
    return {"ports": ports(root), "links": _links(root)}


def ports(root: Path) -> list[dict[str, Any]]:
    """rate: bytes a second. bytes: those that have passed it, both ways."""
    return [*_ports(root), *_interfaces(root)]


def _passed(counters: Mapping[str, int]) -> int:
    four_bytes = sum(counters.get(name, 0) for name in _WORDS)
    return 4 * four_bytes or sum(counters.get(name, 0) for name in _BYTES)


def _ports(root: Path) -> list[dict[str, Any]]:
    ports = []
    for folder in sorted((root / "class/infiniband").glob("*/ports/*")):
        counters = _numbers(folder / "counters") | _numbers(folder / "hw_counters")
        ports.append(
            {
                "name": f"{folder.parents[1].name} port {folder.name}",
                "kind": _text(folder / "link_layer") or "InfiniBand",
                "state": _after_colon(_text(folder / "state")),
                "rate": _gigabits(_text(folder / "rate")),
                "bytes": _passed(counters),
                "counters": counters,
            }
        )
    return ports


def _interfaces(root: Path) -> list[dict[str, Any]]:
    """Interfaces of hardware: a bridge or a container's end has no device."""
    interfaces = []
    for folder in sorted((root / "class/net").glob("*")):
        if not (folder / "device").exists():
            continue
        speed = _number(_text(folder / "speed"))
        statistics = _numbers(folder / "statistics")
        counters = {
            name: value
            for name, value in statistics.items()
            if "error" in name or name in _INTERFACE_COUNTERS
        }
        changes = _number(_text(folder / "carrier_changes"))
        if changes is not None:
            counters["carrier_changes"] = changes
        interfaces.append(
            {
                "name": folder.name,
                "kind": "interface",
                "state": _text(folder / "operstate").upper(),
                # -1: the driver does not know
                "rate": speed * 1e6 / 8 if speed and speed > 0 else None,
                "bytes": _passed(statistics),
                "counters": counters,
            }
        )
    return interfaces


def _links(root: Path) -> list[dict[str, Any]]:
    devices: dict[Path, tuple[str, str]] = {}
    for kind in ("infiniband", "net"):
        for folder in sorted((root / "class" / kind).glob("*")):
            if (folder / "device").exists():
                devices.setdefault((folder / "device").resolve(), (folder.name, "network"))
    for folder in sorted((root / "bus/pci/devices").glob("*")):
        if _text(folder / "vendor") == _NVIDIA and _text(folder / "class").startswith(_DISPLAY):
            devices.setdefault(folder.resolve(), ("GPU", "gpu"))
    links = []
    for folder, (name, kind) in devices.items():
        speed, width = _speed(folder / "current_link_speed"), _number(_text(folder / "current_link_width"))
        if speed is None or not width:
            continue  # no PCIe, as in a virtual machine
        links.append(
            {
                "name": f"{name} ({folder.name})",
                "kind": kind,
                "speed": speed,
                "width": width,
                "highest_speed": _least(_speed, folder, "max_link_speed"),
                "highest_width": _least(lambda path: _number(_text(path)), folder, "max_link_width"),
            }
        )
    return links


def _least(read: Any, device: Path, name: str) -> Any:
    """The lower value of the device and of the port above it: a slot may have fewer lanes than the card."""
    values = [value for value in (read(device / name), read(device.parent / name)) if value]
    return min(values) if values else None


def _text(path: Path) -> str:
    # not there, or the driver refuses, as `speed` of an interface that is down
    return settings.text(path) or ""


def _number(text: str) -> int | None:
    match = re.fullmatch(r"-?[0-9]+", text)
    return int(text) if match else None


def _numbers(folder: Path) -> dict[str, int]:
    values = {path.name: _number(_text(path)) for path in sorted(folder.glob("*")) if path.is_file()}
    return {name: value for name, value in values.items() if value is not None}


def _after_colon(text: str) -> str:
    return text.partition(":")[2].strip() or text


def _gigabits(text: str) -> float | None:
    match = re.match(r"([0-9.]+) *Gb/sec", text)
    return float(match[1]) * 1e9 / 8 if match else None


def _speed(path: Path) -> float | None:
    """`16.0 GT/s PCIe`"""
    match = re.match(r"([0-9.]+) *GT/s", _text(path))
    return float(match[1]) * 1e9 if match else None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Tell what sysfs says of network ports and PCIe links.")
    parser.add_argument("--sys", type=Path, default=Path("/sys"), help="the root of sysfs")
    tell(facts(parser.parse_args(arguments).sys))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
