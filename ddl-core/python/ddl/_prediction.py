"""Predictions for described clusters: which descriptions ship, and the call into the native library."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddl import _core
from ddl._errors import DDLError

FOLDER = Path(__file__).with_name("clusters")
_STEPS = ".steps.json"

#: What names a description: a shipped name, a file, or its content.
Described = str | os.PathLike[str] | Mapping[str, Any]


def shipped_clusters() -> dict[str, Path]:
    """Names and files of the cluster descriptions that come with DDL."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.json")) if not path.name.endswith(_STEPS)}


def shipped_steps() -> dict[str, Path]:
    """Names and files of the step times that come with DDL."""
    return {path.name.removesuffix(_STEPS): path for path in sorted(FOLDER.glob(f"*{_STEPS}"))}


def _text(operation: str, described: Described, shipped: dict[str, Path]) -> str:
    if isinstance(described, Mapping):
        return json.dumps(described)
    path = shipped.get(os.fspath(described), Path(described))
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it is no text"
        raise DDLError(
            f"[ERROR DDL-1-1] {os.fspath(described)!r} cannot be read: {why}; in {operation}; "
            f"give a file, or one of {', '.join(shipped)}",
            1,
        ) from None
    # The library reads up to the first NUL, and would miss the rest.
    return text.replace("\0", "\\u0000")


def predict(
    cluster: Described,
    bytes: int = 0,
    ranks: Sequence[int] = (),
    steps: Described | None = None,
) -> dict[str, Any]:
    """Predicts all-reduces and training steps on a cluster that is only described.

    MPI is not touched. The page docs/cluster/simulate.md describes the files and the result.

    Args:
        cluster: Name of a description that comes with DDL, path of one, or its content.
        bytes: Of an all-reduce; 0 takes those of steps or of the description.
        ranks: Sizes of jobs; none takes usual ones.
        steps: Step times of a real run to calibrate with, likewise a name, a path or the content.

    Raises:
        DDLError: A description is wrong; the text names the place.
    """
    if bytes < 0 or any(count < 1 for count in ranks):
        raise DDLError(
            "[ERROR DDL-1-1] a size is negative, or no rank is asked for; in predict; ask for 1 or more", 1
        )
    text = _text("the cluster description", cluster, shipped_clusters())
    times = None if steps is None else _text("the step times", steps, shipped_steps())
    result: dict[str, Any] = json.loads(_core.predict(text, times, bytes, list(ranks)))
    return result
