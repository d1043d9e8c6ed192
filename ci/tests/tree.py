"""The files of the working tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked(*suffixes: str) -> list[Path]:
    """Files that git tracks or would (new and not ignored), by suffix."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout.decode()
    files = [ROOT / name for name in listing.split("\0") if name]
    return [file for file in files if file.is_file() and (not suffixes or file.suffix in suffixes)]
