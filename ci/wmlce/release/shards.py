"""The list of an index's shards (repodata_shards.msgpack.zst) without what differs from one time to the next:
the time at which it was written, and the order of packages.

Of MessagePack only what is in that file is read; another form is an error.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from pathlib import Path

import zstandard

from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic

NAME = "repodata_shards.msgpack.zst"
_CREATED = b"\xaacreated_at"
_SHARDS = b"\xa6shards"
_DIGEST = b"\xc4\x20"
"""32 bytes follow."""


def normalize(path: Path, time: int) -> None:
    """Write the file anew, as of `time` (seconds)."""
    data = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    try:
        normalized = _normalized(data, time)
    except (ValueError, IndexError, struct.error) as error:
        raise WmlceError(
            f"{path} has a form that wmlce does not know",
            remedy="use the py-rattler of ci/requirements.lock; see ci/wmlce/release/shards.py",
        ) from error
    write_atomic(path, zstandard.ZstdCompressor(level=19).compress(normalized))


def _normalized(data: bytes, time: int) -> bytes:
    # the shards come last: what follows their key is all that is left
    head, mark, rest = data.rpartition(_SHARDS)
    start, when, after = head.partition(_CREATED)
    if not (mark and when):
        raise ValueError("no shards")
    length, first = _text(after)
    stamp = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.000000000Z").encode()
    count, place = _map(rest)
    entries = []
    for _ in range(count):
        size, begin = _text(rest[place:])
        end = place + begin + size
        if rest[end : end + 2] != _DIGEST:
            raise ValueError("no digest")
        entries.append((rest[place + begin : end], rest[place : end + 34]))
        place = end + 34
    if place != len(rest):
        raise ValueError("more than shards")
    ordered = b"".join(entry for _, entry in sorted(entries))
    header = rest[: _map(rest)[1]]
    return (
        start + when + bytes([0xA0 | len(stamp)]) + stamp + after[first + length :] + mark + header + ordered
    )


def _text(data: bytes) -> tuple[int, int]:
    """Length of the text at the beginning, and where its first letter is."""
    if data[0] & 0xE0 == 0xA0:
        return data[0] & 0x1F, 1
    if data[0] == 0xD9:
        return data[1], 2
    raise ValueError("no text")


def _map(data: bytes) -> tuple[int, int]:
    """Number of entries of the map at the beginning, and where the first one is."""
    if data[0] & 0xF0 == 0x80:
        return data[0] & 0x0F, 1
    if data[0] == 0xDE:
        return int(struct.unpack(">H", data[1:3])[0]), 3
    if data[0] == 0xDF:
        return int(struct.unpack(">I", data[1:5])[0]), 5
    raise ValueError("no map")
