"""Sizes of buffers, as users write and read them. Units are powers of two."""

import re

from .errors import BenchError

DEFAULT = ("4K", "64K", "1M", "16M", "64M")
DEFAULT_CUDA = "4K-1G"
SMALLEST, LARGEST = 4, 1 << 30
_SIZE = re.compile(r"([1-9][0-9]{0,11})\s*([KMG]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Bytes of ``64K``, ``64KiB``, ``1M`` or ``4096``; a multiple of 4, the bytes of a float32."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise BenchError(f"size {text!r}: write a number and K, M or G, such as 64K or 1M")
    size = int(match[1]) * _UNITS[match[2].upper()]
    if size % 4 or not SMALLEST <= size <= LARGEST:
        raise BenchError(f"size {text!r}: a multiple of 4 bytes, {SMALLEST} to {show_size(LARGEST)}")
    return size


def parse_sizes(text: str) -> tuple[int, ...]:
    """Sizes with commas, and ranges in powers of two: ``4K,64K`` or ``4K-256M``; ascending, each once."""
    sizes: set[int] = set()
    for word in text.split(","):
        first, dash, last = word.partition("-")
        if not dash:
            sizes.add(parse_size(word))
            continue
        size, end = parse_size(first), parse_size(last)
        if size > end:
            raise BenchError(f"sizes {word!r}: the first is larger than the last")
        while size <= end:
            sizes.add(size)
            size *= 2
    return tuple(sorted(sizes))


def show_size(size: int) -> str:
    """``64 KiB`` for 65536; bytes where no unit divides."""
    for unit in ("G", "M", "K"):
        if size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]} {unit}iB"
    return f"{size} B"


def show_seconds(seconds: float) -> str:
    """Three significant digits with a fitting unit."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def show_rate(bytes_per_second: float) -> str:
    """A bandwidth in decimal units, as nccl-tests and network vendors count."""
    unit, scale = ("GB/s", 1e9) if bytes_per_second >= 1e9 else ("MB/s", 1e6)
    return f"{bytes_per_second / scale:.3g} {unit}"
