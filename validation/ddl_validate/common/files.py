"""Files of results, which readers see whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path


def write_atomic(path: Path, text: str) -> None:
    """Write a file, and its folder where there is none; whoever reads meanwhile finds the file of before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


def identity(*parts: object) -> str:
    """A short text that changes with any of the parts: results of before count where it is the same."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]
