"""Figures in words, as the report and its tables write them."""

from __future__ import annotations

import re

from ...allreduce.sizes import show_rate, show_seconds, show_size
from ..model import Figure, Kind

FAULTS = {
    Kind.WRONG_RESULT: "wrong results",
    Kind.ENVIRONMENT: "software or settings",
    Kind.GPU: "GPU at fault",
    Kind.SLOW_HOST: "slow cores",
    Kind.SLOW_MEMORY: "slow memory",
    Kind.SLOW_LINK: "slow link",
    Kind.SLOW_TIER: "slow uplink",
    Kind.SLOW_TRAINING: "slow training",
    Kind.NOT_CHECKED: "not checked",
}
_PAIR = re.compile(r"hosts (\S+) and (\S+)")


def with_unit(value: float, unit: str) -> str:
    """Three or four significant digits with the unit; rates and times with a fitting one."""
    if unit == "B/s":
        return show_rate(value)
    if unit == "s":
        return show_seconds(value) if value > 0 else "0 s"
    number = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return number if unit in ("1", "") else f"{number} {unit}"


def size_of(figure: Figure) -> int | None:
    """Bytes of the buffer that was measured, where the figure has one."""
    return figure.scale.get("bytes", figure.scale.get("size"))


def place(figure: Figure) -> str:
    """Where, and of what size."""
    size = size_of(figure)
    return figure.where if size is None else f"{figure.where}, {show_size(size)}"


def pair(where: str) -> tuple[str, str] | None:
    """The two hosts of `hosts a and b`."""
    match = _PAIR.fullmatch(where)
    return (match[1], match[2]) if match else None


def expected(figure: Figure) -> str:
    """`11.2 GB/s (peers, 15 % less is allowed)`, or nothing."""
    if figure.expected is None:
        return ""
    text = f"{with_unit(figure.expected.value, figure.unit)} ({figure.expected.source}"
    if figure.expected.source != "ideal":
        text += f", {figure.expected.tolerance:.0%} off is allowed"
    return text + ")"


def ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def duration(seconds: float) -> str:
    """`6 min 42 s`, for times that a person waited."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"


def sentence(text: str) -> str:
    """With a full stop at its end."""
    return text if text.endswith((".", "!", "?")) else text + "."
