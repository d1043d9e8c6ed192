"""The list of an index's shards (repodata_shards.msgpack.zst) without what differs from one time to the next:
the time at which it was written, and the order of packages.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgpack
import zstandard

from wmlce.util.errors import WmlceError
from wmlce.util.files import write_atomic

NAME = "repodata_shards.msgpack.zst"


def normalize(path: Path, time: int) -> None:
    """Write the file anew, as of `time` (seconds)."""
    data = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    stamp = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.000000000Z")
    try:
        document = msgpack.unpackb(data)
        document["info"] = {**document["info"], "created_at": stamp}
        document["shards"] = dict(sorted(document["shards"].items()))
    except (ValueError, KeyError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise WmlceError(
            f"{path} has a form that wmlce does not know",
            remedy="use the py-rattler of ci/requirements.lock; see ci/wmlce/release/shards.py",
        ) from error
    write_atomic(path, zstandard.ZstdCompressor(level=19).compress(msgpack.packb(document)))
