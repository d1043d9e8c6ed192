"""A curve of predictions as SVG: all-reduce time by ranks, one line an algorithm, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

from ..plain_text import plain

_WIDTH, _HEIGHT = 860, 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 180, 50, 60
#: Okabe and Ito's colours, which people of every colour vision tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def _decades(low: float, high: float) -> Iterator[float]:
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        if low <= 10.0**exponent <= high:
            yield 10.0**exponent


def svg(result: dict[str, Any]) -> str:
    """The picture of what ddl.predict returned."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in result["predictions"]:
        if row["allreduce_s"] > 0:
            lines.setdefault(row["algorithm"], []).append((row["ranks"], row["allreduce_s"]))
    points = [point for line in lines.values() for point in line] or [(2, 1.0)]
    least, most = min(x for x, _ in points), max(x for x, _ in points)
    low = 10 ** math.floor(math.log10(min(y for _, y in points)))
    high = 10 ** math.ceil(math.log10(max(y for _, y in points)) + 1e-9)
    span = math.log2(max(most / least, 2))

    def at(x: float, y: float) -> tuple[float, float]:
        across = math.log2(x / least) / span
        up = math.log10(y / low) / max(math.log10(high / low), 1)
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)

    name = result["cluster"]["name"] or "a described cluster"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="28" font-size="16">Predicted all-reduce of {result["bytes"]} bytes, '
        f"{escape(plain(name))}</text>",
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 14}" text-anchor="middle">ranks</text>',
    ]
    for value in _decades(low, high):
        _, y = at(least, value)
        label = f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms"
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    ticks = sorted({x for x, _ in points})
    for x_value in ticks[:: max(1, math.ceil(len(ticks) / 14))]:
        x, y = at(x_value, low)
        parts.append(f'<text x="{x:.1f}" y="{y + 20:.1f}" text-anchor="middle">{x_value}</text>')
    for index, (algorithm, line) in enumerate(lines.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.extend(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in (at(*p) for p in line)
        )
        parts.append(
            f'<text x="{_WIDTH - _RIGHT + 14}" y="{_TOP + 10 + 20 * index}" fill="{colour}">'
            f"{escape(algorithm)}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])
